/* Tests, which may stand behind `is`, and functions. */
#include <time.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/template/render.h"

#define PREDICATE(name)                                                                                                \
    static enum status name(struct jinja_rendering *rendering, const struct jinja_value *value,                        \
                            const struct jinja_value *argument, bool *out)
#define UNUSED (void)rendering, (void)value, (void)argument

#define KIND_PREDICATE(name, condition)                                                                                \
    PREDICATE(name) {                                                                                                  \
        UNUSED;                                                                                                        \
        *out = (condition);                                                                                            \
        return STATUS_OK;                                                                                              \
    }

KIND_PREDICATE(is_defined, value->kind != JINJA_UNDEFINED)
KIND_PREDICATE(is_undefined, value->kind == JINJA_UNDEFINED)
KIND_PREDICATE(is_none, value->kind == JINJA_NONE)
KIND_PREDICATE(is_boolean, value->kind == JINJA_BOOL)
KIND_PREDICATE(is_true, value->kind == JINJA_BOOL && value->truth)
KIND_PREDICATE(is_false, value->kind == JINJA_BOOL && !value->truth)
KIND_PREDICATE(is_integer, value->kind == JINJA_INTEGER)
KIND_PREDICATE(is_float, value->kind == JINJA_FLOAT)
KIND_PREDICATE(is_number, jinja_is_number(value))
KIND_PREDICATE(is_string, value->kind == JINJA_STRING)
KIND_PREDICATE(is_mapping, value->kind == JINJA_DICT)
KIND_PREDICATE(is_iterable, value->kind == JINJA_STRING || value->kind == JINJA_RANGE || value->kind == JINJA_SELF ||
                                value->kind == JINJA_LIST || value->kind == JINJA_TUPLE || value->kind == JINJA_DICT ||
                                value->kind == JINJA_UNDEFINED || value->kind == JINJA_GENERATOR)
KIND_PREDICATE(is_sequence, value->kind == JINJA_STRING || value->kind == JINJA_RANGE || value->kind == JINJA_LIST ||
                                value->kind == JINJA_TUPLE || value->kind == JINJA_DICT ||
                                value->kind == JINJA_UNDEFINED)
KIND_PREDICATE(is_callable, value->kind == JINJA_UNDEFINED || value->kind == JINJA_MACRO ||
                                value->kind == JINJA_FUNCTION || value->kind == JINJA_METHOD)

/* Identity, as far as values have one. */
PREDICATE(is_same) {
    *out = value->kind == argument->kind;
    if (!*out || value->kind == JINJA_NONE) return STATUS_OK;
    if (value->kind == JINJA_BOOL) return jinja_equal(rendering, value, argument, out);
    return jinja_fail(rendering, "sameas between values of type '%s' is not supported", jinja_type_name(value));
}

PREDICATE(is_equal) { return jinja_equal(rendering, value, argument, out); }

PREDICATE(is_unequal) {
    TRY(jinja_equal(rendering, value, argument, out));
    *out = !*out;
    return STATUS_OK;
}

#define ORDER_PREDICATE(name, condition)                                                                               \
    PREDICATE(name) {                                                                                                  \
        int order;                                                                                                     \
        TRY(jinja_compare(rendering, value, argument, &order));                                                        \
        *out = (condition);                                                                                            \
        return STATUS_OK;                                                                                              \
    }

ORDER_PREDICATE(is_less, order < 0)
ORDER_PREDICATE(is_less_or_equal, order <= 0)
ORDER_PREDICATE(is_greater, order > 0)
ORDER_PREDICATE(is_greater_or_equal, order >= 0)

PREDICATE(is_in) { return jinja_contains(rendering, argument, value, out); }

static enum status remainder_of(struct jinja_rendering *rendering, const struct jinja_value *value,
                                const struct jinja_value *divisor, bool *divides) {
    struct jinja_value rest, zero = jinja_integer(0);
    TRY(jinja_arithmetic(rendering, "%", 1, value, divisor, &rest));
    return jinja_equal(rendering, &rest, &zero, divides);
}

PREDICATE(is_divisible) { return remainder_of(rendering, value, argument, out); }

PREDICATE(is_even) {
    struct jinja_value two = jinja_integer(2);
    (void)argument;
    return remainder_of(rendering, value, &two, out);
}

PREDICATE(is_odd) {
    TRY(is_even(rendering, value, argument, out));
    *out = !*out;
    return STATUS_OK;
}

/* str.islower and str.isupper: some letter is, and none is of the other case. */
static enum status has_case(struct jinja_rendering *rendering, const struct jinja_value *value, bool upper, bool *out) {
    struct jinja_value text;
    size_t length;
    TRY(jinja_to_string(rendering, value, &text));
    TRY(jinja_charge(rendering, 2 * text.string.bytes));
    *out = false;
    for (size_t at = 0; at < text.string.bytes; at += length) {
        utf8proc_int32_t code = (utf8proc_int32_t)utf8_decode_valid(text.string.text + at, &length);
        bool is_lower = utf8proc_islower(code), is_upper = utf8proc_isupper(code);
        bool is_title = utf8proc_category(code) == UTF8PROC_CATEGORY_LT;
        if (is_title || (upper ? is_lower : is_upper)) {
            *out = false;
            return STATUS_OK;
        }
        *out |= upper ? is_upper : is_lower;
    }
    return STATUS_OK;
}

PREDICATE(is_lower) {
    (void)argument;
    return has_case(rendering, value, false, out);
}

PREDICATE(is_upper) {
    (void)argument;
    return has_case(rendering, value, true, out);
}

const struct jinja_predicate jinja_predicates[] = {
    {"defined", 0, is_defined},
    {"undefined", 0, is_undefined},
    {"none", 0, is_none},
    {"boolean", 0, is_boolean},
    {"true", 0, is_true},
    {"false", 0, is_false},
    {"integer", 0, is_integer},
    {"float", 0, is_float},
    {"number", 0, is_number},
    {"string", 0, is_string},
    {"mapping", 0, is_mapping},
    {"iterable", 0, is_iterable},
    {"sequence", 0, is_sequence},
    {"callable", 0, is_callable},
    {"sameas", 1, is_same},
    {"eq", 1, is_equal},
    {"equalto", 1, is_equal},
    {"ne", 1, is_unequal},
    {"lt", 1, is_less},
    {"lessthan", 1, is_less},
    {"le", 1, is_less_or_equal},
    {"gt", 1, is_greater},
    {"greaterthan", 1, is_greater},
    {"ge", 1, is_greater_or_equal},
    {"in", 1, is_in},
    {"divisibleby", 1, is_divisible},
    {"even", 0, is_even},
    {"odd", 0, is_odd},
    {"lower", 0, is_lower},
    {"upper", 0, is_upper},
    {0},
};

const struct jinja_predicate *jinja_find_predicate(const char *name, size_t bytes) {
    for (const struct jinja_predicate *test = jinja_predicates; test->name; test++)
        if (jinja_text_is(name, bytes, test->name)) return test;
    return NULL;
}

/* --- functions: range, namespace, dict, raise_exception, strftime_now --- */

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
