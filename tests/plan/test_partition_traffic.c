/* The bytes that a partition's operations move, by formula, against the schedules of these operations. */
#include "base/mem.h"
#include "base/random.h"
#include "collective/comm_schedule.h"
#include "plan/partition_traffic.h"
#include "plan/shards.h"
#include "support/unit.h"

enum { RANKS_MOST = 24, MESSAGE_BYTES = 1 << 16 };

struct counting {
    const struct mesh *mesh;
    const struct shard_cut *cut;
    bool flat, in_place;
    struct partition_traffic sum;
};

static void count_operation(struct counting *counting, int rank, const struct comm_spec *spec, int64_t times) {
    struct comm_schedule schedule;
    if (spec->bytes == 0 || spec->group.count == 1) return;
    assert_int_equal(comm_schedule_create(counting->mesh, rank, MESSAGE_BYTES, spec, &schedule), STATUS_OK);
    for (int axis = 0; axis < MESH_AXES; axis++)
        counting->sum.bytes[axis] += times * schedule.traffic.sent[axis];
    counting->sum.bytes[MESH_IN_NODE] += times * schedule.traffic.read;
    comm_schedule_free(&schedule);
}

/* Of the rank's shard of width `coarse`, which those of width `fine` are parts of; `bytes` of so many elements. */
static void count_gather(struct counting *counting, int rank, int coarse, int fine, int64_t bytes, int64_t elements,
                         int64_t times) {
    const struct shard_cut *cut = counting->cut;
    struct shard_range range = shard_range_of(cut, coarse, rank);
    int owners[RANKS_MOST];
    shard_owners(&cut->partition, cut->ranks, rank, coarse, fine, owners);
    const struct comm_spec spec = {.kind = COMM_ALL_GATHER,
                                   .group = shard_group(rank, coarse, fine),
                                   .bytes = (range.end - range.begin) / elements * bytes,
                                   .in_place = counting->in_place};
    count_operation(counting, rank, &spec, times);
}

/* The operations as a step has them, rank by rank. */
static struct partition_traffic count_step(struct counting *counting, const struct partition_use *use) {
    const struct shard_cut *cut = counting->cut;
    int p = cut->partition.parameters, g = cut->partition.gradients, o = cut->partition.optimizer, ranks = cut->ranks;
    struct lane_tree tree;
    assert_int_equal(lane_tree_create(counting->mesh->nodes, counting->mesh->per_node, &tree), STATUS_OK);
    for (int rank = 0; rank < ranks; rank++) {
        count_gather(counting, rank, 1, p, use->parameter_bytes, 1, use->gathers);
        const struct comm_spec reduction = {.kind = g > 1 ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE,
                                            .group = mesh_group(counting->mesh, rank, MESH_ALL),
                                            .bytes = 4 * cut->elements,
                                            .in_place = counting->in_place,
                                            .tree = &tree};
        count_operation(counting, rank, &reduction, use->rounds);
        if (g > 1) count_gather(counting, rank, g, ranks, 4, 1, use->rounds);
        if (use->rounds > 0) count_gather(counting, rank, 1, g, 8, SHARD_BLOCK, 1);
        if (use->rounds > 0) count_gather(counting, rank, p, o, use->parameter_bytes, 1, 1);
    }
    lane_tree_free(&tree);
    return counting->sum;
}

static void check_triple(const struct mesh *mesh, const struct partition *partition, bool in_place, uint64_t draw) {
    int64_t blocks = 1 + (int64_t)(random_u64(5, RANDOM_TEST, 1, draw) % 40);
    const struct shard_cut cut = {*partition, mesh_ranks(mesh), blocks * SHARD_BLOCK};
    const struct partition_use use = {.elements = cut.elements,
                                      .parameter_bytes = draw % 2 ? 2 : 4,
                                      .gathers = (int64_t)(draw % 5),
                                      .rounds = (int64_t)(draw % 3)};
    struct counting counting = {.mesh = mesh, .cut = &cut, .in_place = in_place};
    struct partition_traffic expected = count_step(&counting, &use), formula = {{0}};
    partition_traffic_add(partition, mesh, false, &use, &formula);
    char text[PARTITION_BYTES];
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (formula.bytes[axis] != expected.bytes[axis])
            fail_msg("%d x %d ranks, %s, axis %d: %lld by formula, %lld by schedules (draw %llu)", mesh->nodes,
                     mesh->per_node, partition_print(partition, mesh, text), axis, (long long)formula.bytes[axis],
                     (long long)expected.bytes[axis], (unsigned long long)draw);
}

static void the_formula_is_what_schedules_move(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{1, 2}, {2, 1}, {1, 4}, {2, 2}, {4, 1}, {1, 8}, {2, 4},
                                         {4, 2}, {8, 1}, {3, 2}, {2, 6}, {3, 4}, {4, 4}, {6, 4}};
    uint64_t draw = 0;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        struct partition *list;
        int count;
        assert_int_equal(partition_list(&meshes[m], &list, &count), STATUS_OK);
        for (int i = 0; i < count; i++)
            for (int in_place = 0; in_place < 2; in_place++)
                check_triple(&meshes[m], &list[i], in_place, draw++);
        mem_free(list);
    }
}

/* ZeRO-3 of 8 ranks in 2 nodes, worked by hand: 12 elements' blocks of bf16, two gathers and one round. */
static void the_formula_is_the_paper_s(void **state) {
    (void)state;
    const struct mesh mesh = {2, 4};
    const struct partition zero3 = {8, 8, 8}, zero1 = {1, 1, 8};
    const int64_t elements = 12 * SHARD_BLOCK, parameters = 2 * elements, sums = 4 * elements;
    const struct partition_use use = {elements, 2, 2, 1};
    struct partition_traffic cut = {{0}}, flat = {{0}}, whole = {{0}};
    partition_traffic_add(&zero3, &mesh, false, &use, &cut);
    assert_int_equal(cut.bytes[MESH_ACROSS], 2 * parameters + sums + 12 * 8);
    assert_int_equal(cut.bytes[MESH_IN_NODE], 2 * 3 * (2 * parameters + sums + 12 * 8));
    partition_traffic_add(&zero3, &mesh, true, &use, &flat);
    assert_int_equal(flat.bytes[MESH_ACROSS], 4 * cut.bytes[MESH_ACROSS]);
    assert_int_equal(flat.bytes[MESH_IN_NODE], cut.bytes[MESH_IN_NODE] / 2);
    partition_traffic_add(&zero1, &mesh, false, &use, &whole);
    assert_int_equal(whole.bytes[MESH_ACROSS], 2 * sums + parameters);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_formula_is_what_schedules_move),
                                       cmocka_unit_test(the_formula_is_the_paper_s)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
