#include "data/jsonl.h"

#include <string.h>

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

enum status jsonl_parse(const char *name, int64_t line, const char *json, size_t json_bytes, json_t **out,
                        const char **text, size_t *bytes) {
    if (is_blank(json, json_bytes)) {
        *out = NULL;
        return STATUS_OK;
    }
    /* Numbers as reals: whole numbers beyond 64 bits in fields that are not looked at must not matter. */
    json_error_t error;
    json_t *value =
        json_loadb(json, json_bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!value)
        return status_set(STATUS_BAD_INPUT, "%s: line %lld: not valid JSON: byte %d: %s", name, (long long)line,
                          error.position, error.text);
    const json_t *field = json_object_get(value, "text");
    if (!json_is_string(field)) {
        const char *wrong = !json_is_object(value) ? "not a JSON object"
                            : field                ? "text: must be a string"
                                                   : "text: missing";
        json_decref(value);
        (void)status_set(STATUS_BAD_INPUT, "%s: line %lld: %s", name, (long long)line, wrong);
        return status_hint(STATUS_BAD_INPUT, "each line of a .jsonl file holds one document: {\"text\": \"...\"}");
    }
    *text = json_string_value(field);
    *bytes = json_string_length(field);
    *out = value;
    return STATUS_OK;
}
