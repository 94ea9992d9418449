/* Schedules and placements of random programs are legal, tight, and the same on every machine. */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "support/compile_proved.h"
#include "support/fault_sweep.h"
#include "support/in_place_graph.h"
#include "support/small_graph.h"
#include "support/unit.h"

static uint64_t draw(uint64_t seed, uint64_t index, uint64_t below) {
    return random_u64(seed, RANDOM_TEST, 7, index) % below;
}

static struct graph *random_graph(uint64_t seed) {
    return small_graph_build(&(struct small_graph_options){
        .layers = 1 + (int)draw(seed, 0, 4),
        .tied = draw(seed, 1, 2),
        .packed_qkv = draw(seed, 2, 2),
        .dtype = draw(seed, 3, 2) ? DTYPE_F32 : DTYPE_BF16,
        .micro_batch_sequences = 1 + (int64_t)draw(seed, 4, 3),
        .sequence_length = 1 + (int64_t)draw(seed, 5, 9),
        .forward_only = draw(seed, 6, 4) == 0,
    });
}

static void in_place(void **state) {
    (void)state;
    struct graph *graph = in_place_graph();
    assert_int_equal(graph_status(graph), STATUS_OK);
    struct program *program = small_program(graph, 1, 1, 1, 1);
    assert_int_equal(program->instructions.count, graph->nodes.count);
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        bool shared = instruction->operands[0].buffer == instruction->operands[OP_INPUTS_MAX].buffer;
        if (shared != in_place_expected(instruction->node)) fail_msg("'%s'", instruction->node->name);
    }
    program_free(program);
    graph_free(graph);
}

static void random_programs_verify(void **state) {
    (void)state;
    for (uint64_t seed = 1, last = unit_sweep(60, 2000); seed <= last; seed++) {
        struct graph *graph = random_graph(seed);
        int64_t micro_batches = 1 + (int64_t)draw(seed, 8, 7),
                slots = 1 + (int64_t)draw(seed, 9, (uint64_t)micro_batches);
        int streams = 1 + (int)draw(seed, 10, 4);
        struct program *program = small_program(graph, micro_batches, slots, streams, seed);
        if (program_verify(program) != STATUS_OK) fail_msg("seed %llu: %s", (unsigned long long)seed, status_message());
        int64_t arena = program->tier_bytes[TIER_DEVICE], live = program->live_bytes[TIER_DEVICE];
        if (arena * 100 > live * 110)
            fail_msg("seed %llu: arena %lld, live %lld", (unsigned long long)seed, (long long)arena, (long long)live);
        program_free(program);
        graph_free(graph);
    }
}

static void a_deep_model_is_scheduled(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&(struct small_graph_options){.layers = 48,
                                                                          .tied = true,
                                                                          .packed_qkv = true,
                                                                          .dtype = DTYPE_BF16,
                                                                          .micro_batch_sequences = 1,
                                                                          .sequence_length = 4});
    struct program *program = small_program(graph, 2, 1, 1, 1);
    if (program_verify(program) != STATUS_OK) fail_msg("%s", status_message());
    program_free(program);
    graph_free(graph);
}

static void micro_batches_are_dealt_to_waves(void **state) {
    (void)state;
    struct graph *graph = random_graph(3);
    for (int64_t micro_batches = 1; micro_batches <= 9; micro_batches++)
        for (int64_t slots = 1; slots <= micro_batches; slots++) {
            struct program *program = small_program(graph, micro_batches, slots, 1, 1);
            int64_t covered = 0;
            for (size_t s = 0; s < program->sections.count; s++) {
                const struct section *section = &program->sections.items[s];
                if (section->first_micro_batch < 0) continue;
                assert_int_equal(section->first_micro_batch, covered);
                covered += section->micro_batches * section->repeat;
            }
            assert_int_equal(covered, micro_batches);
            program_free(program);
        }
    graph_free(graph);
}

static void parameters_lie_alike(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 2, .dtype = DTYPE_BF16, .micro_batch_sequences = 1, .sequence_length = 4};
    struct graph *train = small_graph_build(&options);
    options.forward_only = true;
    struct graph *forward = small_graph_build(&options);
    struct program *a = small_program(train, 4, 2, 1, 1), *b = small_program(forward, 4, 4, 1, 1);
    int compared = 0;
    for (size_t i = 0; i < forward->tensors.count; i++) {
        const struct tensor *tensor = forward->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER) continue;
        struct tensor_run there, here;
        const struct buffer *x = program_find_buffer(a, graph_find(train, tensor->name), &there);
        const struct buffer *y = program_find_buffer(b, tensor, &here);
        assert_int_equal(x->offset + there.offset, y->offset + here.offset);
        compared++;
    }
    assert_true(compared > 10);
    program_free(a);
    program_free(b);
    graph_free(train);
    graph_free(forward);
}

static void memory_report_adds_up(void **state) {
    (void)state;
    struct graph *graph = random_graph(12);
    struct program *program = small_program(graph, 4, 2, 1, 1);
    struct memory_report report;
    assert_int_equal(program_report_memory(program, TIER_DEVICE, &report), STATUS_OK);
    int64_t sum = report.unused;
    for (int k = 0; k < BUFFER_KIND_COUNT; k++)
        sum += report.by_kind[k];
    assert_int_equal(sum, report.total);
    assert_int_equal(report.total, program->tier_bytes[TIER_DEVICE]);
    assert_true(report.by_kind[BUFFER_PARAMETERS] > 0 && report.unused >= 0);
    program_free(program);
    graph_free(graph);
}

static enum status compile_once(void *payload) {
    struct graph *graph = payload;
    struct plan plan = small_plan(graph, 3, 2);
    int64_t bytes[512] = {0};
    struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct program *program;
    TRY(program_compile_proved(graph, &plan, &table, &program));
    program_free(program);
    return STATUS_OK;
}

static void allocations_may_fail(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&(struct small_graph_options){
        .layers = 1, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 3});
    assert_true(graph->nodes.count < 512);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, compile_once, graph) > 10);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_place),
        cmocka_unit_test(random_programs_verify),
        cmocka_unit_test(a_deep_model_is_scheduled),
        cmocka_unit_test(micro_batches_are_dealt_to_waves),
        cmocka_unit_test(parameters_lie_alike),
        cmocka_unit_test(memory_report_adds_up),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
