/* An operation on devices: made once into a list of NCCL's groups of calls and of the backend's kernels between them,
 * which each start queues on the one stream. */

#include "collective/schedule.h"
#include "comm/nccl_comm.h"

enum nccl_step { STEP_GROUP, STEP_ADD, STEP_ROUND_BF16, STEP_PACK_BF16, STEP_UNPACK, STEP_ADD_PACKED, STEP_COPY_BYTES };
struct device_step {
    enum nccl_step kind;
    struct nccl_communicator *communicator; /* groups of calls: theirs */
    int first, count;                       /* groups: calls */
    void *to;
    const void *from;
    int64_t elements; /* or bytes that are copied */
};

struct nccl_operation {
    struct comm_operation base;
    struct nccl_comm *nccl;
    struct comm_spec spec;
    struct comm_traffic traffic;
    VEC(struct device_step) steps;
    VEC(struct nccl_call) calls;
    int open;               /* the first call of the group that is being made */
    struct status_copy end; /* of the last start */
};

/* ---- Making the list ---- */

static char *data_at(const struct nccl_operation *operation, int64_t offset) {
    return (char *)operation->spec.data + offset;
}

/* Peers of single messages are ranks. */
static struct nccl_communicator *all_ranks(const struct nccl_operation *operation) {
    return &operation->nccl->communicators[0];
}

static enum status close_group(struct nccl_operation *operation, struct nccl_communicator *communicator) {
    int count = (int)operation->calls.count - operation->open;
    if (count == 0) return STATUS_OK;
    struct device_step step = {
        .kind = STEP_GROUP, .communicator = communicator, .first = operation->open, .count = count};
    operation->open = (int)operation->calls.count;
    return vec_push(&operation->steps, step);
}

static enum status add_step(struct nccl_operation *operation, struct device_step step) {
    return step.elements > 0 ? vec_push(&operation->steps, step) : STATUS_OK;
}

/* Adds the data that a message sends or receives, piece by piece, in the data and contiguously in staging. A send and
 * its receive are cut into the same pieces, as NCCL requires. A kernel's steps of this kind are cut likewise. */
static enum status add_pieces(struct nccl_operation *operation, const struct comm_schedule *schedule, int index,
                              enum nccl_step kind) {
    const struct schedule_message *message = &schedule->messages.items[index];
    bool staged = message->place == PLACE_STAGING, packs = kind == STEP_PACK_BF16;
    char *staging = (char *)operation->spec.staging + message->staging;
    for (int i = 0; i < message->pieces; i++) {
        struct schedule_piece piece = schedule->pieces.items[message->first_piece + i];
        int64_t staging_bytes = operation->spec.round_bf16 ? piece.bytes / 2 : piece.bytes;
        char *data = data_at(operation, piece.offset), *there = staged ? staging : data;
        if (kind == STEP_GROUP)
            TRY(vec_push(&operation->calls,
                         (struct nccl_call){.kind = message->receive ? NCCL_RECEIVE : NCCL_SEND,
                                            .from = message->receive ? NULL : there,
                                            .to = message->receive ? there : NULL,
                                            .bytes = staged ? staging_bytes : piece.bytes,
                                            .peer = mesh_group_rank(&operation->spec.group, message->peer)}));
        else
            TRY(add_step(operation, (struct device_step){.kind = kind,
                                                         .to = packs ? staging : data,
                                                         .from = packs ? data : staging,
                                                         .elements = kind == STEP_COPY_BYTES
                                                                         ? piece.bytes
                                                                         : piece.bytes / (int64_t)sizeof(float)}));
        staging += staging_bytes;
    }
    return STATUS_OK;
}

static enum status add_transfer(struct nccl_operation *operation, const struct comm_schedule *schedule, int index) {
    const struct schedule_transfer *transfer = &schedule->transfers.items[index];
    for (int m = 0; m < transfer->messages; m++)
        TRY(add_pieces(operation, schedule, transfer->first_message + m, STEP_GROUP));
    return STATUS_OK;
}

static enum status translate(struct nccl_operation *operation, const struct comm_schedule *schedule,
                             const struct schedule_step *step) {
    bool packed = operation->spec.round_bf16, absent = step->side == MERGE_MINE_ABSENT; /* nothing to add */
    switch (step->kind) {
    case STEP_POST:
    case STEP_SEND: return add_transfer(operation, schedule, step->index);
    case STEP_FINISH: return close_group(operation, all_ranks(operation));
    case STEP_PACK: return add_pieces(operation, schedule, step->index, STEP_PACK_BF16);
    case STEP_MERGE:
        if (packed) return add_pieces(operation, schedule, step->index, absent ? STEP_UNPACK : STEP_ADD_PACKED);
        return add_pieces(operation, schedule, step->index, absent ? STEP_COPY_BYTES : STEP_ADD);
    case STEP_ROUND:
        return add_step(operation, (struct device_step){.kind = STEP_ROUND_BF16,
                                                        .to = data_at(operation, step->to),
                                                        .elements = step->bytes / (int64_t)sizeof(float)});
    default: BUG("step %d of a sum on devices", (int)step->kind);
    }
}

/* Up the tree. The calls of a phase are one group: all ranks below a node of the tree have them when they have ended
 * the phases below, so no group waits for a later one. */
static enum status make_sums(struct nccl_operation *operation, const struct comm_spec *spec) {
    const struct comm *comm = operation->base.comm;
    const int64_t whole = (int64_t)1 << 40; /* NCCL cuts its messages itself */
    struct comm_spec sums = *spec;
    struct comm_schedule schedule;
    sums.kind = COMM_REDUCE_SCATTER;
    TRY(comm_schedule_create(&comm->mesh, comm->rank, whole, &sums, &schedule));
    BUG_IF(schedule.staging_bytes > 0 && !spec->staging, "an operation without staging");
    enum status status = STATUS_OK;
    for (size_t i = 0; i < schedule.steps.count && status == STATUS_OK; i++)
        status = translate(operation, &schedule, &schedule.steps.items[i]);
    comm_schedule_free(&schedule);
    return status == STATUS_OK ? close_group(operation, all_ranks(operation)) : status;
}

static int owner_of(const struct comm_spec *spec, int block) { return spec->owner ? spec->owner[block] : block; }

static enum status add_data_call(struct nccl_operation *operation, struct nccl_call call) {
    return call.bytes > 0 ? vec_push(&operation->calls, call) : STATUS_OK;
}

/* Whether blocks lie as ncclAllGather puts them: equal, in the order of ranks. */
static bool is_plain(const struct comm_spec *spec) {
    struct comm_range first = comm_spec_block(spec, 0);
    for (int b = 0; b < spec->group.count; b++) {
        struct comm_range range = comm_spec_block(spec, b);
        if (owner_of(spec, b) != b || range.end - range.begin != first.end) return false;
    }
    return true;
}

static const void *own_block(const struct nccl_operation *operation, const struct comm_spec *spec,
                             struct comm_range range) {
    return spec->mine ? spec->mine : data_at(operation, range.begin);
}

/* Unequal blocks, or in another order: each is broadcast by its owner, all in one group. */
static enum status gather_by_calls(struct nccl_operation *operation, const struct comm_spec *spec, int me) {
    struct comm_range mine = comm_spec_block(spec, me);
    if (is_plain(spec))
        return add_data_call(operation, (struct nccl_call){.kind = NCCL_GATHER,
                                                           .from = own_block(operation, spec, mine),
                                                           .to = operation->spec.data,
                                                           .bytes = mine.end - mine.begin});
    for (int b = 0; b < spec->group.count; b++) {
        struct comm_range range = comm_spec_block(spec, b);
        int owner = owner_of(spec, b);
        void *there = data_at(operation, range.begin);
        struct nccl_call call = {.kind = NCCL_BROADCAST,
                                 .from = owner == me ? own_block(operation, spec, range) : there,
                                 .to = there,
                                 .bytes = range.end - range.begin,
                                 .peer = owner};
        TRY(add_data_call(operation, call));
    }
    return STATUS_OK;
}

/* The ranks have no communicator of their own: from each to each, on that of all ranks. */
static enum status gather_by_messages(struct nccl_operation *operation, const struct comm_spec *spec, int me) {
    for (int b = 0; b < spec->group.count; b++) {
        struct comm_range range = comm_spec_block(spec, b);
        int owner = owner_of(spec, b);
        struct nccl_call call = {.kind = NCCL_RECEIVE,
                                 .to = data_at(operation, range.begin),
                                 .bytes = range.end - range.begin,
                                 .peer = mesh_group_rank(&spec->group, owner)};
        if (owner != me) TRY(add_data_call(operation, call));
        call.kind = NCCL_SEND;
        for (int i = 0; i < spec->group.count && owner == me; i++) {
            call.from = own_block(operation, spec, range);
            call.peer = mesh_group_rank(&spec->group, i);
            if (i != me) TRY(add_data_call(operation, call));
        }
    }
    return STATUS_OK;
}

static enum status put_own_in_place(struct nccl_operation *operation, const struct comm_spec *spec, int me) {
    for (int b = 0; b < spec->group.count && spec->mine; b++) {
        struct comm_range range = comm_spec_block(spec, b);
        struct device_step copy = {.kind = STEP_COPY_BYTES,
                                   .to = data_at(operation, range.begin),
                                   .from = spec->mine,
                                   .elements = range.end - range.begin};
        if (owner_of(spec, b) == me) TRY(add_step(operation, copy));
    }
    return STATUS_OK;
}

static enum status make_gather(struct nccl_operation *operation, const struct comm_spec *spec) {
    int me = mesh_group_position(&spec->group, operation->base.comm->rank);
    struct nccl_communicator *own = nccl_comm_find(operation->nccl, &spec->group);
    if (spec->group.count == 1 || !own) TRY(put_own_in_place(operation, spec, me));
    if (spec->group.count == 1) return STATUS_OK;
    TRY(own ? gather_by_calls(operation, spec, me) : gather_by_messages(operation, spec, me));
    return close_group(operation, own ? own : all_ranks(operation));
}

/* By the root, as a gather of one block; between ranks without a communicator of their own by messages. */
static enum status make_broadcast(struct nccl_operation *operation, const struct comm_spec *spec) {
    int me = mesh_group_position(&spec->group, operation->base.comm->rank);
    struct nccl_communicator *own = nccl_comm_find(operation->nccl, &spec->group);
    struct nccl_call call = {.kind = own                ? NCCL_BROADCAST
                                     : me == spec->root ? NCCL_SEND
                                                        : NCCL_RECEIVE,
                             .from = spec->data,
                             .to = spec->data,
                             .bytes = spec->bytes,
                             .peer = own ? spec->root : mesh_group_rank(&spec->group, spec->root)};
    if (call.kind != NCCL_SEND) TRY(vec_push(&operation->calls, call));
    for (int i = 0; i < spec->group.count && call.kind == NCCL_SEND; i++) {
        call.peer = mesh_group_rank(&spec->group, i);
        if (i != me) TRY(vec_push(&operation->calls, call));
    }
    return close_group(operation, own ? own : all_ranks(operation));
}

static enum status make_all_to_all(struct nccl_operation *operation, const struct comm_spec *spec) {
    int me = mesh_group_position(&spec->group, operation->base.comm->rank);
    for (int i = 0; i < spec->group.count; i++) {
        struct comm_range range = comm_spec_block(spec, i);
        char *from = data_at(operation, range.begin), *to = (char *)spec->out + range.begin;
        int64_t bytes = range.end - range.begin;
        struct nccl_call receive = {
            .kind = NCCL_RECEIVE, .to = to, .bytes = bytes, .peer = mesh_group_rank(&spec->group, i)};
        struct nccl_call send = {.kind = NCCL_SEND, .from = from, .bytes = bytes, .peer = receive.peer};
        struct device_step copy = {.kind = STEP_COPY_BYTES, .to = to, .from = from, .elements = bytes};
        if (i == me) TRY(add_step(operation, copy));
        if (i != me) TRY(add_data_call(operation, receive));
        if (i != me) TRY(add_data_call(operation, send));
    }
    return close_group(operation, all_ranks(operation));
}

static enum status make_steps(struct nccl_operation *operation, const struct comm_spec *spec) {
    if (spec->bytes == 0) return STATUS_OK;
    switch (spec->kind) {
    case COMM_REDUCE_SCATTER: return make_sums(operation, spec);
    case COMM_ALL_REDUCE: TRY(make_sums(operation, spec)); return make_gather(operation, spec);
    case COMM_ALL_GATHER: return make_gather(operation, spec);
    case COMM_BROADCAST: return make_broadcast(operation, spec);
    case COMM_ALL_TO_ALL: return make_all_to_all(operation, spec);
    default: BUG("no such operation: %d", (int)spec->kind);
    }
}

/* ---- What all ranks must have alike ---- */

/* `own`: the status of this rank's part. If it fails, the others get it. */
static enum status agree(struct comm *comm, const struct comm_spec *spec, enum status own) {
    struct status_copy failure;
    status_save(own, &failure);
    struct comm_offer mine;
    AUTO_FREE struct comm_offer *offers = mem_array((size_t)spec->group.count, sizeof *offers);
    if (!offers) return STATUS_FAILED;
    comm_offer_make(spec, own == STATUS_OK, &mine);
    enum status status = comm_all_gather(comm, &spec->group, &mine, sizeof mine, offers);
    if (own != STATUS_OK)
        status = status_restore(&failure);
    else if (status == STATUS_OK)
        status = comm_offers_check(comm, spec, offers, sizeof *offers);
    return status;
}

static void free_operation(struct comm_operation *base) {
    struct nccl_operation *operation = (struct nccl_operation *)base;
    vec_free(&operation->steps);
    vec_free(&operation->calls);
    mem_free(operation);
}

static enum status create(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out) {
    struct nccl_operation *operation = mem_array(1, sizeof *operation);
    if (!operation) return STATUS_FAILED;
    operation->base.comm = comm;
    operation->nccl = comm->devices;
    operation->spec = *spec;
    struct comm_schedule schedule;
    enum status status = make_steps(operation, spec);
    /* As planned: of NCCL's own operations it is not known by which ways they go. */
    if (status == STATUS_OK)
        status = comm_schedule_create(&comm->mesh, comm->rank, comm->message_bytes, spec, &schedule);
    if (status == STATUS_OK) {
        operation->traffic = schedule.traffic;
        comm_schedule_free(&schedule);
    }
    status = agree(comm, spec, status);
    if (status != STATUS_OK) {
        free_operation(&operation->base);
        return status;
    }
    operation->spec.tree = NULL;
    operation->spec.empty = NULL;
    operation->spec.owner = NULL;
    *out = &operation->base;
    return STATUS_OK;
}

/* ---- Carrying it out ---- */

static enum status queue(struct nccl_operation *operation, const struct device_step *step) {
    struct nccl_comm *nccl = operation->nccl;
    const struct backend *backend = nccl->backend;
    switch (step->kind) {
    case STEP_GROUP:
        return nccl_comm_group(nccl, step->communicator, operation->calls.items + step->first, step->count);
    case STEP_ADD: backend->add(step->to, step->from, step->elements, false, nccl->stream); break;
    case STEP_ROUND_BF16: backend->add(step->to, NULL, step->elements, true, nccl->stream); break;
    case STEP_PACK_BF16: backend->peers->pack_bf16(step->to, step->from, step->elements, nccl->stream); break;
    case STEP_UNPACK: backend->peers->unpack_bf16(step->to, step->from, step->elements, false, nccl->stream); break;
    case STEP_ADD_PACKED: backend->peers->unpack_bf16(step->to, step->from, step->elements, true, nccl->stream); break;
    case STEP_COPY_BYTES: backend->copy(step->to, step->from, step->elements, nccl->stream); break;
    }
    enum status status = backend->streams->check();
    return status == STATUS_OK ? STATUS_OK : nccl_comm_fail(nccl);
}

static void start(struct comm_operation *base) {
    struct nccl_operation *operation = (struct nccl_operation *)base;
    enum status status = nccl_comm_begin(operation->nccl);
    for (size_t i = 0; i < operation->steps.count && status == STATUS_OK; i++)
        status = queue(operation, &operation->steps.items[i]);
    status_save(status, &operation->end);
}

static enum status wait(struct comm_operation *base) {
    struct nccl_operation *operation = (struct nccl_operation *)base;
    enum status status = nccl_comm_finish(operation->nccl);
    TRY(status_restore(&operation->end));
    TRY(status);
    struct comm_traffic *sum = &base->comm->device_traffic;
    for (int axis = 0; axis < MESH_AXES; axis++) {
        sum->sent[axis] += operation->traffic.sent[axis];
        sum->received[axis] += operation->traffic.received[axis];
    }
    return STATUS_OK;
}

const struct comm_engine nccl_engine = {
    .name = "nccl", .create = create, .start = start, .wait = wait, .free = free_operation};
