/* Every 16-bit pattern, and rounding to nearest even against its definition. */
#include <math.h>

#include "base/half.h"
#include "base/random.h"
#include "support/unit.h"

static void bf16_comes_back(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= 0xffff; half++) {
        float value = bf16_to_float((uint16_t)half);
        assert_int_equal(float_bits(value), half << 16);
        uint16_t back = bf16_from_float(value);
        if (isnan(value))
            assert_true(isnan(bf16_to_float(back)));
        else
            assert_int_equal(back, half);
    }
    /* A NaN whose payload lies in the dropped bits alone must not become infinity. */
    assert_true(isnan(bf16_to_float(bf16_from_float(float_from_bits(0x7f800001u)))));
    assert_true(isnan(bf16_to_float(bf16_from_float(float_from_bits(0xff80ffffu)))));
    assert_int_equal(bf16_from_float(3.4028235e38f), 0x7f80);
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    uint64_t seed = 1905;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)random_u64(seed, RANDOM_TEST, 0, i);
        if (i % 4 == 0) bits = (bits & 0xffff0000u) | 0x8000u; /* a tie */
        float value = float_from_bits(bits);
        if (isnan(value) || (bits & 0x7fffffffu) >= 0x7f7f0000u) continue; /* the last before infinity: above */
        uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1), got = bf16_from_float(value);
        double down = fabs((double)value - (double)bf16_to_float(below));
        double up = fabs((double)bf16_to_float(above) - (double)value);
        uint16_t expected = down < up ? below : up < down ? above : below % 2 == 0 ? below : above;
        assert_int_equal(got, expected);
    }
}

static void f16_has_its_value(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= 0xffff; half++) {
        float value = f16_to_float((uint16_t)half);
        int exponent = half >> 10 & 31;
        double mantissa = half & 0x3ff, sign = half & 0x8000 ? -1 : 1;
        assert_int_equal(signbit(value) != 0, half >> 15);
        if (exponent == 31) {
            assert_true(mantissa != 0 ? isnan(value) : isinf(value));
            continue;
        }
        double expected = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
        assert_true((double)value == sign * expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_comes_back),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f16_has_its_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
