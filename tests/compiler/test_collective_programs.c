/* Collective operators of a group of ranks in programs: proved for each rank and for all, on groups of 2 and 4 ranks
 * with data-parallel ranks and stages, under any policy. Planted faults are found. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "compiler/program.h"
#include "search/sim/simulate.h"
#include "support/collective_graph.h"
#include "support/compile_proved.h"
#include "support/fault_sweep.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/unit.h"

enum { MICRO_BATCHES = 4, RANKS_MAX = 8 };

struct ranks {
    int count;
    struct graph *graphs[RANKS_MAX];
    struct program *programs[RANKS_MAX];
    struct recipe recipe;
};

static struct rank_place place_of(struct mesh mesh, int tensor, int rank) {
    return (struct rank_place){.mesh = mesh, .rank = rank, .tensor_parallel = tensor, .tier = TIER_DEVICE};
}

static void ranks_free(struct ranks *ranks) {
    for (int r = 0; r < ranks->count; r++) {
        program_free(ranks->programs[r]);
        graph_free(ranks->graphs[r]);
    }
}

/* The program of one rank; NULL with a message. */
static struct program *compile(const struct graph *graph, const struct plan *plan) {
    struct program *program = NULL;
    int64_t *bytes = small_graph_workspace(graph);
    const struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    enum status status = program_compile_proved(graph, plan, &table, &program);
    mem_free(bytes);
    return status == STATUS_OK ? program : NULL;
}

/* `of`: the place of one of the ranks. */
static void ranks_make_of(enum dtype dtype, const struct rank_place *of, const struct policy *policy,
                          struct ranks *out) {
    *out = (struct ranks){.count = rank_place_ranks(of)};
    for (int r = 0; r < out->count; r++) {
        struct rank_place place = *of;
        place.rank = r;
        const struct group_part part = {.parts = of->tensor_parallel, .position = rank_place_tensor_rank(&place)};
        out->graphs[r] = collective_graph_build(dtype, part);
        struct plan plan = collective_plan(out->graphs[r], &place, MICRO_BATCHES);
        if (policy) plan.policy = *policy;
        out->recipe = plan.recipe;
        out->programs[r] = compile(out->graphs[r], &plan);
        if (!out->programs[r]) fail_msg("rank %d: %s", r, status_message());
    }
}

static void ranks_make(struct mesh mesh, int tensor, const struct policy *policy, struct ranks *out) {
    const struct rank_place place = place_of(mesh, tensor, 0);
    ranks_make_of(DTYPE_F32, &place, policy, out);
}

static enum status verify(const struct ranks *ranks) {
    const struct program *programs[RANKS_MAX];
    memcpy(programs, ranks->programs, sizeof programs);
    return program_verify_ranks(programs, ranks->count, &ranks->recipe);
}

static void expect_proved(struct mesh mesh, int tensor, const struct policy *policy) {
    struct ranks ranks;
    ranks_make(mesh, tensor, policy, &ranks);
    if (verify(&ranks) != STATUS_OK) fail_msg("%d of %d: %s", tensor, ranks.count, status_message());
    ranks_free(&ranks);
}

static void programs_of_all_ranks_are_proved(void **state) {
    (void)state;
    const struct mesh two = {1, 2}, four = {1, 4}, nodes = {2, 2}, eight = {2, 4};
    expect_proved(two, 2, NULL);
    expect_proved(four, 4, NULL);
    expect_proved(four, 2, NULL);
    expect_proved(nodes, 2, NULL);
    expect_proved(nodes, 4, NULL);
    expect_proved(eight, 4, NULL);
    expect_proved(eight, 2, NULL);
}

/* Stages of ranks that share tensors, with data ranks with partitions. */
static void stages_of_such_ranks_are_proved(void **state) {
    (void)state;
    static const struct {
        struct mesh mesh;
        int tensor, stages;
    } places[] = {{{1, 4}, 2, 2}, {{2, 4}, 2, 2}, {{1, 8}, 4, 2}, {{2, 4}, 2, 4}, {{1, 6}, 2, 3}};
    for (uint64_t seed = 0; seed < unit_sweep(10, 200); seed++) {
        size_t p = seed % (sizeof places / sizeof *places);
        struct rank_place place = place_of(places[p].mesh, places[p].tensor, 0);
        place.pipeline_parallel = places[p].stages;
        const struct mesh data = rank_place_data_mesh(&place);
        struct graph *graph =
            collective_graph_build(DTYPE_F32, (struct group_part){.parts = place.tensor_parallel, .position = 0});
        struct policy policy = random_policy(graph, MICRO_BATCHES / mesh_ranks(&data), &data, seed);
        if (seed & 1 && place.pipeline_parallel == 2) snprintf(policy.spans, sizeof policy.spans, "1 3 4");
        struct ranks ranks;
        ranks_make_of(DTYPE_F32, &place, &policy, &ranks);
        if (verify(&ranks) != STATUS_OK) {
            print_policy(&policy, seed);
            fail_msg("%d stages of %d ranks: %s", place.pipeline_parallel, ranks.count, status_message());
        }
        ranks_free(&ranks);
        graph_free(graph);
    }
}

static void random_policies_are_proved(void **state) {
    (void)state;
    struct graph *graph = collective_graph_build(DTYPE_F32, (struct group_part){.parts = 2, .position = 0});
    for (uint64_t seed = 0; seed < unit_sweep(12, 200); seed++) {
        const struct policy policy = random_policy(graph, MICRO_BATCHES / 2, NULL, seed);
        expect_proved((struct mesh){2, 2}, 2, &policy);
    }
    graph_free(graph);
}

/* ---- one rank, or a group of one ---- */

static void a_group_of_one_needs_no_collectives(void **state) {
    (void)state;
    struct graph *graph = collective_graph_build(DTYPE_F32, (struct group_part){.parts = 1, .position = 0});
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct op *op = graph->nodes.items[n]->op;
        assert_false(op->collective || op == &op_convert || op == &op_to_parts || op == &op_cut || op == &op_copy_in);
    }
    graph_free(graph);
}

static void a_plan_for_another_group_is_refused(void **state) {
    (void)state;
    const struct rank_place alone = {.rank = 0}, other = place_of((struct mesh){1, 2}, 2, 1);
    struct graph *graph = collective_graph_build(DTYPE_F32, (struct group_part){.parts = 2, .position = 0});
    struct plan plan = collective_plan(graph, &alone, MICRO_BATCHES);
    assert_null(compile(graph, &plan));
    assert_non_null(strstr(status_message(), "made for rank 0 of 2, in a plan for rank 0 of 1"));
    plan = collective_plan(graph, &other, MICRO_BATCHES);
    assert_null(compile(graph, &plan));
    assert_non_null(strstr(status_message(), "made for rank 0 of 2, in a plan for rank 1 of 2"));
    graph_free(graph);
}

/* ---- bytes ---- */

/* Of all ranks together (collective.h). What is rounded to bf16 is sent as it, the sum that an all-reduce gathers too:
 * two bytes up the tree and two down it for each value. */
static int64_t bytes_moved(const struct program_collective *operation) {
    int64_t bytes = operation->bytes * (operation->group.count - 1);
    bool reduces = operation->kind == COMM_ALL_REDUCE || operation->kind == COMM_REDUCE_SCATTER;
    int64_t summed = operation->round_bf16 ? bytes / 2 : bytes;
    if (!reduces) return bytes;
    return operation->kind == COMM_ALL_REDUCE ? 2 * summed : summed;
}

static void bytes_are_those_of_the_definition(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        struct ranks ranks;
        int kinds[COMM_KINDS] = {0}, rounded = 0, along_axes = 0;
        const struct rank_place place = place_of((struct mesh){1, 4}, 4, 0);
        ranks_make_of(d ? DTYPE_BF16 : DTYPE_F32, &place, NULL, &ranks);
        const struct program *first = ranks.programs[0];
        for (size_t c = 0; c < first->collectives.count; c++) {
            int64_t sent = 0;
            for (int r = 0; r < ranks.count; r++)
                sent += ranks.programs[r]->collectives.items[c].traffic.sent[MESH_IN_NODE];
            const struct program_collective *operation = &first->collectives.items[c];
            int groups = ranks.count / operation->group.count; /* along an axis several */
            assert_int_equal(sent, groups * bytes_moved(operation));
            kinds[operation->kind]++;
            rounded += operation->round_bf16;
            along_axes += groups > 1;
        }
        assert_true(kinds[COMM_ALL_REDUCE] > 3 && kinds[COMM_REDUCE_SCATTER] > 3 && kinds[COMM_ALL_GATHER] > 3);
        assert_int_equal(kinds[COMM_ALL_TO_ALL], 6 * 3); /* three forward, three backward; in each of three sections */
        assert_true(along_axes > 6);
        assert_true(d ? rounded > 3 : rounded == 0);
        ranks_free(&ranks);
    }
}

/* ---- planted faults ---- */

static struct instruction *find(struct program *program, enum opcode opcode, int number) {
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode == opcode && instruction->node && number-- == 0) return instruction;
    }
    fail_msg("no such instruction");
    return NULL;
}

static struct program_collective *operation_of(struct program *program, const struct instruction *instruction) {
    return &program->collectives.items[instruction->collective];
}

static void expect_found(const struct ranks *ranks, const char *message) {
    assert_int_equal(verify(ranks), STATUS_FAILED);
    if (!strstr(status_message(), message)) fail_msg("%s", status_message());
}

static void expect_refused(const struct program *program, const char *message) {
    assert_int_equal(program_verify(program), STATUS_FAILED);
    if (!strstr(status_message(), message)) fail_msg("%s", status_message());
}

static void a_wrong_group_is_found(void **state) {
    (void)state;
    struct ranks ranks;
    ranks_make((struct mesh){1, 4}, 2, NULL, &ranks);
    struct program *program = ranks.programs[2];
    struct program_collective *gather = operation_of(program, find(program, OPCODE_ALL_GATHER, 1));
    gather->group = (struct comm_group){.first = 0, .stride = 2, .count = 2};
    expect_refused(program, "not an operation of the tensor group");
    expect_found(&ranks, "is another than operation");
    ranks_free(&ranks);
}

static void parts_of_another_rank_are_found(void **state) {
    (void)state;
    struct ranks ranks;
    ranks_make((struct mesh){1, 2}, 2, NULL, &ranks);
    struct instruction *take = find(ranks.programs[1], OPCODE_TAKE, 0);
    take->operands[0].offset = 0;
    expect_refused(ranks.programs[1], "not this rank's part");
    ranks_free(&ranks);
}

static void a_missing_wait_is_found(void **state) {
    (void)state;
    struct ranks ranks;
    ranks_make((struct mesh){1, 2}, 2, NULL, &ranks);
    static const enum opcode opcodes[] = {OPCODE_ALL_REDUCE, OPCODE_REDUCE_SCATTER, OPCODE_ALL_GATHER,
                                          OPCODE_ALL_TO_ALL};
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
        struct instruction *instruction = find(ranks.programs[0], opcodes[i], 0);
        int32_t waits = instruction->wait_count;
        assert_true(waits > 0);
        instruction->wait_count = 0;
        assert_int_equal(program_verify(ranks.programs[0]), STATUS_FAILED);
        instruction->wait_count = waits;
    }
    assert_int_equal(program_verify(ranks.programs[0]), STATUS_OK);
    ranks_free(&ranks);
}

/* Two sums of one size that do not depend on each other: `swapped`, the second is made first. */
static struct graph *two_sums(struct group_part part, bool swapped) {
    struct graph *graph = graph_create(DTYPE_F32, COLLECTIVE_SEQUENCES, COLLECTIVE_LENGTH);
    struct shape shape = shape_make(DTYPE_F32, 3, COLLECTIVE_SEQUENCES, COLLECTIVE_LENGTH, 16);
    struct shape ids = shape_make(DTYPE_I32, 2, COLLECTIVE_SEQUENCES, COLLECTIVE_LENGTH, 1);
    graph_begin_block(graph, "sums");
    struct tensor *table = graph_parameter(graph, "table", 2, COLLECTIVE_VOCABULARY, shape.dims[2]);
    struct tensor *x = ops_embedding(graph, "embedding", graph_tensor(graph, TENSOR_INPUT, "tokens", ids), table);
    struct tensor *y = ops_scale(graph, "scaled", x, 2), *sums[2];
    sums[swapped] = ops_reduce_out(graph, swapped ? "second" : "first", swapped ? y : x, part);
    sums[!swapped] = ops_reduce_out(graph, swapped ? "first" : "second", swapped ? x : y, part);
    struct tensor *sum = ops_add(graph, "sum", sums[0], sums[1]);
    if (graph_status(graph) != STATUS_OK) fail_msg("%s", status_message());
    sum->kept = true;
    return graph;
}

/* Each program by itself is right, and equal operations meet: with the other rank's sum. */
static void another_order_on_one_rank_is_found(void **state) {
    (void)state;
    for (int swapped = 0; swapped < 2; swapped++) {
        struct ranks ranks = {.count = 2};
        for (int r = 0; r < ranks.count; r++) {
            const struct rank_place place = place_of((struct mesh){1, 2}, 2, r);
            ranks.graphs[r] = two_sums((struct group_part){.parts = 2, .position = r}, swapped && r == 1);
            struct plan plan = collective_plan(ranks.graphs[r], &place, MICRO_BATCHES);
            ranks.recipe = plan.recipe;
            ranks.programs[r] = compile(ranks.graphs[r], &plan);
            if (!ranks.programs[r]) fail_msg("%s", status_message());
        }
        if (swapped)
            expect_found(&ranks, "is another than operation");
        else if (verify(&ranks) != STATUS_OK)
            fail_msg("%s", status_message());
        ranks_free(&ranks);
    }
}

/* ---- time ---- */

/* Only messages take time, a second each. */
static double seconds_of(const struct graph *graph, const struct program *program, struct kernel_cost *out) {
    struct costs costs = {.kernels = mem_array(graph->nodes.count, sizeof *costs.kernels),
                          .count = (int32_t)graph->nodes.count,
                          .rates = {.measured = true, .zero = {0, 1e30}}};
    struct timeline timeline;
    assert_non_null(costs.kernels);
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            costs.rates.slowdown[a][b] = 1;
    costs.rates.links =
        (struct cluster_links){.mesh = {1, 3}, .message = {[MESH_IN_NODE] = {1, 1e30}}, .read = {1, 1e30}};
    costs_set_collectives(&costs, program);
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!instruction->node || !instruction->node->op->collective || instruction->opcode == OPCODE_TAKE) continue;
        assert_true(costs_of(&costs, program, instruction).seconds == costs.kernels[instruction->node->id].seconds);
        assert_int_equal(costs.kernels[instruction->node->id].activity, ACTIVITY_MESSAGE);
        *out = costs.kernels[instruction->node->id];
    }
    assert_int_equal(simulate(program, &costs, &timeline), STATUS_OK);
    double seconds = timeline.step_s;
    timeline_free(&timeline);
    costs_free(&costs);
    return seconds;
}

static int count_operations(const struct program *program) {
    int64_t count = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (opcode_is_collective(instruction->opcode)) count += program->sections.items[instruction->section].repeat;
    }
    return (int)count;
}

/* Operations that are executed again are costed again, and moved again. */
static void recomputing_costs_messages(void **state) {
    (void)state;
    const struct policy policy = {.micro_batches_per_wave = 1, .schedule = "f0-5 b5-4 f3 b3 f1-2 b2 f1 b1-0"};
    struct ranks kept, again;
    struct kernel_cost one = {0};
    ranks_make((struct mesh){1, 2}, 2, NULL, &kept);
    ranks_make((struct mesh){1, 2}, 2, &policy, &again);
    int kept_count = count_operations(kept.programs[0]), again_count = count_operations(again.programs[0]);
    double kept_s = seconds_of(kept.graphs[0], kept.programs[0], &one);
    double again_s = seconds_of(again.graphs[0], again.programs[0], &one);
    assert_true(again_count > kept_count && one.seconds >= 1);
    assert_true(kept_s >= kept_count && again_s >= again_count && again_s > kept_s);
    assert_true(collectives_traffic(again.programs[0]).sent[MESH_IN_NODE] >
                collectives_traffic(kept.programs[0]).sent[MESH_IN_NODE]);
    ranks_free(&kept);
    ranks_free(&again);
}

/* ---- without memory ---- */

static enum status compile_once(void *payload) {
    struct program *program = NULL;
    const struct graph *graph = payload;
    const struct rank_place place = place_of((struct mesh){1, 2}, 2, 0);
    const struct plan plan = collective_plan(graph, &place, 1);
    int64_t bytes[1024] = {0};
    const struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    enum status status = program_compile_proved(graph, &plan, &table, &program);
    program_free(program);
    return status;
}

static void allocations_may_fail(void **state) {
    (void)state;
    struct graph *graph = two_sums((struct group_part){.parts = 2, .position = 0}, false);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, compile_once, graph) > 10);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_of_all_ranks_are_proved),
        cmocka_unit_test(random_policies_are_proved),
        cmocka_unit_test(stages_of_such_ranks_are_proved),
        cmocka_unit_test(a_group_of_one_needs_no_collectives),
        cmocka_unit_test(a_plan_for_another_group_is_refused),
        cmocka_unit_test(bytes_are_those_of_the_definition),
        cmocka_unit_test(a_wrong_group_is_found),
        cmocka_unit_test(parts_of_another_rank_are_found),
        cmocka_unit_test(a_missing_wait_is_found),
        cmocka_unit_test(another_order_on_one_rank_is_found),
        cmocka_unit_test(recomputing_costs_messages),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
