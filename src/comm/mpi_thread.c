/* The one thread that makes the calls of the wire. */
#include <sched.h>
#include <stdarg.h>
#include <time.h>

#include "base/clock.h"
#include "comm/mpi_comm.h"

enum { TIMES_THE_LONGEST = 10 };

void step_watch_begin(struct step_watch *watch, double patience_s) {
    atomic_store(&watch->patience_ns, (int64_t)(patience_s * 1e9));
    step_watch_note(watch);
    atomic_store(&watch->steps, true);
}

void step_watch_end(struct step_watch *watch) { atomic_store(&watch->steps, false); }

void step_watch_hold(struct step_watch *watch) { atomic_fetch_add(&watch->held, 1); }

void step_watch_release(struct step_watch *watch) {
    step_watch_note(watch);
    atomic_fetch_sub(&watch->held, 1);
}

/* If it moves between any two looks, it was never seen standing still. */
static void note_move(struct step_watch *watch, unsigned ended, bool watched, int64_t now_ns) {
    int64_t stood_ns = watch->looked_ns - watch->moved_ns;
    if (watched && watch->watched && !watch->waited && stood_ns > watch->longest_ns) watch->longest_ns = stood_ns;
    watch->seen = ended;
    watch->moved_ns = now_ns;
    watch->watched = watched;
    watch->waited = false;
}

enum step_watch_answer step_watch_look(struct step_watch *watch, bool waits, int64_t now_ns) {
    bool watched = atomic_load(&watch->steps) && atomic_load(&watch->held) == 0;
    unsigned ended = atomic_load(&watch->ended);
    if (ended != watch->seen || watched != watch->watched) note_move(watch, ended, watched, now_ns);
    watch->waited |= waits;
    watch->looked_ns = now_ns;
    if (!watched) return WATCH_NOT;
    int64_t patience_ns = atomic_load(&watch->patience_ns), longest_ns = TIMES_THE_LONGEST * watch->longest_ns;
    if (longest_ns > patience_ns) patience_ns = longest_ns;
    return now_ns - watch->moved_ns > patience_ns ? WATCH_STANDS : WATCH_MOVES;
}

enum status heartbeat_create(int ranks, int me, int64_t timeout_ns, int64_t now_ns, struct heartbeat *out) {
    struct heartbeat heartbeat = {.ranks = ranks,
                                  .me = me,
                                  .entry = mem_array((size_t)ranks, sizeof *heartbeat.entry),
                                  .heard_ns = mem_array((size_t)ranks, sizeof *heartbeat.heard_ns),
                                  .worked_ns = mem_array((size_t)ranks, sizeof *heartbeat.worked_ns),
                                  .even_ns = now_ns,
                                  .timeout_ns = timeout_ns};
    if (!heartbeat.entry || !heartbeat.heard_ns || !heartbeat.worked_ns) {
        heartbeat_free(&heartbeat);
        return STATUS_FAILED;
    }
    for (int rank = 0; rank < ranks; rank++)
        heartbeat.heard_ns[rank] = heartbeat.worked_ns[rank] = now_ns;
    *out = heartbeat;
    return STATUS_OK;
}

void heartbeat_free(struct heartbeat *heartbeat) {
    mem_free(heartbeat->entry);
    mem_free(heartbeat->heard_ns);
    mem_free(heartbeat->worked_ns);
    *heartbeat = (struct heartbeat){0};
}

void heartbeat_beat(struct heartbeat *heartbeat, uint32_t started, bool worked, int64_t now_ns) {
    struct heartbeat_entry *mine = &heartbeat->entry[heartbeat->me];
    bool was_stopped = now_ns - heartbeat->heard_ns[heartbeat->me] > heartbeat->timeout_ns / 2;
    for (int rank = 0; was_stopped && rank < heartbeat->ranks; rank++)
        heartbeat->heard_ns[rank] = heartbeat->worked_ns[rank] = now_ns;
    mine->beat++;
    mine->started = started;
    mine->worked += worked;
    heartbeat->heard_ns[heartbeat->me] = now_ns;
    if (worked) heartbeat->worked_ns[heartbeat->me] = now_ns;
    if (heartbeat_behind(heartbeat) >= 0)
        heartbeat->even_ns = -1;
    else if (heartbeat->even_ns < 0)
        heartbeat->even_ns = now_ns;
}

void heartbeat_merge(struct heartbeat *heartbeat, const struct heartbeat_entry *theirs, int64_t now_ns) {
    for (int rank = 0; rank < heartbeat->ranks; rank++) {
        if (rank == heartbeat->me || (int32_t)(theirs[rank].beat - heartbeat->entry[rank].beat) <= 0) continue;
        bool moved = theirs[rank].worked != heartbeat->entry[rank].worked ||
                     theirs[rank].started != heartbeat->entry[rank].started;
        heartbeat->entry[rank] = theirs[rank];
        heartbeat->heard_ns[rank] = now_ns;
        if (moved) heartbeat->worked_ns[rank] = now_ns;
    }
}

int heartbeat_silent(const struct heartbeat *heartbeat, int64_t now_ns) {
    for (int rank = 0; rank < heartbeat->ranks; rank++)
        if (rank != heartbeat->me && now_ns - heartbeat->heard_ns[rank] > heartbeat->timeout_ns) return rank;
    return -1;
}

/* Less than 0: the rank has started fewer than the other. */
static int32_t started_beyond(const struct heartbeat *heartbeat, int rank, int other) {
    return (int32_t)(heartbeat->entry[rank].started - heartbeat->entry[other].started);
}

int heartbeat_behind(const struct heartbeat *heartbeat) {
    int slowest = heartbeat->me;
    for (int rank = 0; rank < heartbeat->ranks; rank++)
        if (started_beyond(heartbeat, rank, slowest) < 0) slowest = rank;
    return slowest == heartbeat->me ? -1 : slowest;
}

int heartbeat_hanging(const struct heartbeat *heartbeat, int64_t now_ns) {
    int slowest = heartbeat_behind(heartbeat);
    for (int rank = 0; rank < heartbeat->ranks && slowest >= 0; rank++)
        if (started_beyond(heartbeat, rank, slowest) == 0 &&
            now_ns - heartbeat->worked_ns[rank] > heartbeat->timeout_ns)
            return rank;
    return -1;
}

int heartbeat_distances(int ranks) {
    int count = 0;
    while (1 << count < ranks)
        count++;
    return count;
}

static enum status mpi_await(struct mpi_comm *mpi, int request);

/* Sends heartbeats as messages, and reports silent ranks. */

static const char *host_of(const struct mpi_comm *mpi, int rank) { return mpi->comm.host[rank]; }

/* Called if an operation lasts too long. Finds ranks that have not reached it and do nothing. A rank that sends no
 * heartbeat either is reported as silent instead. If all have reached it and nothing moves, the network or MPI is at
 * fault. */
static void check_wait(struct mpi_comm *mpi, int64_t started_ns, int64_t moved_ns, int64_t now_ns) {
    const struct heartbeat *heartbeat = &mpi->heartbeat.heartbeat;
    if (now_ns - started_ns <= heartbeat->timeout_ns) return;
    int hanging = heartbeat_hanging(heartbeat, now_ns);
    if (hanging >= 0 && now_ns - heartbeat->heard_ns[hanging] < heartbeat->timeout_ns / 2)
        mpi_fail(mpi, FAILURE_OF_RANK, hanging,
                 "rank %d on %s has kept the others waiting for %.0f s: it gets nowhere, and does not start what they "
                 "have started",
                 hanging, host_of(mpi, hanging), (double)(now_ns - started_ns) * 1e-9);
    int64_t since_ns = moved_ns > heartbeat->even_ns ? moved_ns : heartbeat->even_ns;
    if (heartbeat->even_ns >= 0 && now_ns - since_ns > 2 * heartbeat->timeout_ns)
        mpi_fail(mpi, FAILURE_HERE, -1, "an operation between ranks has not moved for %.0f s",
                 (double)(now_ns - since_ns) * 1e-9);
}

static void check_waiting(struct mpi_comm *mpi, int64_t now_ns) {
    for (struct operation *operation = mpi->active; operation; operation = operation->next)
        check_wait(mpi, operation->started_ns, operation->moved_ns, now_ns);
    if (mpi->all_gather_ns > 0) check_wait(mpi, mpi->all_gather_ns, mpi->all_gather_ns, now_ns);
    int64_t outside_ns = atomic_load(&mpi->outside_ns);
    if (outside_ns > 0) check_wait(mpi, outside_ns, outside_ns, now_ns);
}

static int64_t cpu_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* Whether the rank did anything since it was last asked: its step moved on, or outside of one its other threads
 * computed, or this one moved an operation. */
static bool has_worked(struct mpi_comm *mpi, int64_t now_ns) {
    struct mpi_heartbeat *heartbeat = &mpi->heartbeat;
    int64_t others_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    bool computed = others_ns - heartbeat->others_ns > heartbeat->period_ns / 200, moved = mpi->moved;
    bool waits = mpi->active || mpi->all_gather_ns > 0 || atomic_load(&mpi->outside_ns) > 0;
    enum step_watch_answer step = step_watch_look(&mpi->comm.watch, waits, now_ns);
    heartbeat->others_ns = others_ns;
    mpi->moved = false;
    return moved || (step == WATCH_NOT ? computed : step == WATCH_MOVES);
}

static void send_heartbeat(struct mpi_comm *mpi, struct mpi_heartbeat *heartbeat) {
    int turn = heartbeat->turn++ % heartbeat->distances;
    bool gone;
    if (mpi_check(mpi, mpi->wire->test(mpi->wire_context, heartbeat->send[turn], &gone)) != STATUS_OK || !gone) return;
    memcpy(heartbeat->sent + turn * heartbeat->heartbeat.ranks, heartbeat->heartbeat.entry,
           (size_t)heartbeat->heartbeat.ranks * sizeof *heartbeat->sent);
    (void)mpi_check(mpi, mpi->wire->start(mpi->wire_context, heartbeat->send[turn]));
}

static void receive_heartbeats(struct mpi_comm *mpi, struct mpi_heartbeat *heartbeat, int64_t now_ns) {
    for (int i = 0; i < heartbeat->distances; i++) {
        bool came;
        if (mpi_check(mpi, mpi->wire->test(mpi->wire_context, heartbeat->receive[i], &came)) != STATUS_OK) return;
        if (!came) continue;
        heartbeat_merge(&heartbeat->heartbeat, heartbeat->got + i * heartbeat->heartbeat.ranks, now_ns);
        (void)mpi_check(mpi, mpi->wire->start(mpi->wire_context, heartbeat->receive[i]));
    }
}

static void mpi_keep_heartbeat(struct mpi_comm *mpi) {
    struct mpi_heartbeat *heartbeat = &mpi->heartbeat;
    int64_t now_ns = clock_now_ns();
    if (!heartbeat->beats && !heartbeat->ending) return;
    if (heartbeat->ending) receive_heartbeats(mpi, heartbeat, now_ns);
    if (now_ns < heartbeat->next_ns || heartbeat->ending) return;
    heartbeat->next_ns = now_ns + heartbeat->period_ns;
    receive_heartbeats(mpi, heartbeat, now_ns);
    heartbeat_beat(&heartbeat->heartbeat, atomic_load(&mpi->started), has_worked(mpi, now_ns), now_ns);
    send_heartbeat(mpi, heartbeat);
    int silent = heartbeat_silent(&heartbeat->heartbeat, now_ns);
    if (silent >= 0)
        mpi_fail(mpi, FAILURE_OF_RANK, silent, "rank %d on %s has not answered for %.0f s", silent,
                 host_of(mpi, silent), (double)(now_ns - heartbeat->heartbeat.heard_ns[silent]) * 1e-9);
    check_waiting(mpi, now_ns);
}

enum status mpi_begin_heartbeat(struct mpi_comm *mpi) {
    struct mpi_heartbeat *heartbeat = &mpi->heartbeat;
    int ranks = mesh_ranks(&mpi->comm.mesh), me = mpi->comm.rank;
    int64_t timeout_ns = (int64_t)(mpi->settings.rank_timeout_s * 1e9);
    TRY(heartbeat_create(ranks, me, timeout_ns, clock_now_ns(), &heartbeat->heartbeat));
    heartbeat->distances = heartbeat_distances(ranks);
    size_t count = (size_t)heartbeat->distances, bytes = (size_t)ranks * sizeof *heartbeat->sent;
    heartbeat->receive = mem_array(count, sizeof *heartbeat->receive);
    heartbeat->sent = mem_array(count, bytes);
    heartbeat->got = mem_array(count, bytes);
    heartbeat->send = mem_array(count, sizeof *heartbeat->send);
    if (!heartbeat->receive || !heartbeat->sent || !heartbeat->got || !heartbeat->send) return STATUS_FAILED;
    for (int i = 0; i < heartbeat->distances; i++) {
        struct wire_piece out = {heartbeat->sent + i * ranks, (int64_t)bytes},
                          in = {heartbeat->got + i * ranks, (int64_t)bytes};
        int to = (me + (1 << i)) % ranks, from = (me - (1 << i) + ranks) % ranks;
        TRY(mpi_check(mpi, mpi->wire->request(mpi->wire_context, WIRE_SYNC_SEND, to, TAG_HEARTBEAT, &out, 1,
                                              &heartbeat->send[i])));
        TRY(mpi_check(mpi, mpi->wire->request(mpi->wire_context, WIRE_RECEIVE, from, TAG_HEARTBEAT, &in, 1,
                                              &heartbeat->receive[i])));
        TRY(mpi_check(mpi, mpi->wire->start(mpi->wire_context, heartbeat->receive[i])));
    }
    heartbeat->beats = heartbeat->distances > 0;
    return STATUS_OK;
}

static enum status meet_all(struct mpi_comm *mpi) {
    struct comm_group all = comm_group_all(&mpi->comm);
    char mine = 0;
    AUTO_FREE char *votes = mem_array((size_t)all.count, 1);
    if (!votes) return STATUS_FAILED;
    return mpi_all_gather(mpi, &all, &mine, 1, votes);
}

/* No rank sends heartbeats any more; then all that were sent have come; then nobody waits for them. */
enum status mpi_end_heartbeat(struct mpi_comm *mpi) {
    struct mpi_heartbeat *heartbeat = &mpi->heartbeat;
    heartbeat->ending = true;
    TRY(meet_all(mpi));
    for (int i = 0; i < heartbeat->distances; i++)
        TRY(mpi_await(mpi, heartbeat->send[i]));
    TRY(meet_all(mpi));
    heartbeat->beats = heartbeat->ending = false;
    for (int i = 0; i < heartbeat->distances; i++) {
        mpi->wire->forget(mpi->wire_context, heartbeat->send[i]);
        mpi->wire->forget(mpi->wire_context, heartbeat->receive[i]);
    }
    return STATUS_OK;
}

/* ---- Failure ---- */

void mpi_fail(struct mpi_comm *mpi, enum status_failure failure, int rank, const char *format, ...) {
    pthread_mutex_lock(&mpi->mutex);
    if (atomic_load(&mpi->failure) == FAILURE_NONE) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(mpi->failure_text, sizeof mpi->failure_text, format, arguments);
        va_end(arguments);
        mpi->failed_rank = rank;
        atomic_store(&mpi->failure, failure);
    }
    pthread_mutex_unlock(&mpi->mutex);
}

enum status mpi_failed(struct mpi_comm *mpi) { return status_set(STATUS_FAILED, "%s", mpi->failure_text); }

enum status mpi_check(struct mpi_comm *mpi, const char *trouble) {
    if (!trouble) return STATUS_OK;
    mpi_fail(mpi, FAILURE_HERE, -1, "%s: %s", mpi->wire->name, trouble);
    return mpi_failed(mpi);
}

/* ---- The thread ---- */

/* Waits between looks at the others: spins, yields, then sleeps up to MAX_NS. Other ranks and the compute threads may
 * need this processor. */
static void back_off(int *idle) {
    enum { SPINS = 50, YIELDS = 100, MIN_NS = 10000, MAX_NS = 200000 };
    int turn = (*idle)++;
    if (turn < SPINS) return;
    if (turn < YIELDS) {
        sched_yield();
        return;
    }
    long ns = MIN_NS * (1l + (turn - YIELDS) / 8);
    nanosleep(&(struct timespec){0, ns < MAX_NS ? ns : MAX_NS}, NULL);
}

/* Moves everything on that can be; whether anything did. */
static bool progress(struct mpi_comm *mpi) {
    bool moved = false;
    int abort_status = atomic_load(&mpi->abort_status);
    if (abort_status) mpi->wire->abort(mpi->wire_context, abort_status);
    pthread_mutex_lock(&mpi->mutex);
    struct operation **end = &mpi->active;
    while (*end)
        end = &(*end)->next;
    *end = mpi->queue;
    mpi->queue = NULL;
    mpi->queue_end = &mpi->queue;
    pthread_mutex_unlock(&mpi->mutex);
    mpi_keep_heartbeat(mpi);
    for (struct operation **link = &mpi->active; *link;) {
        struct operation *operation = *link;
        bool failed = atomic_load(&mpi->failure) != FAILURE_NONE;
        if (!failed && operation_advance(operation)) {
            operation->moved_ns = clock_now_ns();
            moved = mpi->moved = true;
        }
        if (!failed && operation->at < operation->schedule.steps.count) {
            link = &operation->next;
            continue;
        }
        *link = operation->next;
        pthread_mutex_lock(&mpi->mutex);
        atomic_store(&operation->state, failed ? OPERATION_FAILED : OPERATION_IDLE);
        pthread_cond_broadcast(&mpi->over);
        pthread_mutex_unlock(&mpi->mutex);
        moved = true;
    }
    return moved;
}

/* For tasks: waits for a request, while operations move on. */
static enum status mpi_await(struct mpi_comm *mpi, int request) {
    for (int idle = 0;;) {
        bool done;
        TRY(mpi_check(mpi, mpi->wire->test(mpi->wire_context, request, &done)));
        if (done) return STATUS_OK;
        if (progress(mpi)) idle = 0;
        if (atomic_load(&mpi->failure) != FAILURE_NONE) return mpi_failed(mpi);
        back_off(&idle);
    }
}

static void run_task(struct mpi_comm *mpi, struct mpi_task *task) {
    status_save(task->run(mpi, task->argument), &task->end);
    pthread_mutex_lock(&mpi->mutex);
    task->done = true;
    mpi->task = NULL;
    pthread_cond_broadcast(&mpi->over);
    pthread_mutex_unlock(&mpi->mutex);
}

/* Sleeps until there is something to do, or a heartbeat is due. */
static struct mpi_task *wait_for_work(struct mpi_comm *mpi, bool *ending) {
    pthread_mutex_lock(&mpi->mutex);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + mpi->heartbeat.period_ns;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    int waited = 0;
    while (!mpi->active && !mpi->queue && !mpi->task && !mpi->ending && !atomic_load(&mpi->abort_status) && waited == 0)
        waited = pthread_cond_timedwait(&mpi->wake, &mpi->mutex, &until);
    struct mpi_task *task = mpi->task;
    *ending = mpi->ending;
    pthread_mutex_unlock(&mpi->mutex);
    return task;
}

void *mpi_serve(void *argument) {
    struct mpi_comm *mpi = argument;
    bool ending = false;
    for (int idle = 0; !ending;) {
        struct mpi_task *task = wait_for_work(mpi, &ending);
        if (task) run_task(mpi, task);
        if (progress(mpi) || task)
            idle = 0;
        else if (mpi->active)
            back_off(&idle);
    }
    return NULL;
}

enum status mpi_run_task(struct mpi_comm *mpi, enum status (*run)(struct mpi_comm *mpi, void *argument),
                         void *argument) {
    struct mpi_task task = {.run = run, .argument = argument};
    pthread_mutex_lock(&mpi->mutex);
    while (mpi->task)
        pthread_cond_wait(&mpi->over, &mpi->mutex);
    mpi->task = &task;
    pthread_cond_signal(&mpi->wake);
    while (!task.done)
        pthread_cond_wait(&mpi->over, &mpi->mutex);
    pthread_mutex_unlock(&mpi->mutex);
    return status_restore(&task.end);
}

/* ---- All-gathers ---- */

struct all_gather {
    struct comm_group group;
    const void *mine;
    size_t bytes;
    char *all;
};

static enum status add_request(struct mpi_comm *mpi, enum wire_kind kind, int rank, void *data, size_t bytes,
                               int *request) {
    struct wire_piece piece = {data, (int64_t)bytes};
    TRY(mpi_check(mpi, mpi->wire->request(mpi->wire_context, kind, rank, TAG_ALL_GATHER, &piece, 1, request)));
    return mpi_check(mpi, mpi->wire->start(mpi->wire_context, *request));
}

static enum status post_all_gather(struct mpi_comm *mpi, const struct all_gather *all_gather, int me, int *requests) {
    int count = all_gather->group.count;
    for (int i = 1; i < count; i++) {
        int from = (me - i + count) % count;
        TRY(add_request(mpi, WIRE_RECEIVE, mesh_group_rank(&all_gather->group, from),
                        all_gather->all + (size_t)from * all_gather->bytes, all_gather->bytes, &requests[2 * i]));
    }
    for (int i = 1; i < count; i++)
        TRY(add_request(mpi, WIRE_SEND, mesh_group_rank(&all_gather->group, (me + i) % count),
                        all_gather->all + (size_t)me * all_gather->bytes, all_gather->bytes, &requests[2 * i + 1]));
    return STATUS_OK;
}

static enum status run_all_gather(struct mpi_comm *mpi, void *argument) {
    const struct all_gather *all_gather = argument;
    int me = mesh_group_position(&all_gather->group, mpi->comm.rank), count = 2 * all_gather->group.count;
    int *requests = mpi->all_gather_requests;
    for (int i = 0; i < count; i++)
        requests[i] = -1;
    memmove(all_gather->all + (size_t)me * all_gather->bytes, all_gather->mine, all_gather->bytes);
    atomic_fetch_add(&mpi->started, 1);
    mpi->all_gather_ns = clock_now_ns();
    enum status status = post_all_gather(mpi, all_gather, me, requests);
    for (int i = 0; i < count && status == STATUS_OK; i++)
        if (requests[i] >= 0) status = mpi_await(mpi, requests[i]);
    mpi->all_gather_ns = 0;
    /* After a failure they stay: their other ends may never come. */
    for (int i = 0; i < count && status == STATUS_OK; i++)
        if (requests[i] >= 0) mpi->wire->forget(mpi->wire_context, requests[i]);
    return status;
}

enum status mpi_all_gather(struct mpi_comm *mpi, const struct comm_group *group, const void *mine, size_t bytes,
                           void *all) {
    return run_all_gather(mpi, &(struct all_gather){*group, mine, bytes, all});
}

enum status mpi_run_all_gather(struct mpi_comm *mpi, const struct comm_group *group, const void *mine, size_t bytes,
                               void *all) {
    return mpi_run_task(mpi, run_all_gather, &(struct all_gather){*group, mine, bytes, all});
}
