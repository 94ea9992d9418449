#include "collective/schedule.h"

#include "collective/lane_tree.h"

/* A schedule that is being made. */
struct schedule_maker {
    const struct mesh *mesh;
    const struct comm_spec *spec;
    int64_t message_bytes;
    int me, count;          /* position in the group, its ranks */
    int blocks;             /* broadcast: 1, else count */
    int *owner;             /* by block; broadcast: the root */
    int *owned;             /* by position: its block, or -1 */
    struct scratch scratch; /* lives as long as the making */
    struct comm_schedule *schedule;
    /* The phase that is being made: transfers that are on their way at the same time. Their space in staging is used
     * again by the next. */
    int phase_first; /* of its transfers, which are the last */
    int64_t phase_bytes;
};

static inline struct comm_range maker_block(const struct schedule_maker *maker, int block) {
    return comm_spec_block(maker->spec, block);
}

/* The place from which gathered data is sent, and where it is received: in staging if sums travel as bf16, which are
 * packed then. */
static inline enum schedule_place maker_gather_place(const struct schedule_maker *maker) {
    return maker->spec->kind == COMM_ALL_REDUCE && maker->spec->round_sum ? PLACE_STAGING : PLACE_DATA;
}

enum { STAGING_ALIGNMENT = 64 };

static enum status maker_step(struct schedule_maker *maker, struct schedule_step step) {
    struct comm_schedule *schedule = maker->schedule;
    if (step.kind == STEP_COPY && step.index != maker->me) schedule->traffic.read += step.bytes;
    if (step.kind == STEP_SUM) {
        const struct lane_node *node = &schedule->tree.node[step.index];
        schedule->traffic.read -= step.count * step.bytes; /* these come by messages */
        for (int i = 0; i < node->lanes; i++)
            if (node->first + i != maker->me && !(maker->spec->empty && maker->spec->empty[node->first + i]))
                schedule->traffic.read += step.bytes;
    }
    return vec_push(&schedule->steps, step);
}

/* Whether all ranks [first, first + count) read each other's data. */
static bool maker_reads_in_place(const struct schedule_maker *maker, int first, int count) {
    const struct comm_group *group = &maker->spec->group;
    return maker->spec->in_place && mesh_axis_between(maker->mesh, mesh_group_rank(group, first),
                                                      mesh_group_rank(group, first + count - 1)) == MESH_IN_NODE;
}

static enum status end_message(struct schedule_maker *maker, struct schedule_message *message) {
    struct comm_schedule *schedule = maker->schedule;
    message->pieces = (int)schedule->pieces.count - message->first_piece;
    if (message->pieces == 0) return STATUS_OK;
    if (message->place == PLACE_STAGING) {
        if (maker->spec->round_bf16) message->bytes /= 2;
        message->staging = maker->phase_bytes;
        maker->phase_bytes += message->bytes;
        if (maker->phase_bytes > schedule->staging_bytes) schedule->staging_bytes = maker->phase_bytes;
    }
    enum mesh_axis axis = mesh_axis_between(maker->mesh, mesh_group_rank(&maker->spec->group, maker->me),
                                            mesh_group_rank(&maker->spec->group, message->peer));
    *(message->receive ? &schedule->traffic.received[axis] : &schedule->traffic.sent[axis]) += message->bytes;
    TRY(vec_push(&schedule->messages, *message));
    message->first_piece = (int)schedule->pieces.count;
    message->bytes = 0;
    return STATUS_OK;
}

/* Adds a range to the message, which is ended wherever it is full. */
static enum status add_range(struct schedule_maker *maker, struct schedule_message *message, struct comm_range range) {
    struct comm_schedule *schedule = maker->schedule;
    while (range.begin < range.end) {
        int64_t space = maker->message_bytes - message->bytes, bytes = range.end - range.begin;
        if (bytes > space) bytes = space;
        bool more = (int)schedule->pieces.count > message->first_piece;
        struct schedule_piece *last = more ? &schedule->pieces.items[schedule->pieces.count - 1] : NULL;
        if (last && last->offset + last->bytes == range.begin)
            last->bytes += bytes;
        else
            TRY(vec_push(&schedule->pieces, (struct schedule_piece){range.begin, bytes}));
        message->bytes += bytes;
        range.begin += bytes;
        if (message->bytes == maker->message_bytes) TRY(end_message(maker, message));
    }
    return STATUS_OK;
}

/* Adds a transfer of `count` blocks with its messages to the phase. Nothing if the blocks are empty: then nobody waits
 * for the word to go on. */
static enum status maker_transfer(struct schedule_maker *maker, int peer, bool receive, enum schedule_place place,
                                  const int *blocks, int count) {
    struct comm_schedule *schedule = maker->schedule;
    struct schedule_transfer transfer = {peer, receive, (int)schedule->messages.count, 0};
    struct schedule_message message = {peer, receive, place, (int)schedule->pieces.count, 0, 0, 0};
    maker->phase_bytes = (maker->phase_bytes + STAGING_ALIGNMENT - 1) / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
    for (int i = 0; i < count; i++)
        TRY(add_range(maker, &message, maker_block(maker, blocks[i])));
    TRY(end_message(maker, &message));
    transfer.messages = (int)schedule->messages.count - transfer.first_message;
    return transfer.messages > 0 ? vec_push(&schedule->transfers, transfer) : STATUS_OK;
}

static int transfer_count(const struct schedule_maker *maker) { return (int)maker->schedule->transfers.count; }

static void maker_begin_phase(struct schedule_maker *maker) {
    maker->phase_first = transfer_count(maker);
    maker->phase_bytes = 0;
}

/* Begins the transfers, whose receives were added first; STEP_PACK for each message that is sent, if `pack`. */
static enum status maker_launch(struct schedule_maker *maker, bool pack) {
    for (int i = maker->phase_first; i < transfer_count(maker); i++) {
        struct schedule_transfer transfer = maker->schedule->transfers.items[i];
        for (int m = 0; pack && !transfer.receive && m < transfer.messages; m++)
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_PACK, .index = transfer.first_message + m}));
        TRY(maker_step(maker, (struct schedule_step){.kind = transfer.receive ? STEP_POST : STEP_SEND, .index = i}));
    }
    return STATUS_OK;
}

/* STEP_FINISH for each message that is received, or else sent. */
static enum status maker_finish(struct schedule_maker *maker, bool receives) {
    for (int i = maker->phase_first; i < transfer_count(maker); i++) {
        struct schedule_transfer made = maker->schedule->transfers.items[i];
        for (int m = 0; m < made.messages && made.receive == receives; m++)
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_FINISH, .index = made.first_message + m}));
    }
    return STATUS_OK;
}

/* STEP_FINISH for each message that is received into staging, and STEP_MERGE by this side. */
static enum status maker_merge(struct schedule_maker *maker, enum merge_side side) {
    for (int i = maker->phase_first; i < transfer_count(maker); i++) {
        struct schedule_transfer transfer = maker->schedule->transfers.items[i];
        for (int m = 0; transfer.receive && m < transfer.messages; m++) {
            int message = transfer.first_message + m;
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_FINISH, .index = message}));
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_MERGE, .index = message, .side = side}));
        }
    }
    return STATUS_OK;
}

/* STEP_FINISH for what a gather received, unpacked into data where it is packed. */
static enum status maker_finish_gathered(struct schedule_maker *maker) {
    return maker_gather_place(maker) == PLACE_STAGING ? maker_merge(maker, MERGE_MINE_ABSENT)
                                                      : maker_finish(maker, true);
}

/* The ranks [first, first + count) of the node meet. Not where that is this rank alone. */
static enum status maker_meet(struct schedule_maker *maker, int first, int count, enum schedule_meeting meeting,
                              bool arrive, bool wait) {
    struct schedule_step step = {.kind = STEP_ARRIVE, .index = (int)meeting, .first = first, .count = count};
    if (count < 2) return STATUS_OK;
    if (arrive) TRY(maker_step(maker, step));
    step.kind = STEP_MEET;
    return wait ? maker_step(maker, step) : STATUS_OK;
}

/* STEP_COPY of the block from the data of rank `from`; nothing for an empty one. */
static enum status maker_copy_block(struct schedule_maker *maker, int block, int from) {
    struct comm_range range = maker_block(maker, block);
    if (range.begin == range.end) return STATUS_OK;
    return maker_step(maker, (struct schedule_step){.kind = STEP_COPY,
                                                    .index = from,
                                                    .to = range.begin,
                                                    .from = range.begin,
                                                    .bytes = range.end - range.begin});
}

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
        TRY(scratch_items(&maker->scratch, &path->holder[depth], (size_t)maker->blocks));
        for (int b = 0; b < maker->blocks; b++)
            path->holder[depth][b] = depth > 0 ? holder_below(tree, node, path->holder[depth - 1][b]) : maker->owner[b];
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

static enum status add_transfers(struct schedule_maker *maker, const struct phase *phase, bool up, bool receive,
                                 enum schedule_place place) {
    const struct lane_node *other = &phase->path->tree->node[phase->other];
    int *blocks, *starts;
    TRY(scratch_items(&maker->scratch, &blocks, (size_t)maker->blocks));
    TRY(scratch_items(&maker->scratch, &starts, (size_t)other->lanes + 1));
    deal_blocks(maker, phase, up, receive, starts, blocks);
    for (int i = 0; i < other->lanes; i++)
        TRY(maker_transfer(maker, other->first + i, receive, place, blocks + starts[i], starts[i + 1] - starts[i]));
    return STATUS_OK;
}

static struct phase begin_phase(struct schedule_maker *maker, const struct path *path, int depth) {
    maker_begin_phase(maker);
    return (struct phase){.path = path, .depth = depth, .other = sibling(path->tree, path->node[depth + 1])};
}

static enum status merge_received(struct schedule_maker *maker, const struct phase *phase) {
    int mine = phase->path->node[phase->depth + 1], node = phase->path->node[phase->depth];
    bool absent = maker->schedule->absent[mine];
    enum merge_side side = absent                                       ? MERGE_MINE_ABSENT
                           : phase->path->tree->node[node].left == mine ? MERGE_MINE_LEFT
                                                                        : MERGE_MINE_RIGHT;
    return maker_merge(maker, side);
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
    struct phase phase = begin_phase(maker, path, depth);
    const bool *absent = maker->schedule->absent;
    bool round = maker->spec->round_bf16;
    if (!absent[phase.other]) TRY(add_transfers(maker, &phase, true, true, PLACE_STAGING));
    if (!absent[path->node[depth + 1]])
        TRY(add_transfers(maker, &phase, true, false, round ? PLACE_STAGING : PLACE_DATA));
    TRY(maker_launch(maker, round));
    TRY(merge_received(maker, &phase));
    if (round && absent[phase.other] && !absent[path->node[depth + 1]])
        TRY(step_held_blocks(maker, path, depth, (struct schedule_step){.kind = STEP_ROUND}));
    return maker_finish(maker, false);
}

/* Up the tree, from this rank, or its node, to the root. */
static enum status schedule_reduce_along_tree(struct schedule_maker *maker) {
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
    struct phase phase = begin_phase(maker, path, depth);
    enum schedule_place place = maker_gather_place(maker);
    TRY(add_transfers(maker, &phase, false, true, place));
    TRY(add_transfers(maker, &phase, false, false, place));
    TRY(maker_launch(maker, place == PLACE_STAGING));
    TRY(maker_finish_gathered(maker));
    return maker_finish(maker, false);
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
static enum status schedule_gather_along_tree(struct schedule_maker *maker) {
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

/* Ranks of the node are read in place; the others, which are far, get and send messages, all at once. */
struct flat {
    int near_first, near_count; /* this rank among them */
};

static struct flat begin(struct schedule_maker *maker) {
    int first = maker->me, count = 1;
    while (first > 0 && maker_reads_in_place(maker, first - 1, count + 1))
        first--, count++;
    while (first + count < maker->count && maker_reads_in_place(maker, first, count + 1))
        count++;
    maker_begin_phase(maker);
    return (struct flat){first, count};
}

static enum status meet(struct schedule_maker *maker, const struct flat *flat, enum schedule_meeting meeting,
                        bool arrive, bool wait) {
    return maker_meet(maker, flat->near_first, flat->near_count, meeting, arrive, wait);
}

static bool is_near(const struct flat *flat, int position) {
    return position >= flat->near_first && position < flat->near_first + flat->near_count;
}

static bool is_empty(const struct schedule_maker *maker, int position) {
    return maker->spec->empty && maker->spec->empty[position];
}

/* A transfer with each far rank, one partner at a time: of `block`, of the peer's own block, or of the block with the
 * peer's number. Received parts of one block are leaves of its sum; empty ranks have none. */
enum { PEERS_OWN = -1, PEERS_NUMBER = -2 };

static enum status add_far_transfers(struct schedule_maker *maker, const struct flat *flat, bool receive,
                                     enum schedule_place place, int block) {
    for (int i = 1; i < maker->count; i++) {
        int peer = (receive ? maker->me - i + maker->count : maker->me + i) % maker->count;
        int one = block == PEERS_OWN ? maker->owned[peer] : block == PEERS_NUMBER ? peer : block;
        bool lacks = receive && block >= 0 && is_empty(maker, peer);
        if (is_near(flat, peer) || one < 0 || lacks) continue;
        TRY(maker_transfer(maker, peer, receive, place, &one, 1));
    }
    return STATUS_OK;
}

/* ---- sums ---- */

/* Message by message, each when it has come from all far ranks, by the phase's first transfers, which are all cut
 * alike. */
static enum status sum_own_block(struct schedule_maker *maker, int received) {
    struct comm_range range = maker_block(maker, maker->owned[maker->me]);
    struct schedule_step sum = {.kind = STEP_SUM, .first = received ? maker->phase_first : 0, .count = received};
    sum.from = range.begin;
    for (int m = 0; range.begin < range.end; m++) {
        for (int i = 0; i < received; i++) {
            const struct schedule_transfer *transfer = &maker->schedule->transfers.items[sum.first + i];
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_FINISH, .index = transfer->first_message + m}));
        }
        sum.to = range.begin;
        sum.bytes = range.end - range.begin;
        if (received && sum.bytes > maker->message_bytes) sum.bytes = maker->message_bytes;
        TRY(maker_step(maker, sum));
        range.begin += sum.bytes;
    }
    return STATUS_OK;
}

static enum status schedule_reduce_flat(struct schedule_maker *maker) {
    bool round = maker->spec->round_bf16;
    if (maker->count == 1) return STATUS_OK;
    const struct flat flat = begin(maker);
    TRY(meet(maker, &flat, MEETING_SUMS, true, false));
    TRY(add_far_transfers(maker, &flat, true, PLACE_STAGING, maker->owned[maker->me]));
    int received = transfer_count(maker) - maker->phase_first;
    if (!is_empty(maker, maker->me))
        TRY(add_far_transfers(maker, &flat, false, round ? PLACE_STAGING : PLACE_DATA, PEERS_OWN));
    TRY(maker_launch(maker, round));
    TRY(meet(maker, &flat, MEETING_SUMS, false, true));
    TRY(sum_own_block(maker, received));
    TRY(meet(maker, &flat, MEETING_SUMMED, true, false));
    TRY(maker_finish(maker, false));
    return meet(maker, &flat, MEETING_SUMMED, false, true);
}

/* ---- gathers ---- */

static enum status schedule_gather_flat(struct schedule_maker *maker) {
    const struct flat flat = begin(maker);
    int own = maker->owned[maker->me];
    enum schedule_place place = maker_gather_place(maker);
    TRY(meet(maker, &flat, MEETING_BLOCKS, true, false));
    TRY(add_far_transfers(maker, &flat, true, place, PEERS_OWN));
    if (own >= 0) TRY(add_far_transfers(maker, &flat, false, place, own));
    TRY(maker_launch(maker, place == PLACE_STAGING));
    TRY(meet(maker, &flat, MEETING_BLOCKS, false, true));
    for (int i = 1; i < flat.near_count; i++) {
        int peer = flat.near_first + (maker->me - flat.near_first + i) % flat.near_count;
        if (maker->owned[peer] >= 0) TRY(maker_copy_block(maker, maker->owned[peer], peer));
    }
    TRY(meet(maker, &flat, MEETING_GATHERED, true, false));
    TRY(maker_finish_gathered(maker));
    TRY(maker_finish(maker, false));
    return meet(maker, &flat, MEETING_GATHERED, false, true);
}

/* ---- all-to-all ---- */

static enum status schedule_all_to_all(struct schedule_maker *maker) {
    const struct flat flat = begin(maker);
    TRY(meet(maker, &flat, MEETING_BLOCKS, true, false));
    TRY(add_far_transfers(maker, &flat, true, PLACE_OUT, PEERS_NUMBER));
    TRY(add_far_transfers(maker, &flat, false, PLACE_DATA, PEERS_NUMBER));
    TRY(maker_launch(maker, false));
    TRY(meet(maker, &flat, MEETING_BLOCKS, false, true));
    struct comm_range mine = maker_block(maker, maker->me);
    for (int i = 0; i < flat.near_count && mine.begin < mine.end; i++) {
        int peer = flat.near_first + (maker->me - flat.near_first + i) % flat.near_count;
        TRY(maker_step(maker, (struct schedule_step){.kind = STEP_COPY,
                                                     .index = peer,
                                                     .from = mine.begin,
                                                     .to = maker_block(maker, peer).begin,
                                                     .bytes = mine.end - mine.begin}));
    }
    TRY(meet(maker, &flat, MEETING_GATHERED, true, false));
    TRY(maker_finish(maker, true));
    TRY(maker_finish(maker, false));
    return meet(maker, &flat, MEETING_GATHERED, false, true);
}

enum status comm_spec_tree(const struct comm_spec *spec, struct lane_tree *tree, bool **absent) {
    if (spec->tree)
        TRY(lane_tree_copy(spec->tree, tree));
    else
        TRY(lane_tree_create(1, spec->group.count, tree));
    TRY(mem_items(absent, (size_t)tree->count));
    lane_find_absent(tree, spec->empty, *absent);
    return STATUS_OK;
}

static enum status make_sums(struct schedule_maker *maker) {
    TRY(comm_spec_tree(maker->spec, &maker->schedule->tree, &maker->schedule->absent));
    return maker->spec->flat ? schedule_reduce_flat(maker) : schedule_reduce_along_tree(maker);
}

/* A block that lies elsewhere yet is put in its place first. */
static enum status make_gather(struct schedule_maker *maker) {
    int own = maker->owned[maker->me];
    if (maker->spec->mine && own >= 0) {
        struct comm_range range = maker_block(maker, own);
        struct schedule_step take = {.kind = STEP_TAKE, .to = range.begin, .bytes = range.end - range.begin};
        if (take.bytes > 0) TRY(maker_step(maker, take));
    }
    return maker->spec->flat ? schedule_gather_flat(maker) : schedule_gather_along_tree(maker);
}

/* Data that is gathered as bf16 is rounded on its owner too. */
static enum status round_own_block(struct schedule_maker *maker) {
    int own = maker->owned[maker->me];
    struct comm_range range = own >= 0 ? maker_block(maker, own) : (struct comm_range){0, 0};
    struct schedule_step round = {.kind = STEP_ROUND, .to = range.begin, .bytes = range.end - range.begin};
    return maker->spec->round_sum && round.bytes > 0 ? maker_step(maker, round) : STATUS_OK;
}

static enum status make(struct schedule_maker *maker) {
    switch (maker->spec->kind) {
    case COMM_REDUCE_SCATTER: return make_sums(maker);
    case COMM_ALL_REDUCE:
        TRY(make_sums(maker));
        TRY(round_own_block(maker));
        return make_gather(maker);
    case COMM_ALL_GATHER:
    case COMM_BROADCAST: return make_gather(maker);
    case COMM_ALL_TO_ALL: return schedule_all_to_all(maker);
    default: BUG("no such operation: %d", (int)maker->spec->kind);
    }
}

static enum status find_owners(struct schedule_maker *maker) {
    TRY(scratch_items(&maker->scratch, &maker->owner, (size_t)maker->blocks));
    TRY(scratch_items(&maker->scratch, &maker->owned, (size_t)maker->count));
    for (int i = 0; i < maker->count; i++)
        maker->owned[i] = -1;
    for (int b = 0; b < maker->blocks; b++) {
        maker->owner[b] = maker->spec->kind == COMM_BROADCAST ? maker->spec->root
                          : maker->spec->owner                ? maker->spec->owner[b]
                                                              : b;
        maker->owned[maker->owner[b]] = b;
    }
    return STATUS_OK;
}

enum status comm_schedule_create(const struct mesh *mesh, int rank, int64_t message_bytes, const struct comm_spec *spec,
                                 struct comm_schedule *out) {
    struct comm_schedule schedule = {0};
    struct schedule_maker maker = {.mesh = mesh,
                                   .spec = spec,
                                   .message_bytes = message_bytes,
                                   .count = spec->group.count,
                                   .me = mesh_group_position(&spec->group, rank),
                                   .blocks = comm_spec_blocks(spec),
                                   .schedule = &schedule};
    enum status status = find_owners(&maker);
    if (status == STATUS_OK) status = make(&maker);
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
