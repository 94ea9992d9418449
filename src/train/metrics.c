#include "train/metrics.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "generate/writer.h"
#include "session/checkpoint/run_folder.h"
#include "session/model_tokenizer.h"
#include "train/plan_watch.h"

/* A step with more instruction executions is not recorded: its file would take more memory than a run reserves. */
enum { STEP_RECORD_EVENTS_MAX = 1 << 16 };

enum { SETTLED_AFTER = 2 };

enum status step_record_open(const struct program *program, int64_t first, int64_t steps, struct step_record *out) {
    *out = (struct step_record){.step = first + SETTLED_AFTER < steps ? first + SETTLED_AFTER : steps - 1};
    out->settled = out->step > first ? out->step : -1;
    if (out->step > first) TRY(timeline_create(program, &out->timeline));
    size_t events = out->timeline.events.count;
    if (events > 0 && events <= STEP_RECORD_EVENTS_MAX) return STATUS_OK;
    if (events > 0)
        log_note("no step's timeline is recorded: it has %zu instructions, more than %d", events,
                 STEP_RECORD_EVENTS_MAX);
    step_record_close(out);
    out->step = -1;
    return STATUS_OK;
}

void step_record_close(struct step_record *record) { timeline_free(&record->timeline); }

void step_record_begin(struct step_record *record, struct runner *runner, int64_t step, bool wanted) {
    if ((step == record->step || wanted) && record->timeline.events.count > 0)
        runner_set_recorder(runner, &record->timeline);
}

enum status step_record_end(struct step_record *record, struct runner *runner, int64_t step, double seconds,
                            const char *run_folder) {
    char path[RUN_PATH_BYTES];
    runner_set_recorder(runner, NULL);
    if (step != record->step) return STATUS_OK;
    record->timeline.step = step + 1;
    record->timeline.wall_s = seconds;
    record->step = -1;
    TRY(run_path(run_folder, "timeline.json", path));
    return timeline_write(&record->timeline, path);
}

static enum status metrics_failed(const char *path, const char *what) {
    return status_set(STATUS_FAILED, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* Rejects links: the file that is written and cut must be the run's own. */
static enum status refuse_link(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0 || S_ISREG(info.st_mode)) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "%s: is not a regular file", path),
                       "move it away; the run then begins a new one");
}

/* Selects the lines of a metrics file to keep when its run resumes from a checkpoint, whatever happened to the file
 * meanwhile. */

struct byte_range {
    size_t begin, end;
};

struct cutting {
    const char *path;
    const struct metrics_cut *cut;
    int64_t last, last_step; /* steps of the last good line, and of the last step line */
    bool validated;
    size_t end;                 /* of the last kept line */
    VEC(struct byte_range) bad; /* lines to drop */
    size_t bad_within;          /* number of them before the end */
    int64_t first_bad;          /* line number of the first */
    int64_t missing;            /* steps without a line */
    char ranges[128];           /* those steps, as far as there is space: "3 to 5, 9" */
};

static void cutting_free(struct cutting *cutting) { vec_free(&cutting->bad); }

enum line_kind { LINE_STEP, LINE_VALIDATION, LINE_REPLAN };

static enum status read_line(const char *path, const char *line, size_t bytes, int64_t *step, enum line_kind *kind) {
    json_auto_t *object = NULL;
    *kind = LINE_STEP;
    TRY(json_parse_object(path, line, bytes, &object));
    TRY(json_require(path, object, "step"));
    if (json_object_get(object, "val_loss")) *kind = LINE_VALIDATION;
    if (json_object_get(object, "replan")) *kind = LINE_REPLAN;
    return json_read_int(path, object, "step", *kind == LINE_REPLAN ? 0 : 1, INT64_MAX, step);
}

static void note_missing(struct cutting *cutting, int64_t first, int64_t last) {
    char range[64];
    size_t space = sizeof cutting->ranges;
    if (!cutting->cut->every_step || first > last) return;
    snprintf(range, sizeof range, "%" PRId64, first);
    if (first < last) text_add(range, sizeof range, " to %" PRId64, last);
    if (strlen(cutting->ranges) + strlen(range) + sizeof ", ..." < space)
        text_add(cutting->ranges, space, "%s%s", cutting->missing > 0 ? ", " : "", range);
    else if (!strstr(cutting->ranges, "..."))
        text_add(cutting->ranges, space, "...");
    cutting->missing += last - first + 1;
}

enum verdict { STAYS, GOES, ENDS };

static enum verdict judge_good(struct cutting *cutting, int64_t step, enum line_kind kind) {
    const struct metrics_cut *cut = cutting->cut;
    if (step > cut->step) return ENDS;
    if (step < cutting->last) return GOES;
    if (kind == LINE_VALIDATION && step == cut->step) {
        if (cut->valid_every == 0 || step % cut->valid_every != 0) return ENDS;
        cutting->validated = true;
    }
    cutting->last = step;
    if (kind == LINE_STEP && step > cutting->last_step) {
        note_missing(cutting, cutting->last_step + 1, step - 1);
        cutting->last_step = step;
    }
    return STAYS;
}

/* After the lines of the cut's step anything may follow: the end of a run that was killed. */
static enum status judge(struct cutting *cutting, const char *line, size_t bytes, enum verdict *verdict) {
    int64_t step;
    enum line_kind kind;
    enum status status = read_line(cutting->path, line, bytes, &step, &kind);
    if (status == STATUS_OK)
        *verdict = judge_good(cutting, step, kind);
    else
        *verdict = cutting->last >= cutting->cut->step ? ENDS : GOES;
    return status == STATUS_BAD_INPUT ? STATUS_OK : status;
}

static enum status walk(struct cutting *cutting, const char *text, size_t bytes) {
    size_t begin = 0;
    for (int64_t number = 1; begin < bytes; number++) {
        const char *line = text + begin, *end = memchr(line, '\n', bytes - begin);
        enum verdict verdict;
        if (!end) break;
        struct byte_range byte_range = {begin, begin + (size_t)(end - line) + 1};
        TRY(judge(cutting, line, (size_t)(end - line), &verdict));
        if (verdict == ENDS) break;
        if (verdict == GOES && cutting->bad.count == 0) cutting->first_bad = number;
        if (verdict == GOES) TRY(vec_push(&cutting->bad, byte_range));
        if (verdict == STAYS) {
            cutting->end = byte_range.end;
            cutting->bad_within = cutting->bad.count;
        }
        begin = byte_range.end;
    }
    note_missing(cutting, cutting->last_step + 1, cutting->cut->step);
    return STATUS_OK;
}

static size_t gather(const struct cutting *cutting, const char *from, char *to) {
    size_t at = 0, used = 0;
    for (size_t i = 0; i <= cutting->bad_within; i++) {
        bool last = i == cutting->bad_within;
        size_t stop = last ? cutting->end : cutting->bad.items[i].begin;
        memcpy(to + used, from + at, stop - at);
        used += stop - at;
        at = last ? stop : cutting->bad.items[i].end;
    }
    return used;
}

static enum status leave_out(struct cutting *cutting, const char *text) {
    AUTO_FREE char *kept = mem_array(cutting->end, 1), *aside = mem_format("%s.damaged", cutting->path);
    TRY(kept && aside ? file_copy(cutting->path, aside) : STATUS_FAILED);
    cutting->end = gather(cutting, text, kept);
    TRY(file_replace(cutting->path, kept, cutting->end));
    log_warning("%s: %zu lines, the first of them line %" PRId64 ", were damaged or out of order and are left out; "
                "%s has the file as it was",
                cutting->path, cutting->bad_within, cutting->first_bad, aside);
    return STATUS_OK;
}

/* Finds the bytes of the file that metrics_open keeps. The file is rewritten if bad lines precede them. A missing file
 * has none. */
static enum status metrics_cut_find(const char *path, const struct metrics_cut *cut, size_t *bytes, bool *validated) {
    AUTO(cutting_free) struct cutting cutting = {.path = path, .cut = cut};
    AUTO_FREE char *data = NULL;
    size_t there = 0;
    if (file_exists(path)) TRY(file_read(path, SIZE_MAX - 1, &data, &there));
    TRY(walk(&cutting, data, there));
    if (cutting.bad_within > 0) TRY(leave_out(&cutting, data));
    if (cutting.missing > 0)
        log_warning("%s: %" PRId64 " of %" PRId64 " steps have no line: %s; the run goes on from its checkpoint", path,
                    cutting.missing, cut->step, cutting.ranges);
    *bytes = cutting.end;
    *validated = cutting.validated;
    return STATUS_OK;
}

enum status metrics_open(const char *path, const struct metrics_cut *cut, struct metrics *out, bool *validated) {
    size_t bytes;
    bool there = file_exists(path);
    TRY(refuse_link(path));
    TRY(metrics_cut_find(path, cut, &bytes, validated));
    AUTO(metrics_close) struct metrics metrics = {.path = mem_string(path), .descriptor = -1};
    if (!metrics.path) return STATUS_FAILED;
    if (!fault_point(FAULT_OPEN))
        metrics.descriptor = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (metrics.descriptor < 0) return metrics_failed(path, "open");
    if (ftruncate(metrics.descriptor, (off_t)bytes) != 0) return metrics_failed(path, "cut");
    if (!there) TRY(folder_sync_parent(path));
    *out = TAKE(metrics);
    return STATUS_OK;
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

/* "" if there are no pairs. */
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

enum status samples_prepare(const struct model *model, const struct train_options *options, struct samples *samples) {
    samples->file.descriptor = -1;
    if (options->sample_every == 0) return STATUS_OK;
    TRY(model_tokenizer_require(model, &samples->tokenizer));
    TRY(generation_config_read(model, samples->tokenizer, true, &samples->config));
    return writer_encode_prompt(model, samples->tokenizer, options->sample_prompt, &samples->prompt);
}

enum status samples_open(const char *run_folder, int64_t step, struct samples *samples) {
    char path[RUN_PATH_BYTES];
    bool unused;
    struct metrics_cut cut = {.step = step - 1};
    if (!samples->tokenizer) return STATUS_OK;
    TRY(run_path(run_folder, "samples.jsonl", path));
    return metrics_open(path, &cut, &samples->file, &unused);
}

void samples_close(struct samples *samples) {
    metrics_close(&samples->file);
    vec_free(&samples->prompt);
    generation_config_free(&samples->config);
    tokenizer_free(samples->tokenizer);
    *samples = (struct samples){.file.descriptor = -1};
}

static enum status write_line(struct samples *samples, int64_t step, const char *prompt, const char *text) {
    json_auto_t *object = json_pack("{s:I, s:s, s:s}", "step", (json_int_t)step, "prompt", prompt, "text", text);
    AUTO_FREE char *line = object ? json_text(object, JSON_PRESERVE_ORDER | JSON_COMPACT) : NULL;
    AUTO_FREE char *whole = line ? mem_format("%s\n", line) : NULL;
    return whole ? metrics_append(&samples->file, whole, strlen(whole)) : status_no_memory(strlen(text), "a sample");
}

static enum status write_sample(const struct samples *samples, const struct engine *engine,
                                const struct generate_options *options, struct kept_text *kept) {
    AUTO(writer_free) struct writer writer = {0};
    AUTO_VEC struct token_ids ids = {0};
    TRY(writer_create(engine, samples->tokenizer, &samples->config, options, &writer));
    for (size_t i = 0; i < samples->prompt.count; i++)
        TRY(vec_push(&ids, samples->prompt.items[i]));
    return generate_continue(&writer, 0, &ids, kept_text_take, kept, NULL);
}

enum status samples_take(struct samples *samples, const struct engine *engine, const struct train_options *options,
                         int64_t step, char **text) {
    struct generate_options generate;
    AUTO(kept_text_free) struct kept_text kept = {0};
    generate_options_init(&generate);
    generate.tokens = options->sample_tokens;
    TRY(write_sample(samples, engine, &generate, &kept));
    TRY(kept.status);
    TRY(vec_push(&kept.text, '\0'));
    TRY(write_line(samples, step, options->sample_prompt, kept.text.items));
    *text = TAKE(kept.text.items);
    return STATUS_OK;
}
