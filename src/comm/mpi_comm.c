#include "comm/mpi_comm.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/text.h"

static const struct {
    const char *name, *package;
    const char *variables[4]; /* one of them: it launched this process */
} libraries[] = {
    {"openmpi", "libopenmpi3", {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}},
    {"mpich", "libmpich12", {"PMI_RANK", "PMI_FD", "PMI_SIZE"}},
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

const char *mpi_library_launched_by(void) {
    for (int i = 0; i < LIBRARIES; i++)
        for (int v = 0; v < 4 && libraries[i].variables[v]; v++)
            if (getenv(libraries[i].variables[v])) return libraries[i].name;
    return "self";
}

const char *mpi_library_chosen(void) {
    const char *name = getenv("BALLAST_MPI");
    return name && *name ? name : mpi_library_launched_by();
}

int mpi_library_launched_rank(void) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (int i = 0; i < 3; i++)
        if (getenv(variables[i])) return atoi(getenv(variables[i]));
    return -1;
}

/* `folder` (and `below` it) has the plugin? Its path then. */
static char *plugin_in(const char *folder, const char *below, const char *name) {
    char *path = mem_format("%s%s/ballast-mpi-%s.so", folder, below, name);
    if (path && access(path, F_OK) == 0) return path;
    mem_free(path);
    return NULL;
}

/* Next to a program or library, or where one that is installed has it. */
static char *plugin_near(const char *object, const char *name) {
    char copy[PATH_MAX];
    if (strlen(object) >= sizeof copy) return NULL;
    const char *folder = dirname(strcpy(copy, object));
    char *path = plugin_in(folder, "", name);
    if (!path) path = plugin_in(folder, "/ballast", name);
    return path ? path : plugin_in(folder, "/../lib/ballast", name);
}

char *mpi_library_path(const char *name) {
    const char *given = getenv("BALLAST_PLUGINS");
    if (given) return plugin_in(given, "", name);
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *path = length > 0 ? plugin_near(program, name) : NULL;
    Dl_info own; /* libballast.so, in a program of somebody else's */
    if (!path && dladdr((const void *)libraries, &own) != 0 && own.dli_fname) path = plugin_near(own.dli_fname, name);
    return path;
}

static const char *package_of(const char *name) {
    for (int i = 0; i < LIBRARIES; i++)
        if (strcmp(libraries[i].name, name) == 0) return libraries[i].package;
    return NULL;
}

static enum status refuse(const char *name, const char *path, const char *why) {
    const char *package = package_of(name);
    enum status status = status_set(STATUS_BAD_INPUT, "%s: %s", path, why);
    if (!package) return status;
    return status_hint(status, "on Debian: apt-get install %s; BALLAST_MPI=self starts without MPI", package);
}

static enum status open_plugin(const char *name, const char *path, const struct wire **out) {
    (void)setenv("UCX_DEBUG_SIGNO", "0",
                 0); /* UCX, below MPICH, takes SIGHUP for itself, to begin its debugging output */
    void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!plugin) return refuse(name, path, dlerror());
    wire_plugin_function *function;
    *(void **)&function = dlsym(plugin, WIRE_PLUGIN_SYMBOL);
    const struct wire *wire = function ? function() : NULL;
    if (!wire || wire->version != WIRE_VERSION) {
        dlclose(plugin);
        return status_set(STATUS_BAD_INPUT, "%s: not an MPI plugin of this version of ballast", path);
    }
    *out = wire;
    return STATUS_OK;
}

/* Shared memory is a file of some MiB for each rank, and of more for many. UCX, below MPICH, has it in /dev/shm. */
void mpi_library_explain_start(char *hint, size_t bytes) {
    static const int64_t enough = (int64_t)64 << 20;
    bool mpich = strcmp(mpi_library_chosen(), "mpich") == 0;
    struct statvfs shared;
    struct rlimit file;
    char size[SIZE_TEXT];
    hint[0] = '\0';
    if (getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur < (rlim_t)enough)
        snprintf(hint, bytes, "ulimit -f limits files to %s, and MPI's shared memory may need more; raise it",
                 size_print((int64_t)file.rlim_cur, size));
    else if (mpich && statvfs("/dev/shm", &shared) == 0 && shared.f_bavail * shared.f_frsize < (uint64_t)enough)
        snprintf(hint, bytes,
                 "/dev/shm has %s left, and MPICH may need more: enlarge it (docker run --shm-size=1g), or set "
                 "UCX_TLS=^posix",
                 size_print((int64_t)(shared.f_bavail * shared.f_frsize), size));
}

enum status mpi_library_find(const char *engine, const struct wire **out) {
    const char *name = engine ? engine : mpi_library_chosen();
    *out = NULL;
    if (strcmp(name, "self") == 0) return STATUS_OK;
    if (strchr(name, '/')) return open_plugin(name, name, out);
    if (!package_of(name))
        return status_hint(status_set(STATUS_BAD_INPUT, "BALLAST_MPI '%s' is no MPI that ballast knows", name),
                           "self, openmpi, mpich, or the path of a plugin");
    AUTO_FREE char *path = mpi_library_path(name);
    if (!path)
        return status_set(
            STATUS_BAD_INPUT,
            "there is no plugin ballast-mpi-%s.so for the MPI that launched this "
            "process" HINT
            "it is built where %s is installed (on Debian: lib%s-dev); BALLAST_PLUGINS names its directory",
            name, name, name);
    return open_plugin(name, path, out);
}

/* ---- All-gathers and operations ---- */

static enum status engine_all_gather(struct comm *comm, const struct comm_group *group, const void *mine, size_t bytes,
                                     void *all) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    if (atomic_load(&mpi->failure) != FAILURE_NONE) return mpi_failed(mpi);
    return mpi_run_all_gather(mpi, group, mine, bytes, all);
}

static void engine_start(struct comm_operation *base) {
    struct operation *operation = (struct operation *)base;
    struct mpi_comm *mpi = mpi_comm_of(base->comm);
    BUG_IF(atomic_load(&operation->state) == OPERATION_STARTED, "an operation is started on its way");
    operation->generation++;
    operation->at = 0;
    operation->next = NULL;
    operation->started_ns = operation->moved_ns = clock_now_ns();
    atomic_store(&operation->state, OPERATION_STARTED);
    atomic_fetch_add(&mpi->started, 1);
    pthread_mutex_lock(&mpi->mutex);
    *mpi->queue_end = operation;
    mpi->queue_end = &operation->next;
    pthread_cond_signal(&mpi->wake);
    pthread_mutex_unlock(&mpi->mutex);
}

static enum status engine_wait(struct comm_operation *base) {
    struct operation *operation = (struct operation *)base;
    struct mpi_comm *mpi = mpi_comm_of(base->comm);
    pthread_mutex_lock(&mpi->mutex);
    while (atomic_load(&operation->state) == OPERATION_STARTED)
        pthread_cond_wait(&mpi->over, &mpi->mutex);
    pthread_mutex_unlock(&mpi->mutex);
    return atomic_load(&operation->state) == OPERATION_FAILED ? mpi_failed(mpi) : STATUS_OK;
}

/* Operations of other libraries: known to the heartbeat as the time since which one is waited for. */
static void engine_waits(struct comm *comm, bool begins) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    if (begins) atomic_fetch_add(&mpi->started, 1);
    atomic_store(&mpi->outside_ns, begins ? clock_now_ns() : 0);
}

static enum status engine_check(struct comm *comm) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    return atomic_load(&mpi->failure) == FAILURE_NONE ? STATUS_OK : mpi_failed(mpi);
}

static void engine_fail(struct comm *comm) { mpi_fail(mpi_comm_of(comm), FAILURE_HERE, -1, "%s", status_message()); }

static void engine_read_traffic(const struct comm *comm, struct comm_traffic *out) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    for (int axis = 0; axis < MESH_AXES; axis++) {
        out->sent[axis] = atomic_load(&mpi->traffic[axis]);
        out->received[axis] = atomic_load(&mpi->traffic[axis + MESH_AXES]);
    }
    out->read = atomic_load(&mpi->traffic[2 * MESH_AXES]);
}

/* All ranks see a fault of another rank; the lowest of them prints it. */
static bool engine_speaks(const struct comm *comm) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    if (atomic_load(&mpi->failure) == FAILURE_NONE) return !comm->agreed_failure || comm->rank == 0;
    if (atomic_load(&mpi->failure) == FAILURE_HERE) return true;
    return comm->rank == (mpi->failed_rank == 0 ? 1 : 0);
}

/* ---- Beginning and end ---- */

static void free_mpi(struct mpi_comm *mpi) {
    if (!mpi) return;
    heartbeat_free(&mpi->heartbeat.heartbeat);
    mem_free(mpi->heartbeat.send);
    mem_free(mpi->heartbeat.receive);
    mem_free(mpi->heartbeat.sent);
    mem_free(mpi->heartbeat.got);
    mem_free(mpi->comm.host);
    mem_free(mpi->comm.ends);
    mem_free(mpi->all_gather_requests);
    mem_free(mpi);
}

static enum status find_mesh(struct mpi_comm *mpi, const int *machine, int ranks, int rank, int *new_rank) {
    struct mesh *mesh = &mpi->comm.mesh;
    int nodes = mpi->settings.nodes, before = 0, first = 0;
    for (int r = 0; r < ranks; r++)
        nodes += mpi->settings.nodes == 0 && machine[r] == r;
    if (nodes > ranks || ranks % nodes != 0)
        return status_set(STATUS_BAD_INPUT, "%d ranks are not the same number on each of %d nodes", ranks, nodes);
    *mesh = (struct mesh){nodes, ranks / nodes};
    *new_rank = rank;
    if (mpi->settings.nodes > 0) return STATUS_OK; /* declared: in the order of ranks */
    for (int r = 0; r < ranks; r++) {
        int same = 0;
        for (int other = 0; other < ranks; other++)
            same += machine[other] == machine[r];
        if (same != mesh->per_node)
            return status_hint(status_set(STATUS_BAD_INPUT,
                                          "nodes have different numbers of ranks: one has %d of %d on %d nodes", same,
                                          ranks, nodes),
                               "start the same number of ranks on each node");
        first += machine[r] < machine[rank];
        before += machine[r] == machine[rank] && r < rank;
    }
    *new_rank = first + before;
    return STATUS_OK;
}

static enum status renumber(struct mpi_comm *mpi, const struct wire_world *world) {
    AUTO_FREE int *machine = mem_array((size_t)world->ranks, sizeof *machine);
    if (!machine) return STATUS_FAILED;
    int rank = 0;
    TRY(mpi_check(mpi, mpi->wire->find_machines(mpi->wire_context, machine)));
    enum status status = find_mesh(mpi, machine, world->ranks, world->rank, &rank);
    mpi->comm.agreed_failure |= status != STATUS_OK; /* all ranks see the same */
    TRY(status);
    TRY(mpi_check(mpi, mpi->wire->renumber(mpi->wire_context, rank)));
    mpi->comm.rank = rank;
    return STATUS_OK;
}

static enum status begin(struct mpi_comm *mpi, void *argument) {
    (void)argument;
    struct wire_world *world = &mpi->world;
    TRY(mpi_check(mpi, mpi->wire->open(mpi->wire_context, world)));
    mpi->comm.library = world->library;
    mpi->comm.rank = world->rank;
    mpi->comm.host = mem_array((size_t)world->ranks, sizeof *mpi->comm.host);
    mpi->comm.ends = mem_array((size_t)world->ranks, sizeof *mpi->comm.ends);
    mpi->all_gather_requests = mem_array((size_t)world->ranks, 2 * sizeof *mpi->all_gather_requests);
    if (!mpi->comm.host || !mpi->comm.ends || !mpi->all_gather_requests) return STATUS_FAILED;
    TRY(renumber(mpi, world));
    struct comm_group all = comm_group_all(&mpi->comm);
    TRY(mpi_all_gather(mpi, &all, world->host, sizeof *mpi->comm.host, mpi->comm.host));
    return mpi_begin_heartbeat(mpi);
}

static enum status end(struct mpi_comm *mpi, void *argument) {
    (void)argument;
    TRY(mpi_end_heartbeat(mpi));
    return mpi_check(mpi, mpi->wire->close(mpi->wire_context));
}

/* Ends the thread, within the time allowed: MPI's end waits for other ranks. */
static bool join(struct mpi_comm *mpi) {
    pthread_mutex_lock(&mpi->mutex);
    mpi->ending = true;
    pthread_cond_signal(&mpi->wake);
    pthread_mutex_unlock(&mpi->mutex);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)mpi->settings.rank_timeout_s + 1;
    return pthread_timedjoin_np(mpi->thread, NULL, &until) == 0;
}

static enum status engine_close(struct comm *comm) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    if (mpi->control.base) comm_shared_segment_close(comm, &mpi->control);
    TRY(mpi_run_task(mpi, end, NULL));
    if (!join(mpi)) return status_set(STATUS_FAILED, "%s does not end", mpi->wire->name);
    free_mpi(mpi);
    return STATUS_OK;
}

static void engine_abort(struct comm *comm, int exit_status) {
    enum { PATIENCE_S = 5, FORWARDING_US = 200000 };
    struct mpi_comm *mpi = mpi_comm_of(comm);
    if (engine_speaks(comm))
        usleep(FORWARDING_US); /* MPICH's launcher drops unread output of a rank that aborts */
    else
        sleep(PATIENCE_S); /* the rank that speaks ends this one */
    pthread_mutex_lock(&mpi->mutex);
    atomic_store(&mpi->abort_status, exit_status ? exit_status : 1);
    pthread_cond_signal(&mpi->wake);
    pthread_mutex_unlock(&mpi->mutex);
    sleep(PATIENCE_S);
}

static const struct comm_engine mpi_engine = {
    .name = "mpi",
    .all_gather = engine_all_gather,
    .shared_segment_open = shared_segment_open,
    .shared_segment_close = shared_segment_close,
    .create = operation_create,
    .start = engine_start,
    .wait = engine_wait,
    .free = operation_free,
    .read_traffic = engine_read_traffic,
    .speaks = engine_speaks,
    .close = engine_close,
    .abort = engine_abort,
    .waits = engine_waits,
    .check = engine_check,
    .fail = engine_fail,
};

static enum status start_thread(struct mpi_comm *mpi) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&mpi->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&mpi->over, NULL);
    pthread_mutex_init(&mpi->mutex, NULL);
    int error = fault_point(FAULT_SUBMIT) ? EAGAIN : pthread_create(&mpi->thread, NULL, mpi_serve, mpi);
    return error ? status_set(STATUS_FAILED, "no thread for communication: %s", strerror(error)) : STATUS_OK;
}

/* Counters of meetings, which ranks of a node see of each other: where there are any, shared segments can be had at
 * all. */
static enum status open_control(struct mpi_comm *mpi) {
    struct comm_shared_segment control;
    TRY(shared_segment_open(&mpi->comm, (int64_t)SLOTS * 64, &control));
    if (!control.shared) mpi->settings.messages_only = true;
    mpi->comm.shares_memory = control.shared;
    mpi->control = control;
    return STATUS_OK;
}

enum status mpi_comm_open(const struct wire *wire, void *context, const struct comm_settings *settings,
                          struct comm **out) {
    struct mpi_comm *mpi = mem_array(1, sizeof *mpi);
    if (!mpi) return STATUS_FAILED;
    mpi->comm = (struct comm){
        .engine = &mpi_engine, .library = wire->name, .message_bytes = settings->message_bytes, .context = mpi};
    mpi->wire = wire;
    mpi->wire_context = context;
    mpi->settings = *settings;
    mpi->failed_rank = -1;
    mpi->queue_end = &mpi->queue;
    double period_s = settings->rank_timeout_s / 32;
    mpi->heartbeat.period_ns = (int64_t)((period_s < 1 ? period_s : 1) * 1e9);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a rank does not outlive its launcher */
    enum status status = start_thread(mpi);
    if (status != STATUS_OK) {
        free_mpi(mpi);
        return status;
    }
    TRY_GOTO(status, mpi_run_task(mpi, begin, NULL), failed);
    TRY_GOTO(status, open_control(mpi), failed);
    *out = &mpi->comm;
    return STATUS_OK;
failed:
    *out = &mpi->comm; /* for the process's end */
    return status;
}
