/* Graph segments are legal for a CUDA graph and cannot be longer. Steps that launch them as graphs have the bits of
 * steps with single calls. */
/* ctest: PROCESSORS 2 LABELS long */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <stdlib.h>
#include <string.h>

#include "runtime/runner_state.h"
#include "runtime/segments.h"
#include "support/deferred_backend.h"
#include "support/outcome.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/unit.h"

/* The next of the instruction's stream in its section, in steps of 1 or -1; -1: there is none. */
static int32_t neighbour(const struct program *program, int32_t index, int32_t step) {
    const struct instruction *self = &program->instructions.items[index];
    for (int32_t i = index + step; i >= 0 && i < (int32_t)program->instructions.count; i += step) {
        const struct instruction *other = &program->instructions.items[i];
        if (other->section != self->section) return -1;
        if (other->stream == self->stream) return i;
    }
    return -1;
}

static bool is_waited_for(const struct program *program, int32_t index) {
    for (size_t i = 0; i < program->instructions.count; i++)
        for (int32_t w = 0; w < program->instructions.items[i].wait_count; w++)
            if (program->instructions.items[i].waits[w] == index) return true;
    return false;
}

static const char *why_not_operand(const struct program *program, const struct instruction *instruction, int k) {
    const struct operand *operand = &instruction->operands[k];
    const struct buffer *buffer = &program->buffers.items[operand->buffer];
    if (buffer->tier == TIER_DISK) return "the disk takes part";
    if (operand->stride != 0 && program->sections.items[instruction->section].repeat > 1) return "an operand moves on";
    return NULL;
}

/* NULL: nothing speaks against it. */
static const char *why_not(const struct program *program, int32_t index) {
    const struct instruction *instruction = &program->instructions.items[index];
    if (instruction->deferred) return "it is deferred";
    if (instruction->opcode != OPCODE_COPY && instruction->tier == TIER_HOST) return "it is the host's work";
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const char *why = instruction->operands[k].buffer < 0 ? NULL : why_not_operand(program, instruction, k);
        if (why) return why;
    }
    return NULL;
}

static bool changes_state(const struct program *program, int32_t index) {
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const struct operand *operand = &program->instructions.items[index].operands[k];
        if (operand->buffer < 0 || operand->access == ACCESS_READ) continue;
        const struct buffer *buffer = &program->buffers.items[operand->buffer];
        bool state = buffer->kind == BUFFER_PARAMETERS || buffer->kind == BUFFER_OPTIMIZER;
        if (state && buffer->original < 0) return true;
    }
    return false;
}

/* Whether a graph may hold the instruction and the next of its stream. */
static bool may_be_joined(const struct program *program, int32_t index, int32_t next) {
    return index >= 0 && next >= 0 && !why_not(program, index) && !why_not(program, next) &&
           program->instructions.items[next].wait_count == 0 && !is_waited_for(program, index) &&
           changes_state(program, index) == changes_state(program, next);
}

static void check_graph_segment(const struct program *program, const struct graph_segment *graph_segment) {
    int32_t count = 1;
    const char *why = why_not(program, graph_segment->first);
    for (int32_t i = graph_segment->first; i != graph_segment->last && !why; count++) {
        int32_t next = neighbour(program, i, 1);
        assert_true(next > i && next <= graph_segment->last);
        why = why_not(program, next);
        if (!why && !may_be_joined(program, i, next)) why = "another stream waits, or is waited for, within";
        i = next;
    }
    if (why) fail_msg("instructions %d to %d: %s", graph_segment->first, graph_segment->last, why);
    assert_int_equal(count, graph_segment->count);
    assert_true(graph_segment->changes_state == changes_state(program, graph_segment->first));
    assert_true(count >= GRAPH_SEGMENT_MIN);
    assert_int_equal(graph_segment->runs,
                     program->sections.items[program->instructions.items[graph_segment->first].section].repeat);
    assert_false(may_be_joined(program, neighbour(program, graph_segment->first, -1), graph_segment->first));
    assert_false(may_be_joined(program, graph_segment->last, neighbour(program, graph_segment->last, 1)));
}

/* Returns how many instructions they hold. */
static int64_t check_graph_segments(const struct program *program) {
    struct graph_segments graph_segments;
    int64_t held = 0;
    size_t begins = 0;
    assert_int_equal(graph_segments_find(program, &graph_segments), STATUS_OK);
    for (size_t s = 0; s < graph_segments.all.count; s++) {
        const struct graph_segment *graph_segment = &graph_segments.all.items[s];
        check_graph_segment(program, graph_segment);
        assert_int_equal(graph_segments.at[graph_segment->first], (int32_t)s);
        if (s > 0) assert_true(graph_segment[-1].runs >= graph_segment->runs);
        held += graph_segment->count;
    }
    for (size_t i = 0; i < program->instructions.count; i++)
        begins += graph_segments.at[i] >= 0;
    assert_int_equal(begins, graph_segments.all.count);
    graph_segments_free(&graph_segments);
    return held;
}

enum { MICRO_BATCHES = 6 };

static struct graph *small(uint64_t seed) {
    struct small_graph_options options = {.layers = 3,
                                          .tied = seed % 2,
                                          .packed_qkv = seed % 3 == 0,
                                          .dtype = seed % 5 == 0 ? DTYPE_F32 : DTYPE_BF16,
                                          .micro_batch_sequences = 2,
                                          .sequence_length = 8,
                                          .forward_only = seed % 11 == 0};
    return small_graph_build(&options);
}

static void graph_segments_of_random_policies_are_legal(void **state) {
    (void)state;
    int64_t held = 0, instructions = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(60, 1000); seed++) {
        struct graph *graph = small(seed);
        struct policy policy = random_policy(graph, MICRO_BATCHES, NULL, seed);
        struct program *program = small_program_under(graph, MICRO_BATCHES, &policy);
        held += check_graph_segments(program);
        instructions += (int64_t)program->instructions.count;
        program_free(program);
        graph_free(graph);
    }
    assert_true(held > instructions / 4);
}

static void graph_segments_of_random_streams_are_legal(void **state) {
    (void)state;
    int64_t held = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(40, 400); seed++) {
        struct graph *graph = small(seed);
        struct program *program =
            small_program(graph, MICRO_BATCHES, 1 + (int64_t)(seed % 3), 1 + (int)(seed % 4), seed);
        held += check_graph_segments(program);
        program_free(program);
        graph_free(graph);
    }
    assert_true(held > 0);
}

/* What compiled programs have only where a graph segment ends for other reasons, planted within one: it is cut there.
 */
static void planted_faults_are_found(void **state) {
    (void)state;
    struct graph *graph = small(2);
    for (int plant = 0; plant < 3; plant++) {
        struct program *program = small_program(graph, MICRO_BATCHES, 1, 1, 1);
        struct graph_segments graph_segments;
        assert_int_equal(graph_segments_find(program, &graph_segments), STATUS_OK);
        int32_t middle = graph_segments.all.items[0].first + graph_segments.all.items[0].count / 2;
        struct instruction *instruction = &program->instructions.items[middle];
        graph_segments_free(&graph_segments);
        while (instruction->opcode != OPCODE_KERNEL)
            instruction++;
        struct operand *written = &instruction->operands[OP_INPUTS_MAX];
        if (plant == 0) instruction->deferred = true;
        if (plant == 1) program->buffers.items[written->buffer].kind = BUFFER_OPTIMIZER;
        if (plant == 2) instruction->tier = TIER_HOST;
        int32_t planted = (int32_t)(instruction - program->instructions.items);
        assert_false(may_be_joined(program, neighbour(program, planted, -1), planted));
        assert_false(may_be_joined(program, planted, neighbour(program, planted, 1)));
        assert_true(check_graph_segments(program) > 0);
        program_free(program);
    }
    graph_free(graph);
}

enum { BATCH = 5, TOKENS = 13, STEPS = 6 };

static const struct policy policies[] = {{0},
                                         {.chunk_bytes = 1 << 14,
                                          .buffers = 8,
                                          .lookahead = 1,
                                          .parameters = TIER_HOST,
                                          .gradients = TIER_HOST,
                                          .optimizer = TIER_HOST,
                                          .update = TIER_DEVICE},
                                         {.chunk_bytes = 1 << 14,
                                          .buffers = 8,
                                          .lookahead = 1,
                                          .parameters = TIER_DISK,
                                          .gradients = TIER_HOST,
                                          .optimizer = TIER_DISK,
                                          .update = TIER_HOST}};
enum { POLICIES = sizeof policies / sizeof *policies };

static void open_llama(const struct backend *backend, const struct policy *policy, struct harness *out) {
    struct harness_options options = {.backend = backend,
                                      .folder = BALLAST_FIXTURES "/models/llama",
                                      .purpose = MODEL_LOSS,
                                      .dtype = DTYPE_BF16,
                                      .batch = BATCH,
                                      .sequence_length = TOKENS,
                                      .micro_batch_sequences = 1,
                                      .micro_batches_per_wave = 1,
                                      .policy = *policy,
                                      .clip_norm = 1};
    harness_open(&options, out);
}

static double step_once(struct harness *harness, int step) {
    outcome_set_batch(harness, step);
    return harness_step(harness, 1e-3 * (1 + step % 3), false);
}

/* The program's graph segments, and how many of them steps launch as graphs. */
struct graph_count {
    size_t graph_segments, graphs;
};

static struct graph_count count_graphs(const struct runner *runner) {
    struct graph_count count = {.graph_segments = runner->graph_segments.all.count};
    for (size_t s = 0; s < count.graph_segments; s++)
        count.graphs += runner->graphs[s] != NULL;
    return count;
}

struct course {
    double losses[STEPS];
    uint64_t weights;
    struct graph_count count;
    int64_t launches; /* that its graphs take in a step */
};

static struct course train(const struct backend *backend, const struct policy *policy) {
    struct harness harness;
    struct course course = {0};
    struct graph_segments graph_segments;
    open_llama(backend, policy, &harness);
    assert_int_equal(graph_segments_find(harness.executable->program, &graph_segments), STATUS_OK);
    for (int step = 0; step < STEPS; step++)
        course.losses[step] = step_once(&harness, step);
    course.count = count_graphs(harness.runner);
    for (size_t s = 0; s < course.count.graphs; s++) /* the first are captured first */
        course.launches += graph_segments.all.items[s].runs;
    course.weights = harness_fingerprint(&harness);
    graph_segments_free(&graph_segments);
    harness_close(&harness);
    return course;
}

static void require_equal(const struct course *a, const struct course *b) {
    for (int step = 0; step < STEPS; step++)
        if (memcmp(&a->losses[step], &b->losses[step], sizeof(double)) != 0)
            fail_msg("step %d: loss %.17g and %.17g", step, a->losses[step], b->losses[step]);
    assert_true(a->weights == b->weights);
}

/* As many graphs as there may be: all, none, some. */
static void graphs_give_the_same_bits(void **state) {
    (void)state;
    static const int64_t max[] = {INT64_MAX, 0, 3};
    for (int p = 0; p < POLICIES; p++) {
        struct course plain = train(&backend_cpu, &policies[p]);
        assert_int_equal(plain.count.graph_segments, 0);
        for (uint64_t seed = 1; seed <= 6; seed++) {
            const struct backend *backend = deferred_begin(seed);
            size_t limit = (size_t)max[seed % 3];
            deferred_limit_graphs(max[seed % 3]);
            struct course course = train(backend, &policies[p]);
            require_equal(&plain, &course);
            assert_true(course.count.graph_segments > 3);
            assert_int_equal(course.count.graphs,
                             course.count.graph_segments < limit ? course.count.graph_segments : limit);
            assert_int_equal(deferred_launches(), (STEPS - 1) * course.launches);
            deferred_end();
        }
    }
}

struct gate_calls {
    int64_t count, launches; /* graphs launched before the first */
};

static void count_gate(void *payload) {
    struct gate_calls *calls = payload;
    if (calls->count++ == 0) calls->launches = deferred_launches();
}

/* Graphs that change parameters or state wait for the gate, and there are some. */
static void the_gate_holds_back_updates(void **state) {
    (void)state;
    struct harness harness;
    struct graph_segments graph_segments;
    struct gate_calls calls = {0};
    int64_t changing = 0, alone = 0;
    open_llama(deferred_begin(2), &policies[0], &harness);
    const struct program *program = harness.executable->program;
    assert_int_equal(graph_segments_find(program, &graph_segments), STATUS_OK);
    for (size_t s = 0; s < graph_segments.all.count; s++)
        changing += graph_segments.all.items[s].changes_state;
    for (size_t i = 0; i < program->instructions.count; i++)
        alone += changes_state(program, (int32_t)i);
    assert_true(changing > 0 && alone > GRAPH_SEGMENT_MIN);
    for (int step = 0; step < 2; step++)
        (void)step_once(&harness, step);
    runner_set_gate(harness.runner, count_gate, &calls);
    (void)step_once(&harness, 2);
    assert_true(calls.count >= changing && calls.count < alone);
    assert_true(deferred_launches() - calls.launches >= changing);
    runner_set_gate(harness.runner, NULL, NULL);
    graph_segments_free(&graph_segments);
    harness_close(&harness);
    deferred_end();
}

static void see_nothing(void *payload, const struct runner *runner, int32_t instruction, int64_t run) {
    (void)payload, (void)runner, (void)instruction, (void)run;
}

/* Steps of which each instruction is looked at launch nothing. */
static void observed_steps_use_no_graphs(void **state) {
    (void)state;
    struct harness harness;
    struct timeline timeline;
    struct course plain = train(&backend_cpu, &policies[2]);
    open_llama(deferred_begin(2), &policies[2], &harness);
    assert_int_equal(timeline_create(harness.executable->program, &timeline), STATUS_OK);
    for (int step = 0; step < STEPS; step++) {
        int64_t before = deferred_launches();
        runner_set_recorder(harness.runner, step == 1 || step == 3 ? &timeline : NULL);
        runner_set_observer(harness.runner, step == 4 ? see_nothing : NULL, NULL);
        assert_true(step_once(&harness, step) == plain.losses[step]);
        assert_true((deferred_launches() > before) == (step == 2 || step == 5));
    }
    assert_true(harness_fingerprint(&harness) == plain.weights);
    timeline_free(&timeline);
    harness_close(&harness);
    deferred_end();
}

/* Wherever the device fails in a step of launches, the step ends, says so and is the last. */
static void refused_graphs_become_calls(void **state) {
    (void)state;
    for (int64_t at = 1; at < 400; at += 37) {
        struct harness harness;
        double scalars[SCALAR_COUNT] = {[SCALAR_LOSS_SCALE] = 1};
        open_llama(deferred_begin((uint64_t)at), &policies[at % POLICIES], &harness);
        for (int step = 0; step < 2; step++)
            (void)step_once(&harness, step);
        deferred_fail_after(at);
        assert_int_equal(runner_step(harness.runner, scalars), STATUS_FAILED);
        assert_non_null(strstr(status_message(), "the device failed as planted"));
        assert_int_equal(runner_step(harness.runner, scalars), STATUS_FAILED);
        harness_close(&harness);
        deferred_end();
    }
}

/* Where there is a GPU: every graph segment can be captured, and nothing depends on it. */
static void graph_segments_are_issued_as_graphs(void **state) {
    (void)state;
    const char *device = getenv("BALLAST_TEST_BACKEND");
    if (!device || strcmp(device, "deferred") == 0) unit_skip("no GPU is named; needs BALLAST_TEST_BACKEND=cuda");
    for (int p = 0; p < POLICIES; p++) {
        setenv("BALLAST_CUDA_GRAPHS", "off", 1);
        struct course plain = train(NULL, &policies[p]);
        setenv("BALLAST_CUDA_GRAPHS", "on", 1);
        struct course course = train(NULL, &policies[p]);
        require_equal(&plain, &course);
        assert_int_equal(plain.count.graphs, 0);
        if (course.count.graphs < course.count.graph_segments)
            fail_msg("%zu of %zu spans were captured: %s", course.count.graphs, course.count.graph_segments,
                     status_message());
        assert_true(course.count.graphs > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(graph_segments_are_issued_as_graphs),
                                       cmocka_unit_test(graph_segments_of_random_policies_are_legal),
                                       cmocka_unit_test(graph_segments_of_random_streams_are_legal),
                                       cmocka_unit_test(planted_faults_are_found),
                                       cmocka_unit_test(graphs_give_the_same_bits),
                                       cmocka_unit_test(the_gate_holds_back_updates),
                                       cmocka_unit_test(observed_steps_use_no_graphs),
                                       cmocka_unit_test(refused_graphs_become_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
