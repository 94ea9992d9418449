/* What ranks tell each other before and between steps. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/comm.h"

/* Whether all ranks say the same as this one: it is then no matter of one rank or host. */
static bool is_unanimous(const struct comm_end *ends, int count, int rank) {
    for (int other = 0; other < count; other++)
        if (ends[other].status != ends[rank].status || strcmp(ends[other].message, ends[rank].message) != 0)
            return false;
    return true;
}

static bool is_alone(const struct comm *comm) { return !comm || mesh_ranks(&comm->mesh) == 1; }

enum status comm_agree(struct comm *comm, enum status mine) {
    if (is_alone(comm)) return mine;
    struct comm_group all = comm_group_all(comm);
    struct comm_end end = {.status = mine};
    if (mine != STATUS_OK) {
        snprintf(end.message, sizeof end.message, "%s", status_message());
        snprintf(end.hint, sizeof end.hint, "%s", status_hint_text());
    }
    struct comm_end *ends = comm->ends;
    enum status status = comm_all_gather(comm, &all, &end, sizeof end, ends);
    for (int rank = 0; rank < all.count && status == STATUS_OK; rank++) {
        status = ends[rank].status;
        if (status == STATUS_OK) continue;
        status_set(status, "%s", ends[rank].message);
        if (!is_unanimous(ends, all.count, rank)) status_prefix(status, "rank %d on %s", rank, comm->host[rank]);
        comm->agreed_failure = true;
        if (ends[rank].hint[0]) status_hint(status, "%s", ends[rank].hint);
    }
    return status;
}

enum status comm_check_same(struct comm *comm, const char *what, const void *bytes, size_t count) {
    if (is_alone(comm)) return STATUS_OK;
    struct comm_group all = comm_group_all(comm);
    char *theirs = mem_array((size_t)all.count, count);
    enum status status = comm_agree(comm, theirs ? STATUS_OK : STATUS_FAILED);
    if (status == STATUS_OK) status = comm_all_gather(comm, &all, bytes, count, theirs);
    for (int rank = 1; rank < all.count && status == STATUS_OK; rank++) {
        if (memcmp(theirs, theirs + (size_t)rank * count, count) == 0) continue;
        comm->agreed_failure = true;
        status = status_set(STATUS_BAD_INPUT, "ranks differ in %s: rank %d on %s has another than rank 0 on %s", what,
                            rank, comm->host[rank], comm->host[0]);
    }
    mem_free(theirs);
    return status;
}

static enum status broadcast(struct comm *comm, char *data, int64_t bytes) {
    struct comm_spec spec = {
        .kind = COMM_BROADCAST, .group = comm_group_all(comm), .data = data, .bytes = bytes, .root = 0};
    struct comm_operation *operation;
    int64_t staging;
    enum status status = comm_staging_bytes(comm, &spec, &staging);
    if (status == STATUS_OK) spec.staging = mem_aligned(64, (size_t)(staging + 64) / 64 * 64);
    status = comm_agree(comm, spec.staging ? STATUS_OK : STATUS_FAILED);
    if (status == STATUS_OK) status = comm_create(comm, &spec, &operation);
    if (status == STATUS_OK) {
        comm_start(operation);
        status = comm_wait(operation);
        comm_free(operation);
    }
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
