/* Programs of partitioned steps: all legal partitions are proved for all ranks. Each element of each parameter has
 * one owner that updates it, home tiers have the size that the partition implies, and the bytes sent equal its
 * formula. */
/* ctest: TIMEOUT 600 */
#include <string.h>

#include "base/random.h"
#include "compiler/program.h"
#include "plan/chunks.h"
#include "support/fault_sweep.h"
#include "support/partition_traffic.h"
#include "support/random_policy.h"
#include "support/rank_programs.h"
#include "support/small_graph.h"
#include "support/unit.h"

static void describe(const struct rank_programs *ranks) {
    char triple[PARTITION_BYTES], lanes[LANE_SHAPE_BYTES];
    const struct plan *plan = &ranks->plan;
    print_policy(&plan->policy, 0);
    print_error("partition %s, %dx%d ranks, lanes %s, rounds of %lld, %lld micro-batches\n",
                partition_print(&plan->policy.partition, &plan->place.mesh, triple), plan->place.mesh.nodes,
                plan->place.mesh.per_node, lane_shape_print(&plan->recipe.lanes, lanes),
                (long long)plan->recipe.round_micro_batches, (long long)recipe_micro_batches(&plan->recipe));
}

/* Embeddings of several blocks of elements, so that shards cut through them. */
static struct graph *draw_graph(uint64_t seed) {
    return small_graph_build(&(struct small_graph_options){.layers = 2,
                                                           .tied = seed & 1,
                                                           .packed_qkv = seed >> 1 & 1,
                                                           .dtype = seed & 4 ? DTYPE_BF16 : DTYPE_F32,
                                                           .micro_batch_sequences = 2,
                                                           .sequence_length = 4,
                                                           .vocabulary = 1000});
}

static struct plan plan_of(const struct graph *graph, struct mesh mesh, const struct partition *partition) {
    struct plan plan = small_plan(graph, 8, 1);
    plan.recipe.lanes = (struct lane_shape){1, 8};
    plan.policy.lookahead = 1;
    plan.policy.buffers = 4;
    plan.policy.partition = *partition;
    plan.place.mesh = mesh;
    plan.place.in_place = true;
    return plan;
}

/* ---- what a partition promises ---- */

/* How often each element of a parameter is updated: by the ranks that share a shard of parameters, each once. */
static void require_updates(const struct rank_programs *ranks, const struct tensor *parameter) {
    int64_t elements = shape_elements(&parameter->shape);
    int width = partition_width(ranks->plan.policy.partition.optimizer), replicas = ranks->count / width;
    int *times = mem_array((size_t)elements, sizeof *times);
    assert_non_null(times);
    for (int r = 0; r < ranks->count; r++)
        for (size_t i = 0; i < ranks->programs[r]->instructions.count; i++) {
            const struct instruction *instruction = &ranks->programs[r]->instructions.items[i];
            if (!instruction->node || instruction->node->out[0] != parameter) continue;
            int64_t count = instruction->elements > 0 ? instruction->elements : elements;
            for (int64_t e = instruction->first_element; e < instruction->first_element + count; e++)
                times[e]++;
        }
    for (int64_t e = 0; e < elements; e++)
        if (times[e] != replicas)
            fail_msg("%s: element %lld is updated by %d ranks, not %d", parameter->name, (long long)e, times[e],
                     replicas);
    mem_free(times);
}

/* Every element of a parameter and its states is on as many ranks as the widths say, and persistent buffers of one kind
 * are equally large on all ranks. */
static void require_persistent(const struct rank_programs *ranks, const struct tensor *tensor) {
    const struct partition *partition = &ranks->plan.policy.partition;
    bool parameter = tensor->kind == TENSOR_PARAMETER;
    int width = partition_width(parameter ? partition->parameters : partition->optimizer);
    int64_t held = 0, bytes = 0;
    for (int r = 0; r < ranks->count; r++) {
        struct tensor_run run;
        const struct buffer *own = program_find_buffer(ranks->programs[r], tensor, &run);
        assert_true(own && own->persistent);
        assert_true(bytes == 0 || own->bytes == bytes);
        bytes = own->bytes;
        held += run.elements;
    }
    assert_int_equal(held, ranks->count / width * shape_elements(&tensor->shape));
}

/* How often a rank gathers the parameters of a chunk in a step. */
static int64_t count_gathers(const struct program *program, const struct chunk_list *chunks, int32_t chunk) {
    int64_t gathers = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode != OPCODE_ALL_GATHER) continue;
        const struct buffer *whole = &program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer];
        if (whole->kind != BUFFER_PARAMETERS || whole->original < 0) continue;
        bool of_chunk = chunks->chunk_of[whole->pack->members[0].tensor->id] == chunk;
        gathers += of_chunk ? program->sections.items[instruction->section].repeat : 0;
    }
    return gathers;
}

/* Those of a step, and those of them to which every rank adds something. */
struct rounds {
    int64_t all, full;
};

static struct rounds count_rounds(const struct plan *plan) {
    struct lane_shares shares;
    struct rounds rounds = {0};
    bool empty[RANK_PROGRAMS_MAX];
    assert_int_equal(lane_shares_create(&plan->recipe, &plan->place, &shares), STATUS_OK);
    rounds.all = shares.rounds;
    lane_shares_free(&shares);
    for (int64_t round = 0; round < rounds.all; round++) {
        bool any = false;
        assert_int_equal(lane_shares_find_empty(&plan->recipe, &plan->place, round, empty), STATUS_OK);
        for (int r = 0; r < rank_place_ranks(&plan->place); r++)
            any |= empty[r];
        rounds.full += !any;
    }
    return rounds;
}

static struct partition_use use_of(const struct rank_programs *ranks, const struct chunk_list *chunks, int32_t index,
                                   const struct rounds *rounds) {
    const struct chunk *chunk = &chunks->chunks.items[index];
    struct partition_use use = {.rounds = chunk->trained ? rounds->all : 0,
                                .full_rounds = chunk->trained ? rounds->full : 0,
                                .gathers = count_gathers(ranks->programs[0], chunks, index)};
    for (int32_t i = chunk->first; i < chunk->first + chunk->count; i++) {
        const struct shape *shape = &chunks->parameters.items[i]->shape;
        use.elements += shard_aligned(shape_elements(shape));
        use.parameter_bytes = dtype_bytes(shape->dtype);
    }
    return use;
}

/* What is moved of a chunk in rounds to which some ranks have nothing to add. */
static void add_partial_sums(const struct rank_programs *ranks, int64_t elements, struct partition_traffic *sum) {
    const struct plan *plan = &ranks->plan;
    const struct shard_cut cut = {plan->policy.partition, ranks->count, elements};
    struct lane_tree lanes, tree;
    int owner[RANK_PROGRAMS_MAX];
    bool empty[RANK_PROGRAMS_MAX];
    assert_int_equal(lane_tree_of_shape(&plan->recipe.lanes, &lanes), STATUS_OK);
    assert_int_equal(lane_tree_top(&lanes, ranks->count, &tree), STATUS_OK);
    shard_owners(&cut.partition, ranks->count, 0, 1, ranks->count, owner);
    for (int64_t round = 0; round < count_rounds(plan).all; round++) {
        bool any = false;
        assert_int_equal(lane_shares_find_empty(&plan->recipe, &plan->place, round, empty), STATUS_OK);
        for (int r = 0; r < ranks->count; r++)
            any |= empty[r];
        const struct partition_sum one = {.mesh = &plan->place.mesh,
                                          .tree = &tree,
                                          .empty = empty,
                                          .owner = owner,
                                          .bytes = elements * (int64_t)sizeof(float),
                                          .block_bytes = shard_piece_elements(&cut) * (int64_t)sizeof(float),
                                          .flat = plan->policy.flat,
                                          .in_place = plan->place.in_place};
        if (any) partition_traffic_add_sum(&one, sum);
    }
    lane_tree_free(&lanes);
    lane_tree_free(&tree);
}

/* Bytes on the wire, of all ranks by axis: the operations of the programs and the formula. */
static void require_traffic(const struct rank_programs *ranks) {
    const struct plan *plan = &ranks->plan;
    const struct rounds rounds = count_rounds(plan);
    struct partition_traffic formula = {.bytes = {0}}, moved = {.bytes = {0}};
    struct chunk_list chunks;
    assert_int_equal(chunks_of_policy(ranks->programs[0]->graph, &plan->policy, &chunks), STATUS_OK);
    for (size_t c = 0; c < chunks.chunks.count; c++) {
        struct partition_use use = use_of(ranks, &chunks, (int32_t)c, &rounds);
        partition_traffic_add(&plan->policy.partition, &plan->place.mesh, plan->policy.flat, &use, &formula);
        if (use.rounds > 0) add_partial_sums(ranks, use.elements, &formula);
    }
    for (int r = 0; r < ranks->count; r++) {
        struct comm_traffic own = collectives_traffic(ranks->programs[r]);
        for (int axis = 0; axis < MESH_AXES; axis++)
            moved.bytes[axis] += own.sent[axis];
        moved.bytes[MESH_IN_NODE] += own.read;
    }
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (moved.bytes[axis] != formula.bytes[axis]) {
            describe(ranks);
            fail_msg("axis %d: %lld bytes are moved, the formula has %lld", axis, (long long)moved.bytes[axis],
                     (long long)formula.bytes[axis]);
        }
    chunks_free(&chunks);
}

static void require_promises(const struct rank_programs *ranks) {
    const struct graph *graph = ranks->programs[0]->graph;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind == TENSOR_PARAMETER && tensor->trainable) require_updates(ranks, tensor);
        if (tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE) require_persistent(ranks, tensor);
    }
}

static void all_triples_are_proved(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{1, 2}, {2, 1}, {1, 4}, {2, 2}, {4, 1}, {1, 8}, {2, 4}, {4, 2}, {8, 1}};
    /* In micro-batches of 2 for 8 lanes, one of a lane in a round: a round, two rounds, and two that the last lanes
     * have nothing to add to. */
    static const int64_t batches[] = {16, 32, 24};
    int proved = 0;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        struct partition *list;
        int count;
        assert_int_equal(partition_list(&meshes[m], &list, &count), STATUS_OK);
        for (int i = 0; i < count; i++) {
            struct graph *graph = draw_graph((uint64_t)(m + (size_t)i));
            struct plan plan = plan_of(graph, meshes[m], &list[i]);
            struct rank_programs ranks;
            plan.policy.flat = i & 1;
            plan.recipe.batch = batches[i % 3];
            plan.recipe.round_micro_batches = 1;
            if (rank_programs_prove(graph, &plan, &ranks) != STATUS_OK) {
                describe(&ranks);
                fail_msg("%s", status_message());
            }
            require_promises(&ranks);
            if (partition_cuts(&list[i])) require_traffic(&ranks);
            rank_programs_drop(&ranks);
            graph_free(graph);
            proved++;
        }
        mem_free(list);
    }
    print_message("%d triples\n", proved);
    assert_true(proved > 50);
}

/* ---- sums that wait for their round ---- */

/* Bytes of the buffers of a kind in a tier, but for copies of other buffers. */
static int64_t persistent_bytes(const struct program *program, enum buffer_kind kind, enum tier tier) {
    int64_t bytes = 0;
    for (size_t b = 0; b < program->buffers.count; b++) {
        const struct buffer *buffer = &program->buffers.items[b];
        if (buffer->kind == kind && buffer->tier == tier && buffer->original < 0) bytes += buffer->bytes;
    }
    return bytes;
}

static int64_t max_bytes(const struct program *program, enum buffer_kind kind, enum tier tier) {
    struct memory_report report;
    assert_int_equal(program_report_memory(program, tier, &report), STATUS_OK);
    return report.by_kind[kind];
}

static void require_unreduced(const struct graph *graph, enum tier tier, int64_t micro_batches_per_wave) {
    struct rank_programs ranks;
    struct plan plan = plan_of(graph, (struct mesh){1, 2}, &(struct partition){1, 2, 2});
    int64_t whole = 0;
    bool waits = micro_batches_per_wave < 4;
    plan.recipe.lanes = (struct lane_shape){1, 2};
    plan.policy.gradients = tier;
    plan.policy.micro_batches_per_wave = micro_batches_per_wave;
    if (rank_programs_prove(graph, &plan, &ranks) != STATUS_OK) fail_msg("%s", status_message());
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == TENSOR_PARAMETER)
            whole += shard_aligned(shape_elements(&graph->tensors.items[i]->shape)) * (int64_t)sizeof(float);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(persistent_bytes(ranks.programs[r], BUFFER_UNREDUCED, tier), waits ? whole : 0);
        assert_int_equal(max_bytes(ranks.programs[r], BUFFER_UNREDUCED, tier), waits ? whole : 0);
        assert_in_range(persistent_bytes(ranks.programs[r], BUFFER_GRADIENTS, tier), whole / 2, whole / 2 + whole / 8);
        assert_true(max_bytes(ranks.programs[r], BUFFER_UNREDUCED, TIER_DEVICE) < whole);
    }
    rank_programs_drop(&ranks);
}

/* Where a lane's micro-batches of a round take several waves, what it has added up waits between them, whole: on the
 * host or the disk as well, and then the device has less than all of it. Of a round in one wave there is nothing to
 * wait. */
static void unreduced_sums_wait_on_the_host_or_the_disk(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&(struct small_graph_options){
        .layers = 3, .dtype = DTYPE_F32, .micro_batch_sequences = 2, .sequence_length = 4, .vocabulary = 1000});
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++) {
        require_unreduced(graph, tier, 1);
        require_unreduced(graph, tier, 2);
        require_unreduced(graph, tier, 4);
    }
    graph_free(graph);
}

static int roll(uint64_t seed, uint64_t *next, int sides) {
    return (int)(random_u64(seed, RANDOM_TEST, 17, (*next)++) % (uint64_t)sides);
}

/* Lanes, rounds and micro-batches that ranks share unequally, under a random policy with a random partition. */
static struct plan draw_plan(const struct graph *graph, uint64_t seed) {
    static const struct lane_shape shapes[] = {{1, 2}, {1, 3}, {1, 4}, {1, 8}, {2, 4}, {2, 3}, {4, 1}, {3, 2}};
    uint64_t next = 0;
    struct plan plan = small_plan(graph, 1 + roll(seed, &next, 14), 1);
    struct lane_tree tree;
    plan.recipe.lanes = shapes[roll(seed, &next, sizeof shapes / sizeof *shapes)];
    plan.recipe.round_micro_batches = roll(seed, &next, 4);
    assert_int_equal(lane_tree_of_shape(&plan.recipe.lanes, &tree), STATUS_OK);
    int ranks = 2 + roll(seed, &next, tree.lanes - 1);
    while (!lane_tree_holds(&tree, ranks))
        ranks++;
    lane_tree_free(&tree);
    int nodes = 1 + roll(seed, &next, 4);
    plan.place.mesh = ranks % nodes == 0 ? (struct mesh){nodes, ranks / nodes} : (struct mesh){1, ranks};
    plan.place.in_place = roll(seed, &next, 2);
    plan.place.message_bytes = roll(seed, &next, 2) ? 4096 : 0;
    plan.place.tier = roll(seed, &next, 3) == 0 ? TIER_HOST : TIER_DEVICE;
    plan.policy = random_policy(graph, recipe_share_micro_batches(&plan.recipe), &plan.place.mesh, seed);
    return plan;
}

static void random_plans_are_proved(void **state) {
    (void)state;
    int64_t cut = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(60, 2000); seed++) {
        struct graph *graph = draw_graph(seed);
        struct plan plan = draw_plan(graph, seed);
        struct rank_programs ranks;
        if (rank_programs_prove(graph, &plan, &ranks) != STATUS_OK) {
            describe(&ranks);
            fail_msg("seed %llu: %s", (unsigned long long)seed, status_message());
        }
        if (partition_cuts(&plan.policy.partition)) require_promises(&ranks), cut++;
        rank_programs_drop(&ranks);
        graph_free(graph);
    }
    print_message("%lld of the plans have partitions\n", (long long)cut);
    assert_true(cut > 20);
}

static void allocations_may_fail(void **state) {
    (void)state;
    static const struct partition partitions[] = {{1, 2, 2}, {2, 2, 2}};
    struct graph *graph = small_graph_build(&(struct small_graph_options){
        .layers = 1, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 3});
    int64_t *bytes = small_graph_workspace(graph);
    for (size_t i = 0; i < sizeof partitions / sizeof *partitions; i++) {
        struct rank_subject subject = {graph, plan_of(graph, (struct mesh){1, 2}, &partitions[i]), bytes};
        subject.plan.recipe.lanes = (struct lane_shape){1, 2};
        assert_true(fault_sweep(FAULT_ALLOCATE, false, rank_programs_prove_subject, &subject) > 100);
    }
    mem_free(bytes);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_triples_are_proved), cmocka_unit_test(unreduced_sums_wait_on_the_host_or_the_disk),
        cmocka_unit_test(random_plans_are_proved), cmocka_unit_test(allocations_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
