#include "report/page/curve.h"

#include <math.h>
#include <stdbool.h>

static void merge_into(struct curve_bucket *bucket, const struct curve_bucket *next) {
    bucket->last_step = next->last_step;
    bucket->samples += next->samples;
    bucket->sum += next->sum;
    bucket->min = fmin(bucket->min, next->min);
    bucket->max = fmax(bucket->max, next->max);
}

static void halve(struct curve *curve) {
    for (int i = 0; i < CURVE_BUCKETS / 2; i++) {
        struct curve_bucket bucket = curve->buckets[2 * i];
        merge_into(&bucket, &curve->buckets[2 * i + 1]);
        curve->buckets[i] = bucket;
    }
    curve->count = CURVE_BUCKETS / 2;
    curve->share *= 2;
}

void curve_add(struct curve *curve, int64_t step, double value) {
    if (!isfinite(value)) return;
    const struct curve_bucket sample = {step, 1, value, value, value};
    if (curve->share == 0) curve->share = 1;
    if (curve->count > 0 && curve->buckets[curve->count - 1].samples < curve->share) {
        merge_into(&curve->buckets[curve->count - 1], &sample);
        return;
    }
    if (curve->count == CURVE_BUCKETS) halve(curve);
    curve->buckets[curve->count++] = sample;
}

json_t *curve_to_json(const struct curve *curve) {
    json_t *step = json_array(), *mean = json_array(), *low = json_array(), *high = json_array();
    int failed = !step || !mean || !low || !high;
    bool band = curve->share > 1;
    for (int i = 0; i < curve->count && !failed; i++) {
        const struct curve_bucket *bucket = &curve->buckets[i];
        failed |= json_array_append_new(step, json_integer((json_int_t)bucket->last_step));
        failed |= json_array_append_new(mean, json_real(bucket->sum / (double)bucket->samples));
        if (!band) continue;
        failed |= json_array_append_new(low, json_real(bucket->min));
        failed |= json_array_append_new(high, json_real(bucket->max));
    }
    json_t *object = failed ? NULL : json_pack("{s:O, s:O}", "step", step, "mean", mean);
    if (object && band) failed = json_object_set(object, "low", low) | json_object_set(object, "high", high);
    json_decref(step);
    json_decref(mean);
    json_decref(low);
    json_decref(high);
    if (!failed) return object;
    json_decref(object);
    return NULL;
}
