/* Shares of lanes and rounds, executed symbolically on every number of ranks: each micro-batch is added once, in
 * order, and all sums follow the tree. */
#include "base/random.h"
#include "plan/lane_shares.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

enum { LEVELS_MAX = 40, CASES = 400 };

/* A sum is told by a number that depends on every micro-batch and on the order of every addition. 0: there is none. */
typedef uint64_t value;

static value mix(value a, value b) {
    value x = a * 0x9e3779b97f4a7c15u + b;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static value add(value left, value right) { return !left ? right : !right ? left : mix(mix(left, '+'), right); }

/* The micro-batches [first, first + count) of the step, added in order to zeros. */
static value micro_batches_of(int64_t first, int64_t count) {
    value sum = 0;
    for (int64_t g = first; g < first + count; g++)
        sum = mix(sum + 1, (value)g + 1);
    return sum;
}

static value rounded(value sum) { return sum ? mix(sum, 'r') : 0; }

/* Where `rounds`, every edge does. */
static value tree_value(const struct lane_tree *tree, int index, bool rounds, const value *leaves) {
    const struct lane_node *node = &tree->node[index];
    if (node->left < 0) return leaves[node->first];
    value left = tree_value(tree, node->left, rounds, leaves), right = tree_value(tree, node->right, rounds, leaves);
    return rounds ? add(rounded(left), rounded(right)) : add(left, right);
}

struct step {
    struct recipe recipe;
    struct lane_tree tree;
    int64_t rounds;
};

static int64_t draw(uint64_t seed, uint64_t item, int64_t sides) {
    return (int64_t)(random_u64(seed, RANDOM_TEST, 3, item) % (uint64_t)sides);
}

static struct step step_of(int nodes, int per_node, int64_t micro_batches, int64_t round_micro_batches) {
    struct step step = {.recipe = {.batch = micro_batches,
                                   .sequence_length = 1,
                                   .micro_batch_sequences = 1,
                                   .lanes = {nodes, per_node},
                                   .round_micro_batches = round_micro_batches}};
    assert_int_equal(lane_tree_create(nodes, per_node, &step.tree), STATUS_OK);
    int64_t in_lane = recipe_lane_micro_batches(&step.recipe), in_share = recipe_share_micro_batches(&step.recipe);
    step.rounds = (in_lane + in_share - 1) / in_share;
    return step;
}

/* Straight from the definition: cuts nothing, knows no ranks. */
static value expected(const struct step *step) {
    int64_t all = step->recipe.batch, lanes = step->tree.lanes, c = (all + lanes - 1) / lanes, next = 0;
    int64_t in_round = step->recipe.round_micro_batches ? step->recipe.round_micro_batches : c;
    value total = 0, *leaves = mem_array((size_t)lanes, sizeof *leaves);
    for (int64_t round = 0; round * in_round < c; round++) {
        for (int64_t l = 0; l < lanes; l++) {
            int64_t first = l * c + round * in_round, count = 0;
            while (count < in_round && first + count < (l + 1) * c && first + count < all)
                count++;
            leaves[l] = count ? micro_batches_of(first, count) : 0;
            next += count;
        }
        total = add(total, tree_value(&step->tree, 0, step->recipe.reduce_dtype == DTYPE_BF16, leaves));
    }
    assert_int_equal(next, all);
    mem_free(leaves);
    return total;
}

/* One rank: where it stands in its list, and its levels. */
struct rank {
    struct lane_shares shares;
    value level[LEVELS_MAX];
    size_t share;
    int32_t sum;
    int64_t next; /* micro-batch of the rank that comes next in its lane's order */
    bool waits;
};

/* Runs until a reduction or the end. */
static void run(struct rank *rank) {
    const struct lane_shares *shares = &rank->shares;
    for (rank->waits = false; rank->share < shares->list.count; rank->share++, rank->sum = 0) {
        const struct lane_share *share = &shares->list.items[rank->share];
        if (rank->sum == 0 && share->micro_batches > 0) {
            assert_true(rank->level[share->level] == 0); /* nothing is lost */
            rank->level[share->level] =
                micro_batches_of(shares->first_micro_batch + share->first_micro_batch, share->micro_batches);
        }
        for (; rank->sum < share->sums; rank->sum++) {
            const struct lane_sum_step *step = &shares->steps.items[share->first_sum + rank->sum];
            if (step->kind == LANE_SUM_REDUCE) {
                rank->waits = true;
                return;
            }
            value *to = &rank->level[step->to], *from = &rank->level[step->from];
            assert_true(*to != 0 && *from != 0);
            if (step->rounds) *to = rounded(*to);
            if (step->kind == LANE_SUM_ROUND) continue;
            *to = add(*to, step->rounds ? rounded(*from) : *from);
            *from = 0;
        }
    }
}

static void reduce(const struct step *step, struct rank *ranks, int count, int64_t round) {
    struct lane_tree top;
    struct rank_place place = {.mesh = {1, count}};
    value *leaves = mem_array((size_t)count, sizeof *leaves);
    bool *empty = mem_array((size_t)count, sizeof *empty);
    assert_int_equal(lane_tree_top(&step->tree, count, &top), STATUS_OK);
    assert_int_equal(lane_shares_find_empty(&step->recipe, &place, round, empty), STATUS_OK);
    int level = ranks[0].shares.steps.items[ranks[0].shares.list.items[ranks[0].share].first_sum + ranks[0].sum].to;
    for (int r = 0; r < count; r++) {
        const struct lane_share *share = &ranks[r].shares.list.items[ranks[r].share];
        assert_true(ranks[r].waits && share->round == round);
        assert_int_equal(ranks[r].shares.steps.items[share->first_sum + ranks[r].sum].to, level);
        leaves[r] = ranks[r].level[level];
        assert_int_equal(empty[r], leaves[r] == 0);
    }
    value sum = tree_value(&top, 0, step->recipe.reduce_dtype == DTYPE_BF16, leaves);
    for (int r = 0; r < count; r++)
        ranks[r].level[level] = sum, ranks[r].sum++;
    lane_tree_free(&top);
    mem_free(leaves);
    mem_free(empty);
}

static void check_micro_batches(const struct step *step, const struct rank *ranks, int count) {
    int64_t next = 0;
    for (int r = 0; r < count; r++) {
        const struct lane_shares *shares = &ranks[r].shares;
        int64_t sum = 0;
        assert_int_equal(shares->first_micro_batch, next);
        for (size_t i = 0; i < shares->list.count; i++) {
            const struct lane_share *share = &shares->list.items[i];
            assert_true(i == 0 || share->round >= shares->list.items[i - 1].round);
            assert_true(share->micro_batches <= recipe_share_micro_batches(&step->recipe) &&
                        share->level < shares->levels);
            assert_int_equal(share->lane < 0, share->micro_batches == 0);
            sum += share->micro_batches;
        }
        assert_int_equal(sum, shares->micro_batches);
        next += shares->micro_batches;
    }
    assert_int_equal(next, step->recipe.batch);
}

static void check_ranks(const struct step *step, int count, value wanted) {
    struct rank *ranks = mem_array((size_t)count, sizeof *ranks);
    for (int r = 0; r < count; r++) {
        struct rank_place place = {.mesh = {1, count}, .rank = r};
        assert_int_equal(lane_shares_create(&step->recipe, &place, &ranks[r].shares), STATUS_OK);
        assert_true(ranks[r].shares.levels <= LEVELS_MAX);
    }
    check_micro_batches(step, ranks, count);
    for (int64_t round = 0; round <= step->rounds; round++) {
        for (int r = 0; r < count; r++)
            run(&ranks[r]);
        if (ranks[0].waits) reduce(step, ranks, count, round);
    }
    for (int r = 0; r < count; r++) {
        assert_true(ranks[r].share == ranks[r].shares.list.count);
        assert_true(ranks[r].level[0] == wanted);
        for (int level = 1; level < LEVELS_MAX; level++)
            assert_true(ranks[r].level[level] == 0);
        lane_shares_free(&ranks[r].shares);
    }
    mem_free(ranks);
}

static void every_number_of_ranks_has_the_tree_of_the_lanes(void **state) {
    (void)state;
    for (uint64_t c = 0; c < CASES; c++) {
        uint64_t seed = 7000 + c;
        int nodes = (int)(1 + draw(seed, 0, 3)), per_node = (int)(1 + draw(seed, 1, 9));
        struct step step = step_of(nodes, per_node, 1 + draw(seed, 2, 60), draw(seed, 3, 6));
        step.recipe.reduce_dtype = draw(seed, 4, 2) ? DTYPE_BF16 : DTYPE_F32;
        value wanted = expected(&step);
        int held = 0;
        for (int ranks = 1; ranks <= step.tree.lanes; ranks++) {
            struct lane_shares refused;
            struct rank_place place = {.mesh = {1, ranks}};
            if (lane_tree_holds(&step.tree, ranks)) {
                check_ranks(&step, ranks, wanted);
                held++;
                continue;
            }
            assert_int_equal(lane_shares_create(&step.recipe, &place, &refused), STATUS_BAD_INPUT);
            lane_shares_free(&refused);
        }
        assert_true(held >= 1 + (step.tree.lanes > 1));
        lane_tree_free(&step.tree);
    }
}

static void one_lane_is_one_share(void **state) {
    (void)state;
    struct step step = step_of(1, 1, 5, 0);
    struct lane_shares shares;
    step.recipe.lanes = (struct lane_shape){0};
    assert_int_equal(lane_shares_create(&step.recipe, &(struct rank_place){.rank = 0}, &shares), STATUS_OK);
    assert_int_equal(shares.list.count, 1);
    assert_int_equal(shares.list.items[0].micro_batches, 5);
    assert_int_equal(shares.steps.count, 0);
    assert_int_equal(shares.levels, 1);
    lane_shares_free(&shares);
    lane_tree_free(&step.tree);
}

static void ranks_are_equal_with_as_many_lanes_and_micro_batches(void **state) {
    (void)state;
    static const struct {
        int lanes, ranks;
        int64_t micro_batches;
        bool equal;
    } cases[] = {{8, 4, 16, true}, {8, 4, 15, false}, {5, 2, 5, false},
                 {6, 2, 6, true},  {3, 2, 6, false},  {1, 1, 5, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct step step = step_of(1, cases[i].lanes, cases[i].micro_batches, 0);
        bool equal = !cases[i].equal;
        assert_int_equal(
            lane_shares_find_equal(&step.recipe, &(struct rank_place){.mesh = {1, cases[i].ranks}}, &equal), STATUS_OK);
        assert_int_equal(equal, cases[i].equal);
        lane_tree_free(&step.tree);
    }
}

static void levels_are_as_many_as_right_turns(void **state) {
    (void)state;
    static const struct {
        int lanes, levels;
        int64_t round;
    } cases[] = {{1, 1, 0}, {2, 2, 0}, {3, 2, 0}, {4, 3, 0}, {8, 4, 0}, {8, 5, 1}, {1, 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct step step = step_of(1, cases[i].lanes, 16, cases[i].round);
        struct lane_shares shares;
        assert_int_equal(lane_shares_create(&step.recipe, &(struct rank_place){.rank = 0}, &shares), STATUS_OK);
        assert_int_equal(shares.levels, cases[i].levels);
        lane_shares_free(&shares);
        lane_tree_free(&step.tree);
    }
}

/* 3 lanes, of which each value has another size, so that another order has another result. */
static void totals_follow_the_tree(void **state) {
    (void)state;
    struct step step = step_of(1, 3, 5, 1);
    const double by[] = {1e16, 1, 1, 3, -1e16, 777}; /* lanes of 2, 2 and 1 micro-batches */
    assert_true(lane_shares_total(&step.recipe, &step.tree, by) == ((1e16 + 1) + 1) + (3 + -1e16));
    lane_tree_free(&step.tree);
}

static enum status cut(void *payload) {
    const struct step *step = payload;
    struct lane_shares shares;
    enum status status = lane_shares_create(&step->recipe, &(struct rank_place){.mesh = {1, 4}, .rank = 1}, &shares);
    lane_shares_free(&shares);
    return status;
}

static void without_memory_there_are_no_shares(void **state) {
    (void)state;
    struct step step = step_of(2, 4, 20, 1);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, cut, &step) >= 4);
    lane_tree_free(&step.tree);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_number_of_ranks_has_the_tree_of_the_lanes),
                                       cmocka_unit_test(one_lane_is_one_share),
                                       cmocka_unit_test(ranks_are_equal_with_as_many_lanes_and_micro_batches),
                                       cmocka_unit_test(levels_are_as_many_as_right_turns),
                                       cmocka_unit_test(totals_follow_the_tree),
                                       cmocka_unit_test(without_memory_there_are_no_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
