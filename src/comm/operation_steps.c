/* The steps of an operation, one after the other, as far as none has to wait. */
#include <string.h>

#include "collective/lane_sum.h"
#include "comm/operation.h"

enum taken { TAKEN, WAITS, BROKEN };

static enum taken wire_start(struct mpi_comm *mpi, int request) {
    return mpi_check(mpi, mpi->wire->start(mpi->wire_context, request)) == STATUS_OK ? TAKEN : BROKEN;
}

static enum taken wire_test(struct mpi_comm *mpi, int request) {
    bool done = false;
    if (mpi_check(mpi, mpi->wire->test(mpi->wire_context, request, &done)) != STATUS_OK) return BROKEN;
    return done ? TAKEN : WAITS;
}

static enum taken start_messages(struct mpi_comm *mpi, const struct operation *operation,
                                 const struct schedule_transfer *transfer) {
    for (int i = 0; i < transfer->messages; i++)
        if (wire_start(mpi, operation->message_request[transfer->first_message + i]) == BROKEN) return BROKEN;
    return TAKEN;
}

static enum taken post(struct mpi_comm *mpi, const struct operation *operation, int index) {
    const struct schedule_transfer *transfer = &operation->schedule.transfers.items[index];
    int go_ahead = operation->transfer_request[index];
    enum taken gone = wire_test(mpi, go_ahead); /* the one of the last time */
    if (gone != TAKEN) return gone;
    if (start_messages(mpi, operation, transfer) == BROKEN) return BROKEN;
    return wire_start(mpi, go_ahead);
}

static enum taken send_when_ready(struct mpi_comm *mpi, const struct operation *operation, int index) {
    int go_ahead = operation->transfer_request[index];
    enum taken ready = wire_test(mpi, go_ahead);
    if (ready != TAKEN) return ready;
    if (wire_start(mpi, go_ahead) == BROKEN) return BROKEN; /* for the next time */
    return start_messages(mpi, operation, &operation->schedule.transfers.items[index]);
}

static void count_message(struct mpi_comm *mpi, const struct operation *operation,
                          const struct schedule_message *message) {
    enum mesh_axis axis = mesh_axis_between(&mpi->comm.mesh, mpi->comm.rank, operation_rank(operation, message->peer));
    atomic_fetch_add_explicit(&mpi->traffic[(int)axis + (message->receive ? MESH_AXES : 0)], message->bytes,
                              memory_order_relaxed);
}

static enum taken finish(struct mpi_comm *mpi, const struct operation *operation, int index) {
    enum taken done = wire_test(mpi, operation->message_request[index]);
    if (done == TAKEN) count_message(mpi, operation, &operation->schedule.messages.items[index]);
    return done;
}

static void pack(const struct operation *operation, int index) {
    const struct schedule_message *message = &operation->schedule.messages.items[index];
    uint16_t *to = (uint16_t *)operation_place(operation, PLACE_STAGING, message->staging);
    for (int i = 0; i < message->pieces; i++) {
        struct schedule_piece piece = operation->schedule.pieces.items[message->first_piece + i];
        int64_t count = piece.bytes / (int64_t)sizeof(float);
        lane_pack_bf16(to, (const float *)operation_place(operation, PLACE_DATA, piece.offset), count);
        to += count;
    }
}

/* What came, against one piece of the own data. bf16 is unpacked in slices; rounding it again changes nothing. */
static void merge_piece(float *mine, const void *theirs, int64_t count, enum merge_side side, bool round_bf16) {
    enum { SLICE = 1024 };
    float unpacked[SLICE];
    for (int64_t from = 0; from < count; from += SLICE) {
        int64_t slice = count - from < SLICE ? count - from : SLICE;
        const float *came = (const float *)theirs + from;
        if (round_bf16) {
            lane_unpack_bf16(unpacked, (const uint16_t *)theirs + from, slice);
            came = unpacked;
        }
        if (side == MERGE_MINE_ABSENT)
            memcpy(mine + from, came, (size_t)slice * sizeof *mine);
        else if (side == MERGE_MINE_LEFT)
            lane_add(mine + from, mine + from, came, slice, round_bf16);
        else
            lane_add(mine + from, came, mine + from, slice, round_bf16);
    }
}

static void merge(const struct operation *operation, const struct schedule_step *step) {
    const struct schedule_message *message = &operation->schedule.messages.items[step->index];
    bool round = operation->spec.round_bf16;
    const char *from = operation_place(operation, PLACE_STAGING, message->staging);
    for (int i = 0; i < message->pieces; i++) {
        struct schedule_piece piece = operation->schedule.pieces.items[message->first_piece + i];
        int64_t count = piece.bytes / (int64_t)sizeof(float);
        merge_piece((float *)operation_place(operation, PLACE_DATA, piece.offset), from, count, step->side, round);
        from += round ? piece.bytes / 2 : piece.bytes;
    }
}

/* Where each rank's values are, from `to` on: here, in its shared segment, or in staging. */
static void find_lanes(const struct operation *operation, const struct schedule_step *step) {
    const struct comm_schedule *schedule = &operation->schedule;
    const struct lane_node *node = &schedule->tree.node[step->index];
    bool packed = operation->spec.round_bf16;
    for (int i = node->first; i < node->first + node->lanes; i++) {
        const char *data = i == operation->me ? operation->spec.data : operation->peer_data[i];
        operation->lanes[i] = (struct lane_values){.plain = data ? (const float *)(data + step->to) : NULL};
    }
    for (int t = step->first; t < step->first + step->count; t++) {
        const struct schedule_transfer *transfer = &schedule->transfers.items[t];
        int64_t staging = schedule->messages.items[transfer->first_message].staging;
        const char *came = operation_place(operation, PLACE_STAGING, staging);
        int64_t element = (step->to - step->from) / (int64_t)sizeof(float);
        operation->lanes[transfer->peer] = packed ? (struct lane_values){.packed = (const uint16_t *)came + element}
                                                  : (struct lane_values){.plain = (const float *)came + element};
    }
}

static void sum_lanes(struct mpi_comm *mpi, const struct operation *operation, const struct schedule_step *step) {
    const struct comm_schedule *schedule = &operation->schedule;
    const struct lane_node *node = &schedule->tree.node[step->index];
    int64_t read = 0;
    find_lanes(operation, step);
    for (int i = 0; i < schedule->tree.count; i++) {
        const struct lane_node *leaf = &schedule->tree.node[i];
        bool below = leaf->left < 0 && leaf->first >= node->first && leaf->first < node->first + node->lanes;
        if (below && leaf->first != operation->me && !schedule->absent[i]) read += step->bytes;
    }
    read -= step->count * step->bytes; /* these came by messages */
    lane_tree_sum(&schedule->tree, step->index, schedule->absent, operation->lanes,
                  step->bytes / (int64_t)sizeof(float), operation->spec.round_bf16,
                  (float *)operation_place(operation, PLACE_DATA, step->to));
    atomic_fetch_add_explicit(&mpi->traffic[2 * MESH_AXES], read, memory_order_relaxed);
}

static void copy_block(struct mpi_comm *mpi, const struct operation *operation, const struct schedule_step *step) {
    bool mine = step->index == operation->me;
    enum schedule_place place = operation->spec.kind == COMM_ALL_TO_ALL ? PLACE_OUT : PLACE_DATA;
    const char *from = (mine ? (char *)operation->spec.data : operation->peer_data[step->index]) + step->from;
    memcpy(operation_place(operation, place, step->to), from, (size_t)step->bytes);
    if (!mine) atomic_fetch_add_explicit(&mpi->traffic[2 * MESH_AXES], step->bytes, memory_order_relaxed);
}

/* What the counter of a position stands at when that rank has arrived. */
static uint64_t meeting_count(const struct operation *operation, int position, int meeting) {
    return operation->offers[position].met + (operation->generation - 1) * MEETINGS + (uint64_t)meeting + 1;
}

static enum taken meet(const struct operation *operation, const struct schedule_step *step) {
    for (int i = step->first; i < step->first + step->count; i++)
        if (atomic_load_explicit(operation->peer_meeting[i], memory_order_acquire) <
            meeting_count(operation, i, step->index))
            return WAITS;
    return TAKEN;
}

static enum taken take_step(struct mpi_comm *mpi, struct operation *operation, const struct schedule_step *step) {
    switch (step->kind) {
    case STEP_POST: return post(mpi, operation, step->index);
    case STEP_SEND: return send_when_ready(mpi, operation, step->index);
    case STEP_FINISH: return finish(mpi, operation, step->index);
    case STEP_PACK: pack(operation, step->index); return TAKEN;
    case STEP_MERGE: merge(operation, step); return TAKEN;
    case STEP_ROUND:
        lane_round((float *)operation_place(operation, PLACE_DATA, step->to), step->bytes / (int64_t)sizeof(float));
        return TAKEN;
    case STEP_SUM: sum_lanes(mpi, operation, step); return TAKEN;
    case STEP_TAKE:
        memcpy(operation_place(operation, PLACE_DATA, step->to), operation->spec.mine, (size_t)step->bytes);
        return TAKEN;
    case STEP_COPY: copy_block(mpi, operation, step); return TAKEN;
    case STEP_ARRIVE:
        atomic_store_explicit(operation->peer_meeting[operation->me],
                              meeting_count(operation, operation->me, step->index), memory_order_release);
        return TAKEN;
    case STEP_MEET: return meet(operation, step);
    }
    BUG("no such step: %d", (int)step->kind);
}

bool operation_advance(struct operation *operation) {
    struct mpi_comm *mpi = mpi_comm_of(operation->base.comm);
    size_t before = operation->at;
    while (operation->at < operation->schedule.steps.count &&
           take_step(mpi, operation, &operation->schedule.steps.items[operation->at]) == TAKEN)
        operation->at++;
    return operation->at > before;
}
