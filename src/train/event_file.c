#include "train/metrics.h"

#include <fcntl.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "train/event.pb-c.h"

/* A record: length, its checksum, data, its checksum; numbers little-endian. */
enum { LENGTH_BYTES = 8, CHECKSUM_BYTES = 4, HEADER_BYTES = LENGTH_BYTES + CHECKSUM_BYTES, RECORD_MAX = 1024 };

static void put_number(uint64_t value, size_t bytes, unsigned char *to) {
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

/* Rotates and adds, since checksums of data that contain checksums are weak. */
static uint32_t masked_checksum(const unsigned char *data, size_t bytes) {
    uint32_t crc = crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static enum status write_event(struct metrics *file, Tensorboard__Event *event) {
    unsigned char record[RECORD_MAX];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    event->wall_time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    size_t bytes = tensorboard__event__get_packed_size(event);
    BUG_IF(bytes > RECORD_MAX - HEADER_BYTES - CHECKSUM_BYTES, "an event of %zu bytes", bytes);
    tensorboard__event__pack(event, record + HEADER_BYTES);
    put_number(bytes, LENGTH_BYTES, record);
    put_number(masked_checksum(record, LENGTH_BYTES), CHECKSUM_BYTES, record + LENGTH_BYTES);
    put_number(masked_checksum(record + HEADER_BYTES, bytes), CHECKSUM_BYTES, record + HEADER_BYTES + bytes);
    return metrics_append(file, (const char *)record, HEADER_BYTES + bytes + CHECKSUM_BYTES);
}

static enum status write_beginning(struct metrics *file, int64_t done) {
    Tensorboard__Event version = TENSORBOARD__EVENT__INIT, start = TENSORBOARD__EVENT__INIT;
    Tensorboard__SessionLog session = TENSORBOARD__SESSION_LOG__INIT;
    char text[] = "brain.Event:2";
    version.what_case = TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    version.file_version = text;
    TRY(write_event(file, &version));
    if (done == 0) return STATUS_OK;
    session.status = TENSORBOARD__SESSION_STATUS__SESSION_STATUS_START;
    start.step = done + 1;
    start.what_case = TENSORBOARD__EVENT__WHAT_SESSION_LOG;
    start.session_log = &session;
    return write_event(file, &start);
}

/* TensorBoard reads a directory's files in the order of their names, so later files get higher numbers. */
static enum status create_file(const char *folder, struct metrics *file) {
    for (int64_t number = (int64_t)time(NULL);; number++) {
        mem_free(file->path);
        file->path = mem_format("%s/events.out.tfevents.%010" PRId64 ".ballast", folder, number);
        if (!file->path) return STATUS_FAILED;
        if (!fault_point(FAULT_OPEN))
            file->descriptor = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (file->descriptor >= 0) return STATUS_OK;
        if (errno != EEXIST) return status_set(STATUS_FAILED, "%s: cannot open: %s", file->path, strerror(errno));
    }
}

enum status event_file_open(const char *folder, int64_t done, struct metrics *out) {
    AUTO(metrics_close) struct metrics file = {.descriptor = -1};
    TRY(create_file(folder, &file));
    TRY(write_beginning(&file, done));
    *out = TAKE(file);
    return STATUS_OK;
}

enum status event_file_write(struct metrics *file, int64_t step, const struct event_scalar *scalars, size_t count) {
    Tensorboard__SummaryValue values[EVENT_SCALARS_MAX], *items[EVENT_SCALARS_MAX];
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    BUG_IF(count > EVENT_SCALARS_MAX, "%zu numbers in an event", count);
    if (file->descriptor < 0) return STATUS_OK;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(scalars[i].value)) continue;
        items[summary.n_value] = &values[summary.n_value];
        tensorboard__summary_value__init(items[summary.n_value]);
        items[summary.n_value]->tag = (char *)(uintptr_t)scalars[i].tag; /* protobuf-c's fields are not const */
        items[summary.n_value++]->simple_value = (float)scalars[i].value;
    }
    summary.value = items;
    event.step = step;
    event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return write_event(file, &event);
}
