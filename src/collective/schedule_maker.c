#include "collective/schedule_maker.h"

struct comm_range maker_block(const struct schedule_maker *maker, int block) {
    const struct comm_spec *spec = maker->spec;
    if (spec->kind == COMM_BROADCAST) return (struct comm_range){0, spec->bytes};
    return comm_block(spec->kind, spec->bytes, maker->count, block);
}

enum status maker_step(struct schedule_maker *maker, struct schedule_step step) {
    struct comm_schedule *schedule = maker->schedule;
    if (step.kind == STEP_COPY && step.index != maker->me) schedule->traffic.read += step.bytes;
    if (step.kind == STEP_SUM) {
        const struct lane_node *node = &schedule->tree.node[step.index];
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
        message->staging = maker->stage_bytes;
        maker->stage_bytes += (message->bytes + 63) / 64 * 64;
        if (maker->stage_bytes > schedule->staging_bytes) schedule->staging_bytes = maker->stage_bytes;
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
        int64_t room = maker->message_bytes - message->bytes, bytes = range.end - range.begin;
        if (bytes > room) bytes = room;
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

enum status maker_transfer(struct schedule_maker *maker, int peer, bool receive, enum schedule_place place,
                           const int *blocks, int count, int *out) {
    struct comm_schedule *schedule = maker->schedule;
    struct schedule_transfer transfer = {peer, receive, (int)schedule->messages.count, 0};
    struct schedule_message message = {peer, receive, place, (int)schedule->pieces.count, 0, 0, 0};
    for (int i = 0; i < count; i++)
        TRY(add_range(maker, &message, maker_block(maker, blocks[i])));
    TRY(end_message(maker, &message));
    transfer.messages = (int)schedule->messages.count - transfer.first_message;
    *out = -1;
    if (transfer.messages == 0) return STATUS_OK; /* and nobody waits for the word to go on */
    *out = (int)schedule->transfers.count;
    return vec_push(&schedule->transfers, transfer);
}

enum status maker_finish(struct schedule_maker *maker, int transfer) {
    struct schedule_transfer made = maker->schedule->transfers.items[transfer];
    for (int i = 0; i < made.messages; i++)
        TRY(maker_step(maker, (struct schedule_step){.kind = STEP_FINISH, .index = made.first_message + i}));
    return STATUS_OK;
}
