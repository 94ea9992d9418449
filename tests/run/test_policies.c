/* A policy never changes the bits: random ones of all kinds, for every family, against the plain run. */
/* ctest: PROCESSORS 2 TIMEOUT 900 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <stdio.h>
#include <string.h>

#include "plan/activations.h"
#include "plan/rotor.h"
#include "support/outcome.h"
#include "support/random_policy.h"
#include "support/unit.h"

enum { BATCH = 7, TOKENS = 13, BLOCKS = 8 };

/* A model of the fixtures; NULL: one of six layers. */
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

static struct model_config deep_config(void) {
    struct model_config config;
    assert_int_equal(model_config_init("llama", &config), STATUS_OK);
    config.hidden = 24;
    config.layers = BLOCKS - 2;
    config.heads = 3;
    config.kv_heads = config.head_dim = config.ffn = 0;
    config.vocab_size = OUTCOME_VOCAB;
    config.context = 32;
    return config;
}

/* A seed of 0: `policy`, NULL: the plain one. */
static struct outcome train(const struct subject *subject, const struct policy *policy, uint64_t policy_seed,
                            bool interleaved) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/models/%s", BALLAST_FIXTURES, subject->model ? subject->model : "");
    struct model_config config = deep_config();
    struct harness_options options = {.folder = subject->model ? folder : NULL,
                                      .config = &config,
                                      .lora = subject->lora,
                                      .freeze = subject->freeze,
                                      .purpose = MODEL_LOSS,
                                      .dtype = subject->dtype,
                                      .batch = BATCH,
                                      .sequence_length = TOKENS,
                                      .grain_sequences = 2,
                                      .grains_per_pass = policy ? policy->grains_per_pass : 1,
                                      .policy = policy ? *policy : (struct policy){0},
                                      .policy_seed = policy_seed,
                                      .clip_norm = 0.5,
                                      .weight_decay = 0.1,
                                      .seed = 3};
    return outcome_train(&options, interleaved);
}

/* The seed of a failing policy is printed, with the policy. */
static void test_random_policies(void **state) {
    (void)state;
    uint64_t each = unit_sweep(6, 200);
    for (size_t s = 0; s < SUBJECTS; s++) {
        struct outcome plain = train(&subjects[s], NULL, 0, false);
        for (uint64_t i = 1; i <= each; i++) {
            uint64_t seed = 1000 * (s + 1) + i;
            struct outcome other = train(&subjects[s], NULL, seed, i % 2 == 0);
            char what[128];
            snprintf(what, sizeof what, "%s: policy of seed %llu", subjects[s].model, (unsigned long long)seed);
            outcome_require_equal(what, &plain, &other);
        }
    }
}

/* The blocks of a model as a chain in which a layer saves eight times what it passes on. */
static struct chain chain_of(int blocks) {
    struct chain chain;
    assert_int_equal(chain_create(blocks, &chain), STATUS_OK);
    for (int i = 0; i < blocks; i++)
        chain.stages[i] = (struct chain_stage){
            .forward_time = 1, .backward_time = 2, .output = i + 1 < blocks, .saved = i + 1 < blocks ? 8 : 1};
    return chain;
}

/* Runs forward more often than blocks there are behind a first recomputation: it nests. */
static bool nests(const struct stage_list *stages) {
    int32_t backward = INT32_MAX, before = -1;
    for (size_t i = 0; i < stages->list.count; i++) {
        const struct stage *stage = &stages->list.items[i];
        if (stage->action == STAGE_BACKWARD) backward = stage->block, before = -1;
        if (stage->action != STAGE_FORWARD || backward == INT32_MAX) continue;
        if (before >= 0 && stage->block == before + 1) return true;
        before = stage->block;
    }
    return false;
}

/* Schedules of Rotor for every budget, each by itself and with what is kept on other tiers. */
static void test_rotor_schedules(void **state) {
    (void)state;
    const struct subject deep = {NULL, NULL, NULL, DTYPE_BF16};
    struct outcome plain = train(&deep, NULL, 0, false);
    struct chain chain = chain_of(BLOCKS);
    int nesting = 0, solved = 0;
    char last[POLICY_SCHEDULE_BYTES] = "";
    for (int64_t slots = 1; slots < 9 * BLOCKS; slots++) {
        struct policy policy = {.grains_per_pass = 2};
        struct recompute_schedule schedule = {0};
        struct recompute_cost cost;
        struct stage_list stages;
        if (rotor_solve(&chain, slots, &schedule, &cost) != STATUS_OK) continue;
        assert_int_equal(activations_from_recompute(&schedule, &stages), STATUS_OK);
        assert_int_equal(activations_print(&stages, policy.schedule, sizeof policy.schedule), STATUS_OK);
        nesting += nests(&stages);
        stage_list_free(&stages);
        vec_free(&schedule);
        if (strcmp(last, policy.schedule) == 0) continue;
        strcpy(last, policy.schedule);
        print_message("%lld slots: %s\n", (long long)slots, policy.schedule);
        struct outcome other = train(&deep, &policy, 0, solved++ % 2);
        outcome_require_equal(policy.schedule, &plain, &other);
    }
    chain_free(&chain);
    assert_true(solved >= 3 && nesting > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_policies), cmocka_unit_test(test_rotor_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
