/* In place of disk_uring.c where the build found no liburing. */
#include "runtime/store/disk.h"

static enum status refuse(int descriptor, int channels, void **state) {
    (void)descriptor, (void)channels, (void)state;
    return status_set(STATUS_FAILED, "io_uring cannot be used: this build has no liburing");
}

const struct disk_engine disk_uring = {.name = "io_uring", .open = refuse};
