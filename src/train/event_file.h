/* RUN_DIR/events.out.tfevents.*: the metrics' numbers for TensorBoard, as its event files: TFRecords of Event messages
 * (event.proto). Each process that works on a run writes a file of its own; where a run goes on, TensorBoard drops what
 * older files have from there on. A build without protobuf-c writes none (event_file_absent.c). */
#pragma once

#include "base/base.h"

struct event_file {
    char *path; /* NULL: closed */
    int descriptor;
};

struct event_scalar {
    const char *tag;
    double value; /* left out when it is not finite */
};
enum { EVENT_SCALARS_MAX = 8 };

/* A new file in the run's directory; `done` steps are in older ones (0: a new run). The caller calls event_file_close.
 */
enum status event_file_open(const char *folder, int64_t done, struct event_file *out);
void event_file_close(struct event_file *file);
/* Allocates nothing. FAILED when the file cannot be written. Nothing where it was never opened. */
enum status event_file_write(struct event_file *file, int64_t step, const struct event_scalar *scalars, size_t count);
