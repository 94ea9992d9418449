#include "session/session.h"

#include <sched.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/terminal.h"
#include "base/text.h"
#include "machine/cluster.h"
#include "plan/chunks.h"
#include "plan/ranks.h"
#include "profile/described_device.h"
#include "session/machine_costs.h"

/* ---- memory ---- */

/* Finds the capacities of device and host; measures them if no limits are given. */
static enum status find_memory(struct machine *machine) {
    const struct backend *backend = machine->backend;
    const struct memory_options *limits = &machine->limits;
    int64_t *capacity_bytes = machine->capacity_bytes;
    const bool one = !backend->memory; /* both tiers are memory of the process */
    const bool device_given = SETTINGS_HAVE(limits, device_bytes), host_given = SETTINGS_HAVE(limits, host_bytes);
    int64_t there[TIER_COUNT] = {[TIER_DEVICE] = limits->device_bytes, [TIER_HOST] = limits->host_bytes};
    if (!device_given || (!one && !host_given)) TRY(backend->capacity(there));
    capacity_bytes[TIER_DEVICE] = device_given ? limits->device_bytes : there[TIER_DEVICE];
    capacity_bytes[TIER_HOST] = one || host_given ? limits->host_bytes : there[TIER_HOST];
    /* A device without its own limit leaves space for the host in the same memory. */
    if (one && !device_given) capacity_bytes[TIER_DEVICE] -= limits->host_bytes;
    if (capacity_bytes[TIER_DEVICE] >= 0) return STATUS_OK;
    char text[SIZE_TEXT];
    return status_set(STATUS_BAD_INPUT, "host-memory: leaves nothing for the device tier of the %s that there are",
                      size_print(there[TIER_DEVICE], text));
}

/* ---- shares of the ranks ---- */

/* `own_bytes`: what the capacity reserves for one rank outside the tier. Each of the other ranks needs as much. */
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

void *ranks_gather(struct comm *comm, const void *mine, size_t bytes, enum status *status) {
    struct comm_group all = comm_group_all(comm);
    void *each = mem_array((size_t)all.count, bytes);
    *status = comm_agree(comm, each || *status != STATUS_OK ? *status : STATUS_FAILED);
    if (*status == STATUS_OK) *status = comm_all_gather(comm, &all, mine, bytes, each);
    if (*status == STATUS_OK) return each;
    mem_free(each);
    return NULL;
}

static bool is_here(const struct comm *comm, int rank) { return strcmp(comm->host[rank], comm->host[comm->rank]) == 0; }

/* Declared nodes may be one host, which owns the memory. */
static int count_sharers(const struct comm *comm) {
    int sharers = 0;
    for (int rank = 0; rank < mesh_ranks(&comm->mesh); rank++)
        sharers += is_here(comm, rank);
    return sharers;
}

/* Collective. Divides measured capacities among the ranks on this host, after each rank's CLUSTER_PROCESS_BYTES.
 * Capacities from options, and those of connected devices (rank_devices_open), are per rank already. Then all ranks get
 * the minimum capacity of any rank, since all make the same plan. Does nothing on one rank. */
static enum status rank_budget_share(struct comm *comm, struct machine *machine) {
    enum status status = STATUS_OK;
    divide_all(machine, !comm->devices, count_sharers(comm));
    size_t bytes = sizeof machine->capacity_bytes;
    AUTO_FREE int64_t(*each)[TIER_COUNT] = ranks_gather(comm, machine->capacity_bytes, bytes, &status);
    for (int rank = 0; each && rank < mesh_ranks(&comm->mesh); rank++)
        for (int tier = 0; tier < TIER_COUNT; tier++)
            if (each[rank][tier] < machine->capacity_bytes[tier]) machine->capacity_bytes[tier] = each[rank][tier];
    return status;
}

enum status rank_budget_min(struct comm *comm, int64_t *bytes) {
    enum status status = STATUS_OK;
    AUTO_FREE int64_t *each = ranks_gather(comm, bytes, sizeof *bytes, &status);
    for (int rank = 0; each && rank < mesh_ranks(&comm->mesh); rank++)
        if (each[rank] < *bytes) *bytes = each[rank];
    return status;
}

void rank_budget_plan(int per_node, struct machine *machine) {
    divide_all(machine, !machine->backend->memory && !machine->has_cluster, per_node);
}

/* ---- their cores ---- */

/* The cores of every rank, in fresh memory; *mine are this rank's. */
static enum status gather(struct comm *comm, cpu_set_t *mine, cpu_set_t **out) {
    enum status status = STATUS_OK;
    CPU_ZERO(mine);
    if (sched_getaffinity(0, sizeof *mine, mine) != 0) memset(mine, 0xff, sizeof *mine);
    *out = ranks_gather(comm, mine, sizeof *mine, &status);
    return status;
}

enum status rank_cores_count_sharers(struct comm *comm, int *out) {
    cpu_set_t mine;
    AUTO_FREE cpu_set_t *each = NULL;
    TRY(gather(comm, &mine, &each));
    int sharers = 0;
    for (int rank = 0; rank < mesh_ranks(&comm->mesh); rank++) {
        cpu_set_t both;
        CPU_AND(&both, &mine, &each[rank]);
        sharers += is_here(comm, rank) && CPU_COUNT(&both) > 0;
    }
    *out = sharers;
    return STATUS_OK;
}

enum status rank_cores_find_contention(struct comm *comm, struct contention *out) {
    cpu_set_t mine;
    AUTO_FREE cpu_set_t *each = NULL;
    struct contention contention = {.members = 1};
    TRY(gather(comm, &mine, &each));
    contention.cores[0] = mine;
    for (int rank = 0; rank < mesh_ranks(&comm->mesh) && contention.members < CONTENTION_MAX; rank++) {
        if (rank == comm->rank || !is_here(comm, rank)) continue;
        contention.bound |= !CPU_EQUAL(&mine, &each[rank]);
        contention.cores[contention.members++] = each[rank];
    }
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

/* ---- their devices ---- */

enum { GROUPS_MAX = 4 };

/* This rank's index among the ranks on its host. */
static int place_of(const struct comm *comm) {
    int place = 0;
    for (int rank = 0; comm && rank < comm->rank; rank++)
        place += is_here(comm, rank);
    return place;
}

/* Selects this rank's GPU. If no option names a device, the ranks of a host take its GPUs in turn if there are enough,
 * else each takes the first. False if there is none for this rank. NULL: one rank. */
static bool rank_devices_select(const struct comm *comm, const struct backend *backend) {
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

/* This rank's gather groups under the requested partition, else those that most partitions have. */
static int find_groups(const struct comm *comm, const char *partition, struct comm_group groups[GROUPS_MAX]) {
    int ranks = mesh_ranks(&comm->mesh), rank = comm->rank;
    struct partition cut;
    if (!partition || partition_parse(partition, &comm->mesh, &cut) != STATUS_OK) { /* the plan reports the error */
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

/* Collective, before anything is planned. Connects the devices of the ranks (comm_device_open), unless the options
 * choose the host, and measures free device memory again. If they cannot be connected (no NCCL, two ranks on one GPU),
 * uses the host, and rank 0 prints a note. BAD_INPUT if the options require connected devices. Does nothing on one
 * rank, or if devices have no memory of their own. */
static enum status rank_devices_open(struct comm *comm, const struct plan_options *options, struct machine *machine) {
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
    return comm_agree(comm, find_memory(machine));
}

/* ---- the machine ---- */

enum status machine_measure_disk(const char *folder, int64_t *bytes) {
    struct statvfs found;
    int error = statvfs(folder, &found) != 0 ? errno : file_is_folder(folder) ? 0 : ENOTDIR;
    if (error)
        return status_set(STATUS_BAD_INPUT, "disk: %s: %s" HINT "--disk takes a directory that exists: DIR or DIR:SIZE",
                          folder, strerror(error));
    *bytes = (int64_t)((1 - CLUSTER_RESERVE_FRACTION) * (double)found.f_bavail * (double)found.f_frsize);
    return STATUS_OK;
}

static enum status find_disk(const struct memory_options *limits, int64_t *capacity_bytes) {
    int64_t free_bytes = 0;
    if (SETTINGS_HAVE(limits, disk_bytes) && !SETTINGS_HAVE(limits, disk_folder))
        return status_set(STATUS_BAD_INPUT, "disk: names no directory before its size");
    if (SETTINGS_HAVE(limits, disk_folder)) TRY(machine_measure_disk(limits->disk_folder, &free_bytes));
    *capacity_bytes = SETTINGS_HAVE(limits, disk_bytes) ? limits->disk_bytes : free_bytes;
    return STATUS_OK;
}

/* The process's own part (CLUSTER_PROCESS_BYTES) counts as used in full: memory it has not used yet is not available to
 * arenas either. */
enum status machine_follow_memory(const struct machine *machine, int64_t open_bytes, int64_t *device_bytes) {
    const struct memory_options *limits = &machine->limits;
    struct cluster_memory memory;
    *device_bytes = machine->capacity_bytes[TIER_DEVICE];
    if (machine->backend->memory) return STATUS_OK;
    if (SETTINGS_HAVE(limits, device_bytes)) *device_bytes = limits->device_bytes;
    if (SETTINGS_HAVE(limits, device_bytes)) return STATUS_OK;
    TRY(cluster_measure_memory(&memory));
    int64_t sharers = machine->sharers > 0 ? machine->sharers : 1;
    int64_t buffer = cluster_memory_headroom(&memory) / sharers + open_bytes + memory.process_bytes;
    *device_bytes =
        (int64_t)((1 - CLUSTER_RESERVE_FRACTION) * (double)buffer) - memory.process_bytes - limits->host_bytes;
    if (*device_bytes < 0) *device_bytes = 0;
    return STATUS_OK;
}

enum status machine_open(const struct plan_options *options, const struct recipe *decided, struct machine *out) {
    struct machine machine = {.backend = plan_options_backend(options, decided), .limits = options->memory};
    /* A run or a plan names the kind of device; no option names the device. */
    if (!SETTINGS_HAVE(options, backend)) (void)rank_devices_select(options->comm, machine.backend);
    TRY(machine.backend->check());
    machine.has_cluster = SETTINGS_HAVE(options, cluster_path);
    if (machine.has_cluster) TRY(cluster_open(options->cluster_path, &machine.cluster));
    TRY(find_memory(&machine));
    TRY(find_disk(&machine.limits, &machine.capacity_bytes[TIER_DISK]));
    *out = machine;
    return STATUS_OK;
}

static enum status find_comm(struct session *session) {
    session->owns_comm = !session->comm;
    return session->owns_comm ? comm_open(&(struct comm_settings){.engine = "self"}, &session->comm) : STATUS_OK;
}

/* Checks what determines the arithmetic and is not an option: the CPU's instruction set, and the model's settings. */
static enum status check_same(const struct session *session) {
    enum { LIMIT_BYTES = 1 << 24 };
    struct comm *comm = session->comm;
    const struct backend *backend = session->machine.backend;
    char isa[RECIPE_NAME_BYTES] = "";
    size_t bytes = 0;
    snprintf(isa, sizeof isa, "%s", backend->isa());
    enum status status = comm_check_same(comm, "the instruction set of their processors", isa, sizeof isa);
    if (status != STATUS_OK) return status_hint(status, "BALLAST_MAX_ISA=avx2 lets all use the narrower one");
    AUTO_FREE char *path = session->model->folder ? path_join(session->model->folder, "config.json") : NULL;
    AUTO_FREE char *text = NULL;
    bool there = path && file_exists(path) && file_read(path, LIMIT_BYTES, &text, &bytes) == STATUS_OK;
    uint64_t hash = there ? hash_bytes(text, bytes) : 0;
    return comm_check_same(comm, "the model's config.json", &hash, sizeof hash);
}

/* Bandwidth and latency between ranks, unless a cluster file states them. */
static enum status find_links(const struct session *session, int threads, struct machine *machine) {
    const struct mesh *mesh = &machine->mesh, *known = &machine->cluster.rates.links.mesh;
    if (machine->has_cluster && known->nodes == mesh->nodes && known->per_node == mesh->per_node) return STATUS_OK;
    const struct link_options link = {.threads = threads, .memory_bytes = machine->capacity_bytes[TIER_DEVICE] / 4};
    return machine_find_links(session->comm, &link, machine);
}

/* Describes the ranks: the cores and the memory of each, and the links between them. */
static enum status describe_ranks(struct session *session, const struct plan_options *options) {
    struct machine *machine = &session->machine;
    machine->mesh = session->comm->mesh;
    if (session_ranks(session) == 1) return STATUS_OK;
    TRY(check_same(session));
    TRY(rank_devices_open(session->comm, options, machine));
    TRY(rank_budget_share(session->comm, machine));
    TRY(rank_cores_find_contention(session->comm, &machine->contention));
    return find_links(session, plan_options_threads(options), machine);
}

/* Describes ranks that are only planned for. A device description states its own memory and its host's. */
static void describe_planned(struct machine *machine, const struct plan_options *options) {
    bool described = machine->backend == &backend_described;
    if (options->planned.nodes > 0 && !described) rank_budget_plan(options->planned.per_node, machine);
    machine->plans_devices = described && options->gpu_collectives != GPU_COLLECTIVES_HOST;
}

/* `opened`: the status of opening the model. The session takes the model over. */
static enum status open_with(struct model *model, enum status opened, const struct plan_options *options,
                             const struct recipe *decided, struct session *out) {
    AUTO(session_close) struct session session = {.model = model, .comm = options->comm};
    enum status status = opened;
    if (status == STATUS_OK) status = machine_open(options, decided, &session.machine);
    if (status == STATUS_OK) status = find_comm(&session);
    TRY(comm_agree(options->comm, status));
    TRY(describe_ranks(&session, options));
    describe_planned(&session.machine, options);
    *out = TAKE(session);
    return STATUS_OK;
}

enum status session_open(const char *model_folder, const struct plan_options *options, const struct recipe *decided,
                         struct session *out) {
    struct model *model = NULL;
    const char *base = options->base_folder;
    enum status status = options->outline ? model_open_outline(model_folder, &model)
                         : base           ? model_open_adapter(model_folder, base, &model)
                                          : model_open(model_folder, &model);
    return open_with(model, status, options, decided, out);
}

enum status session_open_model(struct model *model, const struct plan_options *options, const struct recipe *decided,
                               struct session *out) {
    return open_with(model, STATUS_OK, options, decided, out);
}

void session_close(struct session *session) {
    model_free(session->model);
    if (session->comm) comm_device_close(session->comm);
    if (session->owns_comm) (void)comm_close(session->comm);
    *session = (struct session){.model = NULL};
}

struct rank_place session_place(const struct session *session, const struct mesh *mesh) {
    const struct comm *comm = session->comm;
    bool here = mesh->nodes == comm->mesh.nodes && mesh->per_node == comm->mesh.per_node;
    bool mapped = !session->machine.backend->memory; /* the CPU has addresses of the device tier */
    bool on_device = here ? comm->devices != NULL : session->machine.plans_devices;
    return (struct rank_place){.mesh = *mesh,
                               .rank = here ? comm->rank : 0,
                               .in_place = mapped && mesh->per_node > 1 && (!here || comm->shares_memory),
                               .on_device = on_device,
                               .message_bytes = comm->message_bytes,
                               .tier = mapped || on_device ? TIER_DEVICE : TIER_HOST};
}

enum status session_set_trained(struct session *session, struct recipe *recipe) {
    TRY(model_set_adapter(session->model, recipe->lora, recipe->seed));
    const struct adapter *adapter = &session->model->config.adapter;
    if (adapter->rank > 0) adapter_print(adapter, recipe->lora);
    TRY(model_set_base_format(session->model, recipe->quantize_base));
    recipe->quantize_base = session->model->config.base_format;
    return model_set_frozen(session->model, recipe->freeze);
}
