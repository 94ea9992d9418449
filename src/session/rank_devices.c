#include "session/rank_devices.h"

#include <string.h>

#include "base/log.h"
#include "plan/partition.h"
#include "plan/shards.h"
#include "session/train_options.h"

enum { GROUPS_MAX = 4 };

/* Which of the ranks on its host this one is. */
static int place_of(const struct comm *comm) {
    int place = 0;
    for (int rank = 0; comm && rank < comm->rank; rank++)
        place += strcmp(comm->host[rank], comm->host[comm->rank]) == 0;
    return place;
}

bool rank_devices_select(const struct comm *comm, const struct backend *backend) {
    int place = place_of(comm);
    if (place == 0 || !backend->select) return false;
    bool there = backend->select(place) == STATUS_OK && backend->check() == STATUS_OK;
    if (!there) status_clear();
    return there;
}

enum status rank_devices_find(const struct comm *comm, const char *device, const struct backend **out) {
    for (int i = 0; i < backend_count && !device; i++) {
        *out = backends[i];
        if (rank_devices_select(comm, backends[i])) return STATUS_OK;
    }
    return backend_find(device, out);
}

/* This rank's groups that gather under the partition that is asked for; else those that partitions mostly have. */
static int find_groups(const struct comm *comm, const char *partition, struct comm_group groups[GROUPS_MAX]) {
    int ranks = mesh_ranks(&comm->mesh), rank = comm->rank;
    struct partition cut;
    if (!partition || partition_parse(partition, &comm->mesh, &cut) != STATUS_OK) { /* the plan will say why */
        groups[0] = mesh_group(&comm->mesh, rank, MESH_NODE);
        groups[1] = mesh_group(&comm->mesh, rank, MESH_PEERS);
        return 2;
    }
    int parameters = partition_width(cut.parameters), gradients = partition_width(cut.gradients);
    groups[0] = shard_group(rank, 1, parameters);
    groups[1] = shard_group(rank, parameters, partition_width(cut.optimizer));
    groups[2] = shard_group(rank, 1, gradients);
    groups[3] = shard_group(rank, gradients, ranks);
    return GROUPS_MAX;
}

static enum status connect(struct comm *comm, const char *partition, const struct backend *backend) {
    struct comm_group groups[GROUPS_MAX];
    int count = find_groups(comm, partition, groups);
    return comm_device_open(comm, &(struct comm_device_settings){backend, groups, count});
}

enum status rank_devices_open(struct comm *comm, const struct plan_options *options, struct machine *machine) {
    bool requested = options->gpu_collectives == GPU_COLLECTIVES_NCCL;
    if (mesh_ranks(&comm->mesh) == 1 || options->gpu_collectives == GPU_COLLECTIVES_HOST) return STATUS_OK;
    if (!machine->backend->memory && !requested) return STATUS_OK;
    const char *partition = SETTINGS_HAVE(options, partition) ? options->partition : NULL;
    enum status status = connect(comm, partition, machine->backend);
    if (status == STATUS_BAD_INPUT && requested) return status_prefix(status, "--gpu-collectives nccl");
    if (status == STATUS_BAD_INPUT) {
        if (comm->rank == 0) log_note("collectives of GPUs go through the host's memory: %s", status_message());
        return STATUS_OK;
    }
    TRY(status);
    return comm_agree(comm, machine_measure_memory(machine));
}
