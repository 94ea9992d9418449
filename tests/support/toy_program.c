#include "support/toy_program.h"

#include "base/random.h"
#include "ir/ops/ops.h"
#include "support/unit.h"

static void add_instruction(struct toy *toy, const struct toy_instruction *toy_instruction, int section) {
    struct program *program = &toy->program;
    struct node *node = scratch_alloc(&toy->graph->memory, 1, sizeof *node);
    assert_non_null(node);
    *node = (struct node){.id = (int)program->instructions.count, .name = "toy", .phase = toy_instruction->phase};
    assert_int_equal(vec_push(&toy->graph->nodes, node), STATUS_OK);
    struct instruction instruction = {
        .opcode = OPCODE_KERNEL, .node = node, .stream = toy_instruction->stream, .section = section};
    instruction.waits = mem_array(TOY_WAITS, sizeof *instruction.waits);
    assert_non_null(instruction.waits);
    for (int k = 0; k < OPERANDS_MAX; k++)
        instruction.operands[k].buffer = -1;
    for (int w = 0; w < TOY_WAITS && toy_instruction->waits[w] > 0; w++)
        instruction.waits[instruction.wait_count++] = toy_instruction->waits[w] - 1;
    assert_int_equal(vec_push(&program->instructions, instruction), STATUS_OK);
    toy->costs.kernels[node->id] = (struct kernel_cost){toy_instruction->seconds, toy_instruction->activity};
}

void set_slowdowns(struct costs *costs, double slowdown) {
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            costs->rates.slowdown[a][b] = slowdown;
}

void toy_create(const struct toy_section *sections, const struct toy_instruction *instructions, int streams,
                struct toy *out) {
    enum { INSTRUCTIONS_MAX = 64 };
    *out = (struct toy){.graph = graph_create(DTYPE_F32, 1, 1), .program = {.streams = streams, .alignment = 64}};
    assert_non_null(out->graph);
    out->program.graph = out->graph;
    for (int s = 0; s < streams; s++)
        out->program.roles[s] = (enum stream_role)s;
    out->costs =
        (struct costs){.kernels = mem_array(INSTRUCTIONS_MAX, sizeof *out->costs.kernels), .count = INSTRUCTIONS_MAX};
    assert_non_null(out->costs.kernels);
    set_slowdowns(&out->costs, 1);
    for (int s = 0; sections[s].count > 0; s++) {
        struct section section = {
            .name = "toy", .count = sections[s].count, .repeat = sections[s].repeat, .micro_batches = 1};
        section.first = (int32_t)out->program.instructions.count;
        assert_int_equal(vec_push(&out->program.sections, section), STATUS_OK);
        for (int32_t i = 0; i < section.count; i++)
            add_instruction(out, &instructions[section.first + i], s);
    }
}

void toy_free(struct toy *toy) {
    for (size_t i = 0; i < toy->program.instructions.count; i++)
        mem_free(toy->program.instructions.items[i].waits);
    vec_free(&toy->program.sections);
    vec_free(&toy->program.instructions);
    graph_free(toy->graph);
    costs_free(&toy->costs);
}

static double draw(uint64_t seed, uint32_t what, uint64_t index, double min, double max) {
    return min + (max - min) * (double)(random_u64(seed, RANDOM_TEST, what, index) >> 11) * 0x1p-53;
}

void random_costs(const struct graph *graph, uint64_t seed, struct costs *out) {
    *out = (struct costs){.kernels = mem_array(graph->nodes.count, sizeof *out->kernels),
                          .count = (int32_t)graph->nodes.count,
                          .rates = {.measured = true, .issue_s = 1e-7, .zero = {1e-6, 1e9}}};
    assert_non_null(out->kernels);
    for (size_t n = 0; n < graph->nodes.count; n++)
        out->kernels[n] =
            (struct kernel_cost){draw(seed, 11, n, 1e-6, 1e-4),
                                 random_u64(seed, RANDOM_TEST, 12, n) % 2 ? ACTIVITY_PRODUCT : ACTIVITY_STREAMING};
    for (int a = 0; a < TIER_COUNT; a++)
        for (int b = 0; b < TIER_COUNT; b++)
            out->rates.copy[a][b] = (struct transfer_rate){draw(seed, 13, (uint64_t)(8 * a + b), 1e-6, 2e-5),
                                                           draw(seed, 14, (uint64_t)(8 * a + b), 1e8, 1e10)};
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            out->rates.slowdown[a][b] = draw(seed, 15, (uint64_t)(8 * a + b), 1, 3);
}
