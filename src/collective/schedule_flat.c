#include "collective/schedule_maker.h"

/* Ranks of the node are read in place; the others, which are far, get and send messages, all at once. */
struct flat {
    int near_first, near_count; /* this rank among them */
    struct maker_phase phase;
};

static enum status begin(struct schedule_maker *maker, struct flat *flat) {
    int first = maker->me, count = 1;
    while (first > 0 && maker_reads_in_place(maker, first - 1, count + 1))
        first--, count++;
    while (first + count < maker->count && maker_reads_in_place(maker, first, count + 1))
        count++;
    flat->near_first = first;
    flat->near_count = count;
    return maker_begin_phase(maker, &flat->phase);
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

/* A transfer with each far rank, which is another for every rank at a time: of the peer's block, or of `block`. */
enum { PEERS_OWN = -1 };

static enum status add_transfers(struct schedule_maker *maker, struct flat *flat, bool receive,
                                 enum schedule_place place, int block) {
    for (int i = 1; i < maker->count; i++) {
        int peer = (receive ? maker->me - i + maker->count : maker->me + i) % maker->count;
        int one = block == PEERS_OWN ? maker->owned[peer] : block;
        if (is_near(flat, peer) || one < 0) continue;
        TRY(maker_phase_transfer(maker, &flat->phase, peer, receive, place, &one, 1));
    }
    return STATUS_OK;
}

/* ---- sums ---- */

static enum status receive_leaves(struct schedule_maker *maker, struct flat *flat) {
    for (int i = 1; i < maker->count; i++) {
        int peer = (maker->me - i + maker->count) % maker->count, block = maker->owned[maker->me];
        if (is_near(flat, peer) || is_empty(maker, peer)) continue;
        TRY(maker_phase_transfer(maker, &flat->phase, peer, true, PLACE_STAGING, &block, 1));
    }
    return STATUS_OK;
}

/* Message by message, each when it has come from all far ranks. Those transfers are the schedule's last, one after the
 * other, and are all cut alike. */
static enum status sum_own_block(struct schedule_maker *maker, const struct flat *flat, int received) {
    struct comm_range range = maker_block(maker, maker->owned[maker->me]);
    struct schedule_step sum = {.kind = STEP_SUM, .first = received ? flat->phase.transfers[0] : 0, .count = received};
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

enum status schedule_reduce_flat(struct schedule_maker *maker) {
    struct flat flat;
    bool round = maker->spec->round_bf16;
    if (maker->count == 1) return STATUS_OK;
    TRY(begin(maker, &flat));
    TRY(meet(maker, &flat, MEETING_SUMS, true, false));
    TRY(receive_leaves(maker, &flat));
    int received = flat.phase.count;
    if (!is_empty(maker, maker->me))
        TRY(add_transfers(maker, &flat, false, round ? PLACE_STAGING : PLACE_DATA, PEERS_OWN));
    TRY(maker_launch(maker, &flat.phase, round));
    TRY(meet(maker, &flat, MEETING_SUMS, false, true));
    TRY(sum_own_block(maker, &flat, received));
    TRY(meet(maker, &flat, MEETING_SUMMED, true, false));
    TRY(maker_finish(maker, &flat.phase, false));
    return meet(maker, &flat, MEETING_SUMMED, false, true);
}

/* ---- gathers ---- */

enum status schedule_gather_flat(struct schedule_maker *maker) {
    struct flat flat;
    int own = maker->owned[maker->me];
    enum schedule_place place = maker_gather_place(maker);
    TRY(begin(maker, &flat));
    TRY(meet(maker, &flat, MEETING_BLOCKS, true, false));
    TRY(add_transfers(maker, &flat, true, place, PEERS_OWN));
    if (own >= 0) TRY(add_transfers(maker, &flat, false, place, own));
    TRY(maker_launch(maker, &flat.phase, place == PLACE_STAGING));
    TRY(meet(maker, &flat, MEETING_BLOCKS, false, true));
    for (int i = 1; i < flat.near_count; i++) {
        int peer = flat.near_first + (maker->me - flat.near_first + i) % flat.near_count;
        if (maker->owned[peer] >= 0) TRY(maker_copy_block(maker, maker->owned[peer], peer));
    }
    TRY(meet(maker, &flat, MEETING_GATHERED, true, false));
    TRY(maker_finish_gathered(maker, &flat.phase));
    TRY(maker_finish(maker, &flat.phase, false));
    return meet(maker, &flat, MEETING_GATHERED, false, true);
}

/* ---- all-to-all ---- */

static enum status add_all_to_all(struct schedule_maker *maker, struct flat *flat, bool receive) {
    for (int i = 1; i < maker->count; i++) {
        int peer = (receive ? maker->me - i + maker->count : maker->me + i) % maker->count;
        if (is_near(flat, peer)) continue;
        TRY(maker_phase_transfer(maker, &flat->phase, peer, receive, receive ? PLACE_OUT : PLACE_DATA, &peer, 1));
    }
    return STATUS_OK;
}

enum status schedule_all_to_all(struct schedule_maker *maker) {
    struct flat flat;
    TRY(begin(maker, &flat));
    TRY(meet(maker, &flat, MEETING_BLOCKS, true, false));
    TRY(add_all_to_all(maker, &flat, true));
    TRY(add_all_to_all(maker, &flat, false));
    TRY(maker_launch(maker, &flat.phase, false));
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
    TRY(maker_finish(maker, &flat.phase, true));
    TRY(maker_finish(maker, &flat.phase, false));
    return meet(maker, &flat, MEETING_GATHERED, false, true);
}
