#include "report/metrics_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/json.h"
#include "report/metrics_line.h"

enum { PIECE_BYTES = 1 << 18 }; /* a line has about 250 */

const char *metric_name(enum metric metric) {
    static const char *const names[] = {
#define METRIC_NAME(name, text) text,
        METRIC_LIST(METRIC_NAME)
#undef METRIC_NAME
    };
    return names[metric];
}

static void forget(struct metrics_reader *reader) {
    reader->offset = reader->line = reader->step = reader->val_step = 0;
    reader->least_val_loss = NAN;
    for (int i = 0; i < METRIC_COUNT; i++)
        reader->last[i] = NAN;
    memset(reader->curves, 0, METRIC_CURVES * sizeof *reader->curves);
}

enum status metrics_reader_open(const char *path, struct metrics_reader *out) {
    struct metrics_reader reader = {.path = mem_string(path),
                                    .curves = mem_array(METRIC_CURVES, sizeof *reader.curves)};
    if (!reader.path || !reader.curves) {
        metrics_reader_close(&reader);
        return STATUS_FAILED;
    }
    forget(&reader);
    *out = reader;
    return STATUS_OK;
}

void metrics_reader_close(struct metrics_reader *reader) {
    mem_free(reader->path);
    mem_free(reader->curves);
    *reader = (struct metrics_reader){0};
}

static enum status take(struct metrics_reader *reader, const char *name, const struct metrics_line *line) {
    if (line->step < reader->step)
        return status_set(STATUS_BAD_INPUT, "%s: step: %" PRId64 " comes after %" PRId64, name, line->step,
                          reader->step);
    for (int i = 0; i < METRIC_COUNT; i++) {
        double value = line->values[i];
        if (isnan(value)) continue;
        reader->last[i] = value;
        if (i < METRIC_CURVES) curve_add(&reader->curves[i], line->step, value);
        if (i != METRIC_VAL_LOSS) continue;
        reader->val_step = line->step;
        reader->least_val_loss = fmin(reader->least_val_loss, value);
    }
    reader->step = line->step;
    return STATUS_OK;
}

/* What other programs wrote, or what is wrong. */
static enum status parse_line(const char *name, const char *text, size_t bytes, struct metrics_line *out) {
    json_t *object = NULL;
    TRY(json_parse_object(name, text, bytes, &object));
    enum status status = json_require(name, object, "step");
    if (status == STATUS_OK) status = json_read_int(name, object, "step", 1, INT64_MAX, &out->step);
    for (int i = 0; i < METRIC_COUNT && status == STATUS_OK; i++) {
        out->values[i] = NAN;
        status = json_read_double(name, object, metric_name((enum metric)i), -HUGE_VAL, HUGE_VAL, &out->values[i]);
    }
    json_decref(object);
    return status;
}

static enum status take_line(struct metrics_reader *reader, const char *text, size_t bytes) {
    char name[PATH_MAX + 32];
    struct metrics_line line;
    bool scanned = metrics_line_scan(text, &line);
    if (!scanned || line.step < reader->step)
        snprintf(name, sizeof name, "%s: line %" PRId64, reader->path, reader->line + 1);
    if (!scanned) TRY(parse_line(name, text, bytes, &line));
    TRY(take(reader, name, &line));
    reader->line++;
    return STATUS_OK;
}

/* Takes the whole lines of a piece; `taken` are their bytes. */
static enum status take_piece(struct metrics_reader *reader, const char *piece, size_t bytes, size_t *taken) {
    for (*taken = 0; *taken < bytes;) {
        const char *end = memchr(piece + *taken, '\n', bytes - *taken);
        if (!end) return STATUS_OK;
        size_t length = (size_t)(end - piece) - *taken;
        TRY(take_line(reader, piece + *taken, length));
        *taken += length + 1;
        reader->offset += (int64_t)length + 1;
    }
    return STATUS_OK;
}

static enum status read_failed(const struct metrics_reader *reader) {
    return status_set(STATUS_BAD_INPUT, "%s: cannot read: %s", reader->path, strerror(errno));
}

static enum status read_on(struct metrics_reader *reader, int file, char *piece) {
    struct stat info;
    if (fstat(file, &info) != 0) return read_failed(reader);
    if (!S_ISREG(info.st_mode)) return status_set(STATUS_BAD_INPUT, "%s: not a regular file", reader->path);
    if (info.st_size < reader->offset) forget(reader);
    for (;;) {
        ssize_t got = fault_point(FAULT_READ) ? -1 : pread(file, piece, PIECE_BYTES, (off_t)reader->offset);
        size_t taken;
        if (got < 0) return read_failed(reader);
        TRY(take_piece(reader, piece, (size_t)got, &taken));
        if (taken > 0) continue;
        if (got < PIECE_BYTES) return STATUS_OK;
        return status_set(STATUS_BAD_INPUT, "%s: line %" PRId64 ": longer than %d bytes", reader->path,
                          reader->line + 1, PIECE_BYTES);
    }
}

enum status metrics_reader_advance(struct metrics_reader *reader) {
    /* O_NONBLOCK: a FIFO given by mistake must be refused, not waited for. */
    int file = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && errno == ENOENT) return STATUS_OK;
    if (file < 0) return read_failed(reader);
    char *piece = mem_array(PIECE_BYTES, 1);
    enum status status = piece ? read_on(reader, file, piece) : STATUS_FAILED;
    mem_free(piece);
    close(file);
    return status;
}

static json_t *number_or_null(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *last_to_json(const struct metrics_reader *reader) {
    json_t *last = json_object();
    int failed = !last;
    for (int i = 0; i < METRIC_COUNT; i++)
        failed |= json_object_set_new(last, metric_name((enum metric)i), number_or_null(reader->last[i]));
    if (!failed) return last;
    json_decref(last);
    return NULL;
}

static json_t *curves_to_json(const struct metrics_reader *reader) {
    json_t *curves = json_object();
    int failed = !curves;
    for (int i = 0; i < METRIC_CURVES; i++)
        if (reader->curves[i].count > 0)
            failed |= json_object_set_new(curves, metric_name((enum metric)i), curve_to_json(&reader->curves[i]));
    if (!failed) return curves;
    json_decref(curves);
    return NULL;
}

json_t *metrics_reader_to_json(const struct metrics_reader *reader) {
    return json_pack("{s:I, s:I, s:o, s:o, s:o}", "step", (json_int_t)reader->step, "val_step",
                     (json_int_t)reader->val_step, "last", last_to_json(reader), "least_val_loss",
                     number_or_null(reader->least_val_loss), "curves", curves_to_json(reader));
}
