#include "base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* Without O_CLOEXEC: it holds the number for programs that are started from here too. */
static enum status hold_descriptor(int number) {
    if (fcntl(number, F_GETFD) != -1) return STATUS_OK;
    int opened = open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened == number) return STATUS_OK; /* those below it are open, so it is the lowest that is free */
    return status_set(STATUS_FAILED, "/dev/null: cannot open: %s", strerror(errno));
}

enum status process_begin(void) {
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++)
        TRY(hold_descriptor(number));
    signal(SIGXFSZ, SIG_IGN);
    return STATUS_OK;
}
