/* The recorder's timeline of a real step, on one stream and on several. */
/* ctest: PROCESSORS 2 */
#include <string.h>

#include "base/random.h"
#include "support/harness.h"
#include "support/unit.h"

enum { BATCH = 6, TOKENS = 16, VOCAB = 97 };

static const struct policy tiered = {.chunk_bytes = 4096,
                                     .buffers = 8,
                                     .lookahead = 1,
                                     .parameters = TIER_DISK,
                                     .gradients = TIER_HOST,
                                     .optimizer = TIER_DISK,
                                     .update = TIER_HOST,
                                     .schedule = "f0-4 h1 d2 b4-0"};

static void open_harness(const struct policy *policy, struct harness *out) {
    struct model_config config;
    assert_int_equal(model_config_init("llama", &config), STATUS_OK);
    config.hidden = 32;
    config.layers = 3;
    config.heads = 2;
    config.kv_heads = config.head_dim = config.ffn = 0;
    config.vocab_size = VOCAB;
    config.context = TOKENS;
    struct harness_options options = {.config = &config,
                                      .purpose = MODEL_LOSS,
                                      .dtype = DTYPE_BF16,
                                      .batch = BATCH,
                                      .sequence_length = TOKENS,
                                      .micro_batch_sequences = 1,
                                      .micro_batches_per_wave = 1,
                                      .policy = *policy,
                                      .clip_norm = 1,
                                      .seed = 9};
    harness_open(&options, out);
    int32_t tokens[BATCH * TOKENS];
    for (uint64_t i = 0; i < BATCH * TOKENS; i++)
        tokens[i] = (int32_t)(random_u64(4, RANDOM_TEST, 0, i) % VOCAB);
    harness_set_inputs(out, tokens, tokens);
}

/* In the order of its stream, after all that it waits for. */
static void check_event(const struct timeline *timeline, size_t index, double before) {
    const struct program *program = timeline->program;
    const struct timeline_event *event = &timeline->events.items[index];
    const struct instruction *self = &program->instructions.items[event->instruction];
    assert_true(event->start_s >= before && event->end_s >= event->start_s && event->end_s <= timeline->step_s);
    for (int32_t w = 0; w < self->wait_count; w++) {
        int64_t issues = program_issues_required(program, self->waits[w], event->instruction, 0, event->repetition);
        if (issues > 0) assert_true(timeline_find(timeline, self->waits[w], issues - 1)->end_s <= event->start_s);
    }
}

/* Instructions that a step left out take no time; others do, as far as the clock tells. */
static void check_timeline(const struct timeline *timeline, bool defers) {
    const struct program *program = timeline->program;
    size_t longer = 0;
    assert_true(timeline->measured && timeline->step_s > 0);
    for (int s = 0; s < program->streams; s++) {
        double before = 0;
        for (size_t i = timeline->begins[s]; i < timeline->begins[s + 1]; i++) {
            const struct timeline_event *event = &timeline->events.items[i];
            bool left_out = program->instructions.items[event->instruction].deferred && !defers;
            check_event(timeline, i, before);
            if (left_out) assert_true(event->end_s <= event->start_s);
            longer += event->end_s > event->start_s;
            before = event->end_s;
        }
    }
    assert_true(longer > 0);
}

static void record_steps(const struct policy *policy, int min_streams) {
    struct harness plain, recorded;
    struct timeline timeline;
    open_harness(policy, &plain);
    open_harness(policy, &recorded);
    const struct program *program = recorded.executable->program;
    assert_true(program->streams >= min_streams);
    assert_int_equal(timeline_create(program, &timeline), STATUS_OK);
    runner_set_recorder(recorded.runner, &timeline);
    for (int step = 0; step < 3; step++) {
        assert_true(harness_step(&plain, 1e-3, false) == harness_step(&recorded, 1e-3, false));
        check_timeline(&timeline, step > 0);
    }
    size_t bytes = timeline.events.count * sizeof *timeline.events.items;
    struct timeline_event *last = mem_array(1, bytes);
    assert_non_null(last);
    memcpy(last, timeline.events.items, bytes);
    harness_finish(&recorded); /* what catches up is no step */
    runner_set_recorder(recorded.runner, NULL);
    harness_step(&recorded, 1e-3, false);
    harness_step(&plain, 1e-3, false);
    assert_memory_equal(last, timeline.events.items, bytes);
    mem_free(last);
    assert_true(harness_fingerprint(&plain) == harness_fingerprint(&recorded));
    timeline_free(&timeline);
    harness_close(&plain);
    harness_close(&recorded);
}

static void one_stream_is_recorded(void **state) {
    (void)state;
    record_steps(&(struct policy){0}, 1);
}

static void several_streams_are_recorded(void **state) {
    (void)state;
    record_steps(&tiered, 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_stream_is_recorded),
                                       cmocka_unit_test(several_streams_are_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
