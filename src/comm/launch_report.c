#include "comm/launch.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"

socklen_t launch_address(const char *name, struct sockaddr_un *out) {
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "%s", name); /* after a 0: a name in no filesystem */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(out->sun_path + 1));
}

struct seen_rank {
    int socket; /* -1: gone, or not there yet */
    bool joined, ended;
    int order; /* of its end among all */
    struct launch_record record;
};

struct launch_ranks_seen {
    char name[LAUNCH_NAME_BYTES];
    int listener, events, ranks, joined, ends;
    struct seen_rank *rank; /* in the order in which they joined */
    int stop;               /* the first signal that was passed on; 0: none */
    int64_t kill_ns;        /* when mpirun is killed, as no rank is left to end it; 0: not yet known */
    char output[4096];      /* the last part of mpirun's output */
    size_t output_bytes;
};

enum status launch_listen(int ranks, struct launch_ranks_seen **out, const char **name) {
    struct launch_ranks_seen *seen = mem_array(1, sizeof *seen);
    if (!seen) return STATUS_FAILED;
    seen->ranks = ranks;
    seen->listener = seen->events = -1;
    seen->rank = mem_array((size_t)ranks, sizeof *seen->rank);
    if (!seen->rank) {
        launch_unlisten(seen);
        return STATUS_FAILED;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mark = random_u64((uint64_t)now.tv_nsec, RANDOM_INIT, (uint32_t)getpid(), (uint64_t)now.tv_sec);
    launch_print_name(getpid(), mark, seen->name);
    struct sockaddr_un address;
    socklen_t length = launch_address(seen->name, &address);
    seen->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (seen->listener < 0 || bind(seen->listener, (struct sockaddr *)&address, length) != 0 ||
        listen(seen->listener, ranks) != 0) {
        enum status status = status_set(STATUS_FAILED, "no socket for the ranks: %s", strerror(errno));
        launch_unlisten(seen);
        return status;
    }
    *out = seen;
    *name = seen->name;
    return STATUS_OK;
}

void launch_unlisten(struct launch_ranks_seen *seen) {
    if (!seen) return;
    for (int i = 0; i < seen->joined; i++)
        if (seen->rank[i].socket >= 0) close(seen->rank[i].socket);
    if (seen->listener >= 0) close(seen->listener);
    if (seen->events >= 0) close(seen->events);
    mem_free(seen->rank);
    mem_free(seen);
}

static bool give_output(int socket) {
    int output[] = {STDOUT_FILENO, STDERR_FILENO};
    char byte = 0, control[CMSG_SPACE(sizeof output)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof output);
    memcpy(CMSG_DATA(header), output, sizeof output);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

static void accept_rank(struct launch_ranks_seen *seen) {
    int socket = accept4(seen->listener, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0) return;
    struct ucred peer;
    socklen_t length = sizeof peer;
    bool ours = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
    if (!ours || seen->joined == seen->ranks || !give_output(socket)) {
        close(socket);
        return;
    }
    seen->rank[seen->joined] = (struct seen_rank){.socket = socket, .record.rank = -1, .record.process = peer.pid};
    seen->joined++;
    if (seen->stop) kill(peer.pid, seen->stop);
}

static void end_rank(struct launch_ranks_seen *seen, struct seen_rank *rank, enum status status) {
    if (rank->ended) return;
    rank->ended = true;
    rank->order = seen->ends++;
    rank->record.status = status;
}

/* A rank that died without reporting. Before it joins, a signalled mpirun may have killed it, so it counts
 * as stopped. */
static void note_death(struct launch_ranks_seen *seen, struct seen_rank *rank) {
    struct launch_record *record = &rank->record;
    bool stopped = seen->stop && !rank->joined;
    end_rank(seen, rank, stopped ? status_of_signal(seen->stop) : STATUS_FAILED);
    if (stopped)
        snprintf(record->message, sizeof record->message, "stopped by signal %d before training began", seen->stop);
    else if (rank->joined)
        snprintf(record->message, sizeof record->message, "rank %d on %s (process %d) died", record->rank, record->host,
                 (int)record->process);
    else
        snprintf(record->message, sizeof record->message, "a rank (process %d) died before it joined the run",
                 (int)record->process);
}

/* A word of the rank's, or that it is gone. */
static void hear_rank(struct launch_ranks_seen *seen, struct seen_rank *rank) {
    struct launch_record record;
    ssize_t got = recv(rank->socket, &record, sizeof record, 0);
    if (got < 0 && errno == EINTR) return;
    if (got == (ssize_t)sizeof record) {
        if (rank->ended) return;
        rank->joined = true;
        rank->record = record;
        rank->record.host[sizeof record.host - 1] = '\0';
        if (record.ends) end_rank(seen, rank, record.status);
        return;
    }
    close(rank->socket);
    rank->socket = -1;
    if (!rank->ended) note_death(seen, rank);
}

static void keep_output(struct launch_ranks_seen *seen, int descriptor, bool *open) {
    char output[1024];
    ssize_t got = read(descriptor, output, sizeof output);
    if (got <= 0) {
        *open = got < 0 && errno == EINTR;
        return;
    }
    size_t max = sizeof seen->output - 1, more = (size_t)got;
    size_t drop = seen->output_bytes + more > max ? seen->output_bytes + more - max : 0;
    memmove(seen->output, seen->output + drop, seen->output_bytes - drop);
    memcpy(seen->output + seen->output_bytes - drop, output, more);
    seen->output_bytes += more - drop;
    seen->output[seen->output_bytes] = '\0';
}

/* Passes the signal on to every connected rank. mpirun itself gets SIGTERM where no rank can act on the signal. */
static void pass_signal(struct launch_ranks_seen *seen, const struct launch_started *started) {
    struct signalfd_siginfo info;
    if (read(started->signals, &info, sizeof info) != (ssize_t)sizeof info) return;
    int signalled = 0;
    if (!seen->stop) seen->stop = (int)info.ssi_signo;
    for (int i = 0; i < seen->joined; i++)
        if (seen->rank[i].socket >= 0 && !seen->rank[i].ended)
            signalled += kill(seen->rank[i].record.process, (int)info.ssi_signo) == 0;
    if (!signalled) kill(started->process, SIGTERM);
}

/* The source of an event: one of these, or a rank, as RANKS_FROM + its place. */
enum { OF_PROCESS, OF_LISTENER, OF_SIGNALS, OF_OUTPUT, RANKS_FROM };

static bool await_events(int events, int descriptor, uint64_t what) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = what};
    return epoll_ctl(events, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

static void handle_event(struct launch_ranks_seen *seen, const struct launch_started *started, uint64_t what,
                         bool *running) {
    bool output_open = true;
    int joined = seen->joined;
    if (what >= RANKS_FROM)
        hear_rank(seen, &seen->rank[what - RANKS_FROM]);
    else if (what == OF_LISTENER)
        accept_rank(seen);
    else if (what == OF_SIGNALS)
        pass_signal(seen, started);
    else if (what == OF_OUTPUT)
        keep_output(seen, started->output, &output_open);
    else
        *running = false;
    if (what == OF_PROCESS) epoll_ctl(seen->events, EPOLL_CTL_DEL, started->handle, NULL);
    if (!output_open) epoll_ctl(seen->events, EPOLL_CTL_DEL, started->output, NULL);
    if (seen->joined > joined) await_events(seen->events, seen->rank[joined].socket, RANKS_FROM + (uint64_t)joined);
}

static bool has_connected_rank(const struct launch_ranks_seen *seen) {
    for (int i = 0; i < seen->joined; i++)
        if (seen->rank[i].socket >= 0) return true;
    return false;
}

/* mpirun should end soon after its ranks are gone, or after a signal that came before any rank. It can hang instead, so
 * it is killed END_S later. Returns the milliseconds until then; -1: no limit. */
static int time_left_ms(struct launch_ranks_seen *seen) {
    enum { END_S = 10 };
    bool waits = has_connected_rank(seen) || (seen->joined == 0 && !seen->stop);
    if (waits) seen->kill_ns = 0;
    if (waits) return -1;
    int64_t now_ns = clock_now_ns();
    if (!seen->kill_ns) seen->kill_ns = now_ns + END_S * INT64_C(1000000000);
    return seen->kill_ns > now_ns ? (int)((seen->kill_ns - now_ns) / 1000000) + 1 : 0;
}

/* Handles one event at a time, by epoll, which reports them in the order of their arrival. A process's sockets are
 * closed before mpirun notices its end and kills the others, so the first rank that died is seen first. */
enum status launch_watch(struct launch_ranks_seen *seen, const struct launch_started *started, bool *killed) {
    enum { LINGER_MS = 200 }; /* after the end, for messages that are still in flight */
    seen->events = epoll_create1(EPOLL_CLOEXEC);
    bool running = seen->events >= 0 && await_events(seen->events, started->handle, OF_PROCESS) &&
                   await_events(seen->events, seen->listener, OF_LISTENER) &&
                   await_events(seen->events, started->signals, OF_SIGNALS) &&
                   await_events(seen->events, started->output, OF_OUTPUT);
    if (!running) return status_set(STATUS_FAILED, "epoll: %s", strerror(errno));
    *killed = false;
    for (;;) {
        struct epoll_event event;
        int ready = epoll_wait(seen->events, &event, 1, running ? time_left_ms(seen) : LINGER_MS);
        if (ready < 0 && errno != EINTR) return status_set(STATUS_FAILED, "epoll: %s", strerror(errno));
        if (ready == 0 && !running) return STATUS_OK;
        if (ready > 0) handle_event(seen, started, event.data.u64, &running);
        if (ready == 0 && !*killed) *killed = kill(-started->process, SIGKILL) == 0; /* its session's first group */
    }
}

enum status launch_first_failure(const struct launch_ranks_seen *seen, bool *all_joined) {
    const struct seen_rank *first = NULL;
    for (int i = 0; i < seen->joined; i++) {
        const struct seen_rank *rank = &seen->rank[i];
        if (rank->ended && rank->record.status != STATUS_OK && (!first || rank->order < first->order)) first = rank;
    }
    *all_joined = seen->joined == seen->ranks;
    if (!first && seen->stop && !*all_joined)
        return status_set(status_of_signal(seen->stop), "stopped by signal %d before training began", seen->stop);
    if (!first) return STATUS_OK;
    enum status status =
        status_set(first->record.status, "%.*s", (int)sizeof first->record.message - 1, first->record.message);
    if (first->record.hint[0]) status_hint(status, "%.*s", (int)sizeof first->record.hint - 1, first->record.hint);
    return status;
}

bool launch_was_signalled(const struct launch_ranks_seen *seen) { return seen->stop != 0; }

const char *launch_last_output(const struct launch_ranks_seen *seen) { return seen->output; }
