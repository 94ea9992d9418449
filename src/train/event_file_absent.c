/* For builds without protobuf-c. */
#include "train/metrics.h"

enum status event_file_open(const char *folder, int64_t done, struct event_file *out) {
    (void)folder, (void)done;
    *out = (struct event_file){.descriptor = -1};
    return STATUS_OK;
}

void event_file_close(struct event_file *file) { (void)file; }

enum status event_file_write(struct event_file *file, int64_t step, const struct event_scalar *scalars, size_t count) {
    (void)file, (void)step, (void)scalars, (void)count;
    return STATUS_OK;
}
