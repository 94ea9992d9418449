#include "report/page/samples_reader.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum { LINE_BYTES_MAX = 1 << 23 };

static void forget(void *payload) {
    struct samples_reader *reader = payload;
    reader->count = 0;
    reader->stride = 1;
    json_array_clear(reader->kept);
    json_decref(reader->last);
    reader->last = NULL;
}

enum status samples_reader_open(const char *path, struct samples_reader *out) {
    struct samples_reader reader = {.stride = 1, .kept = json_array()};
    enum status status;
    TRY_GOTO(status, reader.kept ? STATUS_OK : status_no_memory(0, "samples"), failed);
    TRY_GOTO(status, line_reader_open(path, LINE_BYTES_MAX, &reader.lines), failed);
    *out = reader;
    return STATUS_OK;
failed:
    samples_reader_close(&reader);
    return status;
}

void samples_reader_close(struct samples_reader *reader) {
    line_reader_close(&reader->lines);
    json_decref(reader->kept);
    json_decref(reader->last);
    *reader = (struct samples_reader){0};
}

/* The text, or its first bytes as far as whole characters go, with an ellipsis. */
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

/* Every second one goes, and of those to come every second one stays out. */
static void halve(struct samples_reader *reader) {
    for (size_t i = json_array_size(reader->kept); i-- > 0;)
        if (i % 2 == 1) json_array_remove(reader->kept, i);
    reader->stride *= 2;
}

static enum status take_line(void *payload, const struct line_reader *lines, const char *text, size_t bytes) {
    struct samples_reader *reader = payload;
    char name[LINE_NAME_BYTES];
    json_t *object = NULL, *sample = NULL;
    TRY(json_parse_object(line_reader_name(lines, name), text, bytes, &object));
    enum status status = read_sample(name, object, &sample);
    json_decref(object);
    if (status != STATUS_OK) return status;
    if (json_array_size(reader->kept) == SAMPLES_MAX) halve(reader);
    if (reader->count % reader->stride == 0 && json_array_append(reader->kept, sample) != 0)
        status = status_no_memory(0, "samples");
    reader->count++;
    json_decref(reader->last);
    reader->last = sample;
    return status;
}

enum status samples_reader_advance(struct samples_reader *reader) {
    const struct line_taker taker = {reader, forget, take_line};
    return line_reader_advance(&reader->lines, &taker);
}

json_t *samples_reader_to_json(const struct samples_reader *reader) {
    json_t *kept = json_array();
    size_t count = json_array_size(reader->kept);
    int failed = !kept || json_array_extend(kept, reader->kept);
    if (reader->last && json_array_get(reader->kept, count - 1) != reader->last)
        failed |= json_array_append(kept, reader->last);
    if (!failed) return json_pack("{s:I, s:o}", "count", (json_int_t)reader->count, "kept", kept);
    json_decref(kept);
    return NULL;
}
