#include "session/session.h"

#include "base/file.h"
#include "base/hash.h"
#include "profile/described_device.h"
#include "session/machine.h"
#include "session/machine_costs.h"

static enum status find_comm(struct session *session) {
    session->owns_comm = !session->comm;
    return session->owns_comm ? comm_open(&(struct comm_settings){.engine = "self"}, &session->comm) : STATUS_OK;
}

/* What decides the arithmetic and is not an option: the processor's instruction set, and the model's settings. */
static enum status check_same(const struct session *session) {
    enum { LIMIT_BYTES = 1 << 24 };
    struct comm *comm = session->comm;
    const struct backend *backend = session->machine.backend;
    char isa[RECIPE_NAME_BYTES] = "", *text = NULL;
    size_t bytes = 0;
    snprintf(isa, sizeof isa, "%s", backend->isa());
    enum status status = comm_check_same(comm, "the instruction set of their processors", isa, sizeof isa);
    if (status != STATUS_OK) return status_hint(status, "BALLAST_MAX_ISA=avx2 lets all use the narrower one");
    char *path = session->model->folder ? path_join(session->model->folder, "config.json") : NULL;
    bool there = path && file_exists(path) && file_read(path, LIMIT_BYTES, &text, &bytes) == STATUS_OK;
    uint64_t hash = there ? hash_bytes(text, bytes) : 0;
    mem_free(text);
    mem_free(path);
    return comm_check_same(comm, "the model's config.json", &hash, sizeof hash);
}

/* Bandwidth and latency between ranks, unless a cluster file states them. */
static enum status find_links(const struct session *session, int threads, struct machine *machine) {
    const struct mesh *mesh = &machine->mesh, *known = &machine->cluster.rates.links.mesh;
    if (machine->has_cluster && known->nodes == mesh->nodes && known->per_node == mesh->per_node) return STATUS_OK;
    const struct link_options link = {.threads = threads, .memory_bytes = machine->capacity_bytes[TIER_DEVICE] / 4};
    return machine_find_links(session->comm, &link, machine);
}

/* What ranks mean to the machine: the cores and the memory of each, and the links between them. */
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

/* Ranks that are only planned for. What describes a device says what is its own, of the host too. */
static void describe_planned(struct machine *machine, const struct plan_options *options) {
    bool described = machine->backend == &backend_described;
    if (options->planned.nodes > 0 && !described) rank_budget_plan(options->planned.per_node, machine);
    machine->plans_devices = described && options->gpu_collectives != GPU_COLLECTIVES_HOST;
}

/* `opened`: how that went. The session takes the model over. */
static enum status open_with(struct model *model, enum status opened, const struct plan_options *options,
                             const struct recipe *decided, struct session *out) {
    struct session session = {.model = model, .comm = options->comm};
    enum status status = opened;
    if (status == STATUS_OK) status = machine_open(options, decided, &session.machine);
    if (status == STATUS_OK) status = find_comm(&session);
    status = comm_agree(options->comm, status);
    if (status == STATUS_OK) status = describe_ranks(&session, options);
    if (status == STATUS_OK) describe_planned(&session.machine, options);
    if (status == STATUS_OK)
        *out = session;
    else
        session_close(&session);
    return status;
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
