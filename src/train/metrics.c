#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"

static enum status metrics_failed(const char *path, const char *what) {
    return status_set(STATUS_FAILED, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* One line: its step, and whether it is a validation. */
static enum status read_line(const char *path, const char *line, size_t bytes, int64_t *step, bool *validation) {
    json_t *object = NULL;
    enum status status = json_parse_object(path, line, bytes, &object);
    if (status == STATUS_OK) status = json_require(path, object, "step");
    if (status == STATUS_OK) status = json_read_int(path, object, "step", 1, INT64_MAX, step);
    *validation = status == STATUS_OK && json_object_get(object, "val_loss");
    json_decref(object);
    return status;
}

static enum status require_reached(const char *path, int64_t last, const struct metrics_cut *cut) {
    if (last >= cut->least) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: ends after step %" PRId64 ", but the checkpoint is of step %" PRId64, path,
                     last, cut->step);
    return status_hint(STATUS_BAD_INPUT, "put the missing lines back");
}

/* Bytes of the lines that stay. After those of `cut->step`, anything may come: the end of a run that was killed. */
static enum status find_cut(const char *path, const struct file_map *map, const struct metrics_cut *cut, size_t *bytes,
                            bool *validated) {
    int64_t last = 0;
    for (int64_t number = 1; *bytes < map->bytes; number++) {
        const char *line = (const char *)map->data + *bytes;
        const char *end = memchr(line, '\n', map->bytes - *bytes);
        int64_t before = last;
        bool validation;
        if (!end) break;
        char name[PATH_MAX + 32];
        snprintf(name, sizeof name, "%s: line %" PRId64, path, number);
        enum status status = read_line(name, line, (size_t)(end - line), &last, &validation);
        if (status != STATUS_OK && last >= cut->step) return STATUS_OK;
        TRY(status);
        if (last > cut->step) return require_reached(path, before, cut);
        if (validation && last == cut->step) {
            if (cut->valid_every == 0 || last % cut->valid_every != 0) return STATUS_OK;
            *validated = true;
        }
        *bytes += (size_t)(end - line) + 1;
    }
    return require_reached(path, last, cut);
}

enum status metrics_open(const char *path, const struct metrics_cut *cut, struct metrics *out, bool *validated) {
    size_t bytes = 0;
    *validated = false;
    struct file_map map = {0};
    bool there = file_exists(path);
    if (there) TRY(file_map_open(path, &map));
    enum status status = find_cut(path, &map, cut, &bytes, validated);
    file_map_close(&map);
    TRY(status);
    struct metrics metrics = {.path = mem_string(path), .descriptor = -1};
    if (!metrics.path) return STATUS_FAILED;
    if (!fault_point(FAULT_OPEN)) metrics.descriptor = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (metrics.descriptor < 0)
        status = metrics_failed(path, "open");
    else if (ftruncate(metrics.descriptor, (off_t)bytes) != 0)
        status = metrics_failed(path, "cut");
    else if (!there)
        status = folder_sync_parent(path);
    if (status != STATUS_OK)
        metrics_close(&metrics);
    else
        *out = metrics;
    return status;
}

void metrics_close(struct metrics *metrics) {
    if (metrics->path && metrics->descriptor >= 0) close(metrics->descriptor);
    mem_free(metrics->path);
    *metrics = (struct metrics){.descriptor = -1};
}

enum status metrics_append(struct metrics *metrics, const char *line, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t put = fault_point(FAULT_WRITE) ? -1 : write(metrics->descriptor, line + done, bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return metrics_failed(metrics->path, "write");
        done += (size_t)put;
    }
    return STATUS_OK;
}

enum status metrics_write_step(struct metrics *metrics, const struct train_step *step) {
    char line[1024], mfu[40] = "null", predicted[40] = "null";
    if (isfinite(step->mfu)) snprintf(mfu, sizeof mfu, "%.6g", step->mfu);
    if (step->predicted_step_s > 0) snprintf(predicted, sizeof predicted, "%.6g", step->predicted_step_s);
    int length =
        snprintf(line, sizeof line,
                 "{\"step\": %" PRId64 ", \"loss\": %.17g, \"grad_norm\": %.17g, \"lr\": %.17g, "
                 "\"tokens\": %" PRId64 ", \"tokens_per_s\": %.6g, \"step_s\": %.6g, \"mfu\": %s, "
                 "\"device_bytes\": %" PRId64 ", \"predicted_step_s\": %s, "
                 "\"predicted_device_bytes\": %" PRId64 "}\n",
                 step->step, step->loss, step->grad_norm, step->learning_rate, step->tokens, step->tokens_per_s,
                 step->step_s, mfu, step->device_bytes, predicted, step->predicted_device_bytes);
    return metrics_append(metrics, line, (size_t)length);
}

enum status metrics_write_validation(struct metrics *metrics, int64_t step, double loss) {
    char line[128];
    int length = snprintf(line, sizeof line, "{\"step\": %" PRId64 ", \"val_loss\": %.17g}\n", step, loss);
    return metrics_append(metrics, line, (size_t)length);
}

enum status metrics_sync(struct metrics *metrics) {
    if (fault_point(FAULT_SYNC) || fsync(metrics->descriptor) != 0) return metrics_failed(metrics->path, "sync");
    return STATUS_OK;
}

enum status metrics_copy(const struct metrics *metrics, const char *path) {
    char piece[4096];
    struct file_writer writer;
    TRY(file_writer_open(path, &writer));
    ssize_t got;
    for (off_t at = 0; (got = pread(metrics->descriptor, piece, sizeof piece, at)) > 0; at += got)
        file_writer_write(&writer, piece, (size_t)got);
    if (got == 0) return file_writer_close(&writer);
    enum status status = metrics_failed(metrics->path, "read");
    file_writer_abandon(&writer);
    return status;
}
