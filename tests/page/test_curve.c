/* Curves in bounded memory: every sample counts once, and no extremum is lost. */
#include <math.h>

#include "report/page/metrics_reader.h"
#include "support/unit.h"

static struct curve curve;

static double value_at(int64_t i) { return sin((double)i * 0.37) + 1e-6 * (double)i; }

static void no_sample_and_no_extreme_is_lost(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 2, 1023, 1024, 1025, 4096, 100001};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        curve = (struct curve){0};
        double sum = 0, seen_sum = 0, min = INFINITY, max = -INFINITY;
        for (int64_t i = 0; i < counts[c]; i++) {
            double value = i == counts[c] / 3 ? 50 : i == counts[c] / 2 ? -50 : value_at(i);
            curve_add(&curve, i + 1, value);
            sum += value;
        }
        int64_t samples = 0, step = 0;
        assert_in_range(curve.count, 1, CURVE_BUCKETS);
        for (int i = 0; i < curve.count; i++) {
            const struct curve_bucket *bucket = &curve.buckets[i];
            assert_true(bucket->last_step > step);
            assert_true(bucket->min <= bucket->max);
            step = bucket->last_step;
            samples += bucket->samples;
            seen_sum += bucket->sum;
            min = fmin(min, bucket->min);
            max = fmax(max, bucket->max);
        }
        assert_int_equal(samples, counts[c]);
        assert_int_equal(step, counts[c]);
        assert_true(fabs(seen_sum - sum) < 1e-6 * (double)counts[c]);
        if (counts[c] > 3) assert_true(min == -50 && max == 50);
    }
}

static void json_has_a_band_only_where_there_is_one(void **state) {
    (void)state;
    curve = (struct curve){0};
    curve_add(&curve, 1, 0.5);
    curve_add(&curve, 2, NAN);
    curve_add(&curve, 3, INFINITY);
    json_t *object = curve_to_json(&curve);
    assert_int_equal(json_array_size(json_object_get(object, "step")), 1);
    assert_null(json_object_get(object, "low"));
    json_decref(object);
    for (int64_t i = 0; i < 3000; i++)
        curve_add(&curve, i + 4, value_at(i));
    object = curve_to_json(&curve);
    assert_int_equal(json_array_size(json_object_get(object, "low")), json_array_size(json_object_get(object, "mean")));
    assert_int_equal(json_array_size(json_object_get(object, "high")),
                     json_array_size(json_object_get(object, "step")));
    json_decref(object);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_sample_and_no_extreme_is_lost),
                                       cmocka_unit_test(json_has_a_band_only_where_there_is_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
