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

static int parent = -1;

static int launched_rank(void) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (int i = 0; i < 3; i++)
        if (getenv(variables[i])) return atoi(getenv(variables[i]));
    return -1;
}

static bool send_record(bool ends, enum status status) {
    struct launch_record record = {.ends = ends, .rank = launched_rank(), .process = getpid(), .status = status};
    if (gethostname(record.host, sizeof record.host - 1) != 0) record.host[0] = '\0';
    if (status != STATUS_OK) {
        snprintf(record.message, sizeof record.message, "%s", status_message());
        snprintf(record.hint, sizeof record.hint, "%s", status_hint_text());
    }
    return send(parent, &record, sizeof record, MSG_NOSIGNAL) == (ssize_t)sizeof record;
}

/* The parent's standard output and error in place of mpirun's pipes. */
static bool take_output(void) {
    enum { OUTPUTS = 2 };
    char byte, room[CMSG_SPACE(OUTPUTS * sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
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

enum status launch_join(void) {
    const char *name = getenv(LAUNCH_VARIABLE);
    if (!name || parent >= 0) return STATUS_OK;
    struct sockaddr_un address;
    socklen_t length = launch_address(name, &address);
    parent = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (parent >= 0) close_first(&parent);
    bool joined = parent >= 0 && connect(parent, (struct sockaddr *)&address, length) == 0 &&
                  send_record(false, STATUS_OK) && take_output();
    return joined ? STATUS_OK
                  : status_set(STATUS_FAILED, "the process that launched this rank cannot be reached: %s",
                               strerror(errno));
}

bool launch_joined(void) { return parent >= 0; }

void launch_report(enum status status) {
    if (parent >= 0) (void)send_record(true, status);
}

void launch_hush(void) {
    int nothing = parent >= 0 ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    if (nothing >= 0) dup2(nothing, STDERR_FILENO);
}
