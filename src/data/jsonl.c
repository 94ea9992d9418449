#include "data/jsonl.h"

#include <string.h>

#include "base/mem.h"

bool line_read(struct line_reader *reader, const char **line, size_t *bytes) {
    if (reader->next >= reader->bytes) return false;
    const char *from = reader->text + reader->next;
    size_t left = reader->bytes - reader->next;
    const char *end = memchr(from, '\n', left);
    *line = from;
    *bytes = end ? (size_t)(end - from) : left;
    reader->next += *bytes + (end ? 1 : 0);
    reader->line++;
    return true;
}

static bool is_blank(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

static enum status refuse_line(const char *name, int64_t line, const char *field, const char *wrong) {
    (void)status_set(STATUS_BAD_INPUT, "%s: line %lld: %s%s", name, (long long)line, field, wrong);
    return status_hint(STATUS_BAD_INPUT,
                       "the lines of a .jsonl file are all documents, {\"text\": \"...\"}, or all "
                       "examples, {\"prompt\": \"...\", \"completion\": \"...\"} or {\"messages\": [...]}");
}

enum status jsonl_parse_object(const char *name, int64_t line, const char *json, size_t json_bytes, bool whole_numbers,
                               json_t **out) {
    if (is_blank(json, json_bytes)) {
        *out = NULL;
        return STATUS_OK;
    }
    /* Numbers as reals: whole numbers beyond 64 bits in fields that are not looked at must not matter. */
    json_error_t error;
    size_t flags = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | (whole_numbers ? 0 : JSON_DECODE_INT_AS_REAL);
    json_t *value = json_loadb(json, json_bytes, flags, &error);
    if (!value)
        return status_set(STATUS_BAD_INPUT, "%s: line %lld: not valid JSON: byte %d: %s", name, (long long)line,
                          error.position, error.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return refuse_line(name, line, "", "not a JSON object");
    }
    *out = value;
    return STATUS_OK;
}

enum status jsonl_read_string(const char *name, int64_t line, const json_t *object, const char *field,
                              const char **text, size_t *bytes) {
    const json_t *value = json_object_get(object, field);
    if (!json_is_string(value)) return refuse_line(name, line, field, value ? ": must be a string" : ": missing");
    *text = json_string_value(value);
    *bytes = json_string_length(value);
    return STATUS_OK;
}

enum status jsonl_parse(const char *name, int64_t line, const char *json, size_t json_bytes, json_t **out,
                        const char **text, size_t *bytes) {
    json_t *value;
    TRY(jsonl_parse_object(name, line, json, json_bytes, false, &value));
    enum status status = value ? jsonl_read_string(name, line, value, "text", text, bytes) : STATUS_OK;
    if (status != STATUS_OK)
        json_decref(value);
    else
        *out = value;
    return status;
}

enum jsonl_kind jsonl_find_kind(const char *text, size_t bytes) {
    struct line_reader reader = {.text = text, .bytes = bytes};
    const char *line;
    size_t line_bytes;
    json_t *value = NULL;
    while (!value && line_read(&reader, &line, &line_bytes))
        if (jsonl_parse_object("", reader.line, line, line_bytes, false, &value) != STATUS_OK) return JSONL_TEXT;
    enum jsonl_kind kind = JSONL_TEXT;
    if (json_object_get(value, "messages"))
        kind = JSONL_CHAT;
    else if (json_object_get(value, "prompt") && json_object_get(value, "completion"))
        kind = JSONL_PROMPTS;
    json_decref(value);
    return kind;
}

/* Bytes up to the last line's end. */
static size_t whole_lines(const char *text, size_t bytes) {
    while (bytes > 0 && text[bytes - 1] != '\n')
        bytes--;
    return bytes;
}

static bool has_line(const char *text, size_t bytes) {
    struct line_reader reader = {.text = text, .bytes = bytes};
    const char *line;
    size_t length;
    while (line_read(&reader, &line, &length))
        if (!is_blank(line, length)) return true;
    return false;
}

enum status jsonl_find_file_kind(const struct file_input *file, enum jsonl_kind *out) {
    enum { FIRST_BYTES = 1 << 16 };
    for (size_t want = FIRST_BYTES;; want *= 2) {
        size_t bytes = want < file->bytes ? want : file->bytes;
        char *text = mem_array(bytes + 1, 1);
        if (!text) return STATUS_FAILED;
        enum status status = file_input_read(file, 0, bytes, text);
        size_t lines = bytes == file->bytes ? bytes : whole_lines(text, bytes);
        bool enough = bytes == file->bytes || has_line(text, lines);
        if (status == STATUS_OK && enough) *out = jsonl_find_kind(text, lines);
        mem_free(text);
        if (status != STATUS_OK || enough) return status;
    }
}
