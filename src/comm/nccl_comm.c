#include "comm/nccl_comm.h"

#include <dlfcn.h>
#include <time.h>

#include "base/fault.h"

/* Calls a function, unless it is chosen to fail (FAULT_COMM). */
#define NCCL_CALL(library, name, ...) (fault_point(FAULT_COMM) ? ncclSystemError : (library)->name(__VA_ARGS__))
#define NCCL_TRY(library, name, ...) TRY(nccl_status(library, NCCL_CALL(library, name, __VA_ARGS__), "nccl" #name))

#define SONAME "libnccl.so.2"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_library opened; /* version 0: not open */

enum status nccl_status(const struct nccl_library *from, ncclResult_t result, const char *function) {
    if (result == ncclSuccess || result == ncclInProgress) return STATUS_OK;
    enum status status = status_set(STATUS_FAILED, "%s: %s", function, from->GetErrorString(result));
    return status_hint(status, "NCCL_DEBUG=WARN in the environment has NCCL say more; --gpu-collectives host does "
                               "without it");
}

/* All of them, of a version that has them as they are used here. POSIX has functions' addresses in objects' pointers.
 */
static enum status find_functions(void *object, const char *path, struct nccl_library *out) {
    void *found;
#define FIND(name, result, parameters)                                                                                 \
    found = dlsym(object, "nccl" #name);                                                                               \
    if (!found) return status_set(STATUS_BAD_INPUT, "%s: has no nccl" #name, path);                                    \
    memcpy(&out->name, &found, sizeof found);
    NCCL_FUNCTION_LIST(FIND)
    NCCL_TRY(out, GetVersion, &out->version);
    if (out->version >= NCCL_VERSION_MIN) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: is NCCL of number %d; Ballast needs %d (2.17) or later", path,
                      out->version, NCCL_VERSION_MIN);
}

static enum status open_library(const char *path, struct nccl_library *out) {
    void *object = fault_point(FAULT_OPEN) ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *why = dlerror();
        return status_set(STATUS_BAD_INPUT, "NCCL cannot be opened: %s", why ? why : path);
    }
    enum status status = find_functions(object, path, out);
    if (status != STATUS_OK) dlclose(object);
    return status;
}

enum status nccl_library_open(const struct nccl_library **out) {
    const char *given = getenv("BALLAST_NCCL");
    struct nccl_library found = {.version = 0};
    enum status status = STATUS_OK;
    pthread_mutex_lock(&lock);
    if (opened.version == 0) status = open_library(given && *given ? given : SONAME, &found);
    if (opened.version == 0 && status == STATUS_OK) opened = found;
    pthread_mutex_unlock(&lock);
    if (status == STATUS_BAD_INPUT)
        return status_hint(status,
                           "install NVIDIA's package libnccl2, or `pip install nvidia-nccl-cu12` and name its %s by "
                           "BALLAST_NCCL; or --gpu-collectives host",
                           SONAME);
    TRY(status);
    *out = &opened;
    return STATUS_OK;
}

ncclConfig_t nccl_config(void) {
    return (ncclConfig_t){.size = sizeof(ncclConfig_t),
                          .magic = NCCL_CONFIG_MAGIC,
                          .version = NCCL_VERSION_MIN,
                          .blocking = 0,
                          .cgaClusterSize = NCCL_CONFIG_UNDEF_INT,
                          .minCTAs = NCCL_CONFIG_UNDEF_INT,
                          .maxCTAs = NCCL_CONFIG_UNDEF_INT};
}

/* ---- Failure, and the thread that notices it ---- */

/* Under the lock: the first failure, with the calling thread's message. Aborts all communicators. */
static void keep_failure(struct nccl_comm *nccl) {
    if (nccl->failure.status != STATUS_OK) return;
    status_save(STATUS_FAILED, &nccl->failure);
    for (int i = 0; i < nccl->count; i++)
        if (nccl->communicators[i].handle) (void)nccl->library->CommAbort(nccl->communicators[i].handle);
    for (int i = 0; i < nccl->count; i++)
        nccl->communicators[i].handle = NULL;
}

enum status nccl_comm_fail(struct nccl_comm *nccl) {
    pthread_mutex_lock(&nccl->lock);
    keep_failure(nccl);
    enum status status = status_restore(&nccl->failure);
    pthread_mutex_unlock(&nccl->lock);
    nccl->comm->engine->fail(nccl->comm);
    return status;
}

/* Under the lock: whether a rank, or NCCL, has failed. */
static enum status look(struct nccl_comm *nccl) {
    TRY(nccl->comm->engine->check(nccl->comm));
    for (int i = 0; i < nccl->count; i++) {
        ncclResult_t result = ncclSuccess;
        if (!nccl->communicators[i].handle) continue;
        NCCL_TRY(nccl->library, CommGetAsyncError, nccl->communicators[i].handle, &result);
        TRY(nccl_status(nccl->library, result, "NCCL, while it worked"));
    }
    return STATUS_OK;
}

static void sleep_until_changed(struct nccl_comm *nccl) {
    enum { PERIOD_NS = 50000000 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + PERIOD_NS;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    (void)pthread_cond_timedwait(&nccl->changed, &nccl->lock, &until);
}

static void *watch(void *argument) {
    struct nccl_comm *nccl = argument;
    pthread_mutex_lock(&nccl->lock);
    while (!nccl->ending) {
        if (!nccl->waiting)
            pthread_cond_wait(&nccl->changed, &nccl->lock);
        else
            sleep_until_changed(nccl);
        if (nccl->waiting && nccl->failure.status == STATUS_OK && look(nccl) != STATUS_OK) keep_failure(nccl);
    }
    pthread_mutex_unlock(&nccl->lock);
    return NULL;
}

static void set_waiting(struct nccl_comm *nccl, bool waiting) {
    nccl->comm->engine->waits(nccl->comm, waiting);
    pthread_mutex_lock(&nccl->lock);
    nccl->waiting = waiting;
    pthread_cond_signal(&nccl->changed);
    pthread_mutex_unlock(&nccl->lock);
}

/* ---- Calls ---- */

/* Asks until a call that began has ended. */
static enum status settle(struct nccl_comm *nccl, const struct nccl_communicator *communicator, ncclResult_t result,
                          const char *function) {
    enum { PERIOD_NS = 50000 };
    while (result == ncclInProgress) {
        nanosleep(&(struct timespec){0, PERIOD_NS}, NULL);
        TRY(nccl->comm->engine->check(nccl->comm));
        pthread_mutex_lock(&nccl->lock);
        enum status status = status_restore(&nccl->failure);
        if (status == STATUS_OK) {
            ncclResult_t queried = NCCL_CALL(nccl->library, CommGetAsyncError, communicator->handle, &result);
            status = nccl_status(nccl->library, queried, "ncclCommGetAsyncError");
        }
        pthread_mutex_unlock(&nccl->lock);
        TRY(status);
    }
    return nccl_status(nccl->library, result, function);
}

static enum status issue(const struct nccl_comm *nccl, ncclComm_t handle, const struct nccl_call *call) {
    size_t count = (size_t)call->bytes;
    switch (call->kind) {
    case NCCL_SEND: NCCL_TRY(nccl->library, Send, call->from, count, ncclInt8, call->peer, handle, nccl->stream); break;
    case NCCL_RECEIVE:
        NCCL_TRY(nccl->library, Recv, call->to, count, ncclInt8, call->peer, handle, nccl->stream);
        break;
    case NCCL_GATHER:
        NCCL_TRY(nccl->library, AllGather, call->from, call->to, count, ncclInt8, handle, nccl->stream);
        break;
    case NCCL_BROADCAST:
        NCCL_TRY(nccl->library, Broadcast, call->from, call->to, count, ncclInt8, call->peer, handle, nccl->stream);
        break;
    }
    return STATUS_OK;
}

/* Under the lock. A group that was begun is ended, also after a failure. */
static enum status issue_group(const struct nccl_comm *nccl, ncclComm_t handle, const struct nccl_call *calls,
                               int count, ncclResult_t *result) {
    NCCL_TRY(nccl->library, GroupStart);
    enum status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status = issue(nccl, handle, &calls[i]);
    if (status != STATUS_OK) {
        (void)nccl->library->GroupEnd();
        return status;
    }
    *result = NCCL_CALL(nccl->library, GroupEnd);
    return STATUS_OK;
}

enum status nccl_comm_group(struct nccl_comm *nccl, struct nccl_communicator *communicator,
                            const struct nccl_call *calls, int count) {
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&nccl->lock);
    enum status status = status_restore(&nccl->failure);
    if (status == STATUS_OK) status = issue_group(nccl, communicator->handle, calls, count, &result);
    pthread_mutex_unlock(&nccl->lock);
    if (status == STATUS_OK) status = settle(nccl, communicator, result, "ncclGroupEnd");
    return status == STATUS_OK ? STATUS_OK : nccl_comm_fail(nccl);
}

enum status nccl_comm_begin(struct nccl_comm *nccl) {
    set_waiting(nccl, true);
    return nccl->backend->streams->enter();
}

/* A failed operation still has work on the stream, which the abort ends. */
enum status nccl_comm_finish(struct nccl_comm *nccl) {
    const struct backend_streams *streams = nccl->backend->streams;
    enum status status = streams->record(nccl->done, nccl->stream);
    if (status == STATUS_OK) status = streams->await(nccl->done);
    set_waiting(nccl, false);
    pthread_mutex_lock(&nccl->lock);
    if (status == STATUS_OK) status = status_restore(&nccl->failure);
    pthread_mutex_unlock(&nccl->lock);
    return status == STATUS_OK ? STATUS_OK : nccl_comm_fail(nccl);
}

struct nccl_communicator *nccl_comm_find(struct nccl_comm *nccl, const struct comm_group *group) {
    for (int i = 0; i < nccl->count; i++) {
        const struct comm_group *own = &nccl->communicators[i].group;
        if (own->first == group->first && own->stride == group->stride && own->count == group->count)
            return &nccl->communicators[i];
    }
    return NULL;
}

/* Its first rank's identifier goes to the others by messages; empty where that rank has failed. */
static enum status share_identifier(struct nccl_comm *nccl, const struct comm_group *group, ncclUniqueId *out) {
    ncclUniqueId mine = {{0}};
    AUTO_FREE ncclUniqueId *all = mem_array((size_t)group->count, sizeof *all);
    enum status made = all ? STATUS_OK : STATUS_FAILED;
    if (made == STATUS_OK && group->first == nccl->comm->rank)
        made = nccl_status(nccl->library, NCCL_CALL(nccl->library, GetUniqueId, &mine), "ncclGetUniqueId");
    TRY(comm_agree(nccl->comm, made));
    TRY(comm_all_gather(nccl->comm, group, &mine, sizeof mine, all));
    *out = all[0];
    return STATUS_OK;
}

static enum status join(struct nccl_comm *nccl, const struct comm_group *group, const ncclUniqueId *id) {
    struct nccl_communicator *made = &nccl->communicators[nccl->count];
    ncclConfig_t config = nccl_config();
    int position = mesh_group_position(group, nccl->comm->rank);
    pthread_mutex_lock(&nccl->lock);
    *made = (struct nccl_communicator){.group = *group};
    ncclResult_t result =
        NCCL_CALL(nccl->library, CommInitRankConfig, &made->handle, group->count, *id, position, &config);
    if (made->handle) nccl->count++;
    pthread_mutex_unlock(&nccl->lock);
    return settle(nccl, made, result, "ncclCommInitRankConfig");
}

static enum status add(struct nccl_comm *nccl, const struct comm_group *group) {
    ncclUniqueId id;
    if (group->count == 1 || nccl_comm_find(nccl, group)) return STATUS_OK;
    TRY(share_identifier(nccl, group, &id));
    set_waiting(nccl, true);
    enum status status = join(nccl, group, &id);
    set_waiting(nccl, false);
    return status == STATUS_OK ? STATUS_OK : nccl_comm_fail(nccl);
}

/* ---- What is needed ---- */

/* NCCL takes one rank a device. */
static enum status check_devices(struct comm *comm, const struct backend *backend) {
    enum { NAME_BYTES = 256 };
    struct comm_group all = comm_group_all(comm);
    char mine[NAME_BYTES] = "";
    AUTO_FREE char(*each)[NAME_BYTES] = mem_array((size_t)all.count, sizeof *each);
    TRY(comm_agree(comm, each ? backend->describe(mine, sizeof mine) : STATUS_FAILED));
    TRY(comm_all_gather(comm, &all, mine, sizeof mine, each));
    for (int b = 1; b < all.count; b++)
        for (int a = 0; a < b; a++)
            if (strcmp(each[a], each[b]) == 0 && strcmp(comm->host[a], comm->host[b]) == 0)
                return status_hint(status_set(STATUS_BAD_INPUT,
                                              "ranks %d and %d on %s use one GPU, which NCCL does "
                                              "not take",
                                              a, b, comm->host[a]),
                                   "start as many ranks on a node as it has GPUs, each with --device cuda:N or "
                                   "CUDA_VISIBLE_DEVICES of its own");
    return STATUS_OK;
}

static enum status find_library(const struct backend *backend, const struct nccl_library **out) {
    if (!backend->streams || !backend->memory || !backend->peers)
        return status_set(STATUS_BAD_INPUT, "the device is none that NCCL knows: it is made for NVIDIA's GPUs");
    return nccl_library_open(out);
}

/* ---- Beginning and end ---- */

static enum status make_own_part(struct nccl_comm *nccl, int groups) {
    const struct backend_streams *streams = nccl->backend->streams;
    nccl->communicators = mem_array((size_t)groups + 1, sizeof *nccl->communicators);
    if (!nccl->communicators) return STATUS_FAILED;
    TRY(streams->enter());
    TRY(streams->create(&nccl->stream));
    TRY(streams->create_event(&nccl->done));
    int error = fault_point(FAULT_SUBMIT) ? EAGAIN : pthread_create(&nccl->thread, NULL, watch, nccl);
    if (error) return status_set(STATUS_FAILED, "no thread to watch over NCCL: %s", strerror(error));
    nccl->watched = true;
    return STATUS_OK;
}

/* An operation on all of `bytes` of memory, which has staging behind it. */
static enum status run_once(struct comm *comm, struct comm_spec spec, char *memory, int64_t bytes) {
    const int64_t blocks = 64 * spec.group.count;
    struct comm_operation *operation = NULL;
    spec.data = memory;
    spec.bytes = bytes / blocks * blocks;
    spec.staging = memory + bytes;
    spec.on_device = true;
    TRY(comm_agree(comm, comm_create(comm, &spec, &operation)));
    comm_start(operation);
    enum status status = comm_agree(comm, comm_wait(operation));
    comm_free(operation);
    return status;
}

/* NCCL takes most of its memory when ranks first connect, so each communicator executes each of its operations once. */
static enum status warm(struct nccl_comm *nccl) {
    const struct backend_memory *memory = nccl->backend->memory;
    const struct mesh *mesh = &nccl->comm->mesh;
    const int64_t min = (int64_t)4 << 20, each = (int64_t)64 << 10;
    int64_t ranks = mesh_ranks(mesh), bytes = ranks * each > min ? ranks * each : min;
    struct lane_tree tree;
    void *base = NULL;
    TRY(comm_agree(nccl->comm, memory->take(TIER_DEVICE, 2 * bytes, &base)));
    enum status status;
    TRY_GOTO(status, lane_tree_create(mesh->nodes, mesh->per_node, &tree), done);
    struct comm_spec sum = {.kind = COMM_ALL_REDUCE, .group = comm_group_all(nccl->comm), .tree = &tree};
    status = run_once(nccl->comm, sum, base, bytes);
    for (int i = 0; i < nccl->count && status == STATUS_OK; i++) {
        struct comm_spec gather = {.kind = COMM_ALL_GATHER, .group = nccl->communicators[i].group};
        status = run_once(nccl->comm, gather, base, bytes);
    }
    lane_tree_free(&tree);
done:
    memory->give_back(TIER_DEVICE, base);
    return status;
}

static enum status connect_ranks(struct nccl_comm *nccl, const struct comm_device_settings *settings) {
    struct comm_group all = comm_group_all(nccl->comm);
    TRY(comm_agree(nccl->comm, add(nccl, &all)));
    for (int i = 0; i < settings->group_count; i++)
        TRY(comm_agree(nccl->comm, add(nccl, &settings->groups[i])));
    return warm(nccl);
}

enum status nccl_comm_open(struct comm *comm, const struct comm_device_settings *settings, struct nccl_comm **out) {
    const struct nccl_library *library = NULL;
    TRY(comm_agree(comm, find_library(settings->backend, &library)));
    TRY(check_devices(comm, settings->backend));
    struct nccl_comm *nccl = mem_array(1, sizeof *nccl);
    TRY(comm_agree(comm, nccl ? STATUS_OK : STATUS_FAILED));
    *nccl = (struct nccl_comm){.comm = comm, .backend = settings->backend, .library = library};
    pthread_mutex_init(&nccl->lock, NULL);
    pthread_cond_init(&nccl->changed, NULL);
    comm->devices = nccl; /* for the operations that are executed once */
    enum status status;
    TRY_GOTO(status, comm_agree(comm, make_own_part(nccl, settings->group_count)), failed);
    TRY_GOTO(status, connect_ranks(nccl, settings), failed);
    *out = nccl;
    return STATUS_OK;
failed:
    pthread_mutex_lock(&nccl->lock);
    keep_failure(nccl);
    pthread_mutex_unlock(&nccl->lock);
    nccl_comm_close(nccl);
    return status;
}

void nccl_comm_close(struct nccl_comm *nccl) {
    if (!nccl) return;
    const struct backend_streams *streams = nccl->backend->streams;
    pthread_mutex_lock(&nccl->lock);
    for (int i = 0; i < nccl->count; i++)
        if (nccl->communicators[i].handle) (void)nccl->library->CommDestroy(nccl->communicators[i].handle);
    nccl->ending = true;
    pthread_cond_signal(&nccl->changed);
    pthread_mutex_unlock(&nccl->lock);
    if (nccl->watched) pthread_join(nccl->thread, NULL);
    (void)streams->enter();
    if (nccl->stream) streams->free(nccl->stream);
    if (nccl->done) streams->free_event(nccl->done);
    nccl->comm->devices = NULL;
    mem_free(nccl->communicators);
    mem_free(nccl);
}
