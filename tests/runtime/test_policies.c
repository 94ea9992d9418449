/* A policy never changes the bits: random policies of all kinds, for every family, against the plain run. */
/* ctest: PROCESSORS 2 TIMEOUT 900 LABELS long */
/* ctest-again: avx2 slow BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
/* ctest-again: deferred BALLAST_TEST_BACKEND=deferred */
/* ctest-again: subjects BALLAST_TEST_BACKEND=deferred BALLAST_TEST_SUBJECTS=short */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/activations.h"
#include "plan/recompute.h"
#include "session/programs.h"
#include "support/policy_features.h"
#include "support/policy_subject.h"
#include "support/unit.h"

enum { BLOCKS = POLICY_SUBJECT_BLOCKS };

/* A policy is drawn, run and compared; the seed of a failing one is printed, with the policy. */
static void check_policy(const struct policy_subject *subject, uint64_t seed, const struct outcome *plain,
                         int64_t counts[POLICY_FEATURES]) {
    struct policy_way way = {.policy_seed = seed, .interleaved = seed % 2 == 0};
    struct outcome other = policy_train(subject, &way);
    char what[128];
    snprintf(what, sizeof what, "%s: policy of seed %llu", subject->name, (unsigned long long)seed);
    outcome_require_equal(what, plain, &other);
    policy_count_features(&other.policy, BLOCKS, POLICY_SUBJECT_MICRO_BATCHES, counts);
}

/* GPU libraries choose the order of a sum by the size of a GEMM, so the session refuses tiles there. */
static bool backend_takes_tiles(void) {
    const struct machine machine = {.backend = harness_default_backend()};
    return programs_take_tiles(&machine);
}

/* The same in tiles over the tokens of a long micro-batch. */
static void check_tiles(const struct policy_subject *subject, uint64_t seed, int64_t counts[POLICY_FEATURES]) {
    if (!backend_takes_tiles()) return;
    struct policy_way way = {.long_micro_batches = true};
    struct outcome plain = policy_train(subject, &way);
    way.policy_seed = seed;
    way.policy_traits.tile_tokens = POLICY_LONG_TOKENS / 2;
    struct outcome tiled = policy_train(subject, &way);
    char what[128];
    snprintf(what, sizeof what, "%s: policy of seed %llu, in tiles", subject->name, (unsigned long long)seed);
    outcome_require_equal(what, &plain, &tiled);
    policy_count_features(&tiled.policy, BLOCKS, 1, counts);
}

static void require_clipping(const struct policy_subject *subject, const struct outcome *plain) {
    for (int step = 0; step < OUTCOME_STEPS; step++)
        if (!(plain->norms[step] > POLICY_SUBJECT_CLIP_NORM))
            fail_msg("%s: step %d: the norm %g is not above %g, so nothing is clipped", subject->name, step,
                     plain->norms[step], POLICY_SUBJECT_CLIP_NORM);
}

static void require_features(const char *whose, const int64_t counts[POLICY_FEATURES]) {
    for (int f = 0; f < POLICY_FEATURES; f++) {
        if (f == POLICY_FEATURE_tiles && !backend_takes_tiles()) continue;
        if (counts[f] == 0) fail_msg("%s: no policy was drawn with %s", whose, policy_feature_names[f]);
    }
}

/* The families together see every kind of policy; in the long sweep, of 200 for each, every family does. Tiles, which
 * need long micro-batches, are for the first subject; in the long sweep for all. */
static void random_policies_give_the_same_bits(void **state) {
    (void)state;
    uint64_t each = unit_sweep(2, 200 / POLICY_SUBJECTS_EACH);
    bool all = each == 200 / POLICY_SUBJECTS_EACH;
    int64_t counts[POLICY_FEATURES] = {0};
    for (size_t s = 0; s < policy_subject_count; s++) {
        const struct policy_subject *subject = &policy_subjects[s];
        struct outcome plain = policy_train(subject, &(struct policy_way){0});
        require_clipping(subject, &plain);
        for (uint64_t i = 1; i <= each; i++)
            check_policy(subject, 1000 * (s + 1) + i, &plain, counts);
        if (all || s == 0) check_tiles(subject, 1000 * (s + 1), counts);
        bool last = s % POLICY_SUBJECTS_EACH == POLICY_SUBJECTS_EACH - 1;
        if (!all || !last) continue;
        require_features(subject->family, counts);
        memset(counts, 0, sizeof counts);
    }
    if (!all) require_features("all families", counts);
}

/* Of short GPU sessions: four families in both data types. */
static const char *const short_list[] = {"gpt2 in fp32",          "another gpt2 in bf16", "llama in fp32",
                                         "another llama in bf16", "mixtral in fp32",      "another mixtral in bf16",
                                         "qwen3 in fp32",         "another qwen3 in bf16"};
enum { SHORT_COUNT = sizeof short_list / sizeof *short_list, SUBJECT_POLICIES = 3 };

/* Three random policies with and without CUDA graphs, where the backend has them. */
static void check_subject(const char *name) {
    const struct policy_subject *subject = policy_subject_named(name);
    struct outcome plain = policy_train(subject, &(struct policy_way){0});
    int64_t counts[POLICY_FEATURES] = {0};
    require_clipping(subject, &plain);
    for (int graphs = 0; graphs < 2; graphs++) {
        setenv("BALLAST_CUDA_GRAPHS", graphs ? "on" : "off", 1);
        for (uint64_t i = 1; i <= SUBJECT_POLICIES; i++)
            check_policy(subject, 1000 * (uint64_t)(subject - policy_subjects + 1) + i, &plain, counts);
    }
    unsetenv("BALLAST_CUDA_GRAPHS");
    print_message("%s: %d trainings have equal bits\n", name, 1 + 2 * SUBJECT_POLICIES);
}

static void subjects_give_the_same_bits(void **state) {
    (void)state;
    const char *wanted = getenv("BALLAST_TEST_SUBJECTS");
    if (strcmp(wanted, "short") != 0) {
        check_subject(wanted);
        return;
    }
    for (int i = 0; i < SHORT_COUNT; i++)
        check_subject(short_list[i]);
}

static bool print_list(const char *which) {
    bool all = strcmp(which, "list") == 0, brief = strcmp(which, "short-list") == 0;
    for (size_t s = 0; all && s < policy_subject_count; s++)
        puts(policy_subjects[s].name);
    for (int i = 0; brief && i < SHORT_COUNT; i++)
        puts(short_list[i]);
    return all || brief;
}

/* The blocks of a model as a chain in which a layer saves eight times what it passes on. */
static struct chain chain_of(int blocks) {
    struct chain chain;
    assert_int_equal(chain_create(blocks, &chain), STATUS_OK);
    for (int i = 0; i < blocks; i++)
        chain.blocks[i] = (struct chain_block){
            .forward_time = 1, .backward_time = 2, .output = i + 1 < blocks, .saved = i + 1 < blocks ? 8 : 1};
    return chain;
}

/* Runs forward more often than blocks there are behind a first recomputation: it nests. */
static bool nests(const struct activation_steps *steps) {
    int32_t backward = INT32_MAX, before = -1;
    for (size_t i = 0; i < steps->list.count; i++) {
        const struct activation_step *step = &steps->list.items[i];
        if (step->action == ACTIVATION_BACKWARD) backward = step->block, before = -1;
        if (step->action != ACTIVATION_FORWARD || backward == INT32_MAX) continue;
        if (before >= 0 && step->block == before + 1) return true;
        before = step->block;
    }
    return false;
}

/* Schedules of Rotor for every budget, each by itself and with what is kept on other tiers. */
static void rotor_schedules_give_the_same_bits(void **state) {
    (void)state;
    const struct policy_subject deep = {.name = "llama", .family = "llama", .dtype = DTYPE_BF16};
    struct outcome plain = policy_train(&deep, &(struct policy_way){0});
    struct chain chain = chain_of(BLOCKS);
    int nesting = 0, solved = 0;
    char last[POLICY_SCHEDULE_BYTES] = "";
    for (int64_t slots = 1; slots < 9 * BLOCKS; slots++) {
        struct policy policy = {.micro_batches_per_wave = 2};
        struct recompute_schedule schedule = {0};
        struct recompute_cost cost;
        struct activation_steps steps;
        if (rotor_solve(&chain, slots, &schedule, &cost) != STATUS_OK) continue;
        assert_int_equal(activations_from_recompute(&schedule, &steps), STATUS_OK);
        assert_int_equal(activations_print(&steps, policy.schedule, sizeof policy.schedule), STATUS_OK);
        nesting += nests(&steps);
        activation_steps_free(&steps);
        vec_free(&schedule);
        if (strcmp(last, policy.schedule) == 0) continue;
        strcpy(last, policy.schedule);
        print_message("%lld slots: %s\n", (long long)slots, policy.schedule);
        struct policy_way way = {.policy = &policy, .interleaved = solved++ % 2};
        struct outcome other = policy_train(&deep, &way);
        outcome_require_equal(policy.schedule, &plain, &other);
    }
    chain_free(&chain);
    assert_true(solved >= 3 && nesting > 0);
}

/* BALLAST_TEST_SUBJECTS tests only the subject of that name, or with "short" the eight of the short list; "list" and
 * "short-list" print names. */
int main(void) {
    const char *subjects = getenv("BALLAST_TEST_SUBJECTS");
    const struct CMUnitTest chosen[] = {cmocka_unit_test(subjects_give_the_same_bits)};
    if (subjects && print_list(subjects)) return 0;
    if (subjects) return cmocka_run_group_tests(chosen, NULL, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_policies_give_the_same_bits),
                                       cmocka_unit_test(rotor_schedules_give_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
