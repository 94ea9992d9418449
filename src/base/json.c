#include "base/json.h"

#include <math.h>

#include "base/file.h"
#include "base/text.h"

static bool is_number(char c) { return (c >= '0' && c <= '9') || c == '-'; }

/* The length of the string, the digits, or the other character at `text`. */
static size_t token_length(const char *text, size_t bytes) {
    size_t length = 1;
    if (is_number(text[0])) {
        while (length < bytes && (is_number(text[length]) || memchr("+.eE", text[length], 4)))
            length++;
        return length;
    }
    if (text[0] != '"') return 1;
    while (length < bytes && text[length] != '"')
        length += text[length] == '\\' ? 2 : 1;
    return length < bytes ? length + 1 : bytes;
}

static bool is_wide_integer(const char *text, size_t bytes) {
    if (!is_number(text[0])) return false;
    for (size_t i = 0; i < bytes; i++)
        if (!is_number(text[i])) return false;
    char digits[24];
    if (bytes >= sizeof digits) return true;
    memcpy(digits, text, bytes);
    digits[bytes] = '\0';
    errno = 0;
    (void)strtoll(digits, NULL, 10);
    return errno == ERANGE;
}

/* The text with an exponent behind each integer beyond 64 bits. NULL when out of memory. */
static char *widen(const char *text, size_t bytes, size_t *wide_bytes) {
    static const char exponent[] = "e0";
    char *wide = mem_array(bytes + bytes / 8 + 1, 1); /* such an integer has more than 16 digits */
    size_t to = 0;
    for (size_t at = 0; at < bytes && wide;) {
        size_t length = token_length(text + at, bytes - at);
        memcpy(wide + to, text + at, length);
        to += length;
        if (is_wide_integer(text + at, length)) {
            memcpy(wide + to, exponent, strlen(exponent));
            to += strlen(exponent);
        }
        at += length;
    }
    *wide_bytes = to;
    return wide;
}

json_t *json_load(const char *text, size_t bytes, size_t flags, bool *widened, json_error_t *error) {
    static const char mark[] = "\xEF\xBB\xBF"; /* a byte-order mark, which editors of Windows put first */
    if (bytes >= 3 && memcmp(text, mark, 3) == 0) text += 3, bytes -= 3;
    json_t *value = json_loadb(text, bytes, flags, error);
    /* Without memory jansson leaves the text empty and the code as it was. */
    bool wide = !value && error->text[0] && json_error_code(error) == json_error_numeric_overflow;
    if (widened) *widened = wide;
    if (!wide) return value;
    size_t wide_bytes;
    char *again = widen(text, bytes, &wide_bytes);
    error->text[0] = '\0';
    if (again) value = json_loadb(again, wide_bytes, flags, error);
    mem_free(again);
    return value;
}

enum status json_parse_object(const char *name, const char *text, size_t bytes, json_t **out) {
    json_error_t error;
    json_t *value = json_load(text, bytes, JSON_REJECT_DUPLICATES, NULL, &error);
    /* jansson says nothing of memory that it did not get. */
    if (!value && error.text[0] == '\0') return status_no_memory(bytes, name);
    if (!value)
        return status_set(STATUS_BAD_INPUT, "%s: not valid JSON: line %d, column %d: %s", name, error.line,
                          error.column, error.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return status_set(STATUS_BAD_INPUT, "%s: must hold a JSON object", name);
    }
    *out = value;
    return STATUS_OK;
}

enum status json_read_object(const char *path, size_t limit_bytes, json_t **out) {
    char *text;
    size_t bytes;
    TRY(file_read(path, limit_bytes, &text, &bytes));
    enum status status = json_parse_object(path, text, bytes, out);
    mem_free(text);
    return status;
}

const json_t *json_present(const json_t *object, const char *field) {
    const json_t *value = json_object_get(object, field);
    return json_is_null(value) ? NULL : value;
}

enum status json_require(const char *file, const json_t *object, const char *field) {
    if (json_present(object, field)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: missing", file, field);
}

/* Refuses a number that is not whole; one with a fraction has whole neighbours, which the hint names. */
static enum status refuse_type(const char *file, const char *field, const json_t *value, int64_t min, int64_t max) {
    enum status status = status_set(STATUS_BAD_INPUT, "%s: %s: must be a whole number", file, field);
    if (!json_is_real(value)) return status;
    double number = json_real_value(value);
    int64_t nearest = number <= (double)min ? min : number >= (double)max ? max : (int64_t)round(number);
    return status_hint(status, "the nearest legal value is %lld", (long long)nearest);
}

enum status json_read_int(const char *file, const json_t *object, const char *field, int64_t min, int64_t max,
                          int64_t *out) {
    const json_t *value = json_present(object, field);
    if (!value) return STATUS_OK;
    if (!json_is_integer(value)) return refuse_type(file, field, value, min, max);
    int64_t number = json_integer_value(value);
    if (number < min || number > max)
        return status_set(STATUS_BAD_INPUT,
                          "%s: %s: %lld is outside %lld to %lld" HINT "the nearest legal value is %lld", file, field,
                          (long long)number, (long long)min, (long long)max, (long long)(number < min ? min : max));
    *out = number;
    return STATUS_OK;
}

enum status json_read_version(const char *file, const json_t *object, int64_t newest, int64_t *out) {
    TRY(json_require(file, object, "version"));
    TRY(json_read_int(file, object, "version", 1, INT64_MAX, out));
    if (*out <= newest) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: version: %lld needs a newer Ballast; Ballast %s reads versions up to %lld",
                     file, (long long)*out, BALLAST_VERSION, (long long)newest);
    return status_hint(STATUS_BAD_INPUT, "update Ballast to the release that wrote the file");
}

enum status json_read_double(const char *file, const json_t *object, const char *field, double min, double max,
                             double *out) {
    const json_t *value = json_present(object, field);
    if (!value) return STATUS_OK;
    if (!json_is_number(value)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be a number", file, field);
    double number = json_number_value(value);
    if (!(number >= min && number <= max)) {
        enum status status =
            status_set(STATUS_BAD_INPUT, "%s: %s: %g is outside %g to %g", file, field, number, min, max);
        return status_hint(status, "the nearest legal value is %.15g", number < min ? min : max);
    }
    *out = number;
    return STATUS_OK;
}

enum status json_read_bool(const char *file, const json_t *object, const char *field, bool *out) {
    const json_t *value = json_present(object, field);
    if (!value) return STATUS_OK;
    if (!json_is_boolean(value)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be true or false", file, field);
    *out = json_is_true(value);
    return STATUS_OK;
}

enum status json_read_string(const char *file, const json_t *object, const char *field, const char **out) {
    const json_t *value = json_present(object, field);
    if (!value) return STATUS_OK;
    if (!json_is_string(value)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be a string", file, field);
    *out = json_string_value(value);
    return STATUS_OK;
}

enum status json_read_text(const char *file, const json_t *object, const char *field, size_t bytes, char *out) {
    const char *text = NULL;
    TRY(json_read_string(file, object, field, &text));
    if (!text) return STATUS_OK;
    size_t length = strlen(text);
    if (length < bytes) {
        memcpy(out, text, length + 1);
        return STATUS_OK;
    }
    enum status status = status_set(STATUS_BAD_INPUT, "%s: %s: is longer than %zu bytes", file, field, bytes - 1);
    return status_hint(status, "the nearest legal length is %zu bytes", bytes - 1);
}

void json_put(json_t **object, const char *key, json_t *value) {
    *object = json_unless(json_object_set_new(*object, key, value), *object);
}

void json_push(json_t **array, json_t *value) { *array = json_unless(json_array_append_new(*array, value), *array); }

json_t *json_unless(int failed, json_t *value) {
    if (!failed) return value;
    json_decref(value);
    return NULL;
}

json_t *json_made(int failed, json_t *value, const char *what) {
    json_t *made = json_unless(failed, value);
    if (!made) (void)status_no_memory(0, what);
    return made;
}

struct text {
    VEC(char) bytes;
    bool failed; /* jansson goes on after some failures */
};

static int add_text(const char *bytes, size_t count, void *payload) {
    struct text *text = payload;
    text->failed = text->failed || vec_reserve(&text->bytes, text->bytes.count + count + 1) != STATUS_OK;
    if (text->failed) return -1;
    memcpy(text->bytes.items + text->bytes.count, bytes, count);
    text->bytes.count += count;
    text->bytes.items[text->bytes.count] = '\0';
    return 0;
}

char *json_text(const json_t *value, size_t flags) {
    struct text text = {.failed = false};
    if (json_dump_callback(value, add_text, &text, flags) == 0 && !text.failed) return text.bytes.items;
    (void)status_no_memory(text.bytes.count, "JSON text");
    vec_free(&text.bytes);
    return NULL;
}

static enum status write_text(const char *path, const json_t *value, size_t flags, struct file_sums *sums) {
    char *text = json_text(value, flags);
    if (!text) return STATUS_FAILED;
    size_t length = strlen(text);
    text[length] = '\n'; /* over the NUL: file_replace is given the length */
    if (sums) file_sums_add(sums, text, length + 1);
    enum status status = file_replace(path, text, length + 1);
    mem_free(text);
    return status;
}

enum status json_write(const char *path, const json_t *value) { return json_write_summed(path, value, NULL); }

enum status json_write_summed(const char *path, const json_t *value, struct file_sums *sums) {
    return write_text(path, value, JSON_FILE_FLAGS, sums);
}

enum status json_write_compact(const char *path, const json_t *value, int digits) {
    return write_text(path, value, JSON_COMPACT | JSON_REAL_PRECISION((size_t)digits), NULL);
}

enum status json_refuse_unknown(const char *file, const char *where, const json_t *object, const char *const *known,
                                size_t count) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        bool found = false;
        for (size_t i = 0; i < count; i++)
            found |= strcmp(key, known[i]) == 0;
        if (found) continue;
        enum status status = status_set(STATUS_BAD_INPUT, "%s: %s%s: unknown field", file, where, key);
        return nearest_hint(status, "field", key, known, count);
    }
    return STATUS_OK;
}

const char *json_name_now(const struct json_renamed *renamed, size_t count, const char *before) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(before, renamed[i].before) == 0) return renamed[i].now;
    return before;
}

enum status json_rename_keys(const char *file, const char *where, json_t *object, const struct json_renamed *renamed,
                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        json_t *value = json_object_get(object, renamed[i].before);
        if (json_object_get(object, renamed[i].now))
            return status_hint(status_set(STATUS_BAD_INPUT, "%s: %s%s: unknown field", file, where, renamed[i].now),
                               "this version of the format calls it \"%s\"", renamed[i].before);
        if (!value) continue;
        if (json_object_set(object, renamed[i].now, value) != 0) return status_no_memory(0, "a file's JSON");
        (void)json_object_del(object, renamed[i].before);
    }
    return STATUS_OK;
}
