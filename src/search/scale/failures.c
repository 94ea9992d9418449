#include "search/scale/failures.h"

#include <math.h>

static double time_between_s(const struct failures *failures, int64_t nodes) {
    return failures->node_mtbf_s / (double)nodes;
}

double failures_best_interval_s(const struct failures *failures, int64_t nodes) {
    double between = time_between_s(failures, nodes), checkpoint = failures->checkpoint_s / between;
    double min = 0, max = 1;
    for (int i = 0; i < 60; i++) {
        double middle = (min + max) / 2;
        if (log1p(-middle) + middle + checkpoint > 0)
            min = middle;
        else
            max = middle;
    }
    return max * between;
}

double failures_useful_part(const struct failures *failures, int64_t nodes, double interval_s) {
    double between = time_between_s(failures, nodes);
    double attempt = expm1((interval_s + failures->checkpoint_s) / between);
    return interval_s / (between * exp(failures->restart_s / between) * attempt);
}
