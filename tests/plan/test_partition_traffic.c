/* The formula for the bytes that a partition's collectives move, against the schedules of these collectives. */
#include "base/mem.h"
#include "base/random.h"
#include "collective/schedule.h"
#include "plan/chunks.h"
#include "support/partition_traffic.h"
#include "support/unit.h"

enum { RANKS_MAX = 24, MESSAGE_BYTES = 1 << 16 };

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
    int owners[RANKS_MAX];
    shard_owners(&cut->partition, cut->ranks, rank, coarse, fine, owners);
    const struct comm_spec spec = {.kind = COMM_ALL_GATHER,
                                   .group = shard_group(rank, coarse, fine),
                                   .bytes = (range.end - range.begin) / elements * bytes,
                                   .in_place = counting->in_place,
                                   .flat = counting->flat};
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
                                            .flat = counting->flat,
                                            .tree = &tree};
        count_operation(counting, rank, &reduction, use->rounds);
        if (g > 1) count_gather(counting, rank, g, ranks, 4, 1, use->rounds);
        if (use->rounds > 0) count_gather(counting, rank, 1, g, 8, SHARD_BLOCK, 1);
        if (use->rounds > 0) count_gather(counting, rank, p, o, use->parameter_bytes, 1, 1);
    }
    lane_tree_free(&tree);
    return counting->sum;
}

static void check_triple(const struct mesh *mesh, const struct partition *partition, bool in_place, bool flat,
                         uint64_t draw) {
    int64_t blocks = 1 + (int64_t)(random_u64(5, RANDOM_TEST, 1, draw) % 40);
    const struct shard_cut cut = {*partition, mesh_ranks(mesh), blocks * SHARD_BLOCK};
    const struct partition_use use = {.elements = cut.elements,
                                      .parameter_bytes = draw % 2 ? 2 : 4,
                                      .gathers = (int64_t)(draw % 5),
                                      .rounds = (int64_t)(draw % 3),
                                      .full_rounds = (int64_t)(draw % 3)};
    struct counting counting = {.mesh = mesh, .cut = &cut, .flat = flat, .in_place = in_place};
    struct partition_traffic expected = count_step(&counting, &use), formula = {{0}};
    partition_traffic_add(partition, mesh, flat, &use, &formula);
    char text[PARTITION_BYTES];
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (formula.bytes[axis] != expected.bytes[axis])
            fail_msg("%d x %d ranks, %s, %s, axis %d: %lld by formula, %lld by schedules (draw %llu)", mesh->nodes,
                     mesh->per_node, partition_print(partition, mesh, text), flat ? "flat" : "hierarchical", axis,
                     (long long)formula.bytes[axis], (long long)expected.bytes[axis], (unsigned long long)draw);
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
            for (int way = 0; way < 4; way++)
                check_triple(&meshes[m], &list[i], way & 1, way & 2, draw++);
        mem_free(list);
    }
}

/* ---- sums to which some ranks have nothing to add ---- */

static uint64_t roll(uint64_t seed, uint64_t *next, uint64_t sides) {
    return random_u64(seed, RANDOM_TEST, 3, (*next)++) % sides;
}

/* Not all of them. */
static void draw_empty(uint64_t seed, uint64_t *next, int ranks, bool *empty) {
    for (int rank = 0; rank < ranks; rank++)
        empty[rank] = roll(seed, next, 2);
    empty[roll(seed, next, (uint64_t)ranks)] = false;
}

static void draw_owners(uint64_t seed, uint64_t *next, int ranks, int *owner) {
    for (int rank = 0; rank < ranks; rank++)
        owner[rank] = rank;
    for (int rank = ranks; rank-- > 1;) {
        int other = (int)roll(seed, next, (uint64_t)rank + 1), held = owner[rank];
        owner[rank] = owner[other];
        owner[other] = held;
    }
}

static void check_sum(const struct mesh *mesh, uint64_t seed) {
    uint64_t next = 0;
    int ranks = mesh_ranks(mesh), owner[RANKS_MAX];
    bool empty[RANKS_MAX];
    struct lane_tree tree;
    assert_int_equal(lane_tree_create(mesh->nodes, mesh->per_node, &tree), STATUS_OK);
    draw_empty(seed, &next, ranks, empty);
    draw_owners(seed, &next, ranks, owner);
    int64_t blocks = 1 + (int64_t)roll(seed, &next, 3 * (uint64_t)ranks), own = (blocks + ranks - 1) / ranks;
    const struct partition_sum one = {.mesh = mesh,
                                      .tree = &tree,
                                      .empty = empty,
                                      .owner = owner,
                                      .bytes = 64 * blocks,
                                      .block_bytes = 64 * own,
                                      .flat = roll(seed, &next, 2),
                                      .in_place = roll(seed, &next, 2),
                                      .round_bf16 = roll(seed, &next, 2)};
    struct counting counting = {.mesh = mesh};
    struct partition_traffic formula = {{0}};
    for (int rank = 0; rank < ranks; rank++) {
        const struct comm_spec spec = {.kind = COMM_REDUCE_SCATTER,
                                       .group = mesh_group(mesh, rank, MESH_ALL),
                                       .bytes = one.bytes,
                                       .block_bytes = one.block_bytes,
                                       .owner = owner,
                                       .flat = one.flat,
                                       .in_place = one.in_place,
                                       .round_bf16 = one.round_bf16,
                                       .tree = &tree,
                                       .empty = empty};
        count_operation(&counting, rank, &spec, 1);
    }
    partition_traffic_add_sum(&one, &formula);
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (formula.bytes[axis] != counting.sum.bytes[axis])
            fail_msg("%d x %d ranks, seed %llu, axis %d: %lld by formula, %lld by schedules", mesh->nodes,
                     mesh->per_node, (unsigned long long)seed, axis, (long long)formula.bytes[axis],
                     (long long)counting.sum.bytes[axis]);
    lane_tree_free(&tree);
}

static void sums_of_some_ranks_move_the_bytes_of_their_formula(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{1, 2}, {2, 1}, {1, 3}, {2, 2}, {4, 1},
                                         {1, 5}, {2, 4}, {4, 2}, {3, 3}, {2, 6}};
    for (uint64_t seed = 1; seed <= 1000; seed++)
        check_sum(&meshes[seed % (sizeof meshes / sizeof *meshes)], seed);
}

/* ZeRO-3 of 8 ranks in 2 nodes, worked by hand: 12 elements' blocks of bf16, two gathers and one round. */
static void the_formula_is_the_paper_s(void **state) {
    (void)state;
    const struct mesh mesh = {2, 4};
    const struct partition zero3 = {8, 8, 8}, zero1 = {1, 1, 8};
    const int64_t elements = 12 * SHARD_BLOCK, parameters = 2 * elements, sums = 4 * elements;
    const struct partition_use use = {elements, 2, 2, 1, 1};
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
                                       cmocka_unit_test(sums_of_some_ranks_move_the_bytes_of_their_formula),
                                       cmocka_unit_test(the_formula_is_the_paper_s)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
