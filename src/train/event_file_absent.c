/* For builds without protobuf-c. */
#include "train/metrics.h"

enum status event_file_open(const char *folder, int64_t done, struct metrics *out) {
    (void)folder, (void)done;
    *out = (struct metrics){.descriptor = -1};
    return STATUS_OK;
}

enum status event_file_write(struct metrics *file, int64_t step, const struct event_scalar *scalars, size_t count) {
    (void)file, (void)step, (void)scalars, (void)count;
    return STATUS_OK;
}
