#include "data/source.h"

#include <sys/stat.h>

#include "base/folder.h"
#include "base/json.h"
#include "base/text.h"

static const struct {
    const char *extension;
    enum source_kind kind;
} kinds[] = {{".txt", SOURCE_TEXT}, {".jsonl", SOURCE_JSONL}, {".bin", SOURCE_TOKENS}};

/* Common kinds of data files that Ballast does not read, with the command that converts each. */
static const struct {
    const char *extension, *what, *way;
} unread[] = {
    {".parquet", "parquet is not read yet",
     "make JSON lines of it: python -c \"import pandas; pandas.read_parquet('IN.parquet').to_json('OUT.jsonl', "
     "orient='records', lines=True)\""},
    {".arrow", "arrow files are not read",
     "make JSON lines of it, in Python: datasets.Dataset.from_file('IN.arrow').to_json('OUT.jsonl')"},
    {".csv", "tables are not read",
     "make JSON lines of it: python -c \"import pandas; pandas.read_csv('IN.csv').to_json('OUT.jsonl', "
     "orient='records', lines=True)\""},
    {".gz", "compressed files are not read", "unpack it with gunzip and give the .txt or .jsonl"},
    {".zst", "compressed files are not read", "unpack it with unzstd and give the .txt or .jsonl"},
};

/* One JSON value, or lines of them. */
static enum status refuse_json(const char *path) {
    char first[4096];
    struct file_input file;
    TRY(file_input_open(path, &file));
    size_t at = 0, bytes = file.bytes < sizeof first ? file.bytes : sizeof first;
    enum status status = file_input_read(&file, 0, bytes, first);
    file_input_close(&file);
    TRY(status);
    while (at < bytes && strchr(" \t\r\n", first[at]) && first[at])
        at++;
    bool array = at < bytes && first[at] == '[';
    (void)status_set(STATUS_BAD_INPUT, "%s: %s is read only as JSON lines (.jsonl), one object a line", path,
                     array ? "an array" : "JSON");
    if (array) return status_hint(STATUS_BAD_INPUT, "make them of it: jq -c '.[]' %s > OUT.jsonl", path);
    return status_hint(STATUS_BAD_INPUT, "if it has an object a line, name it .jsonl; else jq -c . %s > OUT.jsonl",
                       path);
}

static enum status refuse_kind(const char *path, const char *dot) {
    if (dot && strcmp(dot, ".json") == 0) return refuse_json(path);
    for (size_t i = 0; dot && i < sizeof unread / sizeof unread[0]; i++)
        if (strcmp(dot, unread[i].extension) == 0)
            return status_set(STATUS_BAD_INPUT, "%s: %s" HINT "%s", path, unread[i].what, unread[i].way);
    (void)status_set(STATUS_BAD_INPUT, "%s: not a kind of data file that is known", path);
    return status_hint(STATUS_BAD_INPUT, "data are .txt, .jsonl ({\"text\": ...}, {\"prompt\": ..., \"completion\": "
                                         "...} or {\"messages\": [...]} a line), .bin (tokens with llm.c's header), or "
                                         "a directory with train.* and valid.*");
}

static enum status find_kind(const char *path, enum source_kind *out) {
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');
    for (size_t i = 0; dot && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(dot, kinds[i].extension) == 0) {
            *out = kinds[i].kind;
            return STATUS_OK;
        }
    return refuse_kind(path, dot);
}

/* The encoding of a text's beginning if it is not UTF-8: by its byte-order mark, or by a zero in every other byte, as
 * in all Western text in UTF-16. NULL: UTF-8. */
static const char *find_encoding(const unsigned char *text, size_t bytes) {
    size_t zeros[2] = {0};
    if (bytes >= 4 && (memcmp(text, "\xFF\xFE\0\0", 4) == 0 || memcmp(text, "\0\0\xFE\xFF", 4) == 0)) return "UTF-32";
    if (bytes >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0)) return "UTF-16";
    for (size_t i = 0; i < bytes && bytes >= 8; i++)
        zeros[i % 2] += text[i] == 0;
    if (zeros[0] == 0 && zeros[1] > bytes / 4) return "UTF-16LE";
    return zeros[1] == 0 && zeros[0] > bytes / 4 ? "UTF-16BE" : NULL;
}

static enum status require_utf8(const char *path, const struct file_input *file) {
    unsigned char first[4096];
    size_t bytes = file->bytes < sizeof first ? file->bytes : sizeof first;
    TRY(file_input_read(file, 0, bytes, first));
    const char *encoding = find_encoding(first, bytes);
    if (!encoding) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "%s: is %s; text is read as UTF-8", path, encoding),
                       "convert it: iconv -f %s -t UTF-8 %s > OUT", encoding, path);
}

/* Finds the kind of a .jsonl file by its lines. */
static enum status examine_text(const char *path, const struct jsonl_columns *columns, enum source_kind *kind) {
    AUTO(file_input_close) struct file_input file = {0};
    TRY(file_input_open(path, &file));
    TRY(require_utf8(path, &file));
    if (*kind == SOURCE_JSONL) TRY(jsonl_find_file_kind(&file, columns, kind));
    return STATUS_OK;
}

static enum status add_file(const char *path, const struct jsonl_columns *columns, struct sources *sources) {
    struct stat info;
    if (stat(path, &info) != 0) return file_input_failed(path, "open");
    struct source source = {0};
    TRY(find_kind(path, &source.kind));
    if (source.kind != SOURCE_TOKENS) TRY(examine_text(path, columns, &source.kind));
    source.path = mem_string(path);
    if (!source.path) return STATUS_FAILED;
    enum status status = vec_push(sources, source);
    if (status != STATUS_OK) mem_free(source.path);
    return status;
}

/* Names of splits, as in the library datasets: train.jsonl, train-00000-of-00002.jsonl. */
static const char *const train_names[] = {"train", NULL};
static const char *const valid_names[] = {"valid", "validation", "val", "dev", NULL};

static bool is_of_split(const char *file, const char *const *split) {
    for (; *split; split++) {
        size_t length = strlen(*split);
        if (strncmp(file, *split, length) == 0 && (file[length] == '.' || file[length] == '-')) return true;
    }
    return false;
}

static enum status add_folder(const char *folder, const struct names *names, const char *const *split,
                              const struct jsonl_columns *columns, struct sources *sources) {
    enum status status = STATUS_OK;
    for (size_t i = 0; i < names->count && status == STATUS_OK; i++) {
        if (!is_of_split(names->items[i], split)) continue;
        char *path = path_join(folder, names->items[i]);
        status = path ? add_file(path, columns, sources) : STATUS_FAILED;
        mem_free(path);
    }
    return status;
}

/* Lists the directory's files of both splits. BAD_INPUT without files of the split `required`. */
static enum status list_folder(const char *folder, const char *const *required, const struct jsonl_columns *columns,
                               struct sources *train, struct sources *valid) {
    AUTO(names_free) struct names names = {0};
    TRY(folder_list(folder, &names));
    bool found = false;
    for (size_t i = 0; i < names.count; i++)
        found = found || is_of_split(names.items[i], required);
    if (!found)
        return status_set(STATUS_BAD_INPUT,
                          "%s: a directory without a file %s.* or %s-*" HINT
                          "rename the files, or name them one by one: .txt, .jsonl, .bin",
                          folder, *required, *required);
    if (train) TRY(add_folder(folder, &names, train_names, columns, train));
    return add_folder(folder, &names, valid_names, columns, valid);
}

enum { WEIGHT_MAX = 1000000, WEIGHT_DECIMALS = 6 };

/* A decimal number as millionths; false if it is not a number, or out of range. */
static bool parse_weight(const char *text, int64_t *out) {
    int64_t value = 0;
    int decimals = -1, digits = 0;
    for (; *text; text++) {
        if (*text == '.' && decimals < 0) {
            decimals = 0;
            continue;
        }
        if (*text < '0' || *text > '9' || (decimals < 0 && value > WEIGHT_MAX)) return false;
        if (decimals >= 0 && ++decimals > WEIGHT_DECIMALS) return false;
        value = 10 * value + (*text - '0');
        digits++;
    }
    for (int i = decimals > 0 ? decimals : 0; i < WEIGHT_DECIMALS; i++)
        value *= 10;
    *out = value;
    return digits > 0 && value > 0 && value <= (int64_t)WEIGHT_MAX * 1000000;
}

enum status source_split_argument(const char *argument, size_t *path_bytes, int64_t *weight) {
    const char *colon = strrchr(argument, ':');
    bool number = colon && colon[1] != '\0' && colon[1 + strspn(colon + 1, "+-.0123456789eE")] == '\0';
    *weight = 0;
    *path_bytes = strlen(argument);
    if (!number || file_exists(argument)) return STATUS_OK;
    if (!parse_weight(colon + 1, weight))
        return status_set(STATUS_BAD_INPUT,
                          "%s: weight: is not legal" HINT "must be above 0 and at most %d, with at most %d decimals",
                          argument, WEIGHT_MAX, WEIGHT_DECIMALS);
    *path_bytes = (size_t)(colon - argument);
    return STATUS_OK;
}

enum status sources_add_train(const char *argument, const struct jsonl_columns *columns, struct sources *train,
                              struct sources *valid) {
    size_t path_bytes, first = train->count;
    size_t number = first > 0 ? train->items[first - 1].argument + 1 : 0;
    int64_t weight;
    TRY(source_split_argument(argument, &path_bytes, &weight));
    char *path = mem_format("%.*s", (int)path_bytes, argument);
    if (!path) return STATUS_FAILED;
    enum status status =
        file_is_folder(path) ? list_folder(path, train_names, columns, train, valid) : add_file(path, columns, train);
    mem_free(path);
    for (size_t i = first; i < train->count; i++) {
        train->items[i].argument = number;
        train->items[i].weight = weight;
    }
    return status;
}

enum status sources_add_valid(const char *path, const struct jsonl_columns *columns, struct sources *valid) {
    size_t path_bytes;
    int64_t weight;
    TRY(source_split_argument(path, &path_bytes, &weight));
    if (weight > 0)
        return status_set(STATUS_BAD_INPUT, "%s: a weight is for training data: all validation data are read once",
                          path);
    if (file_is_folder(path)) return list_folder(path, valid_names, columns, NULL, valid);
    return add_file(path, columns, valid);
}

void sources_free(struct sources *sources) {
    for (size_t i = 0; i < sources->count; i++)
        mem_free(sources->items[i].path);
    vec_free(sources);
}

static const char *const field_names[JSONL_FIELDS] = {
#define JSONL_FIELD_NAME(name, key) [JSONL_##name] = key,
    JSONL_FIELD_LIST(JSONL_FIELD_NAME)};

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

enum status jsonl_refuse(const struct jsonl_row *row, const char *field, const char *wrong) {
    return status_set(
        STATUS_BAD_INPUT,
        "%s: line %lld: %s%s" HINT
        "the lines of a .jsonl file are all documents, {\"text\": \"...\"}, or all examples, {\"prompt\": "
        "\"...\", \"completion\": \"...\"}, {\"messages\": [...]}, {\"prompt\", \"chosen\", \"rejected\"}, or as "
        "Alpaca or ShareGPT have them; "
        "--columns names other keys, as in --columns prompt=question,completion=answer",
        row->name, (long long)row->line, field, wrong);
}

enum status jsonl_refuse_missing(const struct jsonl_row *row, const char *field) {
    enum { KEYS_MAX = 12 };
    char text[400] = ": missing: the line has no keys";
    size_t used = 0, count = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)row->object, key, value) {
        if (count == KEYS_MAX) break;
        int wrote =
            snprintf(text + used, sizeof text - used, "%s%.24s", count > 0 ? ", " : ": missing: the keys are ", key);
        used += (size_t)wrote;
        count++;
    }
    if (json_object_size(row->object) > count) snprintf(text + used, sizeof text - used, ", ...");
    return jsonl_refuse(row, field, text);
}

enum status jsonl_parse_object(const char *name, int64_t line, const char *json, size_t json_bytes, json_t **out) {
    if (is_blank(json, json_bytes)) {
        *out = NULL;
        return STATUS_OK;
    }
    json_error_t error;
    json_t *value = json_load(json, json_bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL, &error);
    if (!value) {
        bool utf8 = utf8_valid_bytes(json, json_bytes) == json_bytes;
        return status_set(STATUS_BAD_INPUT, "%s: line %lld: not valid JSON: byte %d: %s" HINT "%s", name,
                          (long long)line, error.position, error.text,
                          utf8 ? "each line is one JSON object, such as {\"text\": \"...\"}"
                               : "the line is not UTF-8: convert the file, as with iconv -f latin1 -t utf-8");
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return jsonl_refuse(&(struct jsonl_row){NULL, name, line, NULL}, "", "not a JSON object");
    }
    *out = value;
    return STATUS_OK;
}

enum status jsonl_read_string(const struct jsonl_row *row, const char *field, const json_t **out) {
    const json_t *value = json_object_get(row->object, field);
    if (!value) return jsonl_refuse_missing(row, field);
    if (!json_is_string(value)) return jsonl_refuse(row, field, ": must be a string");
    *out = value;
    return STATUS_OK;
}

/* Sets of fields. */
#define BIT(field) (1u << JSONL_##field)

/* Chooses the kind by the fields present; false if they are too few. */
static bool kind_of(unsigned fields, enum source_kind *kind) {
    static const struct {
        enum source_kind kind;
        unsigned fields;
    } by_fields[] = {
        {SOURCE_PREFERENCES, BIT(CHOSEN) | BIT(REJECTED)}, {SOURCE_CHAT, BIT(MESSAGES)},
        {SOURCE_PROMPTS, BIT(PROMPT) | BIT(COMPLETION)},   {SOURCE_JSONL, BIT(TEXT)},
        {SOURCE_ALPACA, BIT(INSTRUCTION) | BIT(OUTPUT)},
    };
    for (size_t i = 0; i < sizeof by_fields / sizeof *by_fields; i++)
        if ((fields & by_fields[i].fields) == by_fields[i].fields) return *kind = by_fields[i].kind, true;
    return false;
}

static unsigned given_fields(const struct jsonl_columns *columns) {
    unsigned fields = 0;
    for (size_t i = 0; columns && i < JSONL_FIELDS; i++)
        fields |= (unsigned)(columns->keys[i] != NULL) << i;
    return fields;
}

const char *jsonl_key(const struct jsonl_columns *columns, enum jsonl_field field) {
    return given_fields(columns) ? columns->keys[field] : field_names[field];
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
    AUTO(jsonl_columns_free) struct jsonl_columns columns = {0};
    enum source_kind kind;
    for (const char *from = text; *from;) {
        size_t bytes = strcspn(from, ",");
        TRY(add_column(text, from, bytes, &columns));
        from += bytes + (from[bytes] == ',');
    }
    if (*text && !kind_of(given_fields(&columns), &kind)) TRY(refuse_columns(text));
    *out = TAKE(columns);
    return STATUS_OK;
}

void jsonl_columns_free(struct jsonl_columns *columns) {
    for (size_t i = 0; i < JSONL_FIELDS; i++)
        mem_free(columns->keys[i]);
    *columns = (struct jsonl_columns){0};
}

/* The kind of a line without columns. */
static enum source_kind kind_of_line(const json_t *object) {
    enum source_kind kind = SOURCE_JSONL;
    unsigned fields = 0;
    for (size_t i = 0; i < JSONL_FIELDS; i++)
        fields |= (unsigned)(json_object_get(object, field_names[i]) != NULL) << i;
    if (kind_of(fields, &kind) && kind != SOURCE_ALPACA) return kind;
    return json_object_get(object, "conversations") ? SOURCE_CHAT : kind;
}

static enum source_kind kind_of_object(const json_t *object, const struct jsonl_columns *columns) {
    enum source_kind kind;
    if (!kind_of(given_fields(columns), &kind)) kind = kind_of_line(object);
    if (kind == SOURCE_PREFERENCES && json_is_array(json_object_get(object, jsonl_key(columns, JSONL_CHOSEN))))
        return SOURCE_PREFERENCE_CHATS;
    if (kind == SOURCE_PROMPTS && json_is_array(json_object_get(object, jsonl_key(columns, JSONL_PROMPT))))
        return SOURCE_CHAT;
    return kind;
}

/* Whether some line is not blank. *object is the first such line, or NULL if that is malformed. */
static bool find_line(const char *text, size_t bytes, json_t **object) {
    struct line_reader reader = {.text = text, .bytes = bytes};
    const char *line;
    size_t length;
    *object = NULL;
    while (line_read(&reader, &line, &length)) {
        if (is_blank(line, length)) continue;
        (void)jsonl_parse_object("", reader.line, line, length, object);
        return true;
    }
    return false;
}

enum status jsonl_find_file_kind(const struct file_input *file, const struct jsonl_columns *columns,
                                 enum source_kind *out) {
    enum { FIRST_BYTES = 1 << 16 };
    for (size_t want = FIRST_BYTES;; want *= 2) {
        size_t bytes = want < file->bytes ? want : file->bytes;
        char *text = mem_array(bytes + 1, 1);
        if (!text) return STATUS_FAILED;
        enum status status = file_input_read(file, 0, bytes, text);
        size_t lines = bytes; /* of complete lines, unless it is the whole file */
        while (bytes < file->bytes && lines > 0 && text[lines - 1] != '\n')
            lines--;
        json_t *object = NULL;
        bool enough = status != STATUS_OK || find_line(text, lines, &object) || bytes == file->bytes;
        if (status == STATUS_OK && enough) *out = kind_of_object(object, columns);
        json_decref(object);
        mem_free(text);
        if (enough) return status;
    }
}
