#include "support/prediction_errors.h"

#include <math.h>

#include "base/mem.h"
#include "support/median.h"

static double rest_of(const struct prediction *prediction, double factor) {
    return fabs(prediction->predicted_s * factor / prediction->measured_s - 1);
}

/* The median of those that compute blocks again, or do not. */
static double median_of(const struct prediction *predictions, int count, bool recomputes, double factor,
                        double *scratch) {
    int found = 0;
    for (int i = 0; i < count; i++)
        if (predictions[i].recomputes == recomputes) scratch[found++] = rest_of(&predictions[i], factor);
    return found > 0 ? median(scratch, found) : 0;
}

bool prediction_judge(const struct prediction *predictions, int count, struct prediction_errors *out) {
    double *scratch = mem_array((size_t)count, sizeof *scratch);
    if (!scratch) return false;
    for (int i = 0; i < count; i++)
        scratch[i] = predictions[i].measured_s / predictions[i].predicted_s;
    double factor = median(scratch, count);
    *out = (struct prediction_errors){.factor = factor,
                                      .recomputing = median_of(predictions, count, true, factor, scratch),
                                      .straight = median_of(predictions, count, false, factor, scratch)};
    for (int i = 0; i < count; i++)
        scratch[i] = rest_of(&predictions[i], factor);
    out->median = median(scratch, count); /* which puts them into order */
    out->p90 = scratch[(9 * count + 9) / 10 - 1];
    mem_free(scratch);
    return true;
}

double bar_lift(struct bar_limit limit, double floor) { return fmax(limit.bar, limit.floors * floor); }

enum bar bar_judge(double error, struct bar_limit limit, double floor) {
    double lifted = bar_lift(limit, floor);
    if (lifted > BAR_MAX) return BAR_UNTOLD;
    return error > lifted ? BAR_MISSED : BAR_MET;
}

const char *bar_text(enum bar bar) {
    static const char *const texts[] = {
        [BAR_MET] = "met", [BAR_MISSED] = "NOT met", [BAR_UNTOLD] = "cannot be told: the noise floor is too high"};
    return texts[bar];
}
