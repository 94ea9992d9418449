/* Without clipping, each chunk is updated within backward: the same bits as at the step's end, without memory for
 * all gradients. */
/* ctest: PROCESSORS 2 TIMEOUT 600 */
/* ctest-again: avx2 slow BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <stdio.h>
#include <string.h>

#include "support/policy_subject.h"
#include "support/unit.h"

/* A limit so high that the factor is exactly 1: then updates wait for the norm of all gradients, and change nothing. */
#define NO_LIMIT (-1.0)
#define HIGH_LIMIT 1e30

static const char *const subjects[] = {"llama in fp32", "another gpt2 in bf16", "qwen3 with adapters",
                                       "another gpt2 in bf16 with bf16 moments and no masters",
                                       "another llama in fp32 with int8 moments"};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static void the_bits_are_those_of_updates_at_the_end(void **state) {
    (void)state;
    uint64_t each = unit_sweep(2, 100);
    for (size_t s = 0; s < SUBJECTS; s++) {
        const struct policy_subject *subject = policy_subject_named(subjects[s]);
        struct outcome late = policy_train(subject, &(struct policy_way){.clip_norm = HIGH_LIMIT});
        struct outcome early = policy_train(subject, &(struct policy_way){.clip_norm = NO_LIMIT});
        outcome_require_equal(subject->name, &late, &early);
        for (uint64_t i = 1; i <= each; i++) {
            struct policy_way way = {
                .policy_seed = 500 * (s + 1) + i, .interleaved = i % 2 == 0, .clip_norm = NO_LIMIT};
            struct outcome other = policy_train(subject, &way);
            char what[128];
            snprintf(what, sizeof what, "%s: policy of seed %llu", subject->name, (unsigned long long)way.policy_seed);
            outcome_require_equal(what, &late, &other);
        }
    }
}

/* Lanes leave sums that wait for others, and only the last one's wave updates. */
static void lanes_have_them_in_their_last_wave(void **state) {
    (void)state;
    const struct policy_subject *subject = policy_subject_named(subjects[0]);
    for (uint64_t seed = 1; seed <= unit_sweep(3, 100); seed++) {
        struct policy_way way = {.lanes = {1, 1 + (int)(seed % 4)}, .round_micro_batches = (int64_t)(seed % 3)};
        way.clip_norm = HIGH_LIMIT;
        struct outcome late = policy_train(subject, &way);
        way.clip_norm = NO_LIMIT;
        way.policy_seed = seed;
        struct outcome early = policy_train(subject, &way);
        char what[128];
        snprintf(what, sizeof what, "lanes of seed %llu", (unsigned long long)seed);
        outcome_require_equal(what, &late, &early);
    }
}

static int64_t gradient_bytes(const struct program *program, enum tier tier) {
    int64_t bytes = 0;
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (buffer->kind == BUFFER_GRADIENTS && buffer->tier == tier) bytes += buffer->bytes;
    }
    return bytes;
}

/* The most bytes of gradients in the device's memory at a time: the arena's size may be set by kernels' workspaces,
 * which depend on the processor. */
static int64_t max_gradients(const struct program *program) {
    int64_t max = 0;
    for (int32_t at = 0; at < (int32_t)program->instructions.count; at++) {
        int64_t bytes = 0;
        for (size_t i = 0; i < program->buffers.count; i++) {
            const struct buffer *buffer = &program->buffers.items[i];
            bool live = buffer->first <= at && at <= buffer->last;
            if (live && buffer_is_gradient(buffer) && buffer->tier == TIER_DEVICE) bytes += buffer->bytes;
        }
        if (bytes > max) max = bytes;
    }
    return max;
}

static void open_step(double clip_norm, const struct policy *policy, struct model_config *config,
                      struct harness *harness) {
    struct policy_way way = {.clip_norm = clip_norm, .policy = policy, .batch = 2}; /* one micro-batch */
    struct harness_options options = policy_options(policy_subject_named(subjects[0]), &way, config);
    harness_open(&options, harness);
}

/* One micro-batch: gradients are made, read by their update and gone, wherever state is. */
static void no_place_has_all_gradients(void **state) {
    (void)state;
    const struct policy ways[] = {
        {.micro_batches_per_wave = 1},
        {.micro_batches_per_wave = 1, .gradients = TIER_DISK, .optimizer = TIER_DISK, .lookahead = 1}};
    for (int w = 0; w < 2; w++) {
        struct harness late, early;
        struct model_config configs[2];
        open_step(HIGH_LIMIT, &ways[w], &configs[0], &late);
        open_step(NO_LIMIT, &ways[w], &configs[1], &early);
        const struct program *of_late = late.executable->program, *of_early = early.executable->program;
        int64_t gradients = gradient_bytes(of_late, ways[w].gradients);
        assert_true(gradients > 0);
        if (w == 1) {
            assert_true(of_late->defers && !of_early->defers);
            assert_int_equal(gradient_bytes(of_early, TIER_DISK), 0);
            assert_true(of_early->tier_bytes[TIER_DISK] <= of_late->tier_bytes[TIER_DISK] - gradients);
        } else {
            assert_true(of_early->tier_bytes[TIER_DEVICE] <= of_late->tier_bytes[TIER_DEVICE]);
            assert_true(max_gradients(of_early) < max_gradients(of_late));
        }
        harness_close(&late);
        harness_close(&early);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_bits_are_those_of_updates_at_the_end),
                                       cmocka_unit_test(lanes_have_them_in_their_last_wave),
                                       cmocka_unit_test(no_place_has_all_gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
