/* Errors of predictions: a factor that all share, and the rest. */
#pragma once

#include <stdbool.h>

struct prediction {
    double predicted_s, measured_s;
    bool recomputes; /* its policy computes blocks again */
};

struct prediction_errors {
    double factor;                /* the median of measured over predicted */
    double median, p90;           /* of the rest: |predicted * factor / measured - 1| */
    double recomputing, straight; /* its medians of policies that compute blocks again, and of the others; 0: none */
};
/* FAILED without memory. `count` is at least 1. */
bool prediction_judge(const struct prediction *predictions, int count, struct prediction_errors *out);

/* Whether an error is within its bar. Equal plans are apart by the noise floor, and `floors` of it are no error; but a
 * bar that is lifted so above BAR_MAX tells nothing. */
#define BAR_MAX 0.15
enum bar { BAR_MET, BAR_MISSED, BAR_UNTOLD };
struct bar_limit {
    double bar, floors;
};
double bar_lift(struct bar_limit limit, double floor);
enum bar bar_judge(double error, struct bar_limit limit, double floor);
const char *bar_text(enum bar bar);
