/* Steps on preference pairs: no policy and no pipeline changes their bits, tensor parallelism gives the same results
 * within rounding, and the first step's figures equal plain arithmetic. */
/* ctest: PROCESSORS 2 TIMEOUT 900 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "support/harness.h"
#include "support/model_cases.h"
#include "support/shared_model.h"
#include "support/thread_ranks.h"
#include "support/unit.h"

enum { TOKENS = 13, MICRO_BATCH = 4, BATCH = 10, STEPS = 3, VOCAB = MODEL_CASE_VOCAB, POLICIES = 5 };

struct result {
    double losses[STEPS], norms[STEPS], figures[STEPS][PREFERENCE_FIGURES];
    uint64_t weights;
};

/* The last micro-batch has a pair less than the others. */
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
    if (!options->comm) result.weights = harness_fingerprint(&harness);
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
                                    .micro_batch_sequences = MICRO_BATCH,
                                    .micro_batches_per_wave = 1,
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
    options.batch = options.micro_batch_sequences = 2;
    struct result one = train(&options);
    const double *figures = one.figures[0];
    double margin = figures[PREFERENCE_CHOSEN] - figures[PREFERENCE_REJECTED];
    assert_true(fabs(figures[PREFERENCE_LOSS] - log1p(exp(-margin))) < 1e-12);
    assert_true(figures[PREFERENCE_RIGHT] == (margin > 0));
    assert_true(one.losses[0] == figures[PREFERENCE_LOSS]);
}

/* ---- ranks ---- */

struct job {
    struct harness_options options;
    const struct result *expected;
    bool exact;
};

/* AdamW's first steps divide gradients by themselves, so what rounding does to those near 0 grows tenfold a step. */
static bool near(double a, double b, int step) { return fabs(a - b) <= 1e-6 * pow(10, step) * fmax(1, fabs(b)); }

static bool agree(const struct result *found, const struct result *expected, bool exact) {
    bool same = true;
    for (int step = 0; step < STEPS; step++) {
        same &= near(found->losses[step], expected->losses[step], step);
        same &= near(found->norms[step], expected->norms[step], step);
        for (int i = 0; i < PREFERENCE_FIGURES; i++)
            same &= near(found->figures[step][i], expected->figures[step][i], step);
    }
    if (!exact) return same;
    return memcmp(found->losses, expected->losses, sizeof found->losses) == 0 &&
           memcmp(found->norms, expected->norms, sizeof found->norms) == 0 &&
           memcmp(found->figures, expected->figures, sizeof found->figures) == 0;
}

static enum status train_rank(struct comm *comm, void *payload) {
    const struct job *job = payload;
    struct harness_options options = job->options;
    options.comm = comm;
    struct result found = train(&options);
    if (agree(&found, job->expected, job->exact)) return STATUS_OK;
    return status_set(STATUS_FAILED, "rank %d: policy %llu: loss %.17g, norm %.17g; one rank has %.17g, %.17g",
                      comm->rank, (unsigned long long)options.policy_seed, found.losses[STEPS - 1],
                      found.norms[STEPS - 1], job->expected->losses[STEPS - 1], job->expected->norms[STEPS - 1]);
}

static void check_ranks(const char *family, enum dtype dtype, int tensor, int stages) {
    const struct model_config config = shared_model_config(family, &shared_sizes_usual);
    struct harness_options options = options_of(family, dtype, NULL);
    options.folder = NULL;
    options.config = &config;
    options.lanes = (struct lane_shape){1, 2};
    options.threads = 1;
    struct result expected = train(&options);
    options.tensor = tensor;
    options.stages = stages;
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct job job = {options, &expected, tensor == 1};
        job.options.policy_seed = seed > 0 ? 900 + seed : 0;
        const struct thread_ranks threads = {.ranks = 2,
                                             .seed = 5,
                                             .settings = {.rank_timeout_s = 60, .message_bytes = 4096},
                                             .body = train_rank,
                                             .payload = &job};
        if (thread_ranks_run(&threads) != STATUS_OK) fail_msg("%s: %s", family, status_message());
    }
}

static void stages_have_the_bits_of_one_rank(void **state) {
    (void)state;
    check_ranks("gemma2", DTYPE_BF16, 1, 2);
    check_ranks("gpt2", DTYPE_F32, 1, 2);
}

static void ranks_that_share_tensors_are_near_one_rank(void **state) {
    (void)state;
    check_ranks("gemma2", DTYPE_F32, 2, 1);
    check_ranks("qwen3", DTYPE_F32, 2, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_give_the_same_bits),
        cmocka_unit_test(figures_fit_each_other),
        cmocka_unit_test(stages_have_the_bits_of_one_rank),
        cmocka_unit_test(ranks_that_share_tensors_are_near_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
