/* Draws follow the distribution, its cuts, and the seed. */
#include <math.h>

#include "support/unit.h"
#include "train/sampler.h"

static const float logits[5] = {0.0f, 2.0f, 1.0f, -1.0f, 2.0f};
enum { DRAWS = 20000 };

static void count_draws(struct generate_options options, int counts[5]) {
    struct sampler sampler;
    assert_int_equal(sampler_create(&options, 7, 5, &sampler), STATUS_OK);
    for (int i = 0; i < 5; i++)
        counts[i] = 0;
    for (int d = 0; d < DRAWS; d++) {
        uint32_t token, again;
        assert_int_equal(sampler_draw(&sampler, logits, d, &token), STATUS_OK);
        assert_int_equal(sampler_draw(&sampler, logits, d, &again), STATUS_OK);
        assert_int_equal(token, again);
        assert_true(token < 5);
        counts[token]++;
    }
    sampler_free(&sampler);
}

static void test_softmax(void **state) {
    (void)state;
    int counts[5];
    double sum = 0;
    count_draws((struct generate_options){.temperature = 0.7, .top_p = 1}, counts);
    for (int i = 0; i < 5; i++)
        sum += exp((double)logits[i] / 0.7);
    for (int i = 0; i < 5; i++) {
        double p = exp((double)logits[i] / 0.7) / sum, deviation = sqrt(p * (1 - p) * DRAWS);
        assert_true(fabs(counts[i] - p * DRAWS) <= 5 * deviation);
    }
}

static void test_cuts(void **state) {
    (void)state;
    int counts[5];
    count_draws((struct generate_options){.temperature = 0, .top_p = 1}, counts);
    assert_int_equal(counts[1], DRAWS); /* of equals the first */
    count_draws((struct generate_options){.temperature = 1, .top_k = 2, .top_p = 1}, counts);
    assert_int_equal(counts[1] + counts[4], DRAWS);
    assert_true(counts[1] > DRAWS / 3 && counts[4] > DRAWS / 3);
    count_draws((struct generate_options){.temperature = 1, .top_p = 0.85}, counts); /* 0.39 + 0.39 + 0.14 */
    assert_int_equal(counts[0] + counts[3], 0);
    assert_true(counts[2] > 0);
    count_draws((struct generate_options){.temperature = 1, .top_p = 1e-9}, counts);
    assert_int_equal(counts[1], DRAWS);
}

static void test_bad_values(void **state) {
    (void)state;
    static const struct generate_options bad[] = {{.temperature = -1, .top_p = 1},
                                                  {.temperature = NAN, .top_p = 1},
                                                  {.temperature = 1, .top_p = 0},
                                                  {.temperature = 1, .top_p = 1.5},
                                                  {.temperature = 1, .top_p = 1, .top_k = -1}};
    struct sampler sampler;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sampler_create(&bad[i], 1, 5, &sampler), STATUS_BAD_INPUT);
    struct generate_options good = {.temperature = 1, .top_p = 1};
    float broken[2] = {1.0f, NAN};
    uint32_t token;
    assert_int_equal(sampler_create(&good, 1, 2, &sampler), STATUS_OK);
    assert_int_equal(sampler_draw(&sampler, broken, 0, &token), STATUS_FAILED);
    sampler_free(&sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_softmax), cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_bad_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
