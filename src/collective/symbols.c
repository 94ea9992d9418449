#include "collective/symbols.h"

#include "collective/lane_tree.h"

enum { SYMBOL_NOTHING = 0 };
static inline int symbols_count(const struct symbols *symbols) { return (int)symbols->cuts.count - 1; }

enum { WRONG = 2 };

static symbol mix(symbol a, symbol b) {
    symbol x = (a ^ b >> 32) * 0x9e3779b97f4a7c15u + b;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    return ((x ^ x >> 29) | 4) & ~(symbol)1;
}

/* The symbol of a rank's own segment. */
static symbol symbol_leaf(int rank, int segment) { return mix((symbol)rank + 1, (symbol)segment + 1); }
static symbol symbol_rounded(symbol v) { return v & 1 || v == SYMBOL_NOTHING ? v : mix(v, 'r') | 1; }
static symbol add(symbol left, symbol right, bool round) {
    if (left == SYMBOL_NOTHING || right == SYMBOL_NOTHING) return WRONG;
    return round ? mix(mix(symbol_rounded(left), '+'), symbol_rounded(right)) : mix(mix(left, '+'), right);
}

static const struct comm_schedule *schedule_of(const struct symbols *symbols, int rank) {
    return symbols->walk->of[rank].schedule;
}

/* ---- segments ---- */

ORDER_BY(compare_cuts, int64_t, *item)

/* In all-to-all a byte of a block is compared with that of another: all blocks are cut alike. */
static enum status add_cut(struct symbols *symbols, int64_t at) {
    struct comm_range one = comm_spec_block(symbols->spec, 0);
    bool alike = symbols->spec->kind == COMM_ALL_TO_ALL && one.end > 0;
    for (int b = 0; alike && b < symbols->spec->group.count; b++)
        TRY(vec_push(&symbols->cuts, b * one.end + at % one.end));
    return alike ? STATUS_OK : vec_push(&symbols->cuts, at);
}

static enum status add_range(struct symbols *symbols, int64_t begin, int64_t bytes) {
    TRY(add_cut(symbols, begin));
    return add_cut(symbols, begin + bytes);
}

static enum status cut_segments(struct symbols *symbols) {
    TRY(add_range(symbols, 0, symbols->spec->bytes));
    TRY(vec_push(&symbols->cuts, symbols->spec->bytes));
    for (int b = 0; b < comm_spec_blocks(symbols->spec); b++)
        TRY(add_cut(symbols, comm_spec_block(symbols->spec, b).begin));
    for (int r = 0; r < symbols->walk->ranks; r++) {
        const struct comm_schedule *schedule = schedule_of(symbols, r);
        for (size_t p = 0; p < schedule->pieces.count; p++)
            TRY(add_range(symbols, schedule->pieces.items[p].offset, schedule->pieces.items[p].bytes));
        for (size_t s = 0; s < schedule->steps.count; s++) {
            TRY(add_range(symbols, schedule->steps.items[s].to, schedule->steps.items[s].bytes));
            TRY(add_range(symbols, schedule->steps.items[s].from, schedule->steps.items[s].bytes));
        }
    }
    qsort(symbols->cuts.items, symbols->cuts.count, sizeof *symbols->cuts.items, compare_cuts);
    size_t kept = 0;
    for (size_t i = 0; i < symbols->cuts.count; i++)
        if (kept == 0 || symbols->cuts.items[kept - 1] != symbols->cuts.items[i])
            symbols->cuts.items[kept++] = symbols->cuts.items[i];
    symbols->cuts.count = kept;
    return STATUS_OK;
}

/* The segment that begins at an offset. */
static int symbols_segment(const struct symbols *symbols, int64_t offset) {
    const int64_t *found = bsearch(&offset, symbols->cuts.items, symbols->cuts.count, sizeof offset, compare_cuts);
    BUG_IF(!found, "no segment begins at %lld", (long long)offset);
    return (int)(found - symbols->cuts.items);
}

/* ---- bytes on their way ---- */

#define FAULT(at, ...) SCHEDULE_FAULT(symbols->walk, (at)->rank, (at)->step, __VA_ARGS__)

/* Whether the rank may use [begin, end) of its data, or out, now. */
static enum status check_free(const struct symbols *symbols, const struct walked_step *at, enum schedule_place place,
                              int64_t begin, int64_t end, bool writes) {
    const struct comm_schedule *schedule = schedule_of(symbols, at->rank);
    for (size_t m = 0; m < schedule->messages.count; m++) {
        const struct schedule_message *message = &schedule->messages.items[m];
        bool matters =
            symbols->of[at->rank].messages[m].flies && message->place == place && (writes || message->receive);
        for (int p = message->first_piece; matters && p < message->first_piece + message->pieces; p++) {
            const struct schedule_piece *piece = &schedule->pieces.items[p];
            if (piece->offset < end && begin < piece->offset + piece->bytes)
                return FAULT(at, "uses bytes that are on their way in message %zu", m);
        }
    }
    return STATUS_OK;
}

/* The same for the source or destination of a message. */
static enum status check_message_free(const struct symbols *symbols, const struct walked_step *at, int index,
                                      bool writes) {
    const struct comm_schedule *schedule = schedule_of(symbols, at->rank);
    const struct schedule_message *message = &schedule->messages.items[index];
    enum schedule_place place = message->place == PLACE_OUT ? PLACE_OUT : PLACE_DATA;
    for (int p = message->first_piece; p < message->first_piece + message->pieces; p++) {
        const struct schedule_piece *piece = &schedule->pieces.items[p];
        TRY(check_free(symbols, at, place, piece->offset, piece->offset + piece->bytes, writes));
    }
    return STATUS_OK;
}

/* The message's place in staging becomes its own. */
static enum status take_staging(const struct symbols *symbols, const struct walked_step *at, int index) {
    const struct comm_schedule *schedule = schedule_of(symbols, at->rank);
    struct message_symbols *own = symbols->of[at->rank].messages;
    const struct schedule_message *mine = &schedule->messages.items[index];
    if (mine->staging + mine->bytes > schedule->staging_bytes)
        return FAULT(at, "message %d lies behind the end of staging", index);
    for (size_t m = 0; m < schedule->messages.count; m++) {
        const struct schedule_message *other = &schedule->messages.items[m];
        bool meet = (int)m != index && other->place == PLACE_STAGING && other->staging < mine->staging + mine->bytes &&
                    mine->staging < other->staging + other->bytes;
        if (meet && own[m].flies) return FAULT(at, "message %d is staged where message %zu is on its way", index, m);
        if (meet) own[m].staged = false;
    }
    own[index].staged = true;
    return STATUS_OK;
}

/* ---- steps ---- */

/* The message's segments between data (or out) and its payload, one way or the other. */
static enum status move_message(const struct symbols *symbols, const struct walked_step *at, int index, symbol *base,
                                bool into_data) {
    const struct message_symbols *message = &symbols->of[at->rank].messages[index];
    TRY(check_message_free(symbols, at, index, into_data));
    for (int i = 0; i < message->count; i++) {
        symbol *there = &base[message->segment[i]], *payload = &message->payload[i];
        *(into_data ? there : payload) = *(into_data ? payload : there);
    }
    return STATUS_OK;
}

static enum status begin_transfer(const struct symbols *symbols, const struct walked_step *at, int index) {
    const struct schedule_transfer *transfer = &schedule_of(symbols, at->rank)->transfers.items[index];
    struct rank_symbols *rank = &symbols->of[at->rank];
    for (int m = transfer->first_message; m < transfer->first_message + transfer->messages; m++) {
        const struct schedule_message *message = &schedule_of(symbols, at->rank)->messages.items[m];
        bool staged = message->place == PLACE_STAGING;
        if (staged && transfer->receive) TRY(take_staging(symbols, at, m));
        if (staged && !rank->messages[m].staged) return FAULT(at, "sends message %d, which is not in staging", m);
        if (!staged) TRY(check_message_free(symbols, at, m, transfer->receive));
        if (!staged && !transfer->receive) TRY(move_message(symbols, at, m, rank->data, false));
        rank->messages[m].flies = true;
    }
    return STATUS_OK;
}

static enum status finish_message(const struct symbols *symbols, const struct walked_step *at, int index) {
    const struct rank_walk *walk = &symbols->walk->of[at->rank];
    const struct schedule_message *message = &walk->schedule->messages.items[index];
    struct rank_symbols *rank = &symbols->of[at->rank];
    struct message_symbols *own = &rank->messages[index];
    if (!own->flies) return FAULT(at, "waits for message %d, which is not on its way", index);
    own->flies = false;
    if (!message->receive) return STATUS_OK;
    int transfer = walk->transfer_of[index], peer = message->peer;
    const struct schedule_transfer *theirs = &schedule_of(symbols, peer)->transfers.items[walk->matches[transfer]];
    int number = index - walk->schedule->transfers.items[transfer].first_message;
    const struct message_symbols *sent = &symbols->of[peer].messages[theirs->first_message + number];
    if (own->count != sent->count)
        return FAULT(at, "message %d brings pieces that do not fit its receive buffer", index);
    memcpy(own->payload, sent->payload, (size_t)own->count * sizeof(symbol));
    if (message->place == PLACE_STAGING) return STATUS_OK;
    return move_message(symbols, at, index, message->place == PLACE_OUT ? rank->out : rank->data, true);
}

static enum status pack_message(const struct symbols *symbols, const struct walked_step *at, int index) {
    struct message_symbols *message = &symbols->of[at->rank].messages[index];
    TRY(take_staging(symbols, at, index));
    TRY(move_message(symbols, at, index, symbols->of[at->rank].data, false));
    for (int i = 0; i < message->count; i++)
        message->payload[i] = symbol_rounded(message->payload[i]);
    return STATUS_OK;
}

static enum status merge_message(const struct symbols *symbols, const struct walked_step *at,
                                 const struct schedule_step *step) {
    const struct rank_symbols *rank = &symbols->of[at->rank];
    const struct message_symbols *message = &rank->messages[step->index];
    bool round = symbols->spec->round_bf16;
    if (message->flies || !message->staged) return FAULT(at, "adds message %d, which is not there", step->index);
    TRY(check_message_free(symbols, at, step->index, true));
    for (int i = 0; i < message->count; i++) {
        symbol *mine = &rank->data[message->segment[i]], came = message->payload[i];
        *mine = step->side == MERGE_MINE_ABSENT ? came
                : step->side == MERGE_MINE_LEFT ? add(*mine, came, round)
                                                : add(came, *mine, round);
    }
    return STATUS_OK;
}

/* The symbol of a segment that the transfer brought. */
static symbol brought(const struct symbols *symbols, int rank, const struct schedule_transfer *transfer, int segment) {
    for (int m = transfer->first_message; m < transfer->first_message + transfer->messages; m++) {
        const struct message_symbols *message = &symbols->of[rank].messages[m];
        for (int i = 0; i < message->count; i++)
            if (message->segment[i] == segment)
                return !message->flies && message->staged ? message->payload[i] : SYMBOL_NOTHING;
    }
    return SYMBOL_NOTHING;
}

/* The value of a node of the tree, from the leaves' values. */
static symbol symbols_add_up(const struct symbols *symbols, int index, const symbol *leaves) {
    const struct lane_node *node = &symbols->tree.node[index];
    bool round = symbols->spec->round_bf16;
    if (node->left < 0) return leaves[node->first];
    if (symbols->absent[node->left] && symbols->absent[node->right]) return SYMBOL_NOTHING;
    bool both = !symbols->absent[node->left] && !symbols->absent[node->right];
    symbol left = symbols->absent[node->left] ? SYMBOL_NOTHING : symbols_add_up(symbols, node->left, leaves);
    symbol right = symbols->absent[node->right] ? SYMBOL_NOTHING : symbols_add_up(symbols, node->right, leaves);
    if (both) return add(left, right, round);
    symbol only = left == SYMBOL_NOTHING ? right : left;
    return round ? symbol_rounded(only) : only;
}

static enum status sum_lanes(const struct symbols *symbols, const struct walked_step *at,
                             const struct schedule_step *step, symbol *leaves) {
    const struct comm_schedule *schedule = schedule_of(symbols, at->rank);
    TRY(check_free(symbols, at, PLACE_DATA, step->to, step->to + step->bytes, true));
    int first = symbols_segment(symbols, step->to), end = symbols_segment(symbols, step->to + step->bytes);
    for (int s = first; s < end; s++) {
        for (int r = 0; r < symbols->walk->ranks; r++)
            leaves[r] = symbols->of[r].data[s];
        for (int t = step->first; t < step->first + step->count; t++) {
            const struct schedule_transfer *transfer = &schedule->transfers.items[t];
            leaves[transfer->peer] = brought(symbols, at->rank, transfer, s);
        }
        symbols->of[at->rank].data[s] = symbols_add_up(symbols, step->index, leaves);
    }
    return STATUS_OK;
}

/* All-to-all copies into out. */
static enum status copy_range(const struct symbols *symbols, const struct walked_step *at,
                              const struct schedule_step *step) {
    bool out = symbols->spec->kind == COMM_ALL_TO_ALL;
    TRY(check_free(symbols, at, out ? PLACE_OUT : PLACE_DATA, step->to, step->to + step->bytes, true));
    struct rank_symbols *rank = &symbols->of[at->rank];
    int to = symbols_segment(symbols, step->to), end = symbols_segment(symbols, step->to + step->bytes);
    int from = symbols_segment(symbols, step->from);
    for (int s = 0; s < end - to; s++)
        (out ? rank->out : rank->data)[to + s] = symbols->of[step->index].data[from + s];
    return STATUS_OK;
}

static enum status change_range(const struct symbols *symbols, const struct walked_step *at,
                                const struct schedule_step *step) {
    TRY(check_free(symbols, at, PLACE_DATA, step->to, step->to + step->bytes, true));
    symbol *data = symbols->of[at->rank].data;
    for (int s = symbols_segment(symbols, step->to); s < symbols_segment(symbols, step->to + step->bytes); s++)
        data[s] = step->kind == STEP_TAKE ? symbol_leaf(at->rank, s) : symbol_rounded(data[s]);
    return STATUS_OK;
}

/* FAILED where the step uses bytes that are on their way, or that are not there. `leaves`: space for one a rank. */
static enum status symbols_take_step(const struct symbols *symbols, const struct walked_step *at, symbol *leaves) {
    const struct schedule_step *step = &schedule_of(symbols, at->rank)->steps.items[at->step];
    switch (step->kind) {
    case STEP_POST:
    case STEP_SEND: return begin_transfer(symbols, at, step->index);
    case STEP_FINISH: return finish_message(symbols, at, step->index);
    case STEP_PACK: return pack_message(symbols, at, step->index);
    case STEP_MERGE: return merge_message(symbols, at, step);
    case STEP_SUM: return sum_lanes(symbols, at, step, leaves);
    case STEP_COPY: return copy_range(symbols, at, step);
    case STEP_ROUND:
    case STEP_TAKE: return change_range(symbols, at, step);
    case STEP_ARRIVE:
    case STEP_MEET: return STATUS_OK;
    }
    BUG("a step that is none");
}

/* ---- making ---- */

static enum status begin_message(struct symbols *symbols, const struct schedule_piece *pieces, int count,
                                 struct message_symbols *out) {
    for (int p = 0; p < count; p++)
        out->count +=
            symbols_segment(symbols, pieces[p].offset + pieces[p].bytes) - symbols_segment(symbols, pieces[p].offset);
    TRY(scratch_items(&symbols->memory, &out->segment, (size_t)out->count + 1));
    TRY(scratch_items(&symbols->memory, &out->payload, (size_t)out->count + 1));
    for (int p = 0, i = 0; p < count; p++) {
        int end = symbols_segment(symbols, pieces[p].offset + pieces[p].bytes);
        for (int s = symbols_segment(symbols, pieces[p].offset); s < end; s++)
            out->segment[i++] = s;
    }
    return STATUS_OK;
}

static enum status begin_rank(struct symbols *symbols, int r) {
    struct rank_symbols *rank = &symbols->of[r];
    const struct comm_schedule *schedule = schedule_of(symbols, r);
    TRY(scratch_items(&symbols->memory, &rank->data, symbols->cuts.count));
    TRY(scratch_items(&symbols->memory, &rank->out, symbols->cuts.count));
    TRY(scratch_items(&symbols->memory, &rank->messages, schedule->messages.count + 1));
    for (size_t m = 0; m < schedule->messages.count; m++) {
        const struct schedule_message *message = &schedule->messages.items[m];
        TRY(begin_message(symbols, &schedule->pieces.items[message->first_piece], message->pieces, &rank->messages[m]));
    }
    return STATUS_OK;
}

/* Creates symbols for all ranks, all data NOTHING. The caller frees, also after a failure. */
static enum status symbols_create(const struct schedule_walk *walk, const struct comm_spec *spec, struct symbols *out) {
    *out = (struct symbols){.walk = walk, .spec = spec};
    TRY(scratch_items(&out->memory, &out->of, (size_t)walk->ranks));
    if (spec->kind == COMM_REDUCE_SCATTER || spec->kind == COMM_ALL_REDUCE)
        TRY(comm_spec_tree(spec, &out->tree, &out->absent));
    TRY(cut_segments(out));
    for (int r = 0; r < walk->ranks; r++)
        TRY(begin_rank(out, r));
    return STATUS_OK;
}

static void symbols_free(struct symbols *symbols) {
    scratch_free(&symbols->memory);
    mem_free(symbols->absent);
    lane_tree_free(&symbols->tree);
    vec_free(&symbols->cuts);
}

static bool is_reduction(const struct symbols *symbols) {
    return symbols->spec->kind == COMM_REDUCE_SCATTER || symbols->spec->kind == COMM_ALL_REDUCE;
}

static int owner_of(const struct symbols *symbols, int block) {
    if (symbols->spec->kind == COMM_BROADCAST) return symbols->spec->root;
    return symbols->spec->owner ? symbols->spec->owner[block] : block;
}

/* The block that has a segment. */
static int block_of(const struct symbols *symbols, int segment) {
    int block = 0;
    while (comm_spec_block(symbols->spec, block).end <= symbols->cuts.items[segment])
        block++;
    return block;
}

/* A rank's value at the beginning. */
static symbol first_value(const struct symbols *symbols, const struct comm_spec *spec, int rank, int segment) {
    if (is_reduction(symbols) && spec->empty && spec->empty[rank]) return SYMBOL_NOTHING;
    if (is_reduction(symbols) || spec->kind == COMM_ALL_TO_ALL) return symbol_leaf(rank, segment);
    bool own = owner_of(symbols, block_of(symbols, segment)) == rank && !spec->mine;
    return own ? symbol_leaf(rank, segment) : SYMBOL_NOTHING;
}

static symbol sum_of(const struct symbols *symbols, int segment, symbol *leaves) {
    for (int r = 0; r < symbols->walk->ranks; r++)
        leaves[r] = first_value(symbols, symbols->spec, r, segment);
    symbol sum = symbols_add_up(symbols, 0, leaves);
    return symbols->spec->round_sum ? symbol_rounded(sum) : sum;
}

/* The value that it must have at the end; NOTHING if that is undefined. */
static symbol last_value(const struct symbols *symbols, int rank, int segment, symbol *leaves) {
    int block = block_of(symbols, segment);
    if (symbols->spec->kind == COMM_REDUCE_SCATTER && owner_of(symbols, block) != rank) return SYMBOL_NOTHING;
    if (is_reduction(symbols)) return sum_of(symbols, segment, leaves);
    if (symbols->spec->kind != COMM_ALL_TO_ALL) return symbol_leaf(owner_of(symbols, block), segment);
    int in_block = segment - symbols_segment(symbols, comm_spec_block(symbols->spec, block).begin);
    return symbol_leaf(block, symbols_segment(symbols, comm_spec_block(symbols->spec, rank).begin) + in_block);
}

static enum status check_rank(const struct symbols *symbols, int rank, symbol *leaves) {
    const struct comm_schedule *schedule = symbols->walk->of[rank].schedule;
    const struct rank_symbols *own = &symbols->of[rank];
    const symbol *found = symbols->spec->kind == COMM_ALL_TO_ALL ? own->out : own->data;
    for (size_t m = 0; m < schedule->messages.count; m++)
        if (own->messages[m].flies)
            return SCHEDULE_FAULT(symbols->walk, rank, schedule->steps.count, "message %zu is still on its way", m);
    for (int s = 0; s < symbols_count(symbols); s++) {
        symbol expected = last_value(symbols, rank, s, leaves);
        if (expected != SYMBOL_NOTHING && found[s] != expected)
            return SCHEDULE_FAULT(symbols->walk, rank, schedule->steps.count,
                                  "has not what it should from byte %lld on", (long long)symbols->cuts.items[s]);
    }
    return STATUS_OK;
}

static enum status execute(const struct symbols *symbols, const struct comm_spec *const *specs, symbol *leaves) {
    for (int r = 0; r < symbols->walk->ranks; r++)
        for (int s = 0; s < symbols_count(symbols); s++)
            symbols->of[r].data[s] = first_value(symbols, specs[r], r, s);
    for (size_t i = 0; i < symbols->walk->order.count; i++)
        TRY(symbols_take_step(symbols, &symbols->walk->order.items[i], leaves));
    for (int r = 0; r < symbols->walk->ranks; r++)
        TRY(check_rank(symbols, r, leaves));
    return STATUS_OK;
}

enum status schedule_values_check(const struct schedule_walk *walk, const struct comm_spec *const *specs) {
    struct symbols symbols;
    symbol *leaves = mem_array((size_t)walk->ranks, sizeof *leaves);
    enum status status = symbols_create(walk, specs[0], &symbols);
    if (status == STATUS_OK) status = leaves ? execute(&symbols, specs, leaves) : STATUS_FAILED;
    symbols_free(&symbols);
    mem_free(leaves);
    return status;
}
