/* Filters: what may stand behind `|`. */
#include <math.h>

#include "text/template/render.h"
#include "text/template/value.h"

#define FILTER(name)                                                                                                   \
    static enum status name(struct jinja_rendering *rendering, const struct jinja_value *value,                        \
                            const struct jinja_arguments *arguments, struct jinja_value *out)
#define BIND(what, count, ...)                                                                                         \
    struct jinja_value a[count];                                                                                       \
    static const char *const names[count] = {__VA_ARGS__};                                                             \
    TRY(jinja_bind_arguments(rendering, what, arguments, names, count, a))
#define NO_ARGUMENTS(what) TRY(jinja_bind_arguments(rendering, what, arguments, NULL, 0, NULL))

/* --- over the items of a list --- */

/* One part of a path: an index where it is a number, as in Jinja. */
static enum status get_step(struct jinja_rendering *rendering, const struct jinja_value *object, const char *name,
                            size_t bytes, struct jinja_value *out) {
    struct jinja_value key = jinja_string(name, bytes);
    bool digits = bytes > 0 && bytes < 10;
    int64_t index = 0;
    for (size_t i = 0; i < bytes && digits; i++) {
        digits = name[i] >= '0' && name[i] <= '9';
        index = 10 * index + (name[i] - '0');
    }
    if (digits) key = jinja_integer(index);
    return jinja_get_item(rendering, object, &key, out);
}

static enum status get_path(struct jinja_rendering *rendering, const struct jinja_value *object,
                            const struct jinja_value *path, struct jinja_value *out) {
    *out = *object;
    if (path->kind == JINJA_INTEGER) return jinja_get_item(rendering, object, path, out);
    if (path->kind != JINJA_STRING) return jinja_fail(rendering, "an attribute's name must be a string");
    for (size_t at = 0; at <= path->string.bytes;) {
        size_t end = jinja_find_text(path->string.text, path->string.bytes, at, ".", 1);
        TRY(jinja_charge_moved(rendering, (end > path->string.bytes ? path->string.bytes : end) - at));
        if (end > path->string.bytes) end = path->string.bytes;
        struct jinja_value object_here = *out;
        TRY(get_step(rendering, &object_here, path->string.text + at, end - at, out));
        at = end + 1;
    }
    return STATUS_OK;
}

/* Of each item the attribute `path`, a name or several with dots; where that is undefined, `fallback` unless NULL. */
static enum status list_attributes(struct jinja_rendering *rendering, const struct jinja_list *items,
                                   const struct jinja_value *path, const struct jinja_value *fallback,
                                   struct jinja_value *out) {
    struct jinja_value *to;
    TRY(jinja_make_list(rendering, JINJA_LIST, items->count, out, &to));
    for (size_t i = 0; i < items->count; i++) {
        TRY(get_path(rendering, &items->items[i], path, &to[i]));
        if (to[i].kind == JINJA_UNDEFINED && fallback) to[i] = *fallback;
    }
    return STATUS_OK;
}

static enum status take_end(struct jinja_rendering *rendering, const struct jinja_value *value, bool first,
                            struct jinja_value *out) {
    const struct jinja_list *items;
    TRY(jinja_iterate(rendering, value, &items));
    if (items->count == 0)
        *out = jinja_undefined("an item of nothing", 18);
    else
        *out = items->items[first ? 0 : items->count - 1];
    return STATUS_OK;
}

FILTER(filter_first) {
    NO_ARGUMENTS("first");
    return take_end(rendering, value, true, out);
}

FILTER(filter_last) {
    NO_ARGUMENTS("last");
    return take_end(rendering, value, false, out);
}

FILTER(filter_list) {
    const struct jinja_list *items;
    NO_ARGUMENTS("list");
    TRY(jinja_iterate(rendering, value, &items));
    *out = (struct jinja_value){.kind = JINJA_LIST, .list = items};
    return STATUS_OK;
}

FILTER(filter_reverse) {
    const struct jinja_list *items;
    struct jinja_value *to, none = jinja_literal("");
    NO_ARGUMENTS("reverse");
    TRY(jinja_iterate(rendering, value, &items));
    TRY(jinja_make_list(rendering, JINJA_LIST, items->count, out, &to));
    for (size_t i = 0; i < items->count; i++)
        to[i] = items->items[items->count - 1 - i];
    if (value->kind == JINJA_STRING) return jinja_join(rendering, &none, out->list, false, out);
    out->kind = JINJA_GENERATOR;
    return STATUS_OK;
}

/* The key by which an item is ordered: its attribute where one is asked for, strings without regard to case. */
static enum status order_key(struct jinja_rendering *rendering, const struct jinja_value *item,
                             const struct jinja_value *attribute, bool case_sensitive, struct jinja_value *out) {
    *out = *item;
    if (attribute->kind != JINJA_UNDEFINED && attribute->kind != JINJA_NONE)
        TRY(get_path(rendering, item, attribute, out));
    if (case_sensitive || out->kind != JINJA_STRING) return STATUS_OK;
    struct jinja_value text = *out;
    return jinja_change_case(rendering, &text, JINJA_CASE_LOWER, out);
}

/* Merges keys[from..middle) and keys[middle..to), and the items with them; equal ones stay in order. */
static enum status merge(struct jinja_rendering *rendering, struct jinja_pair *pairs, struct jinja_pair *scratch,
                         size_t from, size_t middle, size_t to, bool reverse) {
    size_t left = from, right = middle;
    for (size_t at = from; at < to; at++) {
        int order = 0;
        if (left < middle && right < to) TRY(jinja_compare(rendering, &pairs[left].key, &pairs[right].key, &order));
        bool take_right = left == middle || (right < to && (reverse ? order < 0 : order > 0));
        scratch[at] = pairs[take_right ? right++ : left++];
    }
    memcpy(pairs + from, scratch + from, (to - from) * sizeof *pairs);
    return STATUS_OK;
}

static enum status sort_pairs(struct jinja_rendering *rendering, struct jinja_pair *pairs, size_t count, bool reverse) {
    struct jinja_pair *scratch;
    TRY(jinja_alloc(rendering, count, sizeof *scratch, &scratch));
    for (size_t width = 1; width < count; width *= 2)
        for (size_t from = 0; from + width < count; from += 2 * width) {
            size_t to = from + 2 * width < count ? from + 2 * width : count;
            TRY(merge(rendering, pairs, scratch, from, from + width, to, reverse));
        }
    return STATUS_OK;
}

/* Items in the order of their keys. */
static enum status sort_items(struct jinja_rendering *rendering, const struct jinja_list *items,
                              const struct jinja_value *attribute, bool case_sensitive, bool reverse,
                              struct jinja_value *out) {
    struct jinja_pair *pairs;
    struct jinja_value *to;
    TRY(jinja_alloc(rendering, items->count, sizeof *pairs, &pairs));
    for (size_t i = 0; i < items->count; i++) {
        pairs[i].value = items->items[i];
        TRY(order_key(rendering, &items->items[i], attribute, case_sensitive, &pairs[i].key));
    }
    TRY(sort_pairs(rendering, pairs, items->count, reverse));
    TRY(jinja_make_list(rendering, JINJA_LIST, items->count, out, &to));
    for (size_t i = 0; i < items->count; i++)
        to[i] = pairs[i].value;
    return STATUS_OK;
}

FILTER(filter_unique) {
    const struct jinja_list *items;
    struct jinja_value *to, *keys;
    size_t count = 0;
    BIND("unique", 2, "case_sensitive", "attribute");
    TRY(jinja_iterate(rendering, value, &items));
    TRY(jinja_make_list(rendering, JINJA_GENERATOR, items->count, out, &to));
    TRY(jinja_alloc(rendering, items->count, sizeof *keys, &keys));
    for (size_t i = 0; i < items->count; i++) {
        bool known = false;
        TRY(order_key(rendering, &items->items[i], &a[1], jinja_is_true(&a[0]), &keys[count]));
        for (size_t k = 0; k < count && !known; k++)
            TRY(jinja_equal(rendering, &keys[k], &keys[count], &known));
        if (!known) to[count++] = items->items[i];
    }
    ((struct jinja_list *)(uintptr_t)out->list)->count = count;
    return STATUS_OK;
}

FILTER(filter_sort) {
    const struct jinja_list *items;
    BIND("sort", 3, "reverse", "case_sensitive", "attribute");
    TRY(jinja_iterate(rendering, value, &items));
    return sort_items(rendering, items, &a[2], jinja_is_true(&a[1]), jinja_is_true(&a[0]), out);
}

FILTER(filter_dictsort) {
    struct jinja_method method = {*value, "items", 5};
    struct jinja_arguments none = {0};
    struct jinja_value pairs, index = jinja_integer(0);
    BIND("dictsort", 3, "case_sensitive", "by", "reverse");
    if (value->kind != JINJA_DICT) return jinja_fail(rendering, "'%s' object is not a dict", jinja_type_name(value));
    if (a[1].kind != JINJA_UNDEFINED && jinja_is_text(&a[1], "value")) index = jinja_integer(1);
    TRY(jinja_call_method(rendering, &method, &none, &pairs));
    return sort_items(rendering, pairs.list, &index, jinja_is_true(&a[0]), jinja_is_true(&a[2]), out);
}

static enum status find_extreme(struct jinja_rendering *rendering, const struct jinja_value *value,
                                const struct jinja_arguments *arguments, bool max, struct jinja_value *out) {
    const struct jinja_list *items;
    struct jinja_value sorted;
    BIND("min and max", 2, "case_sensitive", "attribute");
    TRY(jinja_iterate(rendering, value, &items));
    TRY(sort_items(rendering, items, &a[1], jinja_is_true(&a[0]), max, &sorted));
    return take_end(rendering, &sorted, true, out);
}

FILTER(filter_min) { return find_extreme(rendering, value, arguments, false, out); }
FILTER(filter_max) { return find_extreme(rendering, value, arguments, true, out); }

FILTER(filter_sum) {
    const struct jinja_list *items;
    struct jinja_value attributes;
    BIND("sum", 2, "attribute", "start");
    TRY(jinja_iterate(rendering, value, &items));
    if (a[0].kind != JINJA_UNDEFINED && a[0].kind != JINJA_NONE) {
        TRY(list_attributes(rendering, items, &a[0], NULL, &attributes));
        items = attributes.list;
    }
    *out = a[1].kind == JINJA_UNDEFINED ? jinja_integer(0) : a[1];
    for (size_t i = 0; i < items->count; i++) {
        struct jinja_value before = *out;
        TRY(jinja_arithmetic(rendering, "+", 1, &before, &items->items[i], out));
    }
    return STATUS_OK;
}

/* map(attribute="name", default=…) */
static enum status map_attribute(struct jinja_rendering *rendering, const struct jinja_list *items,
                                 const struct jinja_arguments *arguments, struct jinja_value *out) {
    BIND("map", 2, "attribute", "default");
    TRY(list_attributes(rendering, items, &a[0], a[1].kind == JINJA_UNDEFINED ? NULL : &a[1], out));
    out->kind = JINJA_GENERATOR;
    return STATUS_OK;
}

/* map("filter", arguments…), or map(attribute="name"). */
FILTER(filter_map) {
    const struct jinja_list *items;
    struct jinja_value *to;
    TRY(jinja_iterate(rendering, value, &items));
    if (arguments->count == 0) return map_attribute(rendering, items, arguments, out);
    const struct jinja_value *name = &arguments->items[0];
    const struct jinja_filter *filter =
        name->kind == JINJA_STRING ? jinja_find_filter(name->string.text, name->string.bytes) : NULL;
    if (!filter) return jinja_fail(rendering, "map: the filter is not supported");
    struct jinja_arguments rest = *arguments;
    rest.items++;
    rest.count--;
    TRY(jinja_make_list(rendering, JINJA_LIST, items->count, out, &to));
    if (++rendering->depth > JINJA_DEPTH_MAX) return jinja_fail(rendering, "nested more than %d deep", JINJA_DEPTH_MAX);
    for (size_t i = 0; i < items->count; i++)
        TRY(filter->apply(rendering, &items->items[i], &rest, &to[i]));
    rendering->depth--;
    out->kind = JINJA_GENERATOR;
    return STATUS_OK;
}

struct selection {
    const struct jinja_value *attribute; /* NULL: the item itself */
    const struct jinja_predicate *test;  /* NULL: whether it is true */
    struct jinja_value argument;
    bool reject;
};

static enum status select_item(struct jinja_rendering *rendering, const struct selection *selection,
                               const struct jinja_value *item, bool *out) {
    struct jinja_value value = *item;
    if (selection->attribute) TRY(get_path(rendering, item, selection->attribute, &value));
    *out = jinja_is_true(&value);
    if (selection->test) TRY(selection->test->apply(rendering, &value, &selection->argument, out));
    *out ^= selection->reject;
    return STATUS_OK;
}

/* The arguments: the attribute's name where there is one, then a test's name and its argument. */
static enum status read_selection(struct jinja_rendering *rendering, const struct jinja_arguments *arguments,
                                  bool attribute, struct selection *out) {
    size_t at = attribute;
    if (arguments->keyword_count > 0 || arguments->count < at || arguments->count > at + 2)
        return jinja_fail(rendering, "select and reject: wrong number of arguments");
    if (attribute) out->attribute = &arguments->items[0];
    if (arguments->count == at) return STATUS_OK;
    const struct jinja_value *name = &arguments->items[at];
    static const struct {
        const char *operator, * name;
    } signs[] = {{"==", "eq"}, {"!=", "ne"}, {"<", "lt"}, {"<=", "le"}, {">", "gt"}, {">=", "ge"}};
    const char *text = name->kind == JINJA_STRING ? name->string.text : "";
    size_t bytes = name->kind == JINJA_STRING ? name->string.bytes : 0;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (jinja_is_text(name, signs[i].operator)) text = signs[i].name, bytes = 2;
    out->test = jinja_find_predicate(text, bytes);
    if (!out->test) return jinja_fail_unsupported(rendering, "test", text, bytes);
    if (arguments->count - at - 1 != (size_t)out->test->arguments)
        return jinja_fail(rendering, "the test '%s' takes %d arguments", out->test->name, out->test->arguments);
    if (out->test->arguments > 0) out->argument = arguments->items[at + 1];
    return STATUS_OK;
}

static enum status select_items(struct jinja_rendering *rendering, const struct jinja_value *value,
                                const struct jinja_arguments *arguments, bool attribute, bool reject,
                                struct jinja_value *out) {
    struct selection selection = {.argument = jinja_undefined("", 0), .reject = reject};
    const struct jinja_list *items;
    struct jinja_value *to;
    size_t count = 0;
    TRY(read_selection(rendering, arguments, attribute, &selection));
    TRY(jinja_iterate(rendering, value, &items));
    TRY(jinja_make_list(rendering, JINJA_LIST, items->count, out, &to));
    for (size_t i = 0; i < items->count; i++) {
        bool selected;
        TRY(select_item(rendering, &selection, &items->items[i], &selected));
        if (selected) to[count++] = items->items[i];
    }
    ((struct jinja_list *)(uintptr_t)out->list)->count = count;
    out->kind = JINJA_GENERATOR;
    return STATUS_OK;
}

FILTER(filter_select) { return select_items(rendering, value, arguments, false, false, out); }
FILTER(filter_reject) { return select_items(rendering, value, arguments, false, true, out); }
FILTER(filter_selectattr) { return select_items(rendering, value, arguments, true, false, out); }
FILTER(filter_rejectattr) { return select_items(rendering, value, arguments, true, true, out); }

/* --- of one value --- */

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
        TRY(list_attributes(rendering, items, &a[1], NULL, &attributes));
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
    enum status status =
        indent_lines(rendering, &text, indent ? indent : "", jinja_is_true(&a[1]), jinja_is_true(&a[2]), &lines);
    return jinja_take_string(rendering, status, &lines, out);
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

const struct jinja_filter jinja_filters[] = {
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
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"last", filter_last},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"reverse", filter_reverse},
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
    {0},
};

const struct jinja_filter *jinja_find_filter(const char *name, size_t bytes) {
    for (const struct jinja_filter *filter = jinja_filters; filter->name; filter++)
        if (jinja_text_is(name, bytes, filter->name)) return filter;
    return NULL;
}
