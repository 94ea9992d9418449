#include "data/jsonl.h"

#include "base/json.h"
#include "base/text.h"

static const char *const field_names[JSONL_FIELDS] = {
#define JSONL_FIELD_NAME(name, key) [JSONL_##name] = key,
    JSONL_FIELD_LIST(JSONL_FIELD_NAME)
#undef JSONL_FIELD_NAME
};

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

enum status jsonl_refuse(const char *name, int64_t line, const char *field, const char *wrong) {
    (void)status_set(STATUS_BAD_INPUT, "%s: line %lld: %s%s", name, (long long)line, field, wrong);
    return status_hint(
        STATUS_BAD_INPUT,
        "the lines of a .jsonl file are all documents, {\"text\": \"...\"}, or all examples, {\"prompt\": "
        "\"...\", \"completion\": \"...\"}, {\"messages\": [...]}, {\"prompt\", \"chosen\", \"rejected\"}, or as "
        "Alpaca or ShareGPT have them; "
        "--columns names other keys, as in --columns prompt=question,completion=answer");
}

enum status jsonl_refuse_missing(const char *name, int64_t line, const char *field, const json_t *object) {
    enum { KEYS_MAX = 12 };
    char text[400] = ": missing: the line has no keys";
    size_t used = 0, count = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (count == KEYS_MAX) break;
        int wrote =
            snprintf(text + used, sizeof text - used, "%s%.24s", count > 0 ? ", " : ": missing: the keys are ", key);
        used += (size_t)wrote;
        count++;
    }
    if (json_object_size(object) > count) snprintf(text + used, sizeof text - used, ", ...");
    return jsonl_refuse(name, line, field, text);
}

enum status jsonl_parse_object(const char *name, int64_t line, const char *json, size_t json_bytes, json_t **out) {
    if (is_blank(json, json_bytes)) {
        *out = NULL;
        return STATUS_OK;
    }
    json_error_t error;
    json_t *value = json_load(json, json_bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL, &error);
    if (!value) {
        (void)status_set(STATUS_BAD_INPUT, "%s: line %lld: not valid JSON: byte %d: %s", name, (long long)line,
                         error.position, error.text);
        if (utf8_valid_bytes(json, json_bytes) == json_bytes) return STATUS_BAD_INPUT;
        return status_hint(STATUS_BAD_INPUT,
                           "the line is not UTF-8: convert the file, as with iconv -f latin1 -t utf-8");
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return jsonl_refuse(name, line, "", "not a JSON object");
    }
    *out = value;
    return STATUS_OK;
}

enum status jsonl_read_string(const char *name, int64_t line, const json_t *object, const char *field,
                              const char **text, size_t *bytes) {
    const json_t *value = json_object_get(object, field);
    if (!value) return jsonl_refuse_missing(name, line, field, object);
    if (!json_is_string(value)) return jsonl_refuse(name, line, field, ": must be a string");
    *text = json_string_value(value);
    *bytes = json_string_length(value);
    return STATUS_OK;
}

const char *jsonl_key(const struct jsonl_columns *columns, enum jsonl_field field) {
    bool given = false;
    for (size_t i = 0; columns && i < JSONL_FIELDS; i++)
        given |= columns->keys[i] != NULL;
    return given ? columns->keys[field] : field_names[field];
}

static bool has(const struct jsonl_columns *columns, enum jsonl_field field) { return columns->keys[field] != NULL; }

/* By the fields that there are; false when they are not enough. */
static bool kind_of(const struct jsonl_columns *columns, enum jsonl_kind *kind) {
    if (has(columns, JSONL_CHOSEN) && has(columns, JSONL_REJECTED))
        *kind = JSONL_KIND_PREFERENCES;
    else if (has(columns, JSONL_MESSAGES))
        *kind = JSONL_KIND_CHAT;
    else if (has(columns, JSONL_PROMPT) && has(columns, JSONL_COMPLETION))
        *kind = JSONL_KIND_PROMPTS;
    else if (has(columns, JSONL_TEXT))
        *kind = JSONL_KIND_TEXT;
    else if (has(columns, JSONL_INSTRUCTION) && has(columns, JSONL_OUTPUT))
        *kind = JSONL_KIND_ALPACA;
    else
        return false;
    return true;
}

static enum status refuse_columns(const char *text) {
    (void)status_set(STATUS_BAD_INPUT, "--columns: '%s' does not say which keys are read", text);
    return status_hint(STATUS_BAD_INPUT,
                       "it is FIELD=KEY,... for text, or prompt and completion, or messages, or instruction, "
                       "output and input, or prompt, chosen and rejected: --columns prompt=question,completion=answer");
}

static enum status add_column(const char *text, const char *from, size_t bytes, struct jsonl_columns *out) {
    const char *equals = memchr(from, '=', bytes);
    size_t field = 0, field_bytes = equals ? (size_t)(equals - from) : 0;
    while (field < JSONL_FIELDS &&
           (strlen(field_names[field]) != field_bytes || memcmp(field_names[field], from, field_bytes) != 0))
        field++;
    if (!equals || field == JSONL_FIELDS || out->keys[field] || field_bytes + 1 == bytes) return refuse_columns(text);
    out->keys[field] = mem_format("%.*s", (int)(bytes - field_bytes - 1), equals + 1);
    return out->keys[field] ? STATUS_OK : STATUS_FAILED;
}

enum status jsonl_columns_parse(const char *text, struct jsonl_columns *out) {
    struct jsonl_columns columns = {0};
    enum status status;
    enum jsonl_kind kind;
    for (const char *from = text; *from;) {
        size_t bytes = strcspn(from, ",");
        TRY_GOTO(status, add_column(text, from, bytes, &columns), failed);
        from += bytes + (from[bytes] == ',');
    }
    if (*text && !kind_of(&columns, &kind)) TRY_GOTO(status, refuse_columns(text), failed);
    *out = columns;
    return STATUS_OK;
failed:
    jsonl_columns_free(&columns);
    return status;
}

void jsonl_columns_free(struct jsonl_columns *columns) {
    for (size_t i = 0; i < JSONL_FIELDS; i++)
        mem_free(columns->keys[i]);
    *columns = (struct jsonl_columns){0};
}

/* Of a line without columns. */
static enum jsonl_kind kind_of_line(const json_t *object) {
    struct jsonl_columns there = {0};
    enum jsonl_kind kind = JSONL_KIND_TEXT;
    bool conversations = json_object_get(object, "conversations") != NULL;
    for (size_t i = 0; i < JSONL_FIELDS; i++)
        if (json_object_get(object, field_names[i])) there.keys[i] = (char *)(uintptr_t)field_names[i];
    if (kind_of(&there, &kind) && kind != JSONL_KIND_ALPACA) return kind;
    return conversations ? JSONL_KIND_CHAT : kind;
}

static enum jsonl_kind kind_of_object(const json_t *object, const struct jsonl_columns *columns) {
    enum jsonl_kind kind = JSONL_KIND_TEXT;
    if (!columns || !kind_of(columns, &kind)) kind = kind_of_line(object);
    if (kind == JSONL_KIND_PREFERENCES && json_is_array(json_object_get(object, jsonl_key(columns, JSONL_CHOSEN))))
        return JSONL_KIND_PREFERENCE_CHATS;
    if (kind == JSONL_KIND_PROMPTS && json_is_array(json_object_get(object, jsonl_key(columns, JSONL_PROMPT))))
        return JSONL_KIND_CHAT;
    return kind;
}

/* The first line that is not blank; NULL when there is none, or it is malformed. */
static json_t *first_object(const char *text, size_t bytes) {
    struct line_reader reader = {.text = text, .bytes = bytes};
    const char *line;
    size_t line_bytes;
    json_t *value = NULL;
    while (!value && line_read(&reader, &line, &line_bytes))
        if (jsonl_parse_object("", reader.line, line, line_bytes, &value) != STATUS_OK) return NULL;
    return value;
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

enum status jsonl_find_file_kind(const struct file_input *file, const struct jsonl_columns *columns,
                                 enum jsonl_kind *out) {
    enum { FIRST_BYTES = 1 << 16 };
    for (size_t want = FIRST_BYTES;; want *= 2) {
        size_t bytes = want < file->bytes ? want : file->bytes;
        char *text = mem_array(bytes + 1, 1);
        if (!text) return STATUS_FAILED;
        enum status status = file_input_read(file, 0, bytes, text);
        size_t lines = bytes == file->bytes ? bytes : whole_lines(text, bytes);
        bool enough = bytes == file->bytes || has_line(text, lines);
        if (status == STATUS_OK && enough) {
            json_t *object = first_object(text, lines);
            *out = kind_of_object(object, columns);
            json_decref(object);
        }
        mem_free(text);
        if (status != STATUS_OK || enough) return status;
    }
}
