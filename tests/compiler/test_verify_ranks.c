/* Programs of all ranks: compiled ones are proved, and a fault planted in one of them is found. */
/* ctest: TIMEOUT 600 */
#include <string.h>

#include "base/random.h"
#include "plan/lane_shares.h"
#include "support/fault_sweep.h"
#include "support/policy_features.h"
#include "support/random_policy.h"
#include "support/rank_programs.h"
#include "support/small_graph.h"
#include "support/unit.h"

static int roll(uint64_t seed, uint64_t *next, int sides) {
    return (int)(random_u64(seed, RANDOM_TEST, 15, (*next)++) % (uint64_t)sides);
}

/* A plan of lanes, rounds and a random policy, for as many ranks as hold the lanes, of several nodes or of one. */
static struct plan draw_plan(const struct graph *graph, uint64_t seed) {
    static const struct lane_shape shapes[] = {{1, 1}, {1, 2}, {1, 3}, {1, 8}, {2, 4}, {2, 3}, {4, 1}, {3, 2}};
    uint64_t next = 0;
    int64_t micro_batches = 1 + roll(seed, &next, 14);
    struct plan plan = small_plan(graph, micro_batches, 1);
    plan.recipe.lanes = shapes[roll(seed, &next, sizeof shapes / sizeof *shapes)];
    plan.recipe.round_micro_batches = roll(seed, &next, 4);
    plan.recipe.reduce_dtype = seed % 3 == 0 ? DTYPE_BF16 : DTYPE_F32;
    plan.policy = random_policy(graph, recipe_share_micro_batches(&plan.recipe), NULL, seed);
    struct lane_tree tree;
    assert_int_equal(lane_tree_of_shape(&plan.recipe.lanes, &tree), STATUS_OK);
    int ranks = 1 + roll(seed, &next, tree.lanes);
    while (!lane_tree_holds(&tree, ranks))
        ranks++;
    lane_tree_free(&tree);
    int nodes = 1 + roll(seed, &next, 3);
    plan.place.mesh = ranks % nodes == 0 ? (struct mesh){nodes, ranks / nodes} : (struct mesh){1, ranks};
    plan.place.in_place = roll(seed, &next, 2);
    plan.place.message_bytes = roll(seed, &next, 2) ? 256 : 0;
    plan.place.tier = roll(seed, &next, 3) == 0 ? TIER_HOST : TIER_DEVICE;
    return plan;
}

static struct graph *draw_graph(uint64_t seed) {
    return small_graph_build(&(struct small_graph_options){.layers = 3,
                                                           .tied = seed & 1,
                                                           .packed_qkv = seed >> 1 & 1,
                                                           .dtype = seed & 4 ? DTYPE_BF16 : DTYPE_F32,
                                                           .micro_batch_sequences = 2,
                                                           .sequence_length = 4});
}

static void random_programs_of_ranks_are_proved(void **state) {
    (void)state;
    uint64_t count = unit_sweep(60, 1000);
    int64_t several = 0, empty = 0, operations = 0;
    for (uint64_t seed = 1; seed <= count; seed++) {
        struct graph *graph = draw_graph(seed);
        struct plan plan = draw_plan(graph, seed);
        struct rank_programs ranks;
        enum status status = rank_programs_compile_small(graph, &plan, &ranks);
        if (status == STATUS_OK) status = rank_programs_verify(&ranks);
        if (status != STATUS_OK) {
            char shape[LANE_SHAPE_BYTES];
            print_policy(&plan.policy, seed);
            fail_msg("lanes %s, rounds of %lld, %lld micro-batches, %dx%d ranks: %s",
                     lane_shape_print(&plan.recipe.lanes, shape), (long long)plan.recipe.round_micro_batches,
                     (long long)recipe_micro_batches(&plan.recipe), plan.place.mesh.nodes, plan.place.mesh.per_node,
                     status_message());
        }
        several += ranks.count > 1;
        operations += (int64_t)ranks.programs[0]->collectives.count;
        for (size_t c = 0; c < ranks.programs[0]->collectives.count; c++)
            empty += ranks.programs[0]->collectives.items[c].empty != NULL;
        rank_programs_drop(&ranks);
        graph_free(graph);
    }
    print_message("%lld plans of several ranks, %lld operations, %lld with ranks that have nothing\n",
                  (long long)several, (long long)operations, (long long)empty);
    assert_true(several > 10 && empty > 0);
}

/* ---- planted faults ---- */

/* Four ranks on two nodes, lanes 8 in two rounds, of which the last lane has fewer micro-batches. */
static struct plan plan_of_four(const struct graph *graph) {
    struct plan plan = small_plan(graph, 15, 1);
    plan.recipe.lanes = (struct lane_shape){1, 8};
    plan.recipe.round_micro_batches = 1;
    plan.policy.lookahead = 1;
    plan.place.mesh = (struct mesh){2, 2};
    plan.place.in_place = true;
    return plan;
}

static struct instruction *find(struct program *program, enum opcode opcode, int number) {
    for (size_t i = 0; i < program->instructions.count; i++)
        if (program->instructions.items[i].opcode == opcode && number-- == 0) return &program->instructions.items[i];
    fail_msg("no instruction %d of opcode %d", number, (int)opcode);
    return NULL;
}

static void add_the_wrong_way_round(struct rank_programs *ranks) {
    struct instruction *add = find(ranks->programs[1], OPCODE_ADD, 0);
    int32_t from = add->operands[0].buffer;
    add->operands[0].buffer = add->operands[OP_INPUTS_MAX].buffer;
    add->operands[OP_INPUTS_MAX].buffer = from;
}

static void hold_another_tree(struct rank_programs *ranks) { ranks->plan.recipe.lanes = (struct lane_shape){1, 9}; }

static void add_a_lane_twice(struct rank_programs *ranks) {
    struct instruction *add = find(ranks->programs[2], OPCODE_ADD, 1);
    add->opcode = OPCODE_COPY;
}

static void round_an_edge(struct rank_programs *ranks) {
    find(ranks->programs[2], OPCODE_ADD, 0)->opcode = OPCODE_ADD_BF16;
}

static void send_rounded_sums(struct rank_programs *ranks) {
    for (int rank = 0; rank < ranks->count; rank++)
        ranks->programs[rank]->collectives.items[0].round_bf16 = true;
}

static void take_another_rank_s_rows(struct rank_programs *ranks) {
    ranks->programs[3]->sections.items[0].first_micro_batch++;
}

static void swap_two_operations(struct rank_programs *ranks) {
    struct instruction *one = find(ranks->programs[0], OPCODE_ALL_REDUCE, 0);
    struct instruction *two = find(ranks->programs[0], OPCODE_ALL_REDUCE, 1);
    one->collective = 1;
    two->collective = 0;
}

/* Both list and instructions: the ranks then sum different gradients. */
static void reduce_in_another_order(struct rank_programs *ranks) {
    struct program *program = ranks->programs[0];
    struct instruction *one = find(program, OPCODE_ALL_REDUCE, 0), *two = find(program, OPCODE_ALL_REDUCE, 1);
    struct program_collective *list = program->collectives.items, first = list[0];
    list[0] = list[1];
    list[1] = first;
    struct operand data = one->operands[OP_INPUTS_MAX];
    one->operands[OP_INPUTS_MAX] = two->operands[OP_INPUTS_MAX];
    two->operands[OP_INPUTS_MAX] = data;
}

static void leave_an_operation_out(struct rank_programs *ranks) { ranks->programs[2]->collectives.count--; }
static void send_more_bytes(struct rank_programs *ranks) { ranks->programs[1]->collectives.items[3].bytes += 64; }

static void have_less_staging(struct rank_programs *ranks) {
    struct instruction *reduce = find(ranks->programs[1], OPCODE_ALL_REDUCE, 2);
    assert_true(reduce->operands[OPERAND_WORKSPACE].buffer >= 0);
    reduce->operands[OPERAND_WORKSPACE].bytes -= 4;
}

static void change_traffic(struct rank_programs *ranks) {
    ranks->programs[1]->collectives.items[1].traffic.sent[MESH_ACROSS]++;
}

static void be_the_wrong_rank(struct rank_programs *ranks) { ranks->programs[1]->place.rank = 2; }
static void read_in_place_alone(struct rank_programs *ranks) { ranks->programs[3]->place.in_place = false; }

static void add_to_another_share_s_loss(struct rank_programs *ranks) {
    struct program *program = ranks->programs[1];
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        const struct node *node = instruction->node;
        if (!node || !node->out[0] || strcmp(node->out[0]->name, "loss") != 0 || instruction->section == 0) continue;
        instruction->operands[OP_INPUTS_MAX].offset = 0;
        return;
    }
}

static void faults_are_found(void **state) {
    (void)state;
    static const struct {
        const char *what;
        void (*plant)(struct rank_programs *ranks);
        const char *message;
    } faults[] = {{"a sum the wrong way round", add_the_wrong_way_round, "recipe's sum"},
                  {"another tree", hold_another_tree, "instruction"},
                  {"a lane that replaces another", add_a_lane_twice, "recipe's sum"},
                  {"an edge that rounds", round_an_edge, "recipe's sum"},
                  {"an operation that rounds", send_rounded_sums, ""},
                  {"other rows", take_another_rank_s_rows, "rank 3"},
                  {"operations swapped", swap_two_operations, "rank 0: instruction"},
                  {"another order", reduce_in_another_order, ""},
                  {"an operation too few", leave_an_operation_out, "operations are made"},
                  {"other bytes", send_more_bytes, "operation 3 is another"},
                  {"less staging", have_less_staging, "staging of"},
                  {"other traffic", change_traffic, "operation 1 moves other bytes"},
                  {"the wrong rank", be_the_wrong_rank, "it is not for rank 1 of 4"},
                  {"messages and windows", read_in_place_alone, "it is not for rank 3 of 4"},
                  {"another share's loss", add_to_another_share_s_loss, "adds to another share's loss"}};
    struct graph *graph = draw_graph(1);
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        struct plan plan = plan_of_four(graph);
        struct rank_programs ranks;
        assert_int_equal(rank_programs_compile_small(graph, &plan, &ranks), STATUS_OK);
        assert_int_equal(rank_programs_verify(&ranks), STATUS_OK);
        faults[f].plant(&ranks);
        if (rank_programs_verify(&ranks) == STATUS_OK) fail_msg("%s: not found", faults[f].what);
        print_message("%s: %s\n", faults[f].what, status_message());
        if (!strstr(status_message(), faults[f].message))
            fail_msg("%s: '%s' is not in '%s'", faults[f].what, faults[f].message, status_message());
        rank_programs_drop(&ranks);
    }
    graph_free(graph);
}

/* Whoever writes a sum that is being reduced, which peers read in place, waits for the reduction. */
static void a_sum_is_not_written_while_peers_read_it(void **state) {
    (void)state;
    struct graph *graph = draw_graph(1);
    struct plan plan = plan_of_four(graph);
    struct rank_programs ranks;
    int found = 0;
    assert_int_equal(rank_programs_compile_small(graph, &plan, &ranks), STATUS_OK);
    struct program *program = ranks.programs[0];
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        for (int32_t w = 0; w < instruction->wait_count; w++) {
            int32_t waited = instruction->waits[w];
            if (program->instructions.items[waited].opcode != OPCODE_ALL_REDUCE) continue;
            memmove(instruction->waits + w, instruction->waits + w + 1,
                    (size_t)(instruction->wait_count - w - 1) * sizeof *instruction->waits);
            instruction->wait_count--;
            found += program_verify(program) == STATUS_FAILED;
            memmove(instruction->waits + w + 1, instruction->waits + w,
                    (size_t)(instruction->wait_count - w) * sizeof *instruction->waits);
            instruction->waits[w] = waited;
            instruction->wait_count++;
        }
    }
    assert_int_equal(program_verify(program), STATUS_OK);
    assert_true(found > 3);
    rank_programs_drop(&ranks);
    graph_free(graph);
}

struct subject {
    const struct graph *graph;
    struct plan plan;
    const int64_t *bytes;
};

static enum status compile_and_verify(void *payload) {
    const struct subject *subject = payload;
    struct rank_programs ranks;
    enum status status = rank_programs_compile(subject->graph, &subject->plan, subject->bytes, &ranks);
    if (status == STATUS_OK) status = rank_programs_verify(&ranks);
    rank_programs_drop(&ranks);
    return status;
}

static void allocations_may_fail(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&(struct small_graph_options){
        .layers = 1, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 3});
    int64_t *bytes = small_graph_workspace(graph);
    struct subject subject = {graph, small_plan(graph, 3, 1), bytes};
    subject.plan.recipe.lanes = (struct lane_shape){1, 2};
    subject.plan.place.mesh = (struct mesh){1, 2};
    assert_true(fault_sweep(FAULT_ALLOCATE, false, compile_and_verify, &subject) > 100);
    mem_free(bytes);
    graph_free(graph);
}

/* Each round has operations of its own. */
static void more_operations_than_there_can_be_are_refused(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&(struct small_graph_options){
        .layers = 1, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 3});
    struct rank_programs ranks;
    struct plan plan = small_plan(graph, 2 * (COMM_OPERATIONS_MAX + 1), 1);
    plan.recipe.lanes = (struct lane_shape){1, 2};
    plan.recipe.round_micro_batches = 1;
    plan.place.mesh = (struct mesh){1, 2};
    assert_int_equal(rank_programs_compile_small(graph, &plan, &ranks), STATUS_NO_FIT);
    assert_non_null(strstr(status_message(), "more than 16000 sends and collectives"));
    assert_non_null(strstr(status_hint_text(), "--round"));
    rank_programs_drop(&ranks);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_operations_than_there_can_be_are_refused),
        cmocka_unit_test(random_programs_of_ranks_are_proved), cmocka_unit_test(faults_are_found),
        cmocka_unit_test(a_sum_is_not_written_while_peers_read_it), cmocka_unit_test(allocations_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
