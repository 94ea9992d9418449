/* The runner over three tiers: disk failures, two programs in the same arenas, and weights read and written from
 * outside. */
/* ctest: PROCESSORS 2 TIMEOUT 600 LABELS long */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "support/fault_sweep.h"
#include "support/harness.h"
#include "support/model_cases.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { BATCH = 5, TOKENS = 13, VOCAB = MODEL_CASE_VOCAB, STEPS = 3 };

static const struct policy everywhere = {.micro_batches_per_wave = 2,
                                         .chunk_bytes = 8192,
                                         .buffers = 9,
                                         .lookahead = 1,
                                         .parameters = TIER_DISK,
                                         .gradients = TIER_DISK,
                                         .optimizer = TIER_DISK,
                                         .update = TIER_HOST,
                                         .schedule = "f0-3 h1 d2 b3 f2 b2-0"};

static struct harness_options options_of(const struct policy *policy, const char *disk) {
    return (struct harness_options){.folder = BALLAST_FIXTURES "/models/llama",
                                    .purpose = MODEL_LOSS,
                                    .dtype = DTYPE_BF16,
                                    .batch = BATCH,
                                    .sequence_length = TOKENS,
                                    .micro_batch_sequences = 1,
                                    .micro_batches_per_wave = policy->micro_batches_per_wave,
                                    .policy = *policy,
                                    .disk = disk,
                                    .clip_norm = 0.5,
                                    .seed = 3};
}

static void draw_batch(int step, int32_t *tokens, int32_t *targets) {
    for (uint64_t i = 0; i < BATCH * TOKENS; i++) {
        tokens[i] = (int32_t)(random_u64(5, RANDOM_TEST, (uint32_t)step, i) % VOCAB);
        targets[i] = (tokens[i] * 7 + 3) % VOCAB;
    }
}

static void set_batch(struct harness *harness, int step) {
    int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
    draw_batch(step, tokens, targets);
    harness_set_inputs(harness, tokens, targets);
}

/* ---- a disk that fails ---- */

static const double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1e-2,
                                             [SCALAR_LEARNING_RATE] = 1e-3,
                                             [SCALAR_BIAS_CORRECTION] = 1,
                                             [SCALAR_BIAS_CORRECTION_SQ] = 1};

/* A second step with its `nth` operation of the kind hit; false when it has fewer. */
static bool fail_operation(const struct harness_options *options, enum fault_kind kind, int nth) {
    struct harness harness;
    harness_open(options, &harness);
    set_batch(&harness, 0);
    assert_int_equal(runner_step(harness.runner, scalars), STATUS_OK);
    int64_t before = fault_count(kind);
    status_clear();
    fault_arm(kind, nth, false);
    enum status status = runner_step(harness.runner, scalars);
    fault_arm(kind, 0, false);
    bool met = fault_count(kind) - before >= nth;
    assert_int_equal(status, met ? STATUS_FAILED : STATUS_OK);
    if (met) {
        char message[1024];
        snprintf(message, sizeof message, "%s", status_message());
        bool named = strstr(message, options->disk) && strstr(message, "of the disk tier") &&
                     (strstr(message, "cannot read") || strstr(message, "cannot write"));
        if (!named) fail_msg("operation %d of kind %d: '%s'", nth, (int)kind, message);
        if (kind == FAULT_READ) assert_non_null(strstr(message, "cannot read"));
        if (kind == FAULT_WRITE) assert_non_null(strstr(message, "cannot write"));
        assert_string_not_equal(status_hint_text(), "");
        for (int again = 0; again < 2; again++) {
            status_clear();
            assert_int_equal(runner_step(harness.runner, scalars), STATUS_FAILED);
            assert_string_equal(status_message(), message);
        }
        status_clear();
        assert_int_equal(runner_finish(harness.runner), STATUS_FAILED);
        assert_string_equal(status_message(), message);
    }
    harness_close(&harness);
    return met;
}

/* Every operation in a long sweep, else some of them, the first and the last. */
static void fail_each(const struct harness_options *options, enum fault_kind kind) {
    int operations = 0;
    for (int nth = 1, step = (int)unit_sweep(7, 1); fail_operation(options, kind, nth); nth += step)
        operations = nth;
    print_message("kind %d: operations 1 to %d and on made to fail\n", (int)kind, operations);
    assert_true(operations > 10);
}

static void a_failing_disk_is_reported(void **state) {
    struct harness_options options = options_of(&everywhere, *state);
    options.engine = DISK_ENGINE_THREADS;
    fail_each(&options, FAULT_READ);
    fail_each(&options, FAULT_WRITE);
    options.buffered = true; /* then each piece is brought to the disk */
    fail_each(&options, FAULT_SYNC);
    options.buffered = false;
    struct arena probe;
    struct arena_settings uring = {.folder = *state, .channels = 1, .engine = DISK_ENGINE_URING};
    if (arena_open(TIER_DISK, DISK_ALIGNMENT, &uring, &probe) != STATUS_OK) {
        print_message("no io_uring here: submissions are left out\n");
        return;
    }
    arena_close(&probe);
    options.engine = DISK_ENGINE_URING;
    fail_each(&options, FAULT_READ);
    fail_each(&options, FAULT_WRITE);
    fail_each(&options, FAULT_SUBMIT);
}

struct outcome {
    double losses[STEPS];
    uint64_t weights;
};

static struct outcome train(const struct harness_options *options, enum fault_kind kind) {
    struct outcome outcome;
    struct harness harness;
    harness_open(options, &harness);
    if (kind < FAULT_KINDS) fault_arm(kind, 1, true);
    for (int step = 0; step < STEPS; step++) {
        set_batch(&harness, step);
        outcome.losses[step] = harness_step(&harness, 1e-3, false);
    }
    outcome.weights = harness_fingerprint(&harness);
    if (kind < FAULT_KINDS) fault_arm(kind, 0, false);
    harness_close(&harness);
    return outcome;
}

static void assert_same(const struct outcome *a, const struct outcome *b) {
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_true(a->weights == b->weights);
}

static void short_and_slow_transfers_change_nothing(void **state) {
    struct policy plain = {.micro_batches_per_wave = 1};
    struct harness_options options = options_of(&plain, *state);
    struct outcome expected = train(&options, FAULT_KINDS);
    options = options_of(&everywhere, *state);
    for (int engine = 0; engine < 2; engine++) {
        options.engine = engine ? DISK_ENGINE_THREADS : DISK_ENGINE_ANY;
        static const enum fault_kind kinds[] = {FAULT_KINDS, FAULT_SHORT, FAULT_SLOW};
        for (int k = 0; k < 3; k++) {
            struct outcome other = train(&options, kinds[k]);
            assert_same(&expected, &other);
        }
    }
}

/* ---- too little memory, too few threads ---- */

static enum status create_and_free(void *payload) {
    const struct harness *harness = payload;
    struct runner *runner;
    TRY(runner_create(harness->executable, harness->engine.arenas, NULL, &runner));
    runner_free(runner);
    return STATUS_OK;
}

struct arenas {
    const int64_t *bytes; /* by tier */
    struct arena_settings settings;
};

static enum status open_and_close(void *payload) {
    const struct arenas *arenas = payload;
    struct arena opened[TIER_COUNT] = {0};
    enum status status = STATUS_OK;
    for (enum tier tier = 0; tier < TIER_COUNT && status == STATUS_OK; tier++)
        status = arena_open(tier, arenas->bytes[tier], &arenas->settings, &opened[tier]);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        arena_close(&opened[tier]);
    return status;
}

static void arenas_may_fail(void **state) {
    struct harness_options options = options_of(&everywhere, *state);
    struct harness harness;
    harness_open(&options, &harness);
    struct arenas arenas = {harness.executable->program->tier_bytes, {.folder = *state, .channels = RUNNER_CHANNELS}};
    arenas.settings.engine = DISK_ENGINE_THREADS; /* which nothing stands in for */
    assert_true(fault_sweep(FAULT_ALLOCATE, false, open_and_close, &arenas) >= 2);
    assert_int_equal(fault_sweep(FAULT_OPEN, false, open_and_close, &arenas), 1);
    assert_int_equal(fault_sweep(FAULT_WRITE, false, open_and_close, &arenas), 1);
    assert_true(fault_sweep(FAULT_SUBMIT, false, open_and_close, &arenas) > 1);
    harness_close(&harness);
}

static void runners_may_fail(void **state) {
    struct harness_options options = options_of(&everywhere, *state);
    struct harness harness;
    harness_open(&options, &harness);
    assert_true(harness.executable->program->streams > 3);
    assert_int_equal(fault_sweep(FAULT_ALLOCATE, false, create_and_free, &harness), 5);
    assert_int_equal(fault_sweep(FAULT_SUBMIT, false, create_and_free, &harness), harness.executable->program->streams);
    harness_close(&harness);
}

/* ---- two programs, one set of arenas ---- */

struct pair {
    double losses[STEPS], evaluations[STEPS];
    uint64_t weights;
};

static struct pair take_turns(const struct policy *policy, const char *disk, bool evaluates) {
    struct pair pair = {0};
    struct harness_options options = options_of(policy, disk);
    options.evaluates = evaluates;
    struct harness harness;
    harness_open(&options, &harness);
    int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
    draw_batch(99, tokens, targets);
    for (int step = 0; step < STEPS; step++) {
        set_batch(&harness, step);
        pair.losses[step] = harness_step(&harness, 1e-3, false);
        if (evaluates) pair.evaluations[step] = harness_evaluate(&harness, tokens, targets);
    }
    pair.weights = harness_fingerprint(&harness);
    harness_close(&harness);
    return pair;
}

static void programs_take_turns(void **state) {
    struct policy plain = {.micro_batches_per_wave = 1};
    struct pair alone = take_turns(&plain, *state, false), expected = take_turns(&plain, *state, true);
    assert_memory_equal(alone.losses, expected.losses, sizeof alone.losses);
    assert_true(alone.weights == expected.weights);
    for (int variant = 0; variant < 4; variant++) {
        struct policy policy = everywhere;
        policy.persistent_chunks = variant;
        policy.parameters = variant == 1 ? TIER_HOST : variant == 2 ? TIER_DEVICE : TIER_DISK;
        policy.update = variant % 2 ? TIER_DEVICE : TIER_HOST;
        struct pair other = take_turns(&policy, *state, true);
        assert_memory_equal(&expected, &other, sizeof other);
    }
}

/* ---- weights from outside ---- */

static struct model_config wide(void) {
    struct model_config config;
    assert_int_equal(model_config_init("llama", &config), STATUS_OK);
    config.hidden = 128;
    config.layers = 1;
    config.heads = 2;
    config.kv_heads = config.head_dim = config.ffn = 0;
    config.vocab_size = 5001; /* its weights are larger than the bounce buffer through which the disk is read */
    config.context = 32;
    return config;
}

/* Writes a tensor odd sizes, in random order, next to neighbours that must not change. */
static void write_and_read(struct harness *harness, const struct tensor *tensor) {
    int64_t bytes = shape_bytes(&tensor->shape);
    unsigned char *shadow = mem_array((size_t)bytes, 1), *back = mem_array((size_t)bytes, 1);
    assert_true(shadow && back);
    assert_int_equal(runner_read(harness->runner, tensor, 0, bytes, shadow), STATUS_OK);
    for (uint64_t round = 0; round < 12; round++) {
        int64_t offset = (int64_t)(random_u64(1, RANDOM_TEST, 1, round) % (uint64_t)bytes);
        int64_t length = 1 + (int64_t)(random_u64(1, RANDOM_TEST, 2, round) % (uint64_t)(bytes - offset));
        if (round % 3 == 0 && length > 4097) length = 4097;
        for (int64_t i = 0; i < length; i++)
            back[i] = shadow[offset + i] = (unsigned char)random_u64(1, RANDOM_TEST, 3 + (uint32_t)round, (uint64_t)i);
        assert_int_equal(runner_write(harness->runner, tensor, offset, length, back), STATUS_OK);
        int64_t from = (offset * 7 + 13) % bytes, left = bytes - from;
        assert_int_equal(runner_read(harness->runner, tensor, from, left, back), STATUS_OK);
        assert_memory_equal(back, shadow + from, (size_t)left);
    }
    mem_free(shadow);
    mem_free(back);
}

/* Mixes what is in all other weights and states. */
static uint64_t fingerprint_without(struct harness *harness, const struct tensor *left_out) {
    uint64_t mixed = 7;
    const struct graph *graph = harness_graph(harness);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor == left_out || (tensor->kind != TENSOR_PARAMETER && tensor->kind != TENSOR_STATE)) continue;
        size_t bytes = (size_t)shape_bytes(&tensor->shape);
        unsigned char *data = mem_array(bytes, 1);
        assert_non_null(data);
        assert_int_equal(runner_read(harness->runner, tensor, 0, (int64_t)bytes, data), STATUS_OK);
        for (size_t k = 0; k < bytes; k++)
            mixed = (mixed ^ data[k]) * 1099511628211u;
        mem_free(data);
    }
    return mixed;
}

static void weights_may_come_from_outside(void **state) {
    struct model_config config = wide();
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        struct policy policy = {.chunk_bytes = 400000, .buffers = 12, .parameters = tier, .optimizer = tier};
        policy.micro_batches_per_wave = 1;
        struct harness_options options = options_of(&policy, *state);
        options.folder = NULL;
        options.config = &config;
        struct harness harness;
        harness_open(&options, &harness);
        int written = 0;
        for (size_t i = 0; i < harness_graph(&harness)->tensors.count; i++) {
            const struct tensor *tensor = harness_graph(&harness)->tensors.items[i];
            if (tensor->kind != TENSOR_PARAMETER && tensor->kind != TENSOR_STATE) continue;
            assert_true((tier == TIER_DISK) == (runner_data(harness.runner, tensor) == NULL));
            if (written++ % 5 != 0) continue;
            uint64_t others = fingerprint_without(&harness, tensor);
            write_and_read(&harness, tensor);
            assert_true(fingerprint_without(&harness, tensor) == others);
        }
        assert_true(written > 10);
        harness_close(&harness);
    }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_failing_disk_is_reported),
        CASE(short_and_slow_transfers_change_nothing),
        CASE(arenas_may_fail),
        CASE(runners_may_fail),
        CASE(programs_take_turns),
        CASE(weights_may_come_from_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
