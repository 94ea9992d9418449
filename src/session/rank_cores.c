#include "session/rank_cores.h"

#include <sched.h>
#include <string.h>

#include "base/mem.h"

enum status rank_cores_count_sharers(struct comm *comm, int *out) {
    struct comm_group all = comm_group_all(comm);
    cpu_set_t mine, *each = mem_array((size_t)all.count, sizeof *each);
    if (!each) return STATUS_FAILED;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) memset(&mine, 0xff, sizeof mine);
    enum status status = comm_exchange(comm, &all, &mine, sizeof mine, each);
    int sharers = 0;
    for (int rank = 0; rank < all.count && status == STATUS_OK; rank++) {
        cpu_set_t both;
        CPU_AND(&both, &mine, &each[rank]);
        bool here = strcmp(comm->host[rank], comm->host[comm->rank]) == 0;
        sharers += here && CPU_COUNT(&both) > 0;
    }
    mem_free(each);
    if (status == STATUS_OK) *out = sharers;
    return status;
}
