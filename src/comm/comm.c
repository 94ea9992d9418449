#include "comm/comm.h"

#include <unistd.h>

#include "base/fault.h"
#include "base/hash.h"
#include "collective/schedule.h"
#include "comm/launch.h"
#include "comm/mpi_comm.h"
#include "comm/nccl_comm.h"

/* ---- agreement between ranks, before and between steps ---- */

static bool is_alone(const struct comm *comm) { return !comm || mesh_ranks(&comm->mesh) == 1; }

enum status comm_agree(struct comm *comm, enum status mine) {
    if (is_alone(comm)) return mine;
    struct comm_group all = comm_group_all(comm);
    struct status_copy end = {.status = mine}, *ends = comm->ends;
    status_save(mine, &end);
    enum status status = comm_all_gather(comm, &all, &end, sizeof end, ends);
    for (int rank = 0; rank < all.count && status == STATUS_OK; rank++) {
        status = status_restore(&ends[rank]);
        if (status == STATUS_OK) continue;
        bool unanimous = true; /* no matter of one rank or host */
        for (int other = 0; other < all.count; other++)
            unanimous &= ends[other].status == status && strcmp(ends[other].message, ends[rank].message) == 0;
        if (!unanimous) status_prefix(status, "rank %d on %s", rank, comm->host[rank]);
        comm->agreed_failure = true;
    }
    return status;
}

enum status comm_check_same(struct comm *comm, const char *what, const void *bytes, size_t count) {
    if (is_alone(comm)) return STATUS_OK;
    struct comm_group all = comm_group_all(comm);
    AUTO_FREE char *theirs = mem_array((size_t)all.count, count);
    TRY(comm_agree(comm, theirs ? STATUS_OK : STATUS_FAILED));
    TRY(comm_all_gather(comm, &all, bytes, count, theirs));
    for (int rank = 1; rank < all.count; rank++) {
        if (memcmp(theirs, theirs + (size_t)rank * count, count) == 0) continue;
        comm->agreed_failure = true;
        TRY(status_set(STATUS_BAD_INPUT, "ranks differ in %s: rank %d on %s has another than rank 0 on %s", what, rank,
                       comm->host[rank], comm->host[0]));
    }
    return STATUS_OK;
}

static enum status broadcast(struct comm *comm, char *data, int64_t bytes) {
    struct comm_spec spec = {
        .kind = COMM_BROADCAST, .group = comm_group_all(comm), .data = data, .bytes = bytes, .root = 0};
    struct comm_operation *operation;
    int64_t staging;
    enum status status = comm_staging_bytes(comm, &spec, &staging);
    if (status == STATUS_OK) spec.staging = mem_aligned(64, (size_t)(staging + 64) / 64 * 64);
    TRY_GOTO(status, comm_agree(comm, spec.staging ? STATUS_OK : STATUS_FAILED), done);
    TRY_GOTO(status, comm_create(comm, &spec, &operation), done);
    comm_start(operation);
    status = comm_wait(operation);
    comm_free(operation);
done:
    mem_free(spec.staging);
    return status;
}

enum status comm_share(struct comm *comm, void *data, size_t bytes) {
    return is_alone(comm) || bytes == 0 ? STATUS_OK : broadcast(comm, data, (int64_t)bytes);
}

enum status comm_share_text(struct comm *comm, char **text) {
    if (is_alone(comm)) return STATUS_OK;
    struct comm_group all = comm_group_all(comm);
    int64_t mine = comm->rank == 0 ? (int64_t)strlen(*text) + 1 : 0;
    int64_t *lengths = mem_array((size_t)all.count, sizeof *lengths), bytes = 0;
    enum status status = comm_agree(comm, lengths ? STATUS_OK : STATUS_FAILED);
    if (status == STATUS_OK) status = comm_all_gather(comm, &all, &mine, sizeof mine, lengths);
    if (status == STATUS_OK) bytes = lengths[0];
    mem_free(lengths);
    TRY(status);
    char *copy = comm->rank == 0 ? *text : mem_array((size_t)bytes, 1);
    status = comm_agree(comm, copy ? STATUS_OK : STATUS_FAILED);
    if (status == STATUS_OK) status = broadcast(comm, copy, bytes);
    if (status == STATUS_OK) *text = copy;
    if (status != STATUS_OK && comm->rank != 0) mem_free(copy);
    return status;
}

/* One rank: it already has all data, so an operation copies at most, and ends at once. */

struct self_operation {
    struct comm_operation base;
    struct comm_spec spec;
};

static enum status self_all_gather(struct comm *comm, const struct comm_group *group, const void *mine, size_t bytes,
                                   void *all) {
    (void)comm, (void)group;
    memcpy(all, mine, bytes);
    return STATUS_OK;
}

static enum status self_shared_segment_open(struct comm *comm, int64_t bytes, struct comm_shared_segment *out) {
    (void)comm;
    size_t whole = ((size_t)bytes + 4095) / 4096 * 4096;
    void *base = mem_aligned(4096, whole);
    if (!base) return STATUS_FAILED;
    memset(base, 0, whole);
    *out = (struct comm_shared_segment){base, bytes, true, NULL};
    return STATUS_OK;
}

static void self_shared_segment_close(struct comm_shared_segment *shared_segment) { mem_free(shared_segment->base); }

static enum status self_create(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out) {
    struct self_operation *operation = mem_array(1, sizeof *operation);
    if (!operation) return STATUS_FAILED;
    *operation = (struct self_operation){{.comm = comm}, *spec};
    *out = &operation->base;
    return STATUS_OK;
}

static void self_start(struct comm_operation *operation) {
    const struct comm_spec *spec = &((struct self_operation *)operation)->spec;
    if (spec->kind == COMM_ALL_TO_ALL && spec->bytes > 0) memcpy(spec->out, spec->data, (size_t)spec->bytes);
    if (spec->kind == COMM_ALL_GATHER && spec->mine && spec->bytes > 0)
        memcpy(spec->data, spec->mine, (size_t)spec->bytes);
}

static enum status self_wait(struct comm_operation *operation) {
    (void)operation;
    return STATUS_OK;
}

static void self_free(struct comm_operation *operation) { mem_free(operation); }

static void self_read_traffic(const struct comm *comm, struct comm_traffic *out) {
    (void)comm;
    *out = (struct comm_traffic){0};
}

static bool self_speaks(const struct comm *comm) {
    (void)comm;
    return true;
}

static enum status self_close(struct comm *comm) {
    mem_free(comm->host);
    mem_free(comm);
    return STATUS_OK;
}

static void self_abort(struct comm *comm, int exit_status) { (void)comm, (void)exit_status; }

static const struct comm_engine self_engine = {
    .name = "self",
    .all_gather = self_all_gather,
    .shared_segment_open = self_shared_segment_open,
    .shared_segment_close = self_shared_segment_close,
    .create = self_create,
    .start = self_start,
    .wait = self_wait,
    .free = self_free,
    .read_traffic = self_read_traffic,
    .speaks = self_speaks,
    .close = self_close,
    .abort = self_abort,
};

static enum status self_comm_open(const struct comm_settings *settings, struct comm **out) {
    if (settings->nodes > 1) return status_set(STATUS_BAD_INPUT, "--nodes %d: there is one rank", settings->nodes);
    struct comm *comm = mem_array(1, sizeof *comm);
    char(*host)[MESH_HOST_BYTES] = mem_array(1, sizeof *host);
    if (!comm || !host) {
        mem_free(comm);
        mem_free(host);
        return STATUS_FAILED;
    }
    *comm = (struct comm){.engine = &self_engine,
                          .library = "none",
                          .mesh = {1, 1},
                          .shares_memory = true,
                          .host = host,
                          .message_bytes = settings->message_bytes};
    if (gethostname(*host, sizeof *host - 1) != 0) strcpy(*host, "this machine");
    *out = comm;
    return STATUS_OK;
}

enum { BLOCK_ALIGNMENT = 64 };

enum status comm_open(const struct comm_settings *settings, struct comm **out) {
    struct comm_settings full = *settings;
    if (full.rank_timeout_s <= 0) full.rank_timeout_s = 30;
    if (full.message_bytes <= 0) full.message_bytes = COMM_MESSAGE_BYTES;
    if (full.message_bytes > COMM_MESSAGE_BYTES_MAX) full.message_bytes = COMM_MESSAGE_BYTES_MAX;
    full.message_bytes = (full.message_bytes + BLOCK_ALIGNMENT - 1) / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT;
    *out = NULL;
    const struct wire *wire;
    TRY(mpi_library_find(settings->engine, &wire));
    if (!wire) return self_comm_open(&full, out);
    return mpi_comm_open(wire, NULL, &full, out); /* the library stays open: MPI begins once in a process */
}

enum status comm_close(struct comm *comm) { return comm ? comm->engine->close(comm) : STATUS_OK; }

void comm_abort(struct comm *comm, int exit_status) {
    launch_hush();
    if (comm) comm->engine->abort(comm, exit_status);
    _exit(exit_status);
}

bool comm_speaks(const struct comm *comm) { return !comm || comm->engine->speaks(comm); }

enum status comm_shared_segment_open(struct comm *comm, int64_t bytes, struct comm_shared_segment *out) {
    BUG_IF(bytes <= 0, "a window of %lld bytes", (long long)bytes);
    return comm->engine->shared_segment_open(comm, bytes, out);
}

void comm_shared_segment_close(struct comm *comm, struct comm_shared_segment *shared_segment) {
    if (shared_segment->base) comm->engine->shared_segment_close(shared_segment);
    *shared_segment = (struct comm_shared_segment){0};
}

static bool reduces(enum comm_kind kind) { return kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_REDUCE; }

static void check_group(const struct comm *comm, const struct comm_spec *spec) {
    const struct comm_group *group = &spec->group;
    BUG_IF(group->count < 1 || group->stride < 1 || group->first < 0 ||
               mesh_group_rank(group, group->count - 1) >= mesh_ranks(&comm->mesh),
           "a group of %d ranks from %d in steps of %d", group->count, group->first, group->stride);
    BUG_IF(mesh_group_position(group, comm->rank) < 0, "rank %d creates an operation of others", comm->rank);
    BUG_IF(spec->kind == COMM_BROADCAST && (spec->root < 0 || spec->root >= group->count), "no root %d", spec->root);
}

static void check_blocks(const struct comm_spec *spec) {
    int count = spec->group.count;
    bool dealt = reduces(spec->kind) || spec->kind == COMM_ALL_GATHER;
    BUG_IF(!dealt && (spec->owner || spec->block_bytes), "blocks of operation %d have owners", (int)spec->kind);
    BUG_IF(spec->mine && spec->kind != COMM_ALL_GATHER, "operation %d takes a block", (int)spec->kind);
    BUG_IF(spec->block_bytes > 0 && spec->block_bytes < (spec->bytes + count - 1) / count,
           "%lld bytes in %d blocks of %lld", (long long)spec->bytes, count, (long long)spec->block_bytes);
    for (int b = 0; spec->owner && b < count; b++) {
        BUG_IF(spec->owner[b] < 0 || spec->owner[b] >= count, "block %d is of rank %d of %d", b, spec->owner[b], count);
        for (int other = 0; other < b; other++)
            BUG_IF(spec->owner[other] == spec->owner[b], "blocks %d and %d are of one rank", other, b);
    }
}

static void check_sum(const struct comm_spec *spec) {
    int64_t size = (int64_t)sizeof(float);
    BUG_IF(spec->bytes % size != 0 || spec->block_bytes % size != 0, "a sum of %lld bytes", (long long)spec->bytes);
    BUG_IF(spec->tree && spec->tree->lanes != spec->group.count, "a tree of %d leaves for %d ranks", spec->tree->lanes,
           spec->group.count);
    bool full = !spec->empty;
    for (int i = 0; i < spec->group.count && !full; i++)
        full = !spec->empty[i];
    BUG_IF(!full, "a sum of nothing");
}

static void check_spec(const struct comm *comm, const struct comm_spec *spec) {
    BUG_IF(spec->on_device && (!comm->devices || spec->in_place || spec->flat),
           "an operation on devices in another way");
    BUG_IF(spec->bytes < 0, "an operation on %lld bytes", (long long)spec->bytes);
    check_group(comm, spec);
    check_blocks(spec);
    if (reduces(spec->kind)) check_sum(spec);
    BUG_IF(spec->kind == COMM_ALL_TO_ALL && (spec->bytes % spec->group.count != 0 || (spec->bytes > 0 && !spec->out)),
           "all-to-all of %lld bytes among %d ranks", (long long)spec->bytes, spec->group.count);
}

enum status comm_staging_bytes(const struct comm *comm, const struct comm_spec *spec, int64_t *out) {
    check_spec(comm, spec);
    struct comm_schedule schedule;
    TRY(comm_schedule_create(&comm->mesh, comm->rank, comm->message_bytes, spec, &schedule));
    *out = schedule.staging_bytes;
    comm_schedule_free(&schedule);
    return STATUS_OK;
}

enum status comm_create(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out) {
    const struct comm_engine *engine = spec->on_device ? &nccl_engine : comm->engine;
    check_spec(comm, spec);
    TRY(engine->create(comm, spec, out));
    (*out)->engine = engine;
    return STATUS_OK;
}

void comm_offer_make(const struct comm_spec *spec, bool good, struct comm_offer *out) {
    memset(out, 0, sizeof *out); /* all of it, since it is sent and compared */
    out->good = good;
    out->kind = (int)spec->kind;
    out->root = spec->root;
    out->in_place = spec->in_place;
    out->round_bf16 = spec->round_bf16;
    out->round_sum = spec->round_sum;
    out->flat = spec->flat;
    out->bytes = spec->bytes;
    out->block_bytes = spec->block_bytes;
    for (int b = 0; b < comm_spec_blocks(spec); b++)
        out->owners = hash_mix(out->owners ^ (uint64_t)(spec->owner ? spec->owner[b] : b));
}

enum status comm_offers_check(const struct comm *comm, const struct comm_spec *spec, const void *offers, size_t each) {
    for (int i = 0; i < spec->group.count; i++) {
        const struct comm_offer *offer = (const void *)((const char *)offers + (size_t)i * each);
        int rank = mesh_group_rank(&spec->group, i);
        if (!offer->good)
            return status_set(STATUS_FAILED, "rank %d on %s could not make an operation", rank, comm->host[rank]);
        if (memcmp(offers, offer, sizeof *offer) != 0)
            return status_set(STATUS_BAD_INPUT,
                              "ranks do not create the same operation: rank %d on %s has another than rank %d", rank,
                              comm->host[rank], mesh_group_rank(&spec->group, 0));
    }
    return STATUS_OK;
}

void comm_start(struct comm_operation *operation) {
    operation->refused = fault_point(FAULT_COMM);
    if (!operation->refused) operation->engine->start(operation);
}

enum status comm_wait(struct comm_operation *operation) {
    if (operation->refused) return status_set(STATUS_FAILED, "communication failed: the operation was refused");
    return operation->engine->wait(operation);
}

void comm_free(struct comm_operation *operation) {
    if (operation) operation->engine->free(operation);
}

void comm_read_traffic(const struct comm *comm, struct comm_traffic *out) {
    comm->engine->read_traffic(comm, out);
    for (int axis = 0; axis < MESH_AXES; axis++) {
        out->sent[axis] += comm->device_traffic.sent[axis];
        out->received[axis] += comm->device_traffic.received[axis];
    }
}

enum status comm_device_open(struct comm *comm, const struct comm_device_settings *settings) {
    BUG_IF(comm->devices, "devices are open already");
    return nccl_comm_open(comm, settings, &comm->devices);
}

void comm_device_close(struct comm *comm) { nccl_comm_close(comm->devices); }

enum status comm_all_gather(struct comm *comm, const struct comm_group *group, const void *mine, size_t bytes,
                            void *all) {
    return comm->engine->all_gather(comm, group, mine, bytes, all);
}
