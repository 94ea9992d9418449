/* Programs of all ranks: those that are compiled are proved, and a fault planted in one of them is found. */
/* ctest: TIMEOUT 600 */
#include <string.h>

#include "base/random.h"
#include "plan/lane_shares.h"
#include "support/fault_sweep.h"
#include "support/policy_features.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/unit.h"

enum { RANKS_MOST = 12 };

struct ranks {
    int count;
    struct plan plan; /* of rank 0 */
    struct program *programs[RANKS_MOST];
};

static const struct program *const *list_of(const struct ranks *ranks) {
    return (const struct program *const *)ranks->programs;
}

static enum status verify(const struct ranks *ranks) {
    return program_verify_ranks(list_of(ranks), ranks->count, &ranks->plan.recipe);
}

static enum status compile(const struct graph *graph, const struct plan *plan, struct ranks *out) {
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    enum status status = STATUS_OK;
    *out = (struct ranks){.count = rank_place_ranks(&plan->place), .plan = *plan};
    for (int r = 0; r < out->count && status == STATUS_OK; r++) {
        struct plan own = *plan;
        own.place.rank = r;
        status = program_compile(graph, &own, &table, &out->programs[r]);
    }
    mem_free(bytes);
    return status;
}

static void drop(struct ranks *ranks) {
    for (int r = 0; r < ranks->count; r++)
        program_free(ranks->programs[r]);
}

static int roll(uint64_t seed, uint64_t *next, int sides) {
    return (int)(random_u64(seed, RANDOM_TEST, 15, (*next)++) % (uint64_t)sides);
}

/* A plan of lanes, rounds and a random policy, for as many ranks as hold the lanes, of several nodes or of one. */
static struct plan draw_plan(const struct graph *graph, uint64_t seed) {
    static const struct lane_shape shapes[] = {{1, 1}, {1, 2}, {1, 3}, {1, 8}, {2, 4}, {2, 3}, {4, 1}, {3, 2}};
    uint64_t next = 0;
    int64_t grains = 1 + roll(seed, &next, 14);
    struct plan plan = small_plan(graph, grains, 1);
    plan.recipe.lanes = shapes[roll(seed, &next, sizeof shapes / sizeof *shapes)];
    plan.recipe.round_grains = roll(seed, &next, 4);
    plan.policy = random_policy(graph, recipe_share_grains(&plan.recipe), seed);
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
                                                           .grain_sequences = 2,
                                                           .sequence_length = 4});
}

static void random_programs_of_ranks_are_proved(void **state) {
    (void)state;
    uint64_t count = unit_sweep(60, 1000);
    int64_t several = 0, empty = 0, operations = 0;
    for (uint64_t seed = 1; seed <= count; seed++) {
        struct graph *graph = draw_graph(seed);
        struct plan plan = draw_plan(graph, seed);
        struct ranks ranks;
        enum status status = compile(graph, &plan, &ranks);
        if (status == STATUS_OK) status = verify(&ranks);
        if (status != STATUS_OK) {
            char shape[LANE_SHAPE_BYTES];
            print_policy(&plan.policy, seed);
            fail_msg("lanes %s, rounds of %lld, %lld grains, %dx%d ranks: %s",
                     lane_shape_print(&plan.recipe.lanes, shape), (long long)plan.recipe.round_grains,
                     (long long)recipe_grains(&plan.recipe), plan.place.mesh.nodes, plan.place.mesh.per_node,
                     status_message());
        }
        several += ranks.count > 1;
        operations += (int64_t)ranks.programs[0]->collectives.count;
        for (size_t c = 0; c < ranks.programs[0]->collectives.count; c++)
            empty += ranks.programs[0]->collectives.items[c].empty != NULL;
        drop(&ranks);
        graph_free(graph);
    }
    print_message("%lld plans of several ranks, %lld operations, %lld with ranks that have nothing\n",
                  (long long)several, (long long)operations, (long long)empty);
    assert_true(several > 10 && empty > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs_of_ranks_are_proved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
