#include "comm/comm.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "collective/comm_schedule.h"
#include "comm/comm_engine.h"
#include "comm/launch.h"
#include "comm/mpi_library.h"
#include "comm/nccl_comm.h"

enum { BLOCK_ALIGNMENT = 64 };

enum status comm_open(const struct comm_settings *settings, struct comm **out) {
    struct comm_settings full = *settings;
    if (full.rank_timeout_s <= 0) full.rank_timeout_s = 30;
    if (full.message_bytes <= 0) full.message_bytes = COMM_MESSAGE_BYTES;
    if (full.message_bytes > COMM_MESSAGE_BYTES_MAX) full.message_bytes = COMM_MESSAGE_BYTES_MAX;
    full.message_bytes = (full.message_bytes + BLOCK_ALIGNMENT - 1) / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT;
    *out = NULL;
    struct mpi_library library;
    TRY(mpi_library_find(settings->engine, &library));
    if (!library.wire) return self_comm_open(&full, out);
    return mpi_comm_open(library.wire, NULL, &full, out); /* the library stays open: MPI begins once in a process */
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
