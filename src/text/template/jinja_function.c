/* Functions: range, namespace, dict, raise_exception, strftime_now. */
#include <string.h>
#include <time.h>

#include "text/template/jinja_rendering.h"

static enum status read_integer(struct jinja_rendering *rendering, const char *what, const struct jinja_value *value,
                                int64_t *out) {
    if (value->kind != JINJA_INTEGER && value->kind != JINJA_BOOL)
        return jinja_fail(rendering, "%s: '%s' is not a whole number", what, jinja_type_name(value));
    *out = value->kind == JINJA_BOOL ? (int64_t)value->truth : value->integer;
    return STATUS_OK;
}

static enum status call_range(struct jinja_rendering *rendering, const struct jinja_arguments *arguments,
                              struct jinja_value *out) {
    struct jinja_value values[3];
    int64_t first = 0, last = 0, step = 1;
    TRY(jinja_bind_arguments(rendering, "range", arguments, NULL, 3, values));
    TRY(read_integer(rendering, "range", &values[arguments->count > 1], &last));
    if (arguments->count > 1) TRY(read_integer(rendering, "range", &values[0], &first));
    if (arguments->count > 2) TRY(read_integer(rendering, "range", &values[2], &step));
    if (step == 0) return jinja_fail(rendering, "range: the step is zero");
    __int128 distance = step > 0 ? (__int128)last - first : (__int128)first - last;
    __int128 stride = step > 0 ? step : -(__int128)step, count = distance > 0 ? (distance - 1) / stride + 1 : 0;
    if (count > JINJA_RANGE_MAX) return jinja_fail(rendering, "range: more than %d items", JINJA_RANGE_MAX);
    return jinja_make_range(rendering, first, last, step, (size_t)count, out);
}

/* dict(mapping, key=value, …) */
static enum status call_dict(struct jinja_rendering *rendering, const struct jinja_arguments *arguments,
                             struct jinja_value *out) {
    if (arguments->count > 1) return jinja_fail(rendering, "expected at most 1 argument, got %zu", arguments->count);
    TRY(jinja_make_dict(rendering, out));
    if (arguments->count == 1) {
        if (arguments->items[0].kind != JINJA_DICT)
            return jinja_fail(rendering, "making a dict of a '%s' is not supported",
                              jinja_type_name(&arguments->items[0]));
        const struct jinja_dict *from = arguments->items[0].dict;
        for (size_t i = 0; i < from->count; i++)
            TRY(jinja_dict_set(rendering, out->dict, from->pairs[i].key, from->pairs[i].value));
    }
    for (size_t i = 0; i < arguments->keyword_count; i++) {
        const struct jinja_argument *keyword = &arguments->keywords[i];
        TRY(jinja_dict_set(rendering, out->dict, jinja_string(keyword->name, keyword->bytes), keyword->value));
    }
    return STATUS_OK;
}

static enum status call_namespace(struct jinja_rendering *rendering, const struct jinja_arguments *arguments,
                                  struct jinja_value *out) {
    TRY(call_dict(rendering, arguments, out));
    out->kind = JINJA_NAMESPACE;
    return STATUS_OK;
}

static enum status call_raise(struct jinja_rendering *rendering, const struct jinja_arguments *arguments,
                              struct jinja_value *out) {
    static const char *const names[] = {"message"};
    struct jinja_value value, text;
    TRY(jinja_bind_arguments(rendering, "raise_exception", arguments, names, 1, &value));
    TRY(jinja_to_string(rendering, &value, &text));
    *out = jinja_none();
    int bytes = text.string.bytes < 300 ? (int)text.string.bytes : 300;
    return jinja_fail(rendering, "the template says: %.*s", bytes, text.string.text);
}

enum { DATE_WORK = 500 };

/* In UTC and in English, so that the same data give the same tokens everywhere. */
static enum status call_strftime(struct jinja_rendering *rendering, const struct jinja_arguments *arguments,
                                 struct jinja_value *out) {
    static const char *const names[] = {"format"};
    static const char known[] = "aAbBdHIjmMpSuUwWyYFTDRe%n";
    struct jinja_value value;
    char format[128], text[512];
    TRY(jinja_bind_arguments(rendering, "strftime_now", arguments, names, 1, &value));
    if (value.kind != JINJA_STRING || value.string.bytes == 0 || value.string.bytes >= sizeof format)
        return jinja_fail(rendering, "strftime_now: a format of 1 to %zu bytes is expected", sizeof format - 1);
    memcpy(format, value.string.text, value.string.bytes);
    format[value.string.bytes] = '\0';
    for (const char *at = strchr(format, '%'); at; at = strchr(at + 2, '%'))
        if (at[1] == '\0' || !strchr(known, at[1]))
            return jinja_fail(rendering, "strftime_now: the format '%s' is not supported", format);
    TRY(jinja_charge(rendering, DATE_WORK));
    time_t now = (time_t)rendering->now_s;
    struct tm date;
    if (!gmtime_r(&now, &date)) return jinja_fail(rendering, "strftime_now: the time is out of range");
    size_t bytes = strftime(text, sizeof text, format, &date);
    return jinja_copy_string(rendering, text, bytes, out);
}

const struct jinja_function jinja_functions[] = {
    {"range", call_range},           {"dict", call_dict},
    {"namespace", call_namespace},   {"raise_exception", call_raise},
    {"strftime_now", call_strftime}, {0},
};

const struct jinja_function *jinja_find_function(const char *name, size_t bytes) {
    for (const struct jinja_function *function = jinja_functions; function->name; function++)
        if (jinja_text_is(name, bytes, function->name)) return function;
    return NULL;
}
