/* Asynchronous execution: on a backend that executes everything later, in any order that streams and events allow,
 * the bits are those of the CPU. */
/* ctest: PROCESSORS 2 TIMEOUT 900 LABELS long */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/deferred_backend.h"
#include "support/policy_subject.h"
#include "support/unit.h"

/* Of graphs, by all runs. */
static int64_t launches;

static struct outcome train_deferred(const struct policy_subject *subject, struct policy_way way, uint64_t seed) {
    way.backend = deferred_begin(seed);
    struct outcome outcome = policy_train(subject, &way);
    assert_true(deferred_items() > 100);
    launches += deferred_launches();
    deferred_end();
    return outcome;
}

static void require_equal(const struct policy_subject *subject, const struct policy_way *way,
                          const struct outcome *plain, const struct outcome *other) {
    char what[160];
    snprintf(what, sizeof what, "%s: policy of seed %llu, %d streams of seed %llu", subject->name,
             (unsigned long long)way->policy_seed, way->streams, (unsigned long long)way->stream_seed);
    outcome_require_equal(what, plain, other);
}

static void random_policies_give_the_same_bits(void **state) {
    (void)state;
    uint64_t each = unit_sweep(1, 200 / POLICY_SUBJECTS_EACH);
    for (size_t s = 0; s < policy_subject_count; s++) {
        const struct policy_subject *subject = &policy_subjects[s];
        struct policy_way way = {.lanes = {1, s % 2 ? 3 : 1}};
        struct outcome plain = policy_train(subject, &way);
        for (uint64_t i = 1; i <= each; i++) {
            way.policy_seed = 5000 * (s + 1) + i;
            struct outcome other = train_deferred(subject, way, i);
            require_equal(subject, &way, &plain, &other);
        }
    }
    assert_true(launches > 0);
}

/* Kernels on several streams, and every kind of instruction concurrent with every other. */
static void instructions_on_any_stream(void **state) {
    (void)state;
    uint64_t each = unit_sweep(2, 20);
    for (size_t s = 0; s < policy_subject_count; s += unit_sweep(POLICY_SUBJECTS_EACH + 1, 1)) {
        const struct policy_subject *subject = &policy_subjects[s];
        struct outcome plain = policy_train(subject, &(struct policy_way){0});
        for (uint64_t i = 1; i <= each; i++) {
            struct policy_way way = {.streams = 2 + (int)(i % 3), .stream_seed = 100 * s + i};
            struct outcome other = train_deferred(subject, way, i);
            require_equal(subject, &way, &plain, &other);
        }
    }
}

enum { BATCH = 5, TOKENS = 13 };

static void open_llama(const struct backend *backend, struct policy policy, struct harness *out) {
    struct harness_options options = {.backend = backend,
                                      .folder = BALLAST_FIXTURES "/models/llama",
                                      .purpose = MODEL_LOSS,
                                      .dtype = DTYPE_BF16,
                                      .batch = BATCH,
                                      .sequence_length = TOKENS,
                                      .micro_batch_sequences = 2,
                                      .micro_batches_per_wave = 1,
                                      .policy = policy,
                                      .clip_norm = 1};
    harness_open(&options, out);
    outcome_set_batch(out, 0);
}

static const struct policy streaming = {.chunk_bytes = 1 << 14,
                                        .buffers = 8,
                                        .lookahead = 1,
                                        .parameters = TIER_DISK,
                                        .gradients = TIER_HOST,
                                        .optimizer = TIER_DISK,
                                        .update = TIER_HOST};

struct look {
    struct harness *harness;
    int calls;
    uint64_t before;
    bool same;
};

static void look(void *payload) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct look *look = payload;
    pthread_mutex_lock(&lock);
    if (look->calls++ == 0) look->same = harness_fingerprint(look->harness) == look->before;
    pthread_mutex_unlock(&lock);
}

/* Nothing that changes weights is asked for before the gate is open. */
static void the_gate_holds_updates_back(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct harness harness;
        open_llama(deferred_begin(seed), (struct policy){0}, &harness);
        struct look payload = {.harness = &harness};
        runner_set_gate(harness.runner, look, &payload);
        for (int step = 0; step < 3; step++) {
            payload.calls = 0;
            payload.before = harness_fingerprint(&harness);
            (void)harness_step(&harness, 1e-3, false);
            assert_true(payload.calls > 0 && payload.same);
            assert_true(harness_fingerprint(&harness) != payload.before);
        }
        harness_close(&harness);
        deferred_end();
    }
}

/* Wherever the device fails, the step ends, says so and is the last. */
static void failures_end_the_step(void **state) {
    (void)state;
    const struct policy policies[] = {{0}, streaming};
    for (size_t p = 0; p < 2; p++) {
        struct harness harness;
        open_llama(deferred_begin(2), policies[p], &harness);
        int64_t before = deferred_items();
        (void)harness_step(&harness, 1e-3, false);
        int64_t items = deferred_items() - before;
        harness_close(&harness);
        deferred_end();
        for (int64_t at = 1; at < items; at += 1 + items / 9) {
            double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1};
            open_llama(deferred_begin((uint64_t)at), policies[p], &harness);
            deferred_fail_after(at);
            assert_int_equal(runner_step(harness.runner, scalars), STATUS_FAILED);
            assert_non_null(strstr(status_message(), "the device failed as planted"));
            assert_int_equal(runner_step(harness.runner, scalars), STATUS_FAILED);
            assert_int_equal(runner_finish(harness.runner), STATUS_FAILED);
            harness_close(&harness);
            deferred_end();
        }
    }
}

/* A kernel that is refused ends the step, is named, and no later step runs. */
static void refused_kernels_end_the_step(void **state) {
    (void)state;
    const struct policy policies[] = {{0}, streaming};
    for (size_t p = 0; p < 2; p++)
        for (int64_t at = 0; at < 40; at += 13) {
            struct harness harness;
            double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1};
            open_llama(deferred_begin((uint64_t)at), policies[p], &harness);
            deferred_refuse_after(at);
            assert_int_equal(runner_step(harness.runner, scalars), STATUS_FAILED);
            const char *refused = strstr(status_message(), "): a kernel is refused, as planted");
            assert_true(refused && strchr(status_message(), '(') < refused);
            int64_t items = deferred_items();
            assert_int_equal(runner_step(harness.runner, scalars), STATUS_FAILED);
            assert_non_null(strstr(status_message(), "a kernel is refused, as planted"));
            assert_int_equal(deferred_items(), items);
            harness_close(&harness);
            deferred_end();
        }
}

struct sight {
    const struct harness *harness;
    int losses;
};

static void see_loss(void *payload, const struct runner *runner, int32_t index, int64_t run) {
    struct sight *sight = payload;
    const struct instruction *instruction = &sight->harness->executable->program->instructions.items[index];
    if (instruction->opcode != OPCODE_KERNEL) return;
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        const struct operand *out = &instruction->operands[OP_INPUTS_MAX + i];
        double loss = 0;
        if (out->buffer < 0 || strcmp(instruction->node->out[i]->name, "loss") != 0) continue;
        assert_null(runner_operand(runner, out, run));
        assert_int_equal(out->bytes, sizeof loss);
        assert_int_equal(runner_read_operand(runner, out, run, &loss), STATUS_OK);
        assert_true(loss > 0);
        sight->losses++;
    }
}

/* An observer sees what the instruction has made, though addresses are not for it. */
static void the_observer_sees_what_was_written(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct harness harness;
        open_llama(deferred_begin(seed), streaming, &harness);
        struct sight sight = {.harness = &harness};
        runner_set_observer(harness.runner, see_loss, &sight);
        assert_true(harness_step(&harness, 1e-3, false) > 0);
        assert_int_equal(sight.losses, (BATCH + 1) / 2);
        harness_close(&harness);
        deferred_end();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_policies_give_the_same_bits), cmocka_unit_test(instructions_on_any_stream),
        cmocka_unit_test(the_gate_holds_updates_back),        cmocka_unit_test(failures_end_the_step),
        cmocka_unit_test(refused_kernels_end_the_step),       cmocka_unit_test(the_observer_sees_what_was_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
