/* A rank and the process that launched it. */
#include "comm/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/launch_report.h"
#include "comm/mpi_library.h"

static int parent = -1;

/* Filled in when it joins: signal handlers send it too. */
static struct launch_record own;

static bool send_own(void) { return send(parent, &own, sizeof own, MSG_NOSIGNAL) == (ssize_t)sizeof own; }

static bool send_joined(void) {
    own = (struct launch_record){.rank = mpi_library_launched_rank(), .process = getpid()};
    if (gethostname(own.host, sizeof own.host - 1) != 0) own.host[0] = '\0';
    return send_own();
}

/* The parent's standard output and error in place of mpirun's pipes. */
static bool take_output(void) {
    enum { OUTPUTS = 2 };
    char byte, control[CMSG_SPACE(OUTPUTS * sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(parent, &message, MSG_CMSG_CLOEXEC) != 1) return false;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int output[OUTPUTS];
    if (!header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof output)) return false;
    memcpy(output, CMSG_DATA(header), sizeof output);
    bool taken = dup2(output[0], STDOUT_FILENO) >= 0 && dup2(output[1], STDERR_FILENO) >= 0;
    close(output[0]);
    close(output[1]);
    return taken;
}

/* Of a process that dies Linux closes the files with high numbers first: the parent hears of it before mpirun does,
 * which then kills the other ranks. */
static void close_first(int *descriptor) {
    int high = fcntl(*descriptor, F_DUPFD_CLOEXEC, 900); /* 1024 is the usual limit */
    if (high < 0) return;
    close(*descriptor);
    *descriptor = high;
}

bool launch_is_rank(void) { return getenv(LAUNCH_VARIABLE) != NULL; }

enum status launch_join(void) {
    const char *name = getenv(LAUNCH_VARIABLE);
    if (!name || parent >= 0) return STATUS_OK;
    struct sockaddr_un address;
    socklen_t length = launch_address(name, &address);
    parent = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (parent >= 0) close_first(&parent);
    bool joined =
        parent >= 0 && connect(parent, (struct sockaddr *)&address, length) == 0 && send_joined() && take_output();
    return joined ? STATUS_OK
                  : status_set(STATUS_FAILED, "the process that launched this rank cannot be reached: %s",
                               strerror(errno));
}

bool launch_joined(void) { return parent >= 0; }

void launch_expect_death(const char *hint) {
    if (parent < 0) return;
    snprintf(own.hint, sizeof own.hint, "%s", hint);
    (void)send_own();
}

void launch_report(enum status status) {
    if (parent < 0) return;
    own.ends = true;
    own.status = status;
    if (status != STATUS_OK) {
        snprintf(own.message, sizeof own.message, "%s", status_message());
        snprintf(own.hint, sizeof own.hint, "%s", status_hint_text());
    }
    (void)send_own();
}

void launch_report_signal(enum status status, const char *message) {
    if (parent < 0) return;
    own.ends = true;
    own.status = status;
    size_t length = strlen(message), max = sizeof own.message - 1;
    memcpy(own.message, message, length < max ? length : max);
    own.message[length < max ? length : max] = own.hint[0] = '\0';
    (void)send_own();
}

void launch_hush(void) {
    int nothing = parent >= 0 ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    if (nothing >= 0) dup2(nothing, STDERR_FILENO);
}
