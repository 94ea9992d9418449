/* What ranks tell each other before and between steps. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/comm.h"

struct end {
    enum status status;
    char message[600], hint[300];
};

/* Whether all ranks say the same as this one: it is then no matter of one rank or host. */
static bool all_say(const struct end *ends, int count, int rank) {
    for (int other = 0; other < count; other++)
        if (ends[other].status != ends[rank].status || strcmp(ends[other].message, ends[rank].message) != 0)
            return false;
    return true;
}

enum status comm_agree(struct comm *comm, enum status mine) {
    struct comm_group all = comm_group_all(comm);
    if (all.count == 1) return mine;
    struct end end = {.status = mine};
    if (mine != STATUS_OK) {
        snprintf(end.message, sizeof end.message, "%s", status_message());
        snprintf(end.hint, sizeof end.hint, "%s", status_hint_text());
    }
    struct end *ends = mem_array((size_t)all.count, sizeof *ends);
    if (!ends) return STATUS_FAILED;
    enum status status = comm_exchange(comm, &all, &end, sizeof end, ends);
    for (int rank = 0; rank < all.count && status == STATUS_OK; rank++) {
        status = ends[rank].status;
        if (status == STATUS_OK) continue;
        status_set(status, "%s", ends[rank].message);
        if (!all_say(ends, all.count, rank)) status_prefix(status, "rank %d on %s", rank, comm->host[rank]);
        comm->agreed_failure = true;
        if (ends[rank].hint[0]) status_hint(status, "%s", ends[rank].hint);
    }
    mem_free(ends);
    return status;
}

enum status comm_check_same(struct comm *comm, const char *what, const void *bytes, size_t count) {
    struct comm_group all = comm_group_all(comm);
    char *theirs = mem_array((size_t)all.count, count);
    if (!theirs) return STATUS_FAILED;
    enum status status = comm_exchange(comm, &all, bytes, count, theirs);
    for (int rank = 1; rank < all.count && status == STATUS_OK; rank++) {
        if (memcmp(theirs, theirs + (size_t)rank * count, count) == 0) continue;
        comm->agreed_failure = true;
        status = status_set(STATUS_BAD_INPUT, "ranks differ in %s: rank %d on %s has another than rank 0 on %s", what,
                            rank, comm->host[rank], comm->host[0]);
    }
    mem_free(theirs);
    return status;
}
