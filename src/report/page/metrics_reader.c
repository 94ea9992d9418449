#include "report/page/metrics_reader.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/json.h"
#include "report/page/page.h"

/* Receiver of the lines. */
struct line_taker {
    void *payload;
    void (*forget)(void *payload); /* the file became shorter: discards everything taken so far */
    /* `text` ends with '\n' after `bytes`. */
    enum status (*take)(void *payload, const struct growing_file *reader, const char *text, size_t bytes);
};
/* "FILE: line N" of the current line; returns `text`. */
enum { LINE_NAME_BYTES = 4096 + 32 };
enum { METRIC_CURVES = METRIC_MFU }; /* metrics before it are drawn; of the others only the last value is kept */

/* The file need not exist. The caller closes. */
static enum status growing_file_open(const char *path, size_t max_line_bytes, struct growing_file *out) {
    *out = (struct growing_file){.path = mem_string(path), .max_line_bytes = max_line_bytes};
    return out->path ? STATUS_OK : STATUS_FAILED;
}

static void growing_file_close(struct growing_file *reader) {
    mem_free(reader->path);
    *reader = (struct growing_file){0};
}

static char *growing_file_name(const struct growing_file *reader, char text[LINE_NAME_BYTES]) {
    snprintf(text, LINE_NAME_BYTES, "%s: line %" PRId64, reader->path, reader->lines + 1);
    return text;
}

/* Takes the complete lines of a piece; `taken` is their size in bytes. */
static enum status take_piece(struct growing_file *reader, const struct line_taker *taker, const char *piece,
                              size_t bytes, size_t *taken) {
    for (*taken = 0; *taken < bytes;) {
        const char *end = memchr(piece + *taken, '\n', bytes - *taken);
        if (!end) return STATUS_OK;
        size_t length = (size_t)(end - piece) - *taken;
        TRY(taker->take(taker->payload, reader, piece + *taken, length));
        *taken += length + 1;
        reader->offset += (int64_t)length + 1;
        reader->lines++;
    }
    return STATUS_OK;
}

static enum status read_failed(const struct growing_file *reader) {
    return status_set(STATUS_BAD_INPUT, "%s: cannot read: %s", reader->path, strerror(errno));
}

static enum status read_on(struct growing_file *reader, const struct line_taker *taker, int file, char *piece) {
    struct stat info;
    if (fstat(file, &info) != 0) return read_failed(reader);
    if (!S_ISREG(info.st_mode)) return status_set(STATUS_BAD_INPUT, "%s: not a regular file", reader->path);
    if (info.st_size < reader->offset) {
        reader->offset = reader->lines = 0;
        taker->forget(taker->payload);
    }
    for (;;) {
        size_t max = reader->max_line_bytes, taken;
        ssize_t got = fault_point(FAULT_READ) ? -1 : pread(file, piece, max, (off_t)reader->offset);
        if (got < 0) return read_failed(reader);
        TRY(take_piece(reader, taker, piece, (size_t)got, &taken));
        if (taken > 0) continue;
        if ((size_t)got < max) return STATUS_OK;
        return status_set(STATUS_BAD_INPUT, "%s: line %" PRId64 ": longer than %zu bytes", reader->path,
                          reader->lines + 1, max);
    }
}

/* Takes lines up to the last complete one. BAD_INPUT if it is no regular file, and "FILE: line N: longer than …";
 * otherwise the status of `take`. */
static enum status growing_file_advance(struct growing_file *reader, const struct line_taker *taker) {
    /* O_NONBLOCK: a FIFO given by mistake must be rejected, not waited for. */
    int file = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && errno == ENOENT) return STATUS_OK;
    if (file < 0) return read_failed(reader);
    AUTO_FREE char *piece = mem_array(reader->max_line_bytes, 1);
    enum status status = piece ? read_on(reader, taker, file, piece) : STATUS_FAILED;
    close(file);
    return status;
}

static void merge_into(struct curve_bucket *bucket, const struct curve_bucket *next) {
    bucket->last_step = next->last_step;
    bucket->samples += next->samples;
    bucket->sum += next->sum;
    bucket->min = fmin(bucket->min, next->min);
    bucket->max = fmax(bucket->max, next->max);
}

static void halve_curve(struct curve *curve) {
    for (int i = 0; i < CURVE_BUCKETS / 2; i++) {
        struct curve_bucket bucket = curve->buckets[2 * i];
        merge_into(&bucket, &curve->buckets[2 * i + 1]);
        curve->buckets[i] = bucket;
    }
    curve->count = CURVE_BUCKETS / 2;
    curve->share *= 2;
}

void curve_add(struct curve *curve, int64_t step, double value) {
    if (!isfinite(value)) return;
    const struct curve_bucket sample = {step, 1, value, value, value};
    if (curve->share == 0) curve->share = 1;
    if (curve->count > 0 && curve->buckets[curve->count - 1].samples < curve->share) {
        merge_into(&curve->buckets[curve->count - 1], &sample);
        return;
    }
    if (curve->count == CURVE_BUCKETS) halve_curve(curve);
    curve->buckets[curve->count++] = sample;
}

json_t *curve_to_json(const struct curve *curve) {
    json_t *step = json_array(), *mean = json_array(), *low = json_array(), *high = json_array();
    for (int i = 0; i < curve->count; i++) {
        const struct curve_bucket *bucket = &curve->buckets[i];
        json_push(&step, json_integer((json_int_t)bucket->last_step));
        json_push(&mean, json_real(bucket->sum / (double)bucket->samples));
        json_push(&low, json_real(bucket->min));
        json_push(&high, json_real(bucket->max));
    }
    json_t *object = json_pack("{s:o, s:o, s:o, s:o}", "step", step, "mean", mean, "low", low, "high", high);
    if (curve->share <= 1) (void)json_object_del(object, "low"), (void)json_object_del(object, "high");
    return object;
}

static const char *skip_spaces(const char *c) {
    while (*c == ' ' || *c == '\t' || *c == '\r')
        c++;
    return c;
}

/* A quoted key; returns the position after the colon, NULL if it is no key. */
static const char *scan_key(const char *c, const char **key, size_t *length) {
    if (*c++ != '"') return NULL;
    *key = c;
    while (*c != '"' && *c != '\n' && *c != '\\')
        c++;
    if (*c != '"') return NULL;
    *length = (size_t)(c - *key);
    c = skip_spaces(c + 1);
    return *c == ':' ? skip_spaces(c + 1) : NULL;
}

/* A number by JSON's grammar, which is stricter than strtod's. */
static const char *scan_number(const char *c, double *value, bool *whole) {
    const char *start = c, *digits;
    if (*c == '-') c++;
    digits = c;
    c += strspn(c, "0123456789");
    if (c == digits || (*digits == '0' && c > digits + 1)) return NULL;
    *whole = true;
    if (*c == '.') {
        size_t count = strspn(c + 1, "0123456789");
        if (count == 0) return NULL;
        c += 1 + count;
        *whole = false;
    }
    if (*c == 'e' || *c == 'E') {
        c += c[1] == '+' || c[1] == '-' ? 2 : 1;
        size_t count = strspn(c, "0123456789");
        if (count == 0) return NULL;
        c += count;
        *whole = false;
    }
    *value = strtod(start, NULL);
    return isfinite(*value) ? c : NULL;
}

static bool is_name(const char *key, size_t length, const char *name) {
    return strlen(name) == length && memcmp(key, name, length) == 0;
}

/* Sets the field that the key names; false if the scanner cannot read the line. */
static bool take_field(struct metrics_line *line, const char *key, size_t length, double value, bool whole) {
    if (is_name(key, length, "step")) {
        bool good = line->step == 0 && whole && value >= 1 && value <= 9007199254740992.0;
        if (good) line->step = (int64_t)value;
        return good;
    }
    for (int i = 0; i < METRIC_COUNT; i++) {
        if (!is_name(key, length, metric_name((enum metric)i))) continue;
        if (!isnan(line->values[i])) return false; /* duplicate */
        line->values[i] = value;
        return true;
    }
    return true;
}

bool metrics_line_scan(const char *text, struct metrics_line *out) {
    struct metrics_line line = {0};
    for (int i = 0; i < METRIC_COUNT; i++)
        line.values[i] = NAN;
    const char *c = skip_spaces(text);
    if (*c++ != '{') return false;
    for (;;) {
        const char *key;
        size_t length;
        double value = NAN;
        bool whole = false;
        if (!(c = scan_key(skip_spaces(c), &key, &length))) return false;
        c = strncmp(c, "null", 4) == 0 ? c + 4 : scan_number(c, &value, &whole);
        if (!c || !take_field(&line, key, length, value, whole)) return false;
        c = skip_spaces(c);
        if (*c == '}') break;
        if (*c++ != ',') return false;
    }
    if (*skip_spaces(c + 1) != '\n' || line.step == 0) return false;
    *out = line;
    return true;
}

enum { SAMPLE_BYTES_MAX = 1 << 23 };

static void forget_samples(void *payload) {
    struct samples_reader *reader = payload;
    reader->count = 0;
    reader->stride = 1;
    json_array_clear(reader->kept);
    json_decref(reader->last);
    reader->last = NULL;
}

enum status samples_reader_open(const char *path, struct samples_reader *out) {
    AUTO(samples_reader_close) struct samples_reader reader = {.stride = 1, .kept = json_array()};
    TRY(reader.kept ? STATUS_OK : status_no_memory(0, "samples"));
    TRY(growing_file_open(path, SAMPLE_BYTES_MAX, &reader.lines));
    *out = TAKE(reader);
    return STATUS_OK;
}

void samples_reader_close(struct samples_reader *reader) {
    growing_file_close(&reader->lines);
    json_decref(reader->kept);
    json_decref(reader->last);
    *reader = (struct samples_reader){0};
}

/* The text, or its first bytes, cut between characters, with an ellipsis. */
static json_t *short_text(const char *text) {
    size_t bytes = strlen(text);
    if (bytes <= SAMPLE_TEXT_BYTES_MAX) return json_string(text);
    for (bytes = SAMPLE_TEXT_BYTES_MAX; ((unsigned char)text[bytes] & 0xC0) == 0x80;)
        bytes--;
    return json_sprintf("%.*s…", (int)bytes, text);
}

static enum status read_sample(const char *name, const json_t *object, json_t **out) {
    int64_t step;
    const char *prompt = "", *text = NULL;
    TRY(json_require(name, object, "step"));
    TRY(json_read_int(name, object, "step", 1, INT64_MAX, &step));
    TRY(json_read_string(name, object, "prompt", &prompt));
    TRY(json_require(name, object, "text"));
    TRY(json_read_string(name, object, "text", &text));
    *out =
        json_pack("{s:I, s:o, s:o}", "step", (json_int_t)step, "prompt", short_text(prompt), "text", short_text(text));
    return *out ? STATUS_OK : status_no_memory(strlen(text), "a sample");
}

/* Removes every second sample; from now on every second new one is skipped. */
static void halve_samples(struct samples_reader *reader) {
    for (size_t i = json_array_size(reader->kept); i-- > 0;)
        if (i % 2 == 1) json_array_remove(reader->kept, i);
    reader->stride *= 2;
}

static enum status take_sample(void *payload, const struct growing_file *lines, const char *text, size_t bytes) {
    struct samples_reader *reader = payload;
    char name[LINE_NAME_BYTES];
    json_auto_t *object = NULL;
    json_t *sample;
    TRY(json_parse_object(growing_file_name(lines, name), text, bytes, &object));
    TRY(read_sample(name, object, &sample));
    json_decref(reader->last);
    reader->last = sample;
    if (json_array_size(reader->kept) == SAMPLES_MAX) halve_samples(reader);
    if (reader->count++ % reader->stride == 0 && json_array_append(reader->kept, sample) != 0)
        return status_no_memory(0, "samples");
    return STATUS_OK;
}

enum status samples_reader_advance(struct samples_reader *reader) {
    const struct line_taker taker = {reader, forget_samples, take_sample};
    return growing_file_advance(&reader->lines, &taker);
}

json_t *samples_reader_to_json(const struct samples_reader *reader) {
    json_t *kept = json_array();
    size_t count = json_array_size(reader->kept);
    int failed = !kept || json_array_extend(kept, reader->kept);
    if (reader->last && json_array_get(reader->kept, count - 1) != reader->last)
        json_push(&kept, json_incref(reader->last));
    return json_pack("{s:I, s:o}", "count", (json_int_t)reader->count, "kept", json_unless(failed, kept));
}

enum { LINE_BYTES_MAX = 1 << 23 }; /* a line has about 250, and a few per expert */

/* Lines of Ballast 0.1.0. */
static const struct json_renamed renamed[] = {{"expert_least", "expert_min"}, {"expert_most", "expert_max"}};

const char *metric_name(enum metric metric) {
    static const char *const names[] = {
#define METRIC_NAME(name, text) text,
        METRIC_LIST(METRIC_NAME)};
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
    AUTO(metrics_reader_close)
    struct metrics_reader reader = {.curves = mem_array(METRIC_CURVES, sizeof *reader.curves), .replans = json_array()};
    if (!reader.curves) return STATUS_FAILED;
    if (!reader.replans) return status_no_memory(0, "a run's metrics");
    TRY(growing_file_open(path, LINE_BYTES_MAX, &reader.lines));
    forget(&reader);
    *out = TAKE(reader);
    return STATUS_OK;
}

void metrics_reader_close(struct metrics_reader *reader) {
    growing_file_close(&reader->lines);
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

/* Parses a change of the plan, lines of other programs, and invalid lines. */
static enum status parse_line(struct metrics_reader *reader, const char *name, const char *text, size_t bytes,
                              struct metrics_line *out) {
    json_auto_t *object = NULL;
    *out = (struct metrics_line){0};
    TRY(json_parse_object(name, text, bytes, &object));
    if (json_object_get(object, renamed[0].before))
        TRY(json_rename_keys(name, "", object, renamed, sizeof renamed / sizeof *renamed));
    TRY(json_require(name, object, "step"));
    int64_t min = json_object_get(object, "replan") ? 0 : 1; /* a plan may change before the first step */
    TRY(json_read_int(name, object, "step", min, INT64_MAX, &out->step));
    for (int i = 0; i < METRIC_COUNT; i++) {
        const char *field = metric_name((enum metric)i);
        out->values[i] = NAN;
        TRY(json_read_double(name, object, field, -HUGE_VAL, HUGE_VAL, &out->values[i]));
    }
    TRY(keep_replan(reader, object));
    out->expert_slots = json_incref(json_object_get(object, "expert_slots"));
    return STATUS_OK;
}

static enum status take_line(void *payload, const struct growing_file *lines, const char *text, size_t bytes) {
    struct metrics_reader *reader = payload;
    char name[LINE_NAME_BYTES];
    struct metrics_line line;
    bool scanned = metrics_line_scan(text, &line);
    if (!scanned || line.step < reader->step) (void)growing_file_name(lines, name);
    if (!scanned) TRY(parse_line(reader, name, text, bytes, &line));
    enum status status = take(reader, name, &line);
    json_decref(line.expert_slots);
    return status;
}

enum status metrics_reader_advance(struct metrics_reader *reader) {
    const struct line_taker taker = {reader, forget, take_line};
    return growing_file_advance(&reader->lines, &taker);
}

static json_t *number_or_null(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *last_to_json(const struct metrics_reader *reader) {
    json_t *last = json_object();
    for (int i = 0; i < METRIC_COUNT; i++)
        json_put(&last, metric_name((enum metric)i), number_or_null(reader->last[i]));
    return last;
}

static json_t *curves_to_json(const struct metrics_reader *reader) {
    json_t *curves = json_object();
    for (int i = 0; i < METRIC_CURVES; i++)
        if (reader->curves[i].count > 0)
            json_put(&curves, metric_name((enum metric)i), curve_to_json(&reader->curves[i]));
    return curves;
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
