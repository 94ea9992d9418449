/* Filters: what may stand behind `|`. Those over the items of a list are in jinja_filter_list.c. */
#include "text/template/jinja_rendering.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/jinja_string.h"
#include "text/template/jinja_text.h"

#define FILTER(name)                                                                                                   \
    static enum status name(struct jinja_rendering *rendering, const struct jinja_value *value,                        \
                            const struct jinja_arguments *arguments, struct jinja_value *out)
#define BIND(what, count, ...)                                                                                         \
    struct jinja_value a[count];                                                                                       \
    static const char *const names[count] = {__VA_ARGS__};                                                             \
    TRY(jinja_bind_arguments(rendering, what, arguments, names, count, a))
#define NO_ARGUMENTS(what) TRY(jinja_bind_arguments(rendering, what, arguments, NULL, 0, NULL))

FILTER(filter_trim) {
    struct jinja_value text;
    BIND("trim", 1, "chars");
    TRY(jinja_to_string(rendering, value, &text));
    return jinja_strip(rendering, &text, &a[0], true, true, out);
}

#define CASE_FILTER(function, what, change)                                                                            \
    FILTER(function) {                                                                                                 \
        struct jinja_value text;                                                                                       \
        NO_ARGUMENTS(what);                                                                                            \
        TRY(jinja_to_string(rendering, value, &text));                                                                 \
        return jinja_change_case(rendering, &text, change, out);                                                       \
    }
CASE_FILTER(filter_lower, "lower", JINJA_CASE_LOWER)
CASE_FILTER(filter_upper, "upper", JINJA_CASE_UPPER)
CASE_FILTER(filter_capitalize, "capitalize", JINJA_CASE_CAPITALIZE)

FILTER(filter_string) {
    NO_ARGUMENTS("string");
    return jinja_to_string(rendering, value, out);
}

FILTER(filter_length) {
    size_t length;
    NO_ARGUMENTS("length");
    TRY(jinja_length(rendering, value, &length));
    *out = jinja_integer((int64_t)length);
    return STATUS_OK;
}

FILTER(filter_default) {
    BIND("default", 2, "default_value", "boolean");
    bool absent = value->kind == JINJA_UNDEFINED || (jinja_is_true(&a[1]) && !jinja_is_true(value));
    *out = *value;
    if (absent) *out = a[0].kind == JINJA_UNDEFINED ? jinja_literal("") : a[0];
    return STATUS_OK;
}

FILTER(filter_replace) {
    struct jinja_value text, from, to;
    int64_t max = -1;
    BIND("replace", 3, "old", "new", "count");
    if (arguments->count + arguments->keyword_count < 2) return jinja_fail(rendering, "replace: takes two arguments");
    TRY(jinja_to_string(rendering, value, &text));
    TRY(jinja_to_string(rendering, &a[0], &from));
    TRY(jinja_to_string(rendering, &a[1], &to));
    if (a[2].kind == JINJA_INTEGER) max = a[2].integer;
    return jinja_replace(rendering, &text, &from, &to, max, out);
}

FILTER(filter_join) {
    const struct jinja_list *items;
    struct jinja_value separator, attributes;
    BIND("join", 2, "d", "attribute");
    TRY(jinja_to_string(rendering, &a[0], &separator));
    TRY(jinja_iterate(rendering, value, &items));
    if (a[1].kind != JINJA_UNDEFINED && a[1].kind != JINJA_NONE) {
        TRY(jinja_list_attributes(rendering, items, &a[1], NULL, &attributes));
        items = attributes.list;
    }
    return jinja_join(rendering, &separator, items, true, out);
}

/* The indent of json.dumps: a string, or so many blanks. */
static enum status read_indent(struct jinja_rendering *rendering, const struct jinja_value *value, const char **out) {
    char *indent;
    *out = NULL;
    if (value->kind == JINJA_UNDEFINED || value->kind == JINJA_NONE) return STATUS_OK;
    bool text = value->kind == JINJA_STRING;
    int64_t count = text ? (int64_t)value->string.bytes : value->kind == JINJA_INTEGER ? value->integer : -1;
    if ((!text && value->kind != JINJA_INTEGER) || count > 64)
        return jinja_fail(rendering, "tojson: indent must be a string or a number of at most 64");
    if (count < 0) count = 0;
    TRY(jinja_alloc(rendering, (size_t)count + 1, 1, &indent));
    if (text && count > 0)
        memcpy(indent, value->string.text, (size_t)count);
    else
        memset(indent, ' ', (size_t)count);
    *out = indent;
    return STATUS_OK;
}

static enum status read_separator(struct jinja_rendering *rendering, const struct jinja_value *value,
                                  const char **out) {
    char *text;
    if (value->kind != JINJA_STRING) return jinja_fail(rendering, "tojson: separators must be two strings");
    TRY(jinja_alloc(rendering, value->string.bytes + 1, 1, &text));
    if (value->string.bytes > 0) memcpy(text, value->string.text, value->string.bytes);
    *out = text;
    return STATUS_OK;
}

FILTER(filter_tojson) {
    BIND("tojson", 4, "ensure_ascii", "indent", "separators", "sort_keys");
    struct jinja_json_options options = {.ascii = jinja_is_true(&a[0]), .sort_keys = jinja_is_true(&a[3])};
    bool separators = a[2].kind == JINJA_LIST || a[2].kind == JINJA_TUPLE;
    TRY(read_indent(rendering, &a[1], &options.indent));
    if (separators && a[2].list->count != 2) return jinja_fail(rendering, "tojson: separators must be two strings");
    if (separators) TRY(read_separator(rendering, &a[2].list->items[0], &options.item_separator));
    if (separators) TRY(read_separator(rendering, &a[2].list->items[1], &options.key_separator));
    return jinja_to_json(rendering, value, &options, out);
}

/* The digits of a text as int() reads them; false when they are none or do not fit. */
static bool parse_integer(const struct jinja_value *text, int64_t *out) {
    char digits[32] = "", *end;
    const char *from = text->string.text;
    size_t leading = jinja_leading_space(from, text->string.bytes);
    size_t bytes = text->string.bytes - leading;
    bytes -= jinja_trailing_space(from + leading, bytes);
    if (bytes == 0 || bytes >= sizeof digits) return false;
    memcpy(digits, from + leading, bytes);
    if (digits[0] == ' ' || strspn(digits, "+-0123456789") != bytes) return false;
    errno = 0;
    *out = strtoll(digits, &end, 10);
    return *end == '\0' && errno == 0;
}

static bool parse_float(const struct jinja_value *text, double *out) {
    char digits[64] = "", *end;
    size_t bytes = text->string.bytes;
    if (bytes == 0 || bytes >= sizeof digits) return false;
    memcpy(digits, text->string.text, bytes);
    if (strspn(digits, "+-0123456789.eE") != bytes) return false;
    *out = strtod(digits, &end);
    return *end == '\0';
}

/* int(value), or that of the number that float() makes of a text. */
static bool to_integer(const struct jinja_value *value, int64_t *out) {
    double number = NAN;
    if (value->kind == JINJA_BOOL || value->kind == JINJA_INTEGER) {
        *out = value->kind == JINJA_BOOL ? (int64_t)value->truth : value->integer;
        return true;
    }
    if (value->kind == JINJA_STRING && parse_integer(value, out)) return true;
    if (value->kind == JINJA_FLOAT) number = value->number;
    if (value->kind == JINJA_STRING && !parse_float(value, &number)) return false;
    if (!(fabs(number) < 9e18)) return false;
    *out = (int64_t)number;
    return true;
}

enum { NUMBER_WORK = 32 }; /* of reading one */

FILTER(filter_int) {
    int64_t integer;
    BIND("int", 2, "default", "base");
    if (a[1].kind != JINJA_UNDEFINED) return jinja_fail_unsupported(rendering, "argument of int", "base", 4);
    *out = a[0].kind == JINJA_UNDEFINED ? jinja_integer(0) : a[0];
    TRY(jinja_charge(rendering, NUMBER_WORK));
    if (to_integer(value, &integer)) *out = jinja_integer(integer);
    return STATUS_OK;
}

FILTER(filter_float) {
    double number;
    BIND("float", 1, "default");
    TRY(jinja_charge(rendering, NUMBER_WORK));
    *out = a[0].kind == JINJA_UNDEFINED ? jinja_float(0) : a[0];
    if (jinja_is_number(value))
        *out = jinja_float(jinja_number(value));
    else if (value->kind == JINJA_STRING && parse_float(value, &number))
        *out = jinja_float(number);
    return STATUS_OK;
}

FILTER(filter_abs) {
    struct jinja_value zero = jinja_integer(0);
    NO_ARGUMENTS("abs");
    if (!jinja_is_number(value))
        return jinja_fail(rendering, "bad operand type for abs(): '%s'", jinja_type_name(value));
    *out = value->kind == JINJA_FLOAT ? jinja_float(fabs(value->number)) : *value;
    if (value->kind == JINJA_INTEGER && value->integer < 0)
        return jinja_arithmetic(rendering, "-", 1, &zero, value, out);
    return STATUS_OK;
}

/* Puts so many blanks, or a string, before each line but the first (and before blank lines only if asked). */
static enum status indent_lines(struct jinja_rendering *rendering, const struct jinja_value *text, const char *indent,
                                bool first, bool blank, struct text_buffer *out) {
    const char *from = text->string.text, *end = from + text->string.bytes;
    for (bool more = true, at_first = true; more; at_first = false) {
        const char *line = memchr(from, '\n', (size_t)(end - from));
        size_t bytes = (size_t)((line ? line : end) - from);
        TRY(jinja_charge(rendering, 4));
        TRY(jinja_charge_moved(rendering, bytes));
        if ((at_first ? first : blank || bytes > 0)) TRY(text_append(out, indent, strlen(indent)));
        TRY(text_append(out, from, bytes + (line ? 1 : 0)));
        if (out->count > JINJA_OUTPUT_MAX)
            return jinja_fail(rendering, "a string of more than %d bytes", JINJA_OUTPUT_MAX);
        more = line != NULL;
        from = line ? line + 1 : end;
    }
    return STATUS_OK;
}

FILTER(filter_indent) {
    struct jinja_value text, four = jinja_integer(4);
    const char *indent;
    struct text_buffer lines = {0};
    BIND("indent", 3, "width", "first", "blank");
    TRY(jinja_to_string(rendering, value, &text));
    TRY(read_indent(rendering, a[0].kind == JINJA_UNDEFINED ? &four : &a[0], &indent));
    enum status status;
    TRY_GOTO(status,
             indent_lines(rendering, &text, indent ? indent : "", jinja_is_true(&a[1]), jinja_is_true(&a[2]), &lines),
             done);
    TRY_GOTO(status, jinja_copy_string(rendering, lines.items, lines.count, out), done);
done:
    vec_free(&lines);
    return status;
}

FILTER(filter_items) {
    struct jinja_method method = {*value, "items", 5};
    NO_ARGUMENTS("items");
    if (value->kind == JINJA_UNDEFINED) {
        struct jinja_value *items;
        return jinja_make_list(rendering, JINJA_LIST, 0, out, &items);
    }
    if (value->kind != JINJA_DICT) return jinja_fail(rendering, "Can only get item pairs from a mapping.");
    TRY(jinja_call_method(rendering, &method, arguments, out));
    out->kind = JINJA_GENERATOR;
    return STATUS_OK;
}

const struct jinja_filter jinja_text_filters[] = {
    {"abs", filter_abs},
    {"capitalize", filter_capitalize},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"float", filter_float},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"length", filter_length},
    {"lower", filter_lower},
    {"replace", filter_replace},
    {"safe", filter_string},
    {"string", filter_string},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"upper", filter_upper},
    {0},
};

static const struct jinja_filter *find(const struct jinja_filter *filters, const char *name, size_t bytes) {
    for (; filters->name; filters++)
        if (jinja_text_is(name, bytes, filters->name)) return filters;
    return NULL;
}

const struct jinja_filter *jinja_find_filter(const char *name, size_t bytes) {
    const struct jinja_filter *filter = find(jinja_text_filters, name, bytes);
    return filter ? filter : find(jinja_list_filters, name, bytes);
}
