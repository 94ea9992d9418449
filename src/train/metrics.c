#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "session/engine.h"
#include "train/plan_watch.h"

static enum status metrics_failed(const char *path, const char *what) {
    return status_set(STATUS_FAILED, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* What is written and cut must be the run's own file, not one that somebody put a link to in its place. */
static enum status refuse_link(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0 || S_ISREG(info.st_mode)) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "%s: is not a regular file", path),
                       "move it away; the run then begins a new one");
}

enum status metrics_open(const char *path, const struct metrics_cut *cut, struct metrics *out, bool *validated) {
    size_t bytes;
    bool there = file_exists(path);
    TRY(refuse_link(path));
    TRY(metrics_cut_find(path, cut, &bytes, validated));
    struct metrics metrics = {.path = mem_string(path), .descriptor = -1};
    if (!metrics.path) return STATUS_FAILED;
    enum status status = STATUS_OK;
    if (!fault_point(FAULT_OPEN))
        metrics.descriptor = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
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
    if (metrics->descriptor < 0) return STATUS_OK;
    for (size_t done = 0; done < bytes;) {
        ssize_t put = fault_point(FAULT_WRITE) ? -1 : write(metrics->descriptor, line + done, bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return metrics_failed(metrics->path, "write");
        done += (size_t)put;
    }
    return STATUS_OK;
}

/* "" where there are no pairs. */
static const char *print_preference(const double *figures, const char *prefix, bool pairs, char *text, size_t bytes) {
    text[0] = '\0';
    if (pairs)
        snprintf(text, bytes,
                 ", \"%sreward_chosen\": %.17g, \"%sreward_rejected\": %.17g, \"%smargin\": %.17g, "
                 "\"%saccuracy\": %.17g",
                 prefix, figures[PREFERENCE_CHOSEN], prefix, figures[PREFERENCE_REJECTED], prefix,
                 preference_margin(figures), prefix, figures[PREFERENCE_RIGHT]);
    return text;
}

enum { PREFERENCE_BYTES = 256 };

enum status metrics_write_step(struct metrics *metrics, const struct train_step *step) {
    char line[1024], mfu[40] = "null", predicted[40] = "null", preference[PREFERENCE_BYTES];
    if (isfinite(step->mfu)) snprintf(mfu, sizeof mfu, "%.6g", step->mfu);
    if (step->predicted_step_s > 0) snprintf(predicted, sizeof predicted, "%.6g", step->predicted_step_s);
    int length =
        snprintf(line, sizeof line,
                 "{\"step\": %" PRId64 ", \"loss\": %.17g, \"grad_norm\": %.17g, \"lr\": %.17g%s, "
                 "\"tokens\": %" PRId64 ", \"tokens_per_s\": %.6g, \"step_s\": %.6g, \"mfu\": %s, "
                 "\"device_bytes\": %" PRId64 ", \"predicted_step_s\": %s, "
                 "\"predicted_device_bytes\": %" PRId64 "}\n",
                 step->step, step->loss, step->grad_norm, step->learning_rate,
                 print_preference(step->preference, "", step->pairs, preference, sizeof preference), step->tokens,
                 step->tokens_per_s, step->step_s, mfu, step->device_bytes, predicted, step->predicted_device_bytes);
    return metrics_append(metrics, line, (size_t)length);
}

enum status metrics_write_validation(struct metrics *metrics, int64_t step, const double *figures, bool pairs) {
    char line[512], preference[PREFERENCE_BYTES];
    int length = snprintf(line, sizeof line, "{\"step\": %" PRId64 ", \"val_loss\": %.17g%s}\n", step, figures[0],
                          print_preference(figures, "val_", pairs, preference, sizeof preference));
    return metrics_append(metrics, line, (size_t)length);
}

/* "[1,2,…]" */
static enum status append_layer(struct metrics *metrics, const double *slots, int64_t experts) {
    enum { NUMBER_BYTES = 24 };
    char text[ROUTING_EXPERTS_MAX * NUMBER_BYTES];
    size_t used = 0;
    for (int64_t e = 0; e < experts; e++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%c%.0f", e == 0 ? '[' : ',', slots[e]);
    text[used++] = ']';
    return metrics_append(metrics, text, used);
}

enum status metrics_write_experts(struct metrics *metrics, int64_t step, const struct expert_counts *counts) {
    char text[160];
    struct expert_spread spread = expert_counts_spread(counts);
    int length = snprintf(text, sizeof text,
                          "{\"step\": %" PRId64 ", \"expert_min\": %.6g, \"expert_max\": %.6g, \"expert_slots\": [",
                          step, spread.min, spread.max);
    TRY(metrics_append(metrics, text, (size_t)length));
    for (int64_t layer = 0; layer < counts->layers; layer++) {
        if (layer > 0) TRY(metrics_append(metrics, ",", 1));
        TRY(append_layer(metrics, counts->of + layer * counts->experts, counts->experts));
    }
    return metrics_append(metrics, "]}\n", 3);
}

enum status metrics_write_replan(struct metrics *metrics, const struct train_replan *replan) {
    char line[512], before[40] = "null", after[40] = "null";
    if (replan->before_s > 0) snprintf(before, sizeof before, "%.6g", replan->before_s);
    if (replan->after_s > 0) snprintf(after, sizeof after, "%.6g", replan->after_s);
    int length = snprintf(line, sizeof line,
                          "{\"step\": %" PRId64 ", \"replan\": \"%s\", \"predicted_before_s\": %s, "
                          "\"predicted_after_s\": %s, \"device_bytes_before\": %" PRId64
                          ", \"device_bytes_after\": %" PRId64 ", \"change_s\": %.6g}\n",
                          replan->step, replan_reason_name(replan->reason), before, after, replan->device_bytes_before,
                          replan->device_bytes, replan->seconds);
    return metrics_append(metrics, line, (size_t)length);
}

enum status metrics_sync(struct metrics *metrics) {
    if (metrics->descriptor < 0) return STATUS_OK;
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
