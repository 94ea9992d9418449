#include "collective/comm_schedule.h"

#include <stdlib.h>
#include <string.h>

#include "collective/lane_sum.h"
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
            holder[b] = depth > 0 ? holder_below(tree, node, path->holder[depth - 1][b])
                                  : (maker->spec->kind == COMM_BROADCAST ? maker->spec->root : b);
        path->node[depth] = node;
        path->length = depth + 1;
        if (path_ends(maker, tree, node)) return STATUS_OK;
        int left = tree->node[node].left;
        node = below(tree, left, maker->me) ? left : tree->node[node].right;
    }
}

/* What a rank exchanges with those of the other side at one node: all of it at once. */
struct stage {
    const struct path *path;
    int depth; /* the node's; mine is the next of the path */
    int other; /* node of the other side */
    bool sends, receives;
    int *transfers, count; /* made so far */
};

/* The block is sent up the tree by the side that does not hold it, down the tree by the side that does. */
static int moves_between(const struct schedule_maker *maker, const struct stage *stage, int block, bool up,
                         bool receive) {
    const struct path *path = stage->path;
    int mine = path->holder[stage->depth + 1][block];
    int theirs = holder_below(path->tree, stage->other, path->holder[stage->depth][block]);
    bool held_here = below(path->tree, path->node[stage->depth + 1], path->holder[stage->depth][block]);
    if (mine != maker->me || held_here != (up == receive)) return -1;
    return theirs;
}

static enum status add_transfers(struct schedule_maker *maker, struct stage *stage, bool up, bool receive,
                                 enum schedule_place place) {
    const struct lane_node *other = &stage->path->tree->node[stage->other];
    int *blocks = scratch_alloc(&maker->scratch, (size_t)maker->blocks, sizeof *blocks);
    if (!blocks) return STATUS_FAILED;
    for (int peer = other->first; peer < other->first + other->lanes; peer++) {
        int count = 0;
        for (int b = 0; b < maker->blocks; b++)
            if (moves_between(maker, stage, b, up, receive) == peer) blocks[count++] = b;
        if (count == 0) continue;
        int made;
        TRY(maker_transfer(maker, peer, receive, place, blocks, count, &made));
        if (made >= 0) stage->transfers[stage->count++] = made;
    }
    return STATUS_OK;
}

static enum status begin_stage(struct schedule_maker *maker, const struct path *path, int depth, struct stage *stage) {
    int mine = path->node[depth + 1], other = sibling(path->tree, mine);
    *stage = (struct stage){.path = path, .depth = depth, .other = other, .sends = true, .receives = true};
    maker->stage_bytes = 0;
    stage->transfers = scratch_alloc(&maker->scratch, 2 * (size_t)maker->count, sizeof *stage->transfers);
    return stage->transfers ? STATUS_OK : STATUS_FAILED;
}

/* All receives are posted before the first send. */
static enum status launch_transfers(struct schedule_maker *maker, const struct stage *stage, bool pack) {
    for (int i = 0; i < stage->count; i++) {
        struct schedule_transfer transfer = maker->schedule->transfers.items[stage->transfers[i]];
        for (int m = 0; pack && !transfer.receive && m < transfer.messages; m++)
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_PACK, .index = transfer.first_message + m}));
        TRY(maker_step(maker, (struct schedule_step){.kind = transfer.receive ? STEP_POST : STEP_SEND,
                                                     .index = stage->transfers[i]}));
    }
    return STATUS_OK;
}

static enum status finish_transfers(struct schedule_maker *maker, const struct stage *stage, bool receives) {
    for (int i = 0; i < stage->count; i++)
        if (maker->schedule->transfers.items[stage->transfers[i]].receive == receives)
            TRY(maker_finish(maker, stage->transfers[i]));
    return STATUS_OK;
}

static enum status merge_received(struct schedule_maker *maker, const struct stage *stage) {
    int mine = stage->path->node[stage->depth + 1], node = stage->path->node[stage->depth];
    bool absent = maker->schedule->absent[mine];
    enum merge_side side = absent                                       ? MERGE_MINE_ABSENT
                           : stage->path->tree->node[node].left == mine ? MERGE_MINE_LEFT
                                                                        : MERGE_MINE_RIGHT;
    for (int i = 0; i < stage->count; i++) {
        struct schedule_transfer transfer = maker->schedule->transfers.items[stage->transfers[i]];
        for (int m = 0; transfer.receive && m < transfer.messages; m++) {
            int message = transfer.first_message + m;
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_FINISH, .index = message}));
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_MERGE, .index = message, .side = side}));
        }
    }
    return STATUS_OK;
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
    struct stage stage;
    TRY(begin_stage(maker, path, depth, &stage));
    const bool *absent = maker->schedule->absent;
    bool round = maker->spec->round_bf16;
    if (!absent[stage.other]) TRY(add_transfers(maker, &stage, true, true, PLACE_STAGING));
    if (!absent[path->node[depth + 1]])
        TRY(add_transfers(maker, &stage, true, false, round ? PLACE_STAGING : PLACE_DATA));
    TRY(launch_transfers(maker, &stage, round));
    TRY(merge_received(maker, &stage));
    if (round && absent[stage.other] && !absent[path->node[depth + 1]])
        TRY(step_held_blocks(maker, path, depth, (struct schedule_step){.kind = STEP_ROUND}));
    return finish_transfers(maker, &stage, false);
}

static enum status meet(struct schedule_maker *maker, const struct lane_node *node, enum schedule_meeting meeting,
                        bool arrive, bool wait) {
    struct schedule_step step = {
        .kind = STEP_ARRIVE, .index = (int)meeting, .first = node->first, .count = node->lanes};
    if (arrive) TRY(maker_step(maker, step));
    step.kind = STEP_MEET;
    return wait ? maker_step(maker, step) : STATUS_OK;
}

/* Up the tree, from this rank, or its node, to the root. */
static enum status make_reduction(struct schedule_maker *maker) {
    struct path path;
    const struct lane_tree *tree = &maker->schedule->tree;
    TRY(find_path(maker, tree, &path));
    int last = path.length - 1;
    const struct lane_node *end = &tree->node[path.node[last]];
    bool in_place = end->left >= 0;
    if (in_place) {
        TRY(meet(maker, end, MEETING_SUMS, true, true));
        if (!maker->schedule->absent[path.node[last]])
            TRY(step_held_blocks(maker, &path, last,
                                 (struct schedule_step){.kind = STEP_SUM, .index = path.node[last]}));
        TRY(meet(maker, end, MEETING_SUMMED, true, false));
    }
    for (int depth = last - 1; depth >= 0; depth--)
        TRY(reduce_at(maker, &path, depth));
    return in_place ? meet(maker, end, MEETING_SUMMED, false, true) : STATUS_OK;
}

static enum status gather_at(struct schedule_maker *maker, const struct path *path, int depth) {
    struct stage stage;
    TRY(begin_stage(maker, path, depth, &stage));
    TRY(add_transfers(maker, &stage, false, true, PLACE_DATA));
    TRY(add_transfers(maker, &stage, false, false, PLACE_DATA));
    TRY(launch_transfers(maker, &stage, false));
    TRY(finish_transfers(maker, &stage, true));
    return finish_transfers(maker, &stage, false);
}

static enum status gather_in_place(struct schedule_maker *maker, const struct path *path) {
    const struct lane_node *end = &path->tree->node[path->node[path->length - 1]];
    TRY(meet(maker, end, MEETING_BLOCKS, true, true));
    for (int b = 0; b < maker->blocks; b++) {
        struct comm_range range = maker_block(maker, b);
        int holder = path->holder[path->length - 1][b];
        if (holder == maker->me || range.begin == range.end) continue;
        TRY(maker_step(maker, (struct schedule_step){.kind = STEP_COPY,
                                                     .index = holder,
                                                     .to = range.begin,
                                                     .from = range.begin,
                                                     .bytes = range.end - range.begin}));
    }
    return meet(maker, end, MEETING_GATHERED, true, true);
}

/* Down the tree of nodes over ranks, from each block's owner to all. */
static enum status make_gather(struct schedule_maker *maker) {
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

/* Ranks of the node are read in place, the others get and send messages, all at once. */
static enum status make_all_to_all(struct schedule_maker *maker) {
    int near_first = maker->me, near_count = 1, me = maker->me, count = maker->count;
    while (near_first > 0 && maker_reads_in_place(maker, near_first - 1, me - near_first + 2))
        near_first--, near_count++;
    while (near_first + near_count < count && maker_reads_in_place(maker, near_first, near_count + 1))
        near_count++;
    struct lane_node near = {.first = near_first, .lanes = near_count};
    struct stage stage = {.transfers = scratch_alloc(&maker->scratch, 2 * (size_t)count, sizeof *stage.transfers)};
    if (!stage.transfers) return STATUS_FAILED;
    if (near_count > 1) TRY(meet(maker, &near, MEETING_BLOCKS, true, false));
    for (int receive = 1; receive >= 0; receive--)
        for (int i = 1; i < count; i++) {
            int peer = (receive ? me - i + count : me + i) % count;
            if (peer >= near_first && peer < near_first + near_count) continue;
            int made;
            TRY(maker_transfer(maker, peer, receive, receive ? PLACE_OUT : PLACE_DATA, &peer, 1, &made));
            if (made >= 0) stage.transfers[stage.count++] = made;
        }
    TRY(launch_transfers(maker, &stage, false));
    if (near_count > 1) TRY(meet(maker, &near, MEETING_BLOCKS, false, true));
    struct comm_range mine = maker_block(maker, me);
    for (int i = 0; i < near_count && mine.begin < mine.end; i++) {
        int peer = near_first + (me - near_first + i) % near_count;
        TRY(maker_step(maker, (struct schedule_step){.kind = STEP_COPY,
                                                     .index = peer,
                                                     .from = mine.begin,
                                                     .to = maker_block(maker, peer).begin,
                                                     .bytes = mine.end - mine.begin}));
    }
    if (near_count > 1) TRY(meet(maker, &near, MEETING_GATHERED, true, false));
    TRY(finish_transfers(maker, &stage, true));
    TRY(finish_transfers(maker, &stage, false));
    return near_count > 1 ? meet(maker, &near, MEETING_GATHERED, false, true) : STATUS_OK;
}

static enum status copy_tree(const struct lane_tree *from, struct lane_tree *out) {
    *out = *from;
    out->node = mem_array((size_t)from->count, sizeof *out->node);
    if (!out->node) return STATUS_FAILED;
    memcpy(out->node, from->node, (size_t)from->count * sizeof *out->node);
    return STATUS_OK;
}

static enum status make_sums(struct schedule_maker *maker) {
    struct comm_schedule *schedule = maker->schedule;
    if (maker->spec->tree)
        TRY(copy_tree(maker->spec->tree, &schedule->tree));
    else
        TRY(lane_tree_create(1, maker->count, &schedule->tree));
    schedule->absent = mem_array((size_t)schedule->tree.count, sizeof *schedule->absent);
    if (!schedule->absent) return STATUS_FAILED;
    lane_find_absent(&schedule->tree, maker->spec->empty, schedule->absent);
    return make_reduction(maker);
}

static enum status make(struct schedule_maker *maker) {
    switch (maker->spec->kind) {
    case COMM_REDUCE_SCATTER: return make_sums(maker);
    case COMM_ALL_REDUCE: TRY(make_sums(maker)); return make_gather(maker);
    case COMM_ALL_GATHER:
    case COMM_BROADCAST: return make_gather(maker);
    case COMM_ALL_TO_ALL: return make_all_to_all(maker);
    default: BUG("no such operation: %d", (int)maker->spec->kind);
    }
}

enum status comm_schedule_create(const struct mesh *mesh, int rank, int64_t message_bytes, const struct comm_spec *spec,
                                 struct comm_schedule *out) {
    struct comm_schedule schedule = {0};
    int count = spec->group.count;
    struct schedule_maker maker = {.mesh = mesh,
                                   .spec = spec,
                                   .message_bytes = message_bytes,
                                   .count = count,
                                   .me = mesh_group_position(&spec->group, rank),
                                   .blocks = spec->kind == COMM_BROADCAST ? 1 : count,
                                   .schedule = &schedule};
    enum status status = make(&maker);
    scratch_free(&maker.scratch);
    if (status == STATUS_OK)
        *out = schedule;
    else
        comm_schedule_free(&schedule);
    return status;
}

void comm_schedule_free(struct comm_schedule *schedule) {
    vec_free(&schedule->steps);
    vec_free(&schedule->transfers);
    vec_free(&schedule->messages);
    vec_free(&schedule->pieces);
    lane_tree_free(&schedule->tree);
    mem_free(schedule->absent);
    *schedule = (struct comm_schedule){0};
}
