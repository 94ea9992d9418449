/* A policy never changes the bits: random ones of all kinds, for every family, against the plain run. */
/* ctest: PROCESSORS 2 TIMEOUT 900 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "support/harness.h"
#include "support/random_policy.h"
#include "support/unit.h"

enum { STEPS = 3, BATCH = 7, TOKENS = 13, VOCAB = 211 };

struct outcome {
    double losses[STEPS], norms[STEPS];
    uint64_t weights;
};

static const struct subject {
    const char *model, *lora, *freeze;
    enum dtype dtype;
} subjects[] = {
    {"gpt2", NULL, NULL, DTYPE_F32},          {"llama", NULL, NULL, DTYPE_BF16},
    {"mistral", NULL, NULL, DTYPE_F32},       {"opt", NULL, NULL, DTYPE_BF16},
    {"phi3", NULL, NULL, DTYPE_BF16},         {"qwen2_tied", NULL, NULL, DTYPE_BF16},
    {"qwen3_bias", NULL, NULL, DTYPE_F32},    {"gpt2", "2,4,c_attn,c_fc", NULL, DTYPE_BF16},
    {"llama_tied", NULL, "*.0.*", DTYPE_F32}, {"opt_post_norm", NULL, NULL, DTYPE_F32},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static struct outcome train(const struct subject *subject, uint64_t policy_seed, bool interleaved) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/models/%s", BALLAST_FIXTURES, subject->model);
    struct harness_options options = {.folder = folder,
                                      .lora = subject->lora,
                                      .freeze = subject->freeze,
                                      .purpose = MODEL_LOSS,
                                      .dtype = subject->dtype,
                                      .batch = BATCH,
                                      .sequence_length = TOKENS,
                                      .grain_sequences = 2,
                                      .grains_per_pass = 1,
                                      .policy_seed = policy_seed,
                                      .clip_norm = 0.5,
                                      .weight_decay = 0.1,
                                      .seed = 3};
    struct harness harness;
    harness_open(&options, &harness);
    struct outcome outcome;
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
        for (uint64_t i = 0; i < BATCH * TOKENS; i++) {
            tokens[i] = (int32_t)(random_u64(5, RANDOM_TEST, (uint32_t)step, i) % VOCAB);
            targets[i] = i % 11 == 0 ? -100 : (tokens[i] * 7 + 3) % VOCAB;
        }
        harness_set_inputs(&harness, tokens, targets);
        outcome.losses[step] = harness_step(&harness, 1e-3, interleaved);
        outcome.norms[step] = ((const double *)harness_data(&harness, "clip"))[0];
    }
    outcome.weights = harness_fingerprint(&harness);
    harness_close(&harness);
    return outcome;
}

static bool equal(const struct outcome *a, const struct outcome *b) {
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 && memcmp(a->norms, b->norms, sizeof a->norms) == 0 &&
           a->weights == b->weights;
}

/* The seed of a failing policy is printed, with the policy. */
static void test_random_policies(void **state) {
    (void)state;
    uint64_t each = unit_sweep(6, 200);
    for (size_t s = 0; s < SUBJECTS; s++) {
        struct outcome plain = train(&subjects[s], 0, false);
        for (uint64_t i = 1; i <= each; i++) {
            uint64_t seed = 1000 * (s + 1) + i;
            struct outcome other = train(&subjects[s], seed, i % 2 == 0);
            if (!equal(&plain, &other))
                fail_msg("%s: the policy of seed %llu changes the bits: loss %.17g, plain %.17g", subjects[s].model,
                         (unsigned long long)seed, other.losses[STEPS - 1], plain.losses[STEPS - 1]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_policies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
