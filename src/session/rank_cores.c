#include "session/rank_cores.h"

#include <sched.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

/* The cores of every rank, in fresh memory; *mine are this one's. */
static enum status gather(struct comm *comm, cpu_set_t *mine, cpu_set_t **out) {
    struct comm_group all = comm_group_all(comm);
    cpu_set_t *each = mem_array((size_t)all.count, sizeof *each);
    if (!each) return STATUS_FAILED;
    CPU_ZERO(mine);
    if (sched_getaffinity(0, sizeof *mine, mine) != 0) memset(mine, 0xff, sizeof *mine);
    enum status status = comm_all_gather(comm, &all, mine, sizeof *mine, each);
    if (status == STATUS_OK)
        *out = each;
    else
        mem_free(each);
    return status;
}

static bool is_here(const struct comm *comm, int rank) { return strcmp(comm->host[rank], comm->host[comm->rank]) == 0; }

enum status rank_cores_count_sharers(struct comm *comm, int *out) {
    cpu_set_t mine, *each;
    TRY(gather(comm, &mine, &each));
    int sharers = 0;
    for (int rank = 0; rank < mesh_ranks(&comm->mesh); rank++) {
        cpu_set_t both;
        CPU_AND(&both, &mine, &each[rank]);
        sharers += is_here(comm, rank) && CPU_COUNT(&both) > 0;
    }
    mem_free(each);
    *out = sharers;
    return STATUS_OK;
}

enum status rank_cores_find_contention(struct comm *comm, struct contention *out) {
    cpu_set_t mine, *each;
    struct contention contention = {.members = 1};
    TRY(gather(comm, &mine, &each));
    contention.cores[0] = mine;
    for (int rank = 0; rank < mesh_ranks(&comm->mesh) && contention.members < CONTENTION_MAX; rank++) {
        if (rank == comm->rank || !is_here(comm, rank)) continue;
        contention.bound |= !CPU_EQUAL(&mine, &each[rank]);
        contention.cores[contention.members++] = each[rank];
    }
    mem_free(each);
    if (!contention_is_allowed(&contention)) {
        if (comm->rank == 0)
            log_note(
                "rank 0 may not use the cores of the %d other ranks on its host: operators are measured alone, and "
                "may take longer because of them",
                contention.members - 1);
        contention = (struct contention){.members = 1};
    }
    *out = contention;
    return STATUS_OK;
}
