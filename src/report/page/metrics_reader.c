#include "report/page/metrics_reader.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "report/page/metrics_line.h"

enum { LINE_BYTES_MAX = 1 << 23 }; /* a line has about 250, one of experts a few for each */

/* Lines of Ballast 0.1.0. */
static const struct json_renamed renamed[] = {{"expert_least", "expert_min"}, {"expert_most", "expert_max"}};

const char *metric_name(enum metric metric) {
    static const char *const names[] = {
#define METRIC_NAME(name, text) text,
        METRIC_LIST(METRIC_NAME)
#undef METRIC_NAME
    };
    return names[metric];
}

static void forget(void *payload) {
    struct metrics_reader *reader = payload;
    reader->step = reader->val_step = 0;
    reader->min_val_loss = NAN;
    json_decref(reader->expert_slots);
    reader->expert_slots = NULL;
    for (int i = 0; i < METRIC_COUNT; i++)
        reader->last[i] = NAN;
    memset(reader->curves, 0, METRIC_CURVES * sizeof *reader->curves);
    (void)json_array_clear(reader->replans);
}

enum status metrics_reader_open(const char *path, struct metrics_reader *out) {
    struct metrics_reader reader = {.curves = mem_array(METRIC_CURVES, sizeof *reader.curves), .replans = json_array()};
    enum status status = reader.curves ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK && !reader.replans) status = status_no_memory(0, "a run's metrics");
    if (status == STATUS_OK) status = line_reader_open(path, LINE_BYTES_MAX, &reader.lines);
    if (status == STATUS_OK) {
        forget(&reader);
        *out = reader;
    } else
        metrics_reader_close(&reader);
    return status;
}

void metrics_reader_close(struct metrics_reader *reader) {
    line_reader_close(&reader->lines);
    mem_free(reader->curves);
    json_decref(reader->expert_slots);
    json_decref(reader->replans);
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
        reader->min_val_loss = fmin(reader->min_val_loss, value);
    }
    reader->step = line->step;
    if (line->expert_slots) {
        json_decref(reader->expert_slots);
        reader->expert_slots = json_incref(line->expert_slots);
        reader->expert_step = line->step;
    }
    return STATUS_OK;
}

static enum status keep_replan(struct metrics_reader *reader, json_t *object) {
    if (!json_object_get(object, "replan")) return STATUS_OK;
    if (json_array_append(reader->replans, object) != 0) return status_no_memory(0, "a run's metrics");
    if (json_array_size(reader->replans) > METRIC_REPLANS) (void)json_array_remove(reader->replans, 0);
    return STATUS_OK;
}

/* A change of the plan, what other programs wrote, or what is wrong. */
static enum status parse_line(struct metrics_reader *reader, const char *name, const char *text, size_t bytes,
                              struct metrics_line *out) {
    json_t *object = NULL;
    *out = (struct metrics_line){0};
    TRY(json_parse_object(name, text, bytes, &object));
    enum status status;
    if (json_object_get(object, renamed[0].before))
        TRY_GOTO(status, json_rename_keys(name, "", object, renamed, sizeof renamed / sizeof *renamed), done);
    TRY_GOTO(status, json_require(name, object, "step"), done);
    int64_t min = json_object_get(object, "replan") ? 0 : 1; /* a plan may change before the first step */
    TRY_GOTO(status, json_read_int(name, object, "step", min, INT64_MAX, &out->step), done);
    for (int i = 0; i < METRIC_COUNT; i++) {
        const char *field = metric_name((enum metric)i);
        out->values[i] = NAN;
        TRY_GOTO(status, json_read_double(name, object, field, -HUGE_VAL, HUGE_VAL, &out->values[i]), done);
    }
    TRY_GOTO(status, keep_replan(reader, object), done);
    out->expert_slots = json_incref(json_object_get(object, "expert_slots"));
done:
    json_decref(object);
    return status;
}

static enum status take_line(void *payload, const struct line_reader *lines, const char *text, size_t bytes) {
    struct metrics_reader *reader = payload;
    char name[LINE_NAME_BYTES];
    struct metrics_line line;
    bool scanned = metrics_line_scan(text, &line);
    if (!scanned || line.step < reader->step) (void)line_reader_name(lines, name);
    if (!scanned) TRY(parse_line(reader, name, text, bytes, &line));
    enum status status = take(reader, name, &line);
    json_decref(line.expert_slots);
    return status;
}

enum status metrics_reader_advance(struct metrics_reader *reader) {
    const struct line_taker taker = {reader, forget, take_line};
    return line_reader_advance(&reader->lines, &taker);
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

static json_t *experts_to_json(const struct metrics_reader *reader) {
    if (!reader->expert_slots) return json_null();
    return json_pack("{s:I, s:O}", "step", (json_int_t)reader->expert_step, "slots", reader->expert_slots);
}

json_t *metrics_reader_to_json(const struct metrics_reader *reader) {
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:O}", "step", (json_int_t)reader->step, "val_step",
                     (json_int_t)reader->val_step, "last", last_to_json(reader), "min_val_loss",
                     number_or_null(reader->min_val_loss), "curves", curves_to_json(reader), "experts",
                     experts_to_json(reader), "replans", reader->replans);
}
