/* Ranks on axes: tensor parallelism varies fastest, stages slowest. Rules for data-parallel ranks concern only
 * these. */
#include "support/unit.h"

#include "plan/chunks.h"
#include "plan/lane_shares.h"

static void a_rank_has_a_place_on_each_axis(void **state) {
    (void)state;
    for (int rank = 0; rank < 24; rank++) {
        struct rank_place place = {.mesh = {3, 8}, .rank = rank, .tensor_parallel = 2, .pipeline_parallel = 3};
        int t = rank_place_tensor_rank(&place), d = rank_place_data_rank(&place), stage = rank_place_stage(&place);
        assert_int_equal(rank_place_data(&place), 4);
        assert_int_equal((stage * 4 + d) * 2 + t, rank);
        const struct comm_group groups[] = {rank_place_tensor_group(&place), rank_place_data_group(&place),
                                            rank_place_stage_group(&place)};
        const int counts[] = {2, 4, 3}, places[] = {t, d, stage};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(groups[i].count, counts[i]);
            assert_int_equal(mesh_group_position(&groups[i], rank), places[i]);
        }
        struct mesh data = rank_place_data_mesh(&place);
        assert_int_equal(data.nodes, 1);
        assert_int_equal(data.per_node, 4);
    }
}

static void ranks_without_other_axes_are_data_ranks(void **state) {
    (void)state;
    struct rank_place place = {.mesh = {2, 4}, .rank = 5}, alone = {.rank = 0};
    struct comm_group data = rank_place_data_group(&place);
    struct mesh mesh = rank_place_data_mesh(&place);
    assert_int_equal(rank_place_data_rank(&place), 5);
    assert_int_equal(data.first, 0);
    assert_int_equal(data.stride, 1);
    assert_int_equal(data.count, 8);
    assert_int_equal(mesh.nodes, 2);
    assert_int_equal(mesh.per_node, 4);
    assert_int_equal(rank_place_data(&alone), 1);
    assert_int_equal(rank_place_data_mesh(&alone).per_node, 1);
}

static void tensor_ranks_have_the_same_micro_batches_and_shards(void **state) {
    (void)state;
    const struct recipe recipe = {.batch = 16, .micro_batch_sequences = 2, .lanes = {2, 2}};
    for (int rank = 0; rank < 8; rank++) {
        struct rank_place place = {.mesh = {2, 4}, .rank = rank, .tensor_parallel = 2};
        struct rank_place among_data = {.mesh = {2, 2}, .rank = rank / 2};
        struct lane_shares shares, expected;
        assert_int_equal(lane_shares_create(&recipe, &place, &shares), STATUS_OK);
        assert_int_equal(lane_shares_create(&recipe, &among_data, &expected), STATUS_OK);
        assert_int_equal(shares.first_micro_batch, expected.first_micro_batch);
        assert_int_equal(shares.micro_batches, expected.micro_batches);
        struct comm_group group = shard_group_of(&place, 1, 2);
        assert_int_equal(group.first, rank / 4 * 4 + rank % 2);
        assert_int_equal(group.stride, 2);
        assert_int_equal(group.count, 2);
        lane_shares_free(&shares);
        lane_shares_free(&expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_has_a_place_on_each_axis),
        cmocka_unit_test(ranks_without_other_axes_are_data_ranks),
        cmocka_unit_test(tensor_ranks_have_the_same_micro_batches_and_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
