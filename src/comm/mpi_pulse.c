/* Pulses as messages, and what is made of silence. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/operation.h"

static const char *host_of(const struct mpi_comm *mpi, int rank) { return mpi->comm.host[rank]; }

/* An operation that lasts too long: who has not come to it, and does nothing? Of one that is not heard of either, its
 * silence says more. */
static void blame_for_wait(struct mpi_comm *mpi, double seconds, int64_t now_ns) {
    const struct pulse *pulse = &mpi->pulse.pulse;
    int hanging = pulse_hanging(pulse, now_ns);
    if (hanging >= 0 && now_ns - pulse->heard_ns[hanging] < pulse->timeout_ns / 2)
        mpi_fail(mpi, FAILURE_OF_RANK, hanging,
                 "rank %d on %s has kept the others waiting for %.0f s: it gets nowhere, and does not start what they "
                 "have started",
                 hanging, host_of(mpi, hanging), seconds);
}

/* All have come to it and still nothing moves: the network, or MPI. */
static void blame_nobody(struct mpi_comm *mpi, int64_t moved_ns, int64_t now_ns) {
    const struct pulse *pulse = &mpi->pulse.pulse;
    int64_t since = moved_ns > pulse->even_ns ? moved_ns : pulse->even_ns;
    if (pulse->even_ns >= 0 && now_ns - since > 2 * pulse->timeout_ns)
        mpi_fail(mpi, FAILURE_HERE, -1, "an operation between ranks has not moved for %.0f s",
                 (double)(now_ns - since) * 1e-9);
}

static void check_wait(struct mpi_comm *mpi, int64_t started_ns, int64_t moved_ns, int64_t now_ns) {
    if (now_ns - started_ns <= mpi->pulse.pulse.timeout_ns) return;
    blame_for_wait(mpi, (double)(now_ns - started_ns) * 1e-9, now_ns);
    blame_nobody(mpi, moved_ns, now_ns);
}

static void check_waiting(struct mpi_comm *mpi, int64_t now_ns) {
    for (struct operation *operation = mpi->active; operation; operation = operation->next)
        check_wait(mpi, operation->started_ns, operation->moved_ns, now_ns);
    if (mpi->exchange_ns > 0) check_wait(mpi, mpi->exchange_ns, mpi->exchange_ns, now_ns);
}

static int64_t cpu_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* Whether the rank did anything since it was last asked: its step moved on, or outside of one its other threads
 * computed, or this one moved an operation. */
static bool has_worked(struct mpi_comm *mpi, int64_t now_ns) {
    struct mpi_pulse *pulse = &mpi->pulse;
    int64_t others_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    bool computed = others_ns - pulse->others_ns > pulse->period_ns / 200, moved = mpi->moved;
    enum step_watch_answer step = step_watch_look(&mpi->comm.watch, mpi->active || mpi->exchange_ns > 0, now_ns);
    pulse->others_ns = others_ns;
    mpi->moved = false;
    return moved || (step == WATCH_NOT ? computed : step == WATCH_MOVES);
}

static void send_pulse(struct mpi_comm *mpi, struct mpi_pulse *pulse) {
    int turn = pulse->turn++ % pulse->distances;
    bool gone;
    if (mpi_check(mpi, mpi->wire->test(mpi->wire_context, pulse->send[turn], &gone)) != STATUS_OK || !gone) return;
    memcpy(pulse->sent + turn * pulse->pulse.ranks, pulse->pulse.entry,
           (size_t)pulse->pulse.ranks * sizeof *pulse->sent);
    (void)mpi_check(mpi, mpi->wire->start(mpi->wire_context, pulse->send[turn]));
}

static void receive_pulses(struct mpi_comm *mpi, struct mpi_pulse *pulse, int64_t now_ns) {
    for (int i = 0; i < pulse->distances; i++) {
        bool came;
        if (mpi_check(mpi, mpi->wire->test(mpi->wire_context, pulse->receive[i], &came)) != STATUS_OK) return;
        if (!came) continue;
        pulse_merge(&pulse->pulse, pulse->got + i * pulse->pulse.ranks, now_ns);
        (void)mpi_check(mpi, mpi->wire->start(mpi->wire_context, pulse->receive[i]));
    }
}

void mpi_keep_pulse(struct mpi_comm *mpi) {
    struct mpi_pulse *pulse = &mpi->pulse;
    int64_t now_ns = clock_now_ns();
    if (!pulse->beats && !pulse->ending) return;
    if (pulse->ending) receive_pulses(mpi, pulse, now_ns);
    if (now_ns < pulse->next_ns || pulse->ending) return;
    pulse->next_ns = now_ns + pulse->period_ns;
    receive_pulses(mpi, pulse, now_ns);
    pulse_beat(&pulse->pulse, atomic_load(&mpi->started), has_worked(mpi, now_ns), now_ns);
    send_pulse(mpi, pulse);
    int silent = pulse_silent(&pulse->pulse, now_ns);
    if (silent >= 0)
        mpi_fail(mpi, FAILURE_OF_RANK, silent, "rank %d on %s has not answered for %.0f s", silent,
                 host_of(mpi, silent), (double)(now_ns - pulse->pulse.heard_ns[silent]) * 1e-9);
    check_waiting(mpi, now_ns);
}

enum status mpi_begin_pulse(struct mpi_comm *mpi) {
    struct mpi_pulse *pulse = &mpi->pulse;
    int ranks = mesh_ranks(&mpi->comm.mesh), me = mpi->comm.rank;
    int64_t timeout_ns = (int64_t)(mpi->settings.rank_timeout_s * 1e9);
    TRY(pulse_create(ranks, me, timeout_ns, clock_now_ns(), &pulse->pulse));
    pulse->distances = pulse_distances(ranks);
    size_t count = (size_t)pulse->distances, bytes = (size_t)ranks * sizeof *pulse->sent;
    pulse->receive = mem_array(count, sizeof *pulse->receive);
    pulse->sent = mem_array(count, bytes);
    pulse->got = mem_array(count, bytes);
    pulse->send = mem_array(count, sizeof *pulse->send);
    if (!pulse->receive || !pulse->sent || !pulse->got || !pulse->send) return STATUS_FAILED;
    for (int i = 0; i < pulse->distances; i++) {
        struct wire_piece out = {pulse->sent + i * ranks, (int64_t)bytes},
                          in = {pulse->got + i * ranks, (int64_t)bytes};
        int to = (me + (1 << i)) % ranks, from = (me - (1 << i) + ranks) % ranks;
        TRY(mpi_check(mpi,
                      mpi->wire->request(mpi->wire_context, WIRE_SYNC_SEND, to, TAG_PULSE, &out, 1, &pulse->send[i])));
        TRY(mpi_check(
            mpi, mpi->wire->request(mpi->wire_context, WIRE_RECEIVE, from, TAG_PULSE, &in, 1, &pulse->receive[i])));
        TRY(mpi_check(mpi, mpi->wire->start(mpi->wire_context, pulse->receive[i])));
    }
    pulse->beats = pulse->distances > 0;
    return STATUS_OK;
}

static enum status meet_all(struct mpi_comm *mpi) {
    struct comm_group all = comm_group_all(&mpi->comm);
    char mine = 0, *said = mem_array((size_t)all.count, 1);
    if (!said) return STATUS_FAILED;
    enum status status = mpi_exchange(mpi, &all, &mine, 1, said);
    mem_free(said);
    return status;
}

/* No rank sends pulses any more; then all that were sent have come; then nobody waits for them. */
enum status mpi_end_pulse(struct mpi_comm *mpi) {
    struct mpi_pulse *pulse = &mpi->pulse;
    pulse->ending = true;
    TRY(meet_all(mpi));
    for (int i = 0; i < pulse->distances; i++)
        TRY(mpi_await(mpi, pulse->send[i]));
    TRY(meet_all(mpi));
    pulse->beats = pulse->ending = false;
    for (int i = 0; i < pulse->distances; i++) {
        mpi->wire->forget(mpi->wire_context, pulse->send[i]);
        mpi->wire->forget(mpi->wire_context, pulse->receive[i]);
    }
    return STATUS_OK;
}
