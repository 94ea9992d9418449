/* Philox against its published vectors, moments of the draws, and permutations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "support/unit.h"

/* The known answers of Random123's kat_vectors for philox4x32-10. */
static void known_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t seed, counter;
        uint32_t high, stream, expected[4];
    } cases[] = {
        {0, 0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x85a308d3243f6a88,
         0x13198a2e,
         0x03707344,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        random_block(cases[i].seed, cases[i].stream, cases[i].high, cases[i].counter, out);
        assert_memory_equal(out, cases[i].expected, sizeof out);
    }
}

static void every_argument_matters(void **state) {
    (void)state;
    uint64_t base = random_u64(1, 2, 3, 4);
    assert_true(base == random_u64(1, 2, 3, 4));
    assert_true(base != random_u64(2, 2, 3, 4));
    assert_true(base != random_u64(1 | 1ull << 32, 2, 3, 4));
    assert_true(base != random_u64(1, 3, 3, 4));
    assert_true(base != random_u64(1, 2, 4, 4));
    assert_true(base != random_u64(1, 2, 3, 5));
    assert_true(base != random_u64(1, 2, 3, 4 | 1ull << 32));
}

/* Bounds of five standard errors. */
static void draws_have_their_moments(void **state) {
    (void)state;
    enum { DRAWS = 400000 };
    uint64_t seed = 31337;
    print_message("seed %llu\n", (unsigned long long)seed);
    double sum = 0, square = 0, fourth = 0, uniform = 0, uniform_square = 0, lag = 0, last = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = random_uniform(seed, RANDOM_TEST, 1, i), z = random_normal(seed, RANDOM_TEST, 2, i);
        assert_true(u >= 0 && u < 1 && isfinite(z));
        uniform += u;
        uniform_square += u * u;
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
        lag += z * last;
        last = z;
    }
    double error = 5 / sqrt(DRAWS);
    assert_true(fabs(uniform / DRAWS - 0.5) < error * sqrt(1.0 / 12));
    assert_true(fabs(uniform_square / DRAWS - 1.0 / 3) < error * sqrt(4.0 / 45));
    assert_true(fabs(sum / DRAWS) < error);
    assert_true(fabs(square / DRAWS - 1) < error * sqrt(2));
    assert_true(fabs(fourth / DRAWS - 3) < error * sqrt(96));
    assert_true(fabs(lag / DRAWS) < error);
}

/* Blocks whole and begun, anywhere, at several scales. Draw 140215 of the first run lies so near a float's rounding
 * border that the series alone would give the other one. */
static void runs_of_normals_are_the_same_draws(void **state) {
    (void)state;
    enum { MAX = 1 << 20 };
    static float values[MAX];
    static const double scales[] = {0.02, 1, 3.7e-30, 1.1e-38};
    for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
        size_t count = k == 0 ? MAX : 200 + 97 * k;
        uint64_t first = k * 0x123456789abu;
        random_normals(11 + k, RANDOM_TEST, 9, first, count, scales[k], values);
        for (size_t i = 0; i < count; i++) {
            float one = (float)(scales[k] * random_normal(11 + k, RANDOM_TEST, 9, first + i));
            assert_memory_equal(&values[i], &one, sizeof one);
        }
    }
}

static void permutations_are_permutations(void **state) {
    (void)state;
    enum { MAX = 3000 };
    static unsigned char seen[MAX];
    for (uint64_t count = 1; count <= MAX; count = count < 70 ? count + 1 : count * 3 / 2) {
        for (uint32_t round = 0; round < 3; round++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < count; i++) {
                uint64_t at = random_permute(99, round, i, count);
                assert_true(at < count);
                assert_int_equal(seen[at], 0);
                seen[at] = 1;
            }
        }
    }
    /* Far beyond what could be listed: in range, and no two of the first thousand alike. */
    static const uint64_t counts[] = {(1ull << 32) + 1, (1ull << 62) + 1, UINT64_MAX};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        uint64_t at[1000];
        for (uint64_t i = 0; i < 1000; i++) {
            at[i] = random_permute(5, 1, i, counts[c]);
            assert_true(at[i] < counts[c]);
            for (uint64_t j = 0; j < i; j++)
                assert_true(at[i] != at[j]);
        }
    }
}

/* Where element 0 goes, over many rounds: chi-square with 15 degrees of freedom, whose 1e-6 quantile is 52.9. */
static void permutations_are_even(void **state) {
    (void)state;
    enum { ROUNDS = 16000, COUNT = 16 };
    int hits[COUNT] = {0}, follows = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t first = random_permute(7, round, 0, COUNT), second = random_permute(7, round, 1, COUNT);
        hits[first]++;
        follows += second == (first + 1) % COUNT;
    }
    double chi = 0, expected = (double)ROUNDS / COUNT;
    for (int i = 0; i < COUNT; i++)
        chi += (hits[i] - expected) * (hits[i] - expected) / expected;
    if (chi > 52.9) fail_msg("chi-square %g", chi);
    assert_true(abs(follows - ROUNDS / (COUNT - 1)) < 5 * 32); /* 5 standard errors of a count of 1067 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(every_argument_matters),
        cmocka_unit_test(draws_have_their_moments),
        cmocka_unit_test(runs_of_normals_are_the_same_draws),
        cmocka_unit_test(permutations_are_permutations),
        cmocka_unit_test(permutations_are_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
