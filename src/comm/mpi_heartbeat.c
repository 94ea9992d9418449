/* Heartbeats as messages, and what is made of silence. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/operation.h"

static const char *host_of(const struct mpi_comm *mpi, int rank) { return mpi->comm.host[rank]; }

/* An operation that lasts too long: who has not come to it, and does nothing? Of one that is not heard of either, its
 * silence says more. */
static void blame_for_wait(struct mpi_comm *mpi, double seconds, int64_t now_ns) {
    const struct heartbeat *heartbeat = &mpi->heartbeat.heartbeat;
    int hanging = heartbeat_hanging(heartbeat, now_ns);
    if (hanging >= 0 && now_ns - heartbeat->heard_ns[hanging] < heartbeat->timeout_ns / 2)
        mpi_fail(mpi, FAILURE_OF_RANK, hanging,
                 "rank %d on %s has kept the others waiting for %.0f s: it gets nowhere, and does not start what they "
                 "have started",
                 hanging, host_of(mpi, hanging), seconds);
}

/* All have come to it and still nothing moves: the network, or MPI. */
static void blame_nobody(struct mpi_comm *mpi, int64_t moved_ns, int64_t now_ns) {
    const struct heartbeat *heartbeat = &mpi->heartbeat.heartbeat;
    int64_t since = moved_ns > heartbeat->even_ns ? moved_ns : heartbeat->even_ns;
    if (heartbeat->even_ns >= 0 && now_ns - since > 2 * heartbeat->timeout_ns)
        mpi_fail(mpi, FAILURE_HERE, -1, "an operation between ranks has not moved for %.0f s",
                 (double)(now_ns - since) * 1e-9);
}

static void check_wait(struct mpi_comm *mpi, int64_t started_ns, int64_t moved_ns, int64_t now_ns) {
    if (now_ns - started_ns <= mpi->heartbeat.heartbeat.timeout_ns) return;
    blame_for_wait(mpi, (double)(now_ns - started_ns) * 1e-9, now_ns);
    blame_nobody(mpi, moved_ns, now_ns);
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

static bool waits_for_others(struct mpi_comm *mpi) {
    return mpi->active || mpi->all_gather_ns > 0 || atomic_load(&mpi->outside_ns) > 0;
}

/* Whether the rank did anything since it was last asked: its step moved on, or outside of one its other threads
 * computed, or this one moved an operation. */
static bool has_worked(struct mpi_comm *mpi, int64_t now_ns) {
    struct mpi_heartbeat *heartbeat = &mpi->heartbeat;
    int64_t others_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    bool computed = others_ns - heartbeat->others_ns > heartbeat->period_ns / 200, moved = mpi->moved;
    enum step_watch_answer step = step_watch_look(&mpi->comm.watch, waits_for_others(mpi), now_ns);
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

void mpi_keep_heartbeat(struct mpi_comm *mpi) {
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
    char mine = 0, *votes = mem_array((size_t)all.count, 1);
    if (!votes) return STATUS_FAILED;
    enum status status = mpi_all_gather(mpi, &all, &mine, 1, votes);
    mem_free(votes);
    return status;
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
