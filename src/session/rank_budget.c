#include "session/rank_budget.h"

#include <string.h>

#include "base/mem.h"

/* `own_bytes`: what the capacity left out for one rank next to the tier; each of the others needs as much. */
static void divide(struct machine *machine, enum tier tier, bool given, int64_t own_bytes, int sharers) {
    if (given) return;
    int64_t bytes = machine->capacity_bytes[tier] - (sharers - 1) * own_bytes;
    machine->capacity_bytes[tier] = bytes > 0 ? bytes / sharers : 0;
}

static void divide_all(struct machine *machine, bool device_too, int sharers) {
    const struct memory_options *limits = &machine->limits;
    bool one = !machine->backend->memory; /* both tiers are memory of the process */
    int64_t beside_device = one ? CLUSTER_PROCESS_BYTES + limits->host_bytes : 0;
    machine->sharers = sharers;
    if (device_too) divide(machine, TIER_DEVICE, SETTINGS_HAVE(limits, device_bytes), beside_device, sharers);
    divide(machine, TIER_HOST, one || SETTINGS_HAVE(limits, host_bytes), CLUSTER_PROCESS_BYTES, sharers);
    divide(machine, TIER_DISK, SETTINGS_HAVE(limits, disk_bytes), 0, sharers);
}

/* Declared nodes may be one host: memory is the host's. */
static int count_sharers(const struct comm *comm) {
    int sharers = 0;
    for (int rank = 0; rank < mesh_ranks(&comm->mesh); rank++)
        sharers += strcmp(comm->host[rank], comm->host[comm->rank]) == 0;
    return sharers;
}

enum status rank_budget_share(struct comm *comm, struct machine *machine) {
    struct comm_group all = comm_group_all(comm);
    if (all.count == 1) return STATUS_OK;
    divide_all(machine, !comm->devices, count_sharers(comm));
    int64_t(*each)[TIER_COUNT] = mem_array((size_t)all.count, sizeof *each);
    if (!each) return STATUS_FAILED;
    enum status status = comm_all_gather(comm, &all, machine->capacity_bytes, sizeof machine->capacity_bytes, each);
    for (int rank = 0; rank < all.count && status == STATUS_OK; rank++)
        for (int tier = 0; tier < TIER_COUNT; tier++)
            if (each[rank][tier] < machine->capacity_bytes[tier]) machine->capacity_bytes[tier] = each[rank][tier];
    mem_free(each);
    return status;
}

enum status rank_budget_min(struct comm *comm, int64_t *bytes) {
    struct comm_group all = comm_group_all(comm);
    int64_t *each = mem_array((size_t)all.count, sizeof *each);
    enum status status = comm_agree(comm, each ? STATUS_OK : STATUS_FAILED);
    if (status == STATUS_OK) status = comm_all_gather(comm, &all, bytes, sizeof *bytes, each);
    for (int rank = 0; rank < all.count && status == STATUS_OK; rank++)
        if (each[rank] < *bytes) *bytes = each[rank];
    mem_free(each);
    return status;
}

void rank_budget_plan(int per_node, struct machine *machine) {
    divide_all(machine, !machine->backend->memory && !machine->has_cluster, per_node);
}
