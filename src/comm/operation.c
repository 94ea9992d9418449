#include "comm/mpi_comm.h"

/* Data, or out, from an offset on. */
static inline char *operation_place(const struct operation *operation, enum schedule_place place, int64_t offset) {
    const struct comm_spec *spec = &operation->spec;
    void *base = place == PLACE_DATA ? spec->data : place == PLACE_OUT ? spec->out : spec->staging;
    return (char *)base + offset;
}

static inline int operation_rank(const struct operation *operation, int position) {
    return mesh_group_rank(&operation->spec.group, position);
}

/* The steps of an operation, one after the other, as far as none has to wait. */

enum taken { TAKEN, WAITS, BROKEN };

static enum taken wire_start(struct mpi_comm *mpi, int request) {
    return mpi_check(mpi, mpi->wire->start(mpi->wire_context, request)) == STATUS_OK ? TAKEN : BROKEN;
}

static enum taken wire_test(struct mpi_comm *mpi, int request) {
    bool done = false;
    if (mpi_check(mpi, mpi->wire->test(mpi->wire_context, request, &done)) != STATUS_OK) return BROKEN;
    return done ? TAKEN : WAITS;
}

/* A receiver posts its messages, then lets the sender go on; a sender that may go on is ready for the next time first.
 */
static enum taken start_transfer(struct mpi_comm *mpi, const struct operation *operation, int index, bool posts) {
    const struct schedule_transfer *transfer = &operation->schedule.transfers.items[index];
    int go_ahead = operation->transfer_request[index];
    enum taken gone = wire_test(mpi, go_ahead); /* of a receiver, the one of the last time */
    if (gone != TAKEN) return gone;
    if (!posts && wire_start(mpi, go_ahead) == BROKEN) return BROKEN;
    for (int i = 0; i < transfer->messages; i++)
        if (wire_start(mpi, operation->message_request[transfer->first_message + i]) == BROKEN) return BROKEN;
    return posts ? wire_start(mpi, go_ahead) : TAKEN;
}

static enum taken finish(struct mpi_comm *mpi, const struct operation *operation, int index) {
    const struct schedule_message *message = &operation->schedule.messages.items[index];
    enum taken done = wire_test(mpi, operation->message_request[index]);
    if (done != TAKEN) return done;
    enum mesh_axis axis = mesh_axis_between(&mpi->comm.mesh, mpi->comm.rank, operation_rank(operation, message->peer));
    atomic_fetch_add_explicit(&mpi->traffic[(int)axis + (message->receive ? MESH_AXES : 0)], message->bytes,
                              memory_order_relaxed);
    return TAKEN;
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

/* Merges received data into one piece of the rank's own data. bf16 is unpacked in slices; rounding it again changes
 * nothing. */
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

/* Finds each rank's values, from `to` on: here, in its shared segment, or in staging. */
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

/* The value of a position's counter once that rank has arrived. */
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
    case STEP_POST:
    case STEP_SEND: return start_transfer(mpi, operation, step->index, step->kind == STEP_POST);
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

/* A cache line for each counter of meetings. */
enum { METER_STRIDE = 8 };

static int tag_of(int slot, bool message) { return TAG_OPERATION + 2 * slot + message; }

static enum status make_message(struct mpi_comm *mpi, struct operation *operation, int index) {
    const struct schedule_message *message = &operation->schedule.messages.items[index];
    size_t count = message->place == PLACE_STAGING ? 1 : (size_t)message->pieces;
    struct wire_piece *pieces = mem_array(count, sizeof *pieces);
    if (!pieces) return STATUS_FAILED;
    if (message->place == PLACE_STAGING)
        pieces[0] = (struct wire_piece){operation_place(operation, PLACE_STAGING, message->staging), message->bytes};
    for (size_t i = 0; i < count && message->place != PLACE_STAGING; i++) {
        struct schedule_piece piece = operation->schedule.pieces.items[(size_t)message->first_piece + i];
        pieces[i] = (struct wire_piece){operation_place(operation, message->place, piece.offset), piece.bytes};
    }
    int slot = message->receive ? operation->slot : operation->offers[message->peer].slot;
    const char *trouble = mpi->wire->request(mpi->wire_context, message->receive ? WIRE_RECEIVE : WIRE_READY_SEND,
                                             operation_rank(operation, message->peer), tag_of(slot, true), pieces,
                                             (int)count, &operation->message_request[index]);
    mem_free(pieces);
    return mpi_check(mpi, trouble);
}

/* The receiver of a transfer sends; the sender receives, and has that posted from the beginning. */
static enum status make_go_ahead(struct mpi_comm *mpi, struct operation *operation, int index) {
    const struct schedule_transfer *transfer = &operation->schedule.transfers.items[index];
    int slot = transfer->receive ? operation->offers[transfer->peer].slot : operation->slot;
    int *request = &operation->transfer_request[index];
    TRY(mpi_check(mpi, mpi->wire->request(mpi->wire_context, transfer->receive ? WIRE_SEND : WIRE_RECEIVE,
                                          operation_rank(operation, transfer->peer), tag_of(slot, false), NULL, 0,
                                          request)));
    return transfer->receive ? STATUS_OK : mpi_check(mpi, mpi->wire->start(mpi->wire_context, *request));
}

static enum status make_requests(struct mpi_comm *mpi, void *argument) {
    struct operation *operation = argument;
    operation->requests_made = true;
    for (size_t i = 0; i < operation->schedule.messages.count; i++)
        TRY(make_message(mpi, operation, (int)i));
    for (size_t i = 0; i < operation->schedule.transfers.count; i++)
        TRY(make_go_ahead(mpi, operation, (int)i));
    return STATUS_OK;
}

static enum status forget_requests(struct mpi_comm *mpi, void *argument) {
    struct operation *operation = argument;
    for (size_t i = 0; i < operation->schedule.messages.count; i++)
        if (operation->message_request[i] >= 0) mpi->wire->forget(mpi->wire_context, operation->message_request[i]);
    for (size_t i = 0; i < operation->schedule.transfers.count; i++)
        if (operation->transfer_request[i] >= 0) mpi->wire->forget(mpi->wire_context, operation->transfer_request[i]);
    return STATUS_OK;
}

static int take_slot(struct mpi_comm *mpi) {
    int slot = 0;
    pthread_mutex_lock(&mpi->mutex);
    while (slot < SLOTS && mpi->used_slots[slot])
        slot++;
    if (slot < SLOTS) mpi->used_slots[slot] = true;
    pthread_mutex_unlock(&mpi->mutex);
    return slot < SLOTS ? slot : -1;
}

static void give_slot_back(struct mpi_comm *mpi, int slot) {
    pthread_mutex_lock(&mpi->mutex);
    if (slot >= 0) mpi->used_slots[slot] = false;
    pthread_mutex_unlock(&mpi->mutex);
}

static int *make_request_list(size_t count) {
    int *list = mem_array(count, sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        list[i] = -1;
    return list;
}

static enum status make_own_part(struct mpi_comm *mpi, struct operation *operation) {
    const struct comm_spec *spec = &operation->spec;
    size_t count = (size_t)spec->group.count;
    TRY(comm_schedule_create(&mpi->comm.mesh, mpi->comm.rank, mpi->comm.message_bytes, spec, &operation->schedule));
    operation->message_request = make_request_list(operation->schedule.messages.count);
    operation->transfer_request = make_request_list(operation->schedule.transfers.count);
    operation->peer_data = mem_array(count, sizeof *operation->peer_data);
    operation->peer_meeting = mem_array(count, sizeof *operation->peer_meeting);
    operation->lanes = mem_array(count, sizeof *operation->lanes);
    operation->slot = take_slot(mpi);
    if (!operation->message_request || !operation->transfer_request || !operation->peer_data ||
        !operation->peer_meeting || !operation->lanes)
        return STATUS_FAILED;
    if (operation->slot < 0) return status_set(STATUS_FAILED, "more than %d operations at a time", SLOTS);
    BUG_IF(operation->schedule.staging_bytes > 0 && !spec->staging, "an operation without staging");
    return STATUS_OK;
}

static struct operation_offer make_offer(struct mpi_comm *mpi, const struct operation *operation, bool good) {
    const struct comm_spec *spec = &operation->spec;
    struct operation_offer offer = {0}; /* all of it, since it is sent */
    comm_offer_make(spec, good, &offer.alike);
    offer.slot = operation->slot;
    if (!spec->in_place) return offer;
    const struct shared_segment *shared_segment = shared_segment_find(mpi, spec->data, spec->bytes);
    BUG_IF(!shared_segment || !shared_segment->shared, "an operation in place on data in no shared window");
    offer.shared_segment = shared_segment->number;
    offer.met = atomic_load((atomic_ullong *)mpi->control.base + METER_STRIDE * operation->slot);
    offer.offset = (char *)spec->data - (char *)shared_segment->base[shared_segment->me];
    return offer;
}

/* Finds the data and counters of the node's ranks. */
static void find_peers(struct mpi_comm *mpi, struct operation *operation) {
    const struct mesh *mesh = &mpi->comm.mesh;
    const struct shared_segment *control = mpi->control.state;
    for (int i = 0; i < operation->spec.group.count && operation->spec.in_place; i++) {
        int rank = operation_rank(operation, i), place = rank % mesh->per_node;
        if (mesh_axis_between(mesh, rank, mpi->comm.rank) != MESH_IN_NODE) continue;
        const struct operation_offer *offer = &operation->offers[i];
        const struct shared_segment *shared_segment = mpi->shared_segments;
        while (shared_segment && shared_segment->number != offer->shared_segment)
            shared_segment = shared_segment->next;
        BUG_IF(!shared_segment, "rank %d has data in a window that is not open here", rank);
        operation->peer_data[i] = (char *)shared_segment->base[place] + offer->offset;
        operation->peer_meeting[i] = (atomic_ullong *)control->base[place] + METER_STRIDE * offer->slot;
    }
}

enum status operation_create(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    struct operation *operation = mem_array(1, sizeof *operation);
    if (!operation) return STATUS_FAILED;
    operation->base.comm = comm;
    operation->spec = *spec;
    operation->slot = -1;
    operation->me = mesh_group_position(&spec->group, comm->rank);
    enum status status;
    operation->offers = mem_array((size_t)spec->group.count, sizeof *operation->offers);
    TRY_GOTO(status, operation->offers ? STATUS_OK : STATUS_FAILED, failed);
    struct status_copy own; /* if it fails, the others get it */
    status_save(make_own_part(mpi, operation), &own);
    struct operation_offer offer = make_offer(mpi, operation, own.status == STATUS_OK);
    enum status gathered = comm_all_gather(comm, &spec->group, &offer, sizeof offer, operation->offers);
    TRY_GOTO(status, status_restore(&own), failed);
    TRY_GOTO(status, gathered, failed);
    TRY_GOTO(status, comm_offers_check(comm, spec, operation->offers, sizeof *operation->offers), failed);
    find_peers(mpi, operation);
    TRY_GOTO(status, mpi_run_task(mpi, make_requests, operation), failed);
    bool ready = true; /* no rank starts before all have posted their initial receives */
    bool *all_ready = mem_array((size_t)spec->group.count, sizeof *all_ready);
    TRY_GOTO(status, all_ready ? STATUS_OK : STATUS_FAILED, failed);
    status = comm_all_gather(comm, &spec->group, &ready, sizeof ready, all_ready);
    mem_free(all_ready);
    if (status != STATUS_OK) goto failed;
    operation->spec.tree = NULL;
    operation->spec.empty = NULL;
    operation->spec.owner = NULL;
    *out = &operation->base;
    return STATUS_OK;
failed:
    operation_free(&operation->base);
    return status;
}

void operation_free(struct comm_operation *base) {
    struct operation *operation = (struct operation *)base;
    struct mpi_comm *mpi = mpi_comm_of(base->comm);
    BUG_IF(atomic_load(&operation->state) == OPERATION_STARTED, "an operation is freed on its way");
    if (operation->requests_made && atomic_load(&mpi->failure) == FAILURE_NONE)
        (void)mpi_run_task(mpi, forget_requests, operation);
    give_slot_back(mpi, operation->slot);
    comm_schedule_free(&operation->schedule);
    mem_free(operation->offers);
    mem_free(operation->peer_data);
    mem_free(operation->peer_meeting);
    mem_free(operation->lanes);
    mem_free(operation->message_request);
    mem_free(operation->transfer_request);
    mem_free(operation);
}
