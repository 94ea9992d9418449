/* Steps on pairs of sequences: no policy changes their bits, and the first one's figures are those of plain arithmetic.
 */
/* ctest: PROCESSORS 2 TIMEOUT 900 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "support/harness.h"
#include "support/unit.h"

enum { TOKENS = 13, GRAIN = 4, BATCH = 10, STEPS = 3, VOCAB = 211, POLICIES = 5 };

struct result {
    double losses[STEPS], norms[STEPS], figures[STEPS][PREFERENCE_FIGURES];
    uint64_t weights;
};

/* The last grain has a pair less than the others. */
static void set_batch(struct harness *harness, int step) {
    int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
    double references[BATCH];
    for (int i = 0; i < BATCH * TOKENS; i++) {
        tokens[i] = (int32_t)(random_u64(5, RANDOM_TEST, (uint32_t)step, (uint64_t)i) % VOCAB);
        targets[i] = i % TOKENS < 4 || i % 11 == 0 ? -100 : (tokens[i] * 7 + 3) % VOCAB;
    }
    for (int s = 0; s < BATCH; s++)
        references[s] = -40 + 3 * random_uniform(5, RANDOM_TEST, 77, (uint64_t)s);
    harness_set_inputs(harness, tokens, targets);
    harness_set_references(harness, references);
}

static struct result train(const struct harness_options *options) {
    struct result result = {.weights = 0};
    struct harness harness;
    harness_open(options, &harness);
    for (int step = 0; step < STEPS; step++) {
        set_batch(&harness, step);
        result.losses[step] = harness_step(&harness, 1e-2, false);
        memcpy(result.figures[step], harness.figures, sizeof harness.figures);
        result.norms[step] = *(const double *)harness_data(&harness, "clip");
    }
    result.weights = harness_fingerprint(&harness);
    harness_close(&harness);
    return result;
}

static struct harness_options options_of(const char *family, enum dtype dtype, const char *lora) {
    static char folder[512];
    snprintf(folder, sizeof folder, "%s/models/%s", BALLAST_FIXTURES, family);
    return (struct harness_options){.folder = folder,
                                    .lora = lora,
                                    .dtype = dtype,
                                    .loss = TRAINING_DPO,
                                    .dpo_beta = 0.2,
                                    .batch = BATCH,
                                    .sequence_length = TOKENS,
                                    .grain_sequences = GRAIN,
                                    .grains_per_pass = 1,
                                    .clip_norm = 0.5,
                                    .weight_decay = 0.1,
                                    .seed = 3};
}

static void check_policies(const char *family, enum dtype dtype, const char *lora, struct lane_shape lanes) {
    struct harness_options options = options_of(family, dtype, lora);
    options.lanes = lanes;
    struct result plain = train(&options);
    for (uint64_t seed = 1; seed <= POLICIES; seed++) {
        options.policy_seed = 4000 + seed;
        struct result other = train(&options);
        if (memcmp(&plain, &other, sizeof plain) != 0)
            fail_msg("%s: policy of seed %llu: loss %.17g, not %.17g", family, (unsigned long long)options.policy_seed,
                     other.losses[STEPS - 1], plain.losses[STEPS - 1]);
    }
    if (!(plain.norms[0] > 0)) fail_msg("%s: no gradient", family);
}

static void policies_give_the_same_bits(void **state) {
    (void)state;
    check_policies("llama", DTYPE_F32, NULL, (struct lane_shape){1, 1});
    check_policies("qwen2", DTYPE_BF16, NULL, (struct lane_shape){1, 2});
    check_policies("gemma2", DTYPE_BF16, "2,4,all-linear", (struct lane_shape){1, 1});
}

/* The loss is what its own figures say only for a batch of one pair; rewards and their difference add up. */
static void figures_fit_each_other(void **state) {
    (void)state;
    struct harness_options options = options_of("llama", DTYPE_F32, NULL);
    options.batch = options.grain_sequences = 2;
    struct result one = train(&options);
    const double *figures = one.figures[0];
    double margin = figures[PREFERENCE_CHOSEN] - figures[PREFERENCE_REJECTED];
    assert_true(fabs(figures[PREFERENCE_LOSS] - log1p(exp(-margin))) < 1e-12);
    assert_true(figures[PREFERENCE_RIGHT] == (margin > 0));
    assert_true(one.losses[0] == figures[PREFERENCE_LOSS]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_give_the_same_bits),
        cmocka_unit_test(figures_fit_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
