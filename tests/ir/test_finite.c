/* The check finds the first value that is not finite, wherever it is, and reports no finite value. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "ir/tensor.h"
#include "support/unit.h"

enum { COUNT = (1 << 14) + 77 };

static void each_place_is_found(void **state) {
    (void)state;
    static float values[COUNT];
    static uint16_t halves[COUNT];
    static double doubles[COUNT];
    for (int i = 0; i < COUNT; i++) {
        values[i] = i % 3 == 0 ? -FLT_MAX : FLT_MIN / 8; /* the largest and a subnormal */
        halves[i] = bf16_from_float(values[i] / 2);
        doubles[i] = i % 2 ? DBL_MAX : -1e-310;
    }
    assert_int_equal(values_find_nonfinite(DTYPE_F32, values, COUNT), -1);
    assert_int_equal(values_find_nonfinite(DTYPE_BF16, halves, COUNT), -1);
    assert_int_equal(values_find_nonfinite(DTYPE_F64, doubles, COUNT), -1);
    static const int places[] = {0, 1, 7, 31, 4095, (1 << 14) - 1, 1 << 14, COUNT - 1};
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            int at = places[p];
            float value = values[at];
            uint16_t half = halves[at];
            double wide = doubles[at];
            values[at] = bad[b], halves[at] = bf16_from_float(bad[b]), doubles[at] = (double)bad[b];
            assert_int_equal(values_find_nonfinite(DTYPE_F32, values, COUNT), at);
            assert_int_equal(values_find_nonfinite(DTYPE_BF16, halves, COUNT), at);
            assert_int_equal(values_find_nonfinite(DTYPE_F64, doubles, COUNT), at);
            assert_int_equal(values_find_nonfinite(DTYPE_F32, values, at), -1); /* what follows is not looked at */
            values[at] = value, halves[at] = half, doubles[at] = wide;
        }
}

static void integers_are_finite(void **state) {
    (void)state;
    int32_t values[5];
    memset(values, 0x7f, sizeof values);
    assert_int_equal(values_find_nonfinite(DTYPE_I32, values, 5), -1);
    assert_int_equal(values_find_nonfinite(DTYPE_F32, NULL, 0), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_place_is_found), cmocka_unit_test(integers_are_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
