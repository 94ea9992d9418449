#include "support/median.h"

#include <stdlib.h>

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static int by_time(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

double median_s(int64_t *ns, int count) {
    qsort(ns, (size_t)count, sizeof *ns, by_time);
    return (double)(ns[(count - 1) / 2] + ns[count / 2]) / 2 * 1e-9;
}
