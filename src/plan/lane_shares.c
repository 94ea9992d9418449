#include "plan/lane_shares.h"

#include "base/terminal.h"

struct micro_batch_range lane_shares_micro_batches(const struct recipe *recipe, int lane, int64_t round) {
    int64_t all = recipe_micro_batches(recipe), in_lane = recipe_lane_micro_batches(recipe),
            in_share = recipe_share_micro_batches(recipe);
    int64_t lane_end = (lane + 1) * in_lane < all ? (lane + 1) * in_lane : all;
    int64_t first = lane * in_lane + round * in_share;
    int64_t end = first + in_share < lane_end ? first + in_share : lane_end;
    return (struct micro_batch_range){first, end > first ? end - first : 0};
}

static int64_t count_rounds(const struct recipe *recipe) {
    int64_t in_share = recipe_share_micro_batches(recipe);
    return (recipe_lane_micro_batches(recipe) + in_share - 1) / in_share;
}

/* Shares of one round. */
struct cutter {
    const struct recipe *recipe;
    const struct lane_tree *tree;
    int64_t round;
    struct lane_shares *shares;
};

/* The first lane below a node has the most micro-batches. */
static bool has_micro_batches(const struct recipe *recipe, const struct lane_node *node, int64_t round) {
    return lane_shares_micro_batches(recipe, node->first, round).count > 0;
}

static enum status add_share(const struct cutter *cutter, int lane, int level, struct micro_batch_range micro_batches) {
    struct lane_shares *shares = cutter->shares;
    if (level >= shares->levels) shares->levels = level + 1;
    struct lane_share share = {.round = cutter->round,
                               .lane = lane,
                               .first_micro_batch = micro_batches.first - shares->first_micro_batch,
                               .micro_batches = micro_batches.count,
                               .level = level,
                               .first_sum = (int32_t)shares->steps.count};
    return vec_push(&shares->list, share);
}

static enum status add_step(const struct cutter *cutter, enum lane_sum_kind kind, int to, int from, bool rounds) {
    cutter->shares->list.items[cutter->shares->list.count - 1].sums++;
    return vec_push(&cutter->shares->steps, (struct lane_sum_step){kind, to, from, rounds});
}

/* The value of a node that has micro-batches, into `level`. */
static enum status add_node(const struct cutter *cutter, int index, int level) {
    const struct lane_node *node = &cutter->tree->node[index];
    if (node->left < 0)
        return add_share(cutter, node->first, level,
                         lane_shares_micro_batches(cutter->recipe, node->first, cutter->round));
    bool rounds = cutter->recipe->reduce_dtype == DTYPE_BF16;
    TRY(add_node(cutter, node->left, level));
    if (!has_micro_batches(cutter->recipe, &cutter->tree->node[node->right], cutter->round))
        return rounds ? add_step(cutter, LANE_SUM_ROUND, level, level, true) : STATUS_OK;
    TRY(add_node(cutter, node->right, level + 1));
    return add_step(cutter, LANE_SUM_ADD, level, level + 1, rounds);
}

static enum status add_round(const struct cutter *cutter, int root, int ranks) {
    int level = cutter->round > 0;
    if (has_micro_batches(cutter->recipe, &cutter->tree->node[root], cutter->round))
        TRY(add_node(cutter, root, level));
    else
        TRY(add_share(cutter, -1, level, (struct micro_batch_range){cutter->shares->first_micro_batch, 0}));
    if (ranks > 1) TRY(add_step(cutter, LANE_SUM_REDUCE, level, level, false));
    return level > 0 ? add_step(cutter, LANE_SUM_ADD, 0, level, false) : STATUS_OK;
}

static enum status add_rounds(const struct recipe *recipe, const struct lane_tree *tree, int root, int ranks,
                              struct lane_shares *out) {
    int64_t all = recipe_micro_batches(recipe), in_lane = recipe_lane_micro_batches(recipe);
    const struct lane_node *node = &tree->node[root];
    int64_t first = node->first * in_lane, end = first + node->lanes * in_lane;
    out->first_micro_batch = first < all ? first : all;
    out->micro_batches = (end < all ? end : all) - out->first_micro_batch;
    out->rounds = count_rounds(recipe);
    struct cutter cutter = {.recipe = recipe, .tree = tree, .shares = out};
    for (; cutter.round < out->rounds; cutter.round++)
        TRY(add_round(&cutter, root, ranks));
    return STATUS_OK;
}

/* The lanes' tree and, by rank, the node whose lanes it holds. */
struct held_lanes {
    struct lane_tree tree;
    int *subtree;
};

static enum status held_lanes_create(const struct recipe *recipe, int ranks, struct held_lanes *out) {
    *out = (struct held_lanes){.subtree = mem_array((size_t)ranks, sizeof *out->subtree)};
    if (!out->subtree) return STATUS_FAILED;
    TRY(lane_tree_of_shape(&recipe->lanes, &out->tree));
    return lane_tree_cut(&out->tree, ranks, out->subtree);
}

static void held_lanes_free(struct held_lanes *held) {
    mem_free(held->subtree);
    lane_tree_free(&held->tree);
}

enum status lane_shares_create(const struct recipe *recipe, const struct rank_place *place, struct lane_shares *out) {
    int ranks = rank_place_data(place);
    AUTO(held_lanes_free) struct held_lanes held = {0};
    *out = (struct lane_shares){.levels = 1};
    TRY(held_lanes_create(recipe, ranks, &held));
    return add_rounds(recipe, &held.tree, held.subtree[rank_place_data_rank(place)], ranks, out);
}

void lane_shares_free(struct lane_shares *shares) {
    vec_free(&shares->list);
    vec_free(&shares->steps);
}

enum status lane_shares_find_empty(const struct recipe *recipe, const struct rank_place *place, int64_t round,
                                   bool *empty) {
    AUTO(held_lanes_free) struct held_lanes held = {0};
    int ranks = rank_place_data(place);
    TRY(held_lanes_create(recipe, ranks, &held));
    for (int rank = 0; rank < ranks; rank++)
        empty[rank] = !has_micro_batches(recipe, &held.tree.node[held.subtree[rank]], round);
    return STATUS_OK;
}

enum status lane_shares_find_equal(const struct recipe *recipe, const struct rank_place *place, bool *equal) {
    AUTO(held_lanes_free) struct held_lanes held = {0};
    int ranks = rank_place_data(place);
    TRY(held_lanes_create(recipe, ranks, &held));
    const struct lane_node *nodes = held.tree.node;
    *equal = recipe_micro_batches(recipe) == recipe_lane_micro_batches(recipe) * held.tree.lanes;
    for (int rank = 1; rank < ranks; rank++)
        *equal &= nodes[held.subtree[rank]].lanes == nodes[held.subtree[0]].lanes;
    return STATUS_OK;
}

static double node_total(const struct recipe *recipe, const struct lane_tree *tree, int index, int64_t round,
                         const double *by_lane) {
    const struct lane_node *node = &tree->node[index];
    if (node->left < 0) return by_lane[node->first];
    double left = node_total(recipe, tree, node->left, round, by_lane);
    if (!has_micro_batches(recipe, &tree->node[node->right], round)) return left;
    return left + node_total(recipe, tree, node->right, round, by_lane);
}

double lane_shares_total(const struct recipe *recipe, const struct lane_tree *tree, const double *by) {
    double total = node_total(recipe, tree, 0, 0, by);
    for (int64_t round = 1; round < count_rounds(recipe); round++)
        total += node_total(recipe, tree, 0, round, by + round * tree->lanes);
    return total;
}

/* Lanes without micro-batches, if each of `lanes` lanes takes ceil(micro-batches / lanes) until none are left. */
static int count_idle(int64_t micro_batches, int lanes) {
    int64_t each = (micro_batches + lanes - 1) / lanes;
    return lanes - (int)((micro_batches + each - 1) / each);
}

static bool can_hold(int lanes, int ranks) {
    struct lane_tree tree;
    if (lane_tree_create(1, lanes, &tree) != STATUS_OK) return false;
    bool held = lane_tree_holds(&tree, ranks);
    lane_tree_free(&tree);
    return held;
}

static enum status count_idle_ranks(const struct plan *plan, int *out) {
    int ranks = rank_place_data(&plan->place);
    AUTO_FREE bool *empty = mem_array((size_t)ranks, sizeof *empty);
    if (!empty) return STATUS_FAILED;
    enum status status = lane_shares_find_empty(&plan->recipe, &plan->place, 0, empty);
    *out = 0;
    for (int r = 0; r < ranks; r++)
        *out += empty[r];
    return status;
}

enum status idle_lanes_find(const struct plan *plan, struct idle_lanes *out) {
    const struct recipe *recipe = &plan->recipe;
    int lanes = lane_shape_lanes(&recipe->lanes), ranks = rank_place_data(&plan->place);
    int64_t micro_batches = recipe_micro_batches(recipe), whole = recipe->micro_batch_sequences * lanes;
    *out = (struct idle_lanes){.lanes = count_idle(micro_batches, lanes)};
    if (out->lanes == 0) return STATUS_OK;
    if (ranks > 1) TRY(count_idle_ranks(plan, &out->ranks));
    out->batch = (recipe->batch + whole - 1) / whole * whole;
    for (int n = lanes - 1; n >= ranks && out->lanes_instead == 0; n--)
        if (count_idle(micro_batches, n) == 0 && can_hold(n, ranks)) out->lanes_instead = n;
    for (int64_t g = recipe->micro_batch_sequences - 1; g >= 1 && out->micro_batch_instead == 0; g--)
        if (count_idle((recipe->batch + g - 1) / g, lanes) == 0) out->micro_batch_instead = g;
    return STATUS_OK;
}

enum status idle_lanes_warn(const struct plan *plan) {
    struct idle_lanes idle;
    char ranks[64] = "", lanes[32] = "", micro_batch[48] = "";
    TRY(idle_lanes_find(plan, &idle));
    if (idle.lanes == 0) return STATUS_OK;
    if (idle.ranks > 0)
        snprintf(ranks, sizeof ranks, ", and %d of %d ranks nothing to compute", idle.ranks,
                 rank_place_data(&plan->place));
    if (idle.lanes_instead > 0) snprintf(lanes, sizeof lanes, " or --lanes %d", idle.lanes_instead);
    if (idle.micro_batch_instead > 0)
        snprintf(micro_batch, sizeof micro_batch, " or --micro-batch %" PRId64, idle.micro_batch_instead);
    int64_t micro_batches = recipe_micro_batches(&plan->recipe);
    log_warning("a batch of %" PRId64 " %s leaves %d of %d lanes empty%s; --batch %" PRId64
                "%s%s gives each of them micro-batches",
                micro_batches, micro_batches == 1 ? "micro-batch" : "micro-batches", idle.lanes,
                lane_shape_lanes(&plan->recipe.lanes), ranks, idle.batch, lanes, micro_batch);
    return STATUS_OK;
}
