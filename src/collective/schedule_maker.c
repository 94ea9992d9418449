#include "collective/schedule_maker.h"

enum { STAGING_ALIGNMENT = 64 };

enum status maker_step(struct schedule_maker *maker, struct schedule_step step) {
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

bool maker_reads_in_place(const struct schedule_maker *maker, int first, int count) {
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

/* Adds a transfer of `count` blocks with its messages, but no steps. *out is its index, or -1 where the blocks are
 * empty. */
static enum status maker_transfer(struct schedule_maker *maker, int peer, bool receive, enum schedule_place place,
                                  const int *blocks, int count, int *out) {
    struct comm_schedule *schedule = maker->schedule;
    struct schedule_transfer transfer = {peer, receive, (int)schedule->messages.count, 0};
    struct schedule_message message = {peer, receive, place, (int)schedule->pieces.count, 0, 0, 0};
    maker->phase_bytes = (maker->phase_bytes + STAGING_ALIGNMENT - 1) / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
    for (int i = 0; i < count; i++)
        TRY(add_range(maker, &message, maker_block(maker, blocks[i])));
    TRY(end_message(maker, &message));
    transfer.messages = (int)schedule->messages.count - transfer.first_message;
    *out = -1;
    if (transfer.messages == 0) return STATUS_OK; /* and nobody waits for the word to go on */
    *out = (int)schedule->transfers.count;
    return vec_push(&schedule->transfers, transfer);
}

enum status maker_begin_phase(struct schedule_maker *maker, struct maker_phase *phase) {
    maker->phase_bytes = 0;
    *phase = (struct maker_phase){
        .transfers = scratch_alloc(&maker->scratch, 2 * (size_t)maker->count, sizeof *phase->transfers)};
    return phase->transfers ? STATUS_OK : STATUS_FAILED;
}

enum status maker_phase_transfer(struct schedule_maker *maker, struct maker_phase *phase, int peer, bool receive,
                                 enum schedule_place place, const int *blocks, int count) {
    int made;
    TRY(maker_transfer(maker, peer, receive, place, blocks, count, &made));
    if (made >= 0) phase->transfers[phase->count++] = made;
    return STATUS_OK;
}

enum status maker_launch(struct schedule_maker *maker, const struct maker_phase *phase, bool pack) {
    for (int i = 0; i < phase->count; i++) {
        struct schedule_transfer transfer = maker->schedule->transfers.items[phase->transfers[i]];
        for (int m = 0; pack && !transfer.receive && m < transfer.messages; m++)
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_PACK, .index = transfer.first_message + m}));
        TRY(maker_step(maker, (struct schedule_step){.kind = transfer.receive ? STEP_POST : STEP_SEND,
                                                     .index = phase->transfers[i]}));
    }
    return STATUS_OK;
}

enum status maker_finish(struct schedule_maker *maker, const struct maker_phase *phase, bool receives) {
    for (int i = 0; i < phase->count; i++) {
        struct schedule_transfer made = maker->schedule->transfers.items[phase->transfers[i]];
        for (int m = 0; m < made.messages && made.receive == receives; m++)
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_FINISH, .index = made.first_message + m}));
    }
    return STATUS_OK;
}

enum status maker_merge(struct schedule_maker *maker, const struct maker_phase *phase, enum merge_side side) {
    for (int i = 0; i < phase->count; i++) {
        struct schedule_transfer transfer = maker->schedule->transfers.items[phase->transfers[i]];
        for (int m = 0; transfer.receive && m < transfer.messages; m++) {
            int message = transfer.first_message + m;
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_FINISH, .index = message}));
            TRY(maker_step(maker, (struct schedule_step){.kind = STEP_MERGE, .index = message, .side = side}));
        }
    }
    return STATUS_OK;
}

enum status maker_finish_gathered(struct schedule_maker *maker, const struct maker_phase *phase) {
    return maker_gather_place(maker) == PLACE_STAGING ? maker_merge(maker, phase, MERGE_MINE_ABSENT)
                                                      : maker_finish(maker, phase, true);
}

enum status maker_meet(struct schedule_maker *maker, int first, int count, enum schedule_meeting meeting, bool arrive,
                       bool wait) {
    struct schedule_step step = {.kind = STEP_ARRIVE, .index = (int)meeting, .first = first, .count = count};
    if (count < 2) return STATUS_OK;
    if (arrive) TRY(maker_step(maker, step));
    step.kind = STEP_MEET;
    return wait ? maker_step(maker, step) : STATUS_OK;
}

enum status maker_copy_block(struct schedule_maker *maker, int block, int from) {
    struct comm_range range = maker_block(maker, block);
    if (range.begin == range.end) return STATUS_OK;
    return maker_step(maker, (struct schedule_step){.kind = STEP_COPY,
                                                    .index = from,
                                                    .to = range.begin,
                                                    .from = range.begin,
                                                    .bytes = range.end - range.begin});
}
