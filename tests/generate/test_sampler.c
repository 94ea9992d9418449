/* Samples follow the distribution after top_k and top_p, and depend on the seed. The distribution is that of
 * transformers (tests/reference/make_sampling_fixture.py). */
#include <math.h>

#include "base/json.h"
#include "generate/writer.h"
#include "support/unit.h"

static const float logits[5] = {0.0f, 2.0f, 1.0f, -1.0f, 2.0f};
enum { DRAWS = 20000 };

static void count_draws(struct generate_options options, int counts[5]) {
    struct sampler sampler;
    const struct sampler_input input = {.logits = logits};
    options.repetition_penalty = 1;
    assert_int_equal(sampler_create(&options, 7, 5, &sampler), STATUS_OK);
    for (int i = 0; i < 5; i++)
        counts[i] = 0;
    for (int d = 0; d < DRAWS; d++) {
        uint32_t token, again;
        assert_int_equal(sampler_draw(&sampler, &input, 0, d, &token), STATUS_OK);
        assert_int_equal(sampler_draw(&sampler, &input, 0, d, &again), STATUS_OK);
        assert_int_equal(token, again);
        assert_true(token < 5);
        counts[token]++;
    }
    sampler_free(&sampler);
}

static void probabilities_are_a_softmax(void **state) {
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

static void cuts_keep_the_likeliest(void **state) {
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

static void bad_values_are_refused(void **state) {
    (void)state;
    static const struct generate_options bad[] = {{.temperature = -1, .top_p = 1, .repetition_penalty = 1},
                                                  {.temperature = NAN, .top_p = 1, .repetition_penalty = 1},
                                                  {.temperature = 1, .top_p = 0, .repetition_penalty = 1},
                                                  {.temperature = 1, .top_p = 1.5, .repetition_penalty = 1},
                                                  {.temperature = 1, .top_p = 1, .top_k = -1, .repetition_penalty = 1},
                                                  {.temperature = 1, .top_p = 1, .repetition_penalty = -1}};
    struct sampler sampler;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sampler_create(&bad[i], 1, 5, &sampler), STATUS_BAD_INPUT);
    struct generate_options good = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    float values[2] = {1.0f, NAN};
    const struct sampler_input broken = {.logits = values};
    uint32_t token;
    assert_int_equal(sampler_create(&good, 1, 2, &sampler), STATUS_OK);
    assert_int_equal(sampler_draw(&sampler, &broken, 0, 0, &token), STATUS_FAILED);
    sampler_free(&sampler);
}

enum { VOCAB = 40, IDS_MAX = 16 };

static double number(const json_t *object, const char *key) { return json_number_value(json_object_get(object, key)); }

static void check_case(const json_t *recorded) {
    struct generate_options options = {.temperature = number(recorded, "temperature"),
                                       .top_k = (int64_t)number(recorded, "top_k"),
                                       .top_p = number(recorded, "top_p"),
                                       .repetition_penalty = number(recorded, "repetition_penalty")};
    const json_t *ids = json_object_get(recorded, "ids"), *expected = json_object_get(recorded, "probabilities");
    float values[VOCAB];
    uint32_t seen[IDS_MAX];
    double found[VOCAB] = {0}, sum = 0;
    for (size_t i = 0; i < VOCAB; i++)
        values[i] = (float)json_number_value(json_array_get(json_object_get(recorded, "logits"), i));
    for (size_t i = 0; i < json_array_size(ids); i++)
        seen[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
    struct sampler_input input = {values, seen, json_array_size(ids)};
    struct sampler sampler;
    int64_t count;
    assert_int_equal(sampler_create(&options, 1, VOCAB, &sampler), STATUS_OK);
    assert_int_equal(sampler_choose(&sampler, &input, &count), STATUS_OK);
    for (int64_t i = 0; i < count; i++) {
        found[sampler.choices[i].token] = sampler.choices[i].weight;
        sum += sampler.choices[i].weight;
    }
    for (size_t i = 0; i < VOCAB; i++)
        if (!(fabs(found[i] / sum - json_number_value(json_array_get(expected, i))) < 1e-6))
            fail_msg("penalty %g, temperature %g: token %zu has %g", options.repetition_penalty, options.temperature, i,
                     found[i] / sum);
    sampler_free(&sampler);
}

static void distributions_are_those_of_transformers(void **state) {
    (void)state;
    json_t *recorded, *cases;
    assert_int_equal(json_read_object(BALLAST_FIXTURES "/sampling.json", 1 << 20, &recorded), STATUS_OK);
    cases = json_object_get(recorded, "cases");
    assert_true(json_array_size(cases) >= 12);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i));
    json_decref(recorded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_are_a_softmax), cmocka_unit_test(cuts_keep_the_likeliest),
        cmocka_unit_test(bad_values_are_refused), cmocka_unit_test(distributions_are_those_of_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
