/* A libnccl.so.2 for tests without a GPU: the functions of comm/nccl_abi.h between processes of one machine, which
 * share a file. Work executes on the stream: the tests' device (deferred_backend.h) provides `deferred_call` and
 * `deferred_behind`. Like NCCL it is strict: a send and its receive have the same size, the calls of a group execute
 * together, and nonblocking communicators must be ready before use.
 *
 * In the environment, NCCL_DOUBLE="ncclSend:3" makes the third call fail, "error:1" reports an asynchronous error at
 * the first query after work began, and "version:20500" imitates an old library. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/nccl_abi.h"

/* The test's device. */
void deferred_call(void *stream, void (*function)(void *argument), void *argument);
void *deferred_behind(const void *address);

#define EXPORTED __attribute__((visibility("default")))

enum { RING_BYTES = 1 << 15, RANKS_MAX = 16, CALLS_MAX = 4096 };

/* From one rank to another. A message is its size and its bytes. */
struct channel {
    _Atomic uint64_t written, read;
    unsigned char ring[RING_BYTES];
};

struct meeting {
    atomic_int joined, left;
    struct channel channel[RANKS_MAX][RANKS_MAX]; /* by sender and receiver */
};

struct ncclComm {
    struct meeting *meeting;
    int ranks, rank;
    int queries;              /* times that it was asked since the last call */
    bool worked;              /* anything was queued */
    atomic_bool ends, broken; /* aborted; sizes do not fit */
    atomic_int queued;        /* groups that the device still has */
};

struct transfer {
    bool sends;
    int peer;
    char *data;
    uint64_t bytes, done; /* done: with the size before the bytes */
    bool alone;           /* bytes go from `data` to `own` in this rank */
    char *own;
};

struct group {
    struct ncclComm *comm;
    int count;
    void *stream;
    struct transfer transfers[CALLS_MAX];
};

static _Thread_local struct group *group;

/* ---- Planted faults ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The number behind "NAME:"; 0: the environment names another. */
static int planted(const char *name) {
    const char *given = getenv("NCCL_DOUBLE");
    size_t length = strlen(name);
    return given && strncmp(given, name, length) == 0 && given[length] == ':' ? atoi(given + length + 1) : 0;
}

static bool is_refused(const char *name) {
    static int calls;
    int nth = planted(name);
    pthread_mutex_lock(&lock);
    bool refused = nth > 0 && ++calls == nth;
    pthread_mutex_unlock(&lock);
    return refused;
}

#define REFUSE()                                                                                                       \
    do {                                                                                                               \
        if (is_refused(__func__)) return ncclSystemError;                                                              \
    } while (0)

/* ---- Channels ---- */

static uint64_t put(struct channel *channel, const void *from, uint64_t bytes) {
    uint64_t written = atomic_load(&channel->written), space = RING_BYTES - (written - atomic_load(&channel->read));
    uint64_t count = bytes < space ? bytes : space;
    for (uint64_t i = 0; i < count; i++)
        channel->ring[(written + i) % RING_BYTES] = ((const unsigned char *)from)[i];
    atomic_store(&channel->written, written + count);
    return count;
}

static uint64_t take(struct channel *channel, void *to, uint64_t bytes) {
    uint64_t read = atomic_load(&channel->read), there = atomic_load(&channel->written) - read;
    uint64_t count = bytes < there ? bytes : there;
    for (uint64_t i = 0; i < count; i++)
        ((unsigned char *)to)[i] = channel->ring[(read + i) % RING_BYTES];
    atomic_store(&channel->read, read + count);
    return count;
}

static bool is_over(const struct transfer *transfer) {
    return transfer->alone || transfer->done == sizeof(uint64_t) + transfer->bytes;
}

/* The size travels in one piece, since rings are emptied in whole. */
static bool move_size(struct ncclComm *comm, struct channel *channel, struct transfer *transfer) {
    uint64_t size = transfer->bytes, head = sizeof size;
    if (transfer->sends) {
        if (RING_BYTES - (atomic_load(&channel->written) - atomic_load(&channel->read)) < head) return false;
        put(channel, &size, head);
    } else {
        if (atomic_load(&channel->written) - atomic_load(&channel->read) < head) return false;
        take(channel, &size, head);
        if (size != transfer->bytes) atomic_store(&comm->broken, true);
    }
    transfer->done = head;
    return true;
}

static bool move_on(struct ncclComm *comm, struct transfer *transfer) {
    struct meeting *meeting = comm->meeting;
    struct channel *channel =
        transfer->sends ? &meeting->channel[comm->rank][transfer->peer] : &meeting->channel[transfer->peer][comm->rank];
    if (transfer->done == 0 && !move_size(comm, channel, transfer)) return false;
    uint64_t at = transfer->done - sizeof(uint64_t), left = transfer->bytes - at;
    uint64_t count =
        transfer->sends ? put(channel, transfer->data + at, left) : take(channel, transfer->data + at, left);
    transfer->done += count;
    return count > 0;
}

/* Of the transfers with a peer in one direction the first that is not over; of all peers at once. */
static bool pass(struct group *work) {
    bool busy[2][RANKS_MAX] = {{false}}, over = true, moved = false;
    for (int i = 0; i < work->count; i++) {
        struct transfer *transfer = &work->transfers[i];
        if (is_over(transfer)) continue;
        bool *taken = &busy[transfer->sends][transfer->peer];
        if (!*taken) moved |= move_on(work->comm, transfer);
        over = over && is_over(transfer);
        *taken = *taken || !is_over(transfer);
    }
    if (!over && !moved) usleep(20);
    return over;
}

/* In the device. */
static void carry_out(void *argument) {
    struct group *work = argument;
    struct ncclComm *comm = work->comm;
    for (int i = 0; i < work->count; i++) {
        struct transfer *transfer = &work->transfers[i];
        transfer->data = deferred_behind(transfer->data);
        if (transfer->alone && transfer->bytes > 0)
            memmove(deferred_behind(transfer->own), transfer->data, transfer->bytes);
    }
    while (!atomic_load(&comm->ends) && !atomic_load(&comm->broken) && !pass(work))
        ;
    atomic_fetch_sub(&comm->queued, 1);
    free(work);
}

/* ---- Groups ---- */

static ncclResult_t add(struct ncclComm *comm, void *stream, struct transfer transfer) {
    if (!group || (group->comm && group->comm != comm) || group->count == CALLS_MAX) return ncclInvalidUsage;
    group->comm = comm;
    group->stream = stream;
    group->transfers[group->count++] = transfer;
    return ncclSuccess;
}

EXPORTED ncclResult_t ncclGroupStart(void) {
    REFUSE();
    if (group) return ncclInvalidUsage;
    group = calloc(1, sizeof *group);
    return group ? ncclSuccess : ncclSystemError;
}

EXPORTED ncclResult_t ncclGroupEnd(void) {
    struct group *work = group;
    group = NULL;
    bool refused = is_refused(__func__) || !work;
    if (refused || !work->comm) {
        free(work);
        return refused ? ncclSystemError : ncclSuccess;
    }
    work->comm->queries = 0;
    work->comm->worked = true;
    atomic_fetch_add(&work->comm->queued, 1);
    deferred_call(work->stream, carry_out, work);
    return ncclInProgress;
}

static char *bytes_of(const void *address) { return (char *)(uintptr_t)address; }

EXPORTED ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                               void *stream) {
    REFUSE();
    if (type != ncclInt8 || peer < 0 || peer >= comm->ranks || peer == comm->rank) return ncclInvalidArgument;
    return add(comm, stream, (struct transfer){.sends = true, .peer = peer, .data = bytes_of(from), .bytes = count});
}

EXPORTED ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, void *stream) {
    REFUSE();
    if (type != ncclInt8 || peer < 0 || peer >= comm->ranks || peer == comm->rank) return ncclInvalidArgument;
    return add(comm, stream, (struct transfer){.peer = peer, .data = to, .bytes = count});
}

static ncclResult_t spread(ncclComm_t comm, void *stream, const void *from, void *own, size_t count) {
    ncclResult_t result =
        add(comm, stream, (struct transfer){.alone = true, .data = bytes_of(from), .own = own, .bytes = count});
    for (int peer = 0; peer < comm->ranks && result == ncclSuccess; peer++)
        if (peer != comm->rank)
            result = add(comm, stream,
                         (struct transfer){.sends = true, .peer = peer, .data = bytes_of(from), .bytes = count});
    return result;
}

EXPORTED ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                                    void *stream) {
    REFUSE();
    if (type != ncclInt8) return ncclInvalidArgument;
    ncclResult_t result = spread(comm, stream, from, (char *)to + (size_t)comm->rank * count, count);
    for (int peer = 0; peer < comm->ranks && result == ncclSuccess; peer++)
        if (peer != comm->rank)
            result = add(comm, stream,
                         (struct transfer){.peer = peer, .data = (char *)to + (size_t)peer * count, .bytes = count});
    return result;
}

EXPORTED ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                    ncclComm_t comm, void *stream) {
    REFUSE();
    if (type != ncclInt8 || root < 0 || root >= comm->ranks) return ncclInvalidArgument;
    if (root == comm->rank) return spread(comm, stream, from, to, count);
    return add(comm, stream, (struct transfer){.peer = root, .data = to, .bytes = count});
}

/* ---- Communicators ---- */

EXPORTED ncclResult_t ncclGetVersion(int *version) {
    REFUSE();
    int old = planted("version");
    *version = old ? old : NCCL_VERSION_MIN + 1;
    return ncclSuccess;
}

EXPORTED const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {"no error",
                                        "unhandled CUDA error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};
    return texts[result];
}

EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static int made;
    REFUSE();
    const char *folder = getenv("TMPDIR");
    snprintf(id->internal, sizeof id->internal, "%.60s/ballast-nccl-double-%d-%d", folder ? folder : "/tmp",
             (int)getpid(), made++);
    int file = open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) return ncclSystemError;
    int error = ftruncate(file, sizeof(struct meeting));
    close(file);
    return error ? ncclSystemError : ncclSuccess;
}

static bool is_expected(const ncclConfig_t *config) {
    return config->size == sizeof *config && config->magic == NCCL_CONFIG_MAGIC && config->version >= 21700 &&
           config->blocking == 0 && config->cgaClusterSize == INT_MIN && config->minCTAs == INT_MIN &&
           config->maxCTAs == INT_MIN && !config->netName;
}

EXPORTED ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                             ncclConfig_t *config) {
    REFUSE();
    if (!is_expected(config) || ranks > RANKS_MAX || rank < 0 || rank >= ranks) return ncclInvalidArgument;
    int file = open(id.internal, O_RDWR);
    if (file < 0) return ncclSystemError;
    struct meeting *meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (meeting == MAP_FAILED || !comm) return ncclSystemError;
    *comm = (struct ncclComm){.meeting = meeting, .ranks = ranks, .rank = rank};
    if (atomic_fetch_add(&meeting->joined, 1) + 1 == ranks) unlink(id.internal);
    *out = comm;
    return ncclInProgress;
}

EXPORTED ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
    REFUSE();
    bool ready = atomic_load(&comm->meeting->joined) == comm->ranks && comm->queries++ > 0;
    *result = ready ? ncclSuccess : ncclInProgress;
    if (atomic_load(&comm->broken)) *result = ncclInvalidUsage;
    if (comm->worked && is_refused("error")) *result = ncclRemoteError;
    return ncclSuccess;
}

/* The device may still be at work with it: then it stays. */
static ncclResult_t leave(ncclComm_t comm, bool waits) {
    while (waits && atomic_load(&comm->queued) > 0)
        usleep(100);
    if (atomic_load(&comm->queued) > 0) return ncclSuccess;
    munmap(comm->meeting, sizeof *comm->meeting);
    free(comm);
    return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm) {
    REFUSE();
    atomic_store(&comm->ends, true);
    return leave(comm, false);
}

EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    REFUSE();
    return leave(comm, true);
}
