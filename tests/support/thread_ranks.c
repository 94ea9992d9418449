#include "support/thread_ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "comm/comm.h"

enum { REQUESTS_MAX = 4096, PIECES_MAX = 64 };

struct thread_request {
    bool made, active;
    enum wire_kind kind;
    int peer, tag, count;
    struct wire_piece pieces[PIECES_MAX];
    uint64_t turn; /* of its start, among all of the world */
};

struct world;
struct rank {
    struct world *world;
    int rank;
    struct thread_request *requests;
    int used;
    pthread_t thread;
    enum status status;
    char message[600];
};

struct world {
    const struct thread_ranks *settings;
    pthread_mutex_t mutex;
    uint64_t turns, draws;
    int number[THREAD_RANKS_MAX]; /* rank of each thread after renumber */
    struct rank rank[THREAD_RANKS_MAX];
};

static const char *wire_open(void *context, struct wire_world *out) {
    struct rank *rank = context;
    *out = (struct wire_world){.rank = rank->rank, .ranks = rank->world->settings->ranks, .library = "threads"};
    snprintf(out->host, sizeof out->host, "thread%d", rank->rank);
    return NULL;
}

static const char *find_machines(void *context, int *machine) {
    struct rank *rank = context;
    for (int i = 0; i < rank->world->settings->ranks; i++)
        machine[i] = 0;
    return NULL;
}

static const char *renumber(void *context, int number) {
    struct rank *rank = context;
    if (number != rank->rank) abort(); /* one machine: nothing to renumber */
    return NULL;
}

static const char *make_request(void *context, enum wire_kind kind, int peer, int tag, const struct wire_piece *pieces,
                                int count, int *out) {
    struct rank *rank = context;
    pthread_mutex_lock(&rank->world->mutex);
    int place = 0;
    while (place < REQUESTS_MAX && rank->requests[place].made)
        place++;
    if (place == REQUESTS_MAX || count > PIECES_MAX) abort();
    struct thread_request *request = &rank->requests[place];
    *request = (struct thread_request){.made = true, .kind = kind, .peer = peer, .tag = tag, .count = count};
    if (count) memcpy(request->pieces, pieces, (size_t)count * sizeof *pieces);
    if (place >= rank->used) rank->used = place + 1;
    *out = place;
    pthread_mutex_unlock(&rank->world->mutex);
    return NULL;
}

/* The first active request of `rank` that matches, NULL if none. */
static struct thread_request *find_match(struct rank *rank, int peer, int tag, bool receive) {
    struct thread_request *first = NULL;
    for (int i = 0; i < rank->used; i++) {
        struct thread_request *request = &rank->requests[i];
        if (!request->made || !request->active || request->peer != peer || request->tag != tag) continue;
        if ((request->kind == WIRE_RECEIVE) != receive) continue;
        if (!first || request->turn < first->turn) first = request;
    }
    return first;
}

static const char *start_request(void *context, int index) {
    struct rank *rank = context;
    struct thread_request *request = &rank->requests[index];
    pthread_mutex_lock(&rank->world->mutex);
    if (request->active) abort();
    if (request->kind == WIRE_READY_SEND) {
        struct rank *peer = &rank->world->rank[request->peer];
        int posted = 0, sent = 0; /* each earlier one takes a receive */
        for (int i = 0; i < peer->used; i++) {
            const struct thread_request *r = &peer->requests[i];
            posted +=
                r->made && r->active && r->kind == WIRE_RECEIVE && r->peer == rank->rank && r->tag == request->tag;
        }
        for (int i = 0; i < rank->used; i++) {
            const struct thread_request *r = &rank->requests[i];
            sent +=
                r->made && r->active && r->kind != WIRE_RECEIVE && r->peer == request->peer && r->tag == request->tag;
        }
        if (posted <= sent) {
            fprintf(stderr, "rank %d sends to %d before the receive is posted\n", rank->rank, request->peer);
            abort();
        }
    }
    request->active = true;
    request->turn = rank->world->turns++;
    pthread_mutex_unlock(&rank->world->mutex);
    return NULL;
}

static int64_t bytes_of(const struct thread_request *request) {
    int64_t bytes = 0;
    for (int i = 0; i < request->count; i++)
        bytes += request->pieces[i].bytes;
    return bytes;
}

static void carry(const struct thread_request *from, const struct thread_request *to) {
    if (bytes_of(from) != bytes_of(to)) {
        fprintf(stderr, "a message of %lld bytes, a receive of %lld\n", (long long)bytes_of(from),
                (long long)bytes_of(to));
        abort();
    }
    int i = 0, j = 0;
    int64_t done_i = 0, done_j = 0;
    while (i < from->count && j < to->count) {
        int64_t left = from->pieces[i].bytes - done_i, space = to->pieces[j].bytes - done_j;
        int64_t bytes = left < space ? left : space;
        memcpy((char *)to->pieces[j].address + done_j, (char *)from->pieces[i].address + done_i, (size_t)bytes);
        done_i += bytes;
        done_j += bytes;
        if (done_i == from->pieces[i].bytes) i++, done_i = 0;
        if (done_j == to->pieces[j].bytes) j++, done_j = 0;
    }
}

static const char *test_request(void *context, int index, bool *done) {
    struct rank *rank = context;
    struct world *world = rank->world;
    struct thread_request *request = &rank->requests[index];
    pthread_mutex_lock(&world->mutex);
    bool late = random_u64(world->settings->seed, RANDOM_TEST, 1, world->draws++) % 4 == 0;
    struct thread_request *first =
        request->active ? find_match(rank, request->peer, request->tag, request->kind == WIRE_RECEIVE) : NULL;
    struct thread_request *other =
        first ? find_match(&world->rank[request->peer], rank->rank, request->tag, request->kind != WIRE_RECEIVE) : NULL;
    if (first == request && other && !late) {
        carry(request->kind == WIRE_RECEIVE ? other : request, request->kind == WIRE_RECEIVE ? request : other);
        request->active = other->active = false;
    }
    *done = !request->active;
    pthread_mutex_unlock(&world->mutex);
    return NULL;
}

static void forget_request(void *context, int index) {
    struct rank *rank = context;
    pthread_mutex_lock(&rank->world->mutex);
    rank->requests[index].made = false;
    pthread_mutex_unlock(&rank->world->mutex);
}

static void wire_abort(void *context, int status) {
    (void)context, (void)status;
    abort();
}

static const char *wire_close(void *context) {
    (void)context;
    return NULL;
}

static const struct wire thread_wire = {
    .version = WIRE_VERSION,
    .name = "threads",
    .open = wire_open,
    .find_machines = find_machines,
    .renumber = renumber,
    .request = make_request,
    .start = start_request,
    .test = test_request,
    .forget = forget_request,
    .abort = wire_abort,
    .close = wire_close,
};

static enum status run_rank(struct rank *rank) {
    const struct thread_ranks *settings = rank->world->settings;
    struct comm *comm;
    TRY(mpi_comm_open(&thread_wire, rank, &settings->settings, &comm));
    enum status status = settings->body(comm, settings->payload);
    char message[600];
    snprintf(message, sizeof message, "%s", status_message());
    if (status != STATUS_OK && !settings->may_fail) {
        fprintf(stderr, "%s\n", message);
        _exit(1);
    }
    enum status closed = comm_close(comm);
    if (status != STATUS_OK) return status_set(status, "%s", message);
    return closed;
}

static void *enter(void *argument) {
    struct rank *rank = argument;
    rank->status = run_rank(rank);
    if (rank->status != STATUS_OK) snprintf(rank->message, sizeof rank->message, "%s", status_message());
    return NULL;
}

enum status thread_ranks_run(const struct thread_ranks *settings) {
    static struct world world;
    world = (struct world){.settings = settings};
    pthread_mutex_init(&world.mutex, NULL);
    for (int i = 0; i < settings->ranks; i++) {
        world.rank[i].world = &world;
        world.rank[i].rank = i;
        world.rank[i].requests = calloc(REQUESTS_MAX, sizeof *world.rank[i].requests);
    }
    for (int i = 0; i < settings->ranks; i++)
        pthread_create(&world.rank[i].thread, NULL, enter, &world.rank[i]);
    for (int i = 0; i < settings->ranks; i++)
        pthread_join(world.rank[i].thread, NULL);
    enum status status = STATUS_OK;
    for (int i = 0; i < settings->ranks; i++) {
        free(world.rank[i].requests);
        if (status != STATUS_OK || world.rank[i].status == STATUS_OK) continue;
        status = status_set(world.rank[i].status, "rank %d: %s", i, world.rank[i].message);
    }
    return status;
}
