#include "collective/schedule_maker.h"

/* The nodes of a tree from the root down to this rank, or to the node whose ranks read each other in place; and each
 * block's holder at each of them. */
struct path {
    const struct lane_tree *tree;
    int length;
    int node[40]; /* trees have at most 2^16 leaves, by nodes and within nodes */
    int *holder[40];
};

static int sibling(const struct lane_tree *tree, int node) {
    const struct lane_node *parent = &tree->node[tree->node[node].parent];
    return parent->left == node ? parent->right : parent->left;
}

static bool below(const struct lane_tree *tree, int node, int rank) {
    return rank >= tree->node[node].first && rank < tree->node[node].first + tree->node[node].lanes;
}

/* Who holds at `child` what `holder` holds at its parent. */
static int holder_below(const struct lane_tree *tree, int child, int holder) {
    if (below(tree, child, holder)) return holder;
    int across = holder - tree->node[sibling(tree, child)].first;
    return tree->node[child].first + across % tree->node[child].lanes;
}

static bool path_ends(const struct schedule_maker *maker, const struct lane_tree *tree, int node) {
    return tree->node[node].left < 0 || maker_reads_in_place(maker, tree->node[node].first, tree->node[node].lanes);
}

static enum status find_path(struct schedule_maker *maker, const struct lane_tree *tree, struct path *path) {
    *path = (struct path){.tree = tree};
    int node = 0;
    for (int depth = 0;; depth++) {
        int *holder = path->holder[depth] = scratch_alloc(&maker->scratch, (size_t)maker->blocks, sizeof *holder);
        if (!holder) return STATUS_FAILED;
        for (int b = 0; b < maker->blocks; b++)
            holder[b] = depth > 0 ? holder_below(tree, node, path->holder[depth - 1][b]) : maker->owner[b];
        path->node[depth] = node;
        path->length = depth + 1;
        if (path_ends(maker, tree, node)) return STATUS_OK;
        int left = tree->node[node].left;
        node = below(tree, left, maker->me) ? left : tree->node[node].right;
    }
}

/* The messages between a rank and those of the other side at one node: all of it at once. */
struct phase {
    const struct path *path;
    int depth; /* the node's; mine is the next of the path */
    int other; /* node of the other side */
    struct maker_phase made;
};

/* The block is sent up the tree by the side that does not hold it, down the tree by the side that does. */
static int moves_between(const struct schedule_maker *maker, const struct phase *phase, int block, bool up,
                         bool receive) {
    const struct path *path = phase->path;
    int mine = path->holder[phase->depth + 1][block];
    int theirs = holder_below(path->tree, phase->other, path->holder[phase->depth][block]);
    bool held_here = below(path->tree, path->node[phase->depth + 1], path->holder[phase->depth][block]);
    if (mine != maker->me || held_here != (up == receive)) return -1;
    return theirs;
}

/* Deals the blocks that move to their peers: those of the i-th rank of the other side are [starts[i], starts[i + 1]) of
 * `blocks`, in their order. */
static void deal_blocks(const struct schedule_maker *maker, const struct phase *phase, bool up, bool receive,
                        int *starts, int *blocks) {
    const struct lane_node *other = &phase->path->tree->node[phase->other];
    int *next = starts + 1; /* where the next block of each rank goes, and in the end where the next rank's begin */
    for (int b = 0; b < maker->blocks; b++) {
        int peer = moves_between(maker, phase, b, up, receive) - other->first;
        if (peer >= 0 && peer + 2 <= other->lanes) next[peer + 1]++;
    }
    for (int i = 1; i < other->lanes; i++)
        next[i] += next[i - 1];
    for (int b = 0; b < maker->blocks; b++) {
        int peer = moves_between(maker, phase, b, up, receive) - other->first;
        if (peer >= 0) blocks[next[peer]++] = b;
    }
}

static enum status add_transfers(struct schedule_maker *maker, struct phase *phase, bool up, bool receive,
                                 enum schedule_place place) {
    const struct lane_node *other = &phase->path->tree->node[phase->other];
    int *blocks = scratch_alloc(&maker->scratch, (size_t)maker->blocks, sizeof *blocks);
    int *starts = scratch_alloc(&maker->scratch, (size_t)other->lanes + 1, sizeof *starts);
    if (!blocks || !starts) return STATUS_FAILED;
    deal_blocks(maker, phase, up, receive, starts, blocks);
    for (int i = 0; i < other->lanes; i++)
        TRY(maker_phase_transfer(maker, &phase->made, other->first + i, receive, place, blocks + starts[i],
                                 starts[i + 1] - starts[i]));
    return STATUS_OK;
}

static enum status begin_phase(struct schedule_maker *maker, const struct path *path, int depth, struct phase *phase) {
    *phase = (struct phase){.path = path, .depth = depth, .other = sibling(path->tree, path->node[depth + 1])};
    return maker_begin_phase(maker, &phase->made);
}

static enum status merge_received(struct schedule_maker *maker, const struct phase *phase) {
    int mine = phase->path->node[phase->depth + 1], node = phase->path->node[phase->depth];
    bool absent = maker->schedule->absent[mine];
    enum merge_side side = absent                                       ? MERGE_MINE_ABSENT
                           : phase->path->tree->node[node].left == mine ? MERGE_MINE_LEFT
                                                                        : MERGE_MINE_RIGHT;
    return maker_merge(maker, &phase->made, side);
}

/* The blocks that this rank holds at a node of the path, one step each. */
static enum status step_held_blocks(struct schedule_maker *maker, const struct path *path, int depth,
                                    struct schedule_step step) {
    for (int b = 0; b < maker->blocks; b++) {
        struct comm_range range = maker_block(maker, b);
        if (path->holder[depth][b] != maker->me || range.begin == range.end) continue;
        step.to = range.begin;
        step.bytes = range.end - range.begin;
        TRY(maker_step(maker, step));
    }
    return STATUS_OK;
}

static enum status reduce_at(struct schedule_maker *maker, const struct path *path, int depth) {
    struct phase phase;
    TRY(begin_phase(maker, path, depth, &phase));
    const bool *absent = maker->schedule->absent;
    bool round = maker->spec->round_bf16;
    if (!absent[phase.other]) TRY(add_transfers(maker, &phase, true, true, PLACE_STAGING));
    if (!absent[path->node[depth + 1]])
        TRY(add_transfers(maker, &phase, true, false, round ? PLACE_STAGING : PLACE_DATA));
    TRY(maker_launch(maker, &phase.made, round));
    TRY(merge_received(maker, &phase));
    if (round && absent[phase.other] && !absent[path->node[depth + 1]])
        TRY(step_held_blocks(maker, path, depth, (struct schedule_step){.kind = STEP_ROUND}));
    return maker_finish(maker, &phase.made, false);
}

/* Up the tree, from this rank, or its node, to the root. */
enum status schedule_reduce_along_tree(struct schedule_maker *maker) {
    struct path path;
    const struct lane_tree *tree = &maker->schedule->tree;
    TRY(find_path(maker, tree, &path));
    int last = path.length - 1;
    const struct lane_node *end = &tree->node[path.node[last]];
    bool in_place = end->left >= 0;
    if (in_place) {
        TRY(maker_meet(maker, end->first, end->lanes, MEETING_SUMS, true, true));
        if (!maker->schedule->absent[path.node[last]])
            TRY(step_held_blocks(maker, &path, last,
                                 (struct schedule_step){.kind = STEP_SUM, .index = path.node[last]}));
        TRY(maker_meet(maker, end->first, end->lanes, MEETING_SUMMED, true, false));
    }
    for (int depth = last - 1; depth >= 0; depth--)
        TRY(reduce_at(maker, &path, depth));
    return in_place ? maker_meet(maker, end->first, end->lanes, MEETING_SUMMED, false, true) : STATUS_OK;
}

static enum status gather_at(struct schedule_maker *maker, const struct path *path, int depth) {
    struct phase phase;
    enum schedule_place place = maker_gather_place(maker);
    TRY(begin_phase(maker, path, depth, &phase));
    TRY(add_transfers(maker, &phase, false, true, place));
    TRY(add_transfers(maker, &phase, false, false, place));
    TRY(maker_launch(maker, &phase.made, place == PLACE_STAGING));
    TRY(maker_finish_gathered(maker, &phase.made));
    return maker_finish(maker, &phase.made, false);
}

static enum status gather_in_place(struct schedule_maker *maker, const struct path *path) {
    const struct lane_node *end = &path->tree->node[path->node[path->length - 1]];
    TRY(maker_meet(maker, end->first, end->lanes, MEETING_BLOCKS, true, true));
    for (int b = 0; b < maker->blocks; b++)
        if (path->holder[path->length - 1][b] != maker->me)
            TRY(maker_copy_block(maker, b, path->holder[path->length - 1][b]));
    return maker_meet(maker, end->first, end->lanes, MEETING_GATHERED, true, true);
}

/* Down the tree of nodes over ranks, from each block's owner to all. */
enum status schedule_gather_along_tree(struct schedule_maker *maker) {
    int per_node = mesh_group_per_node(maker->mesh, &maker->spec->group);
    struct lane_tree tree;
    if (per_node > 0)
        TRY(lane_tree_create(maker->count / per_node, per_node, &tree));
    else
        TRY(lane_tree_create(1, maker->count, &tree));
    struct path path;
    enum status status = find_path(maker, &tree, &path);
    for (int depth = 0; status == STATUS_OK && depth < path.length - 1; depth++)
        status = gather_at(maker, &path, depth);
    if (status == STATUS_OK && tree.node[path.node[path.length - 1]].left >= 0) status = gather_in_place(maker, &path);
    lane_tree_free(&tree);
    return status;
}
