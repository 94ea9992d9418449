/* Filters: what may stand behind `|`. */
#include <math.h>

#include "text/template/render.h"

/* --- over the items of a list --- */

/* One part of a path: an index where it is a number, as in Jinja. */
static struct jinja_value get_step(struct jinja_rendering *rendering, const struct jinja_value *object,
                                   const char *name, size_t bytes) {
    struct jinja_value key = jinja_string(name, bytes);
    bool digits = bytes > 0 && bytes < 10;
    int64_t index = 0;
    for (size_t i = 0; i < bytes && digits; i++) {
        digits = name[i] >= '0' && name[i] <= '9';
        index = 10 * index + (name[i] - '0');
    }
    if (digits) key = jinja_integer(index);
    return jinja_get_item(rendering, object, &key);
}

/* An item's attribute, a name or several with dots. */
static struct jinja_value get_path(struct jinja_rendering *rendering, const struct jinja_value *item,
                                   const struct jinja_value *path) {
    struct jinja_value value = *item;
    const struct jinja_value dot = jinja_literal(".");
    if (path->kind == JINJA_INTEGER) return jinja_get_item(rendering, item, path);
    if (path->kind != JINJA_STRING) jinja_fail(rendering, "an attribute's name must be a string");
    for (size_t at = 0, end; at <= path->string.bytes; at = end + 1) {
        end = jinja_find_text(rendering, path, at, &dot);
        if (end > path->string.bytes) end = path->string.bytes;
        value = get_step(rendering, &value, path->string.text + at, end - at);
    }
    return value;
}

/* The attribute `path` of each item, or `fallback` if it is undefined. */
static struct jinja_value list_attributes(struct jinja_rendering *rendering, const struct jinja_list *items,
                                          const struct jinja_value *path, const struct jinja_value *fallback) {
    struct jinja_value list = jinja_make_list(rendering, JINJA_LIST, items->count);
    for (size_t i = 0; i < items->count; i++) {
        struct jinja_value *to = &list.list->items[i];
        *to = get_path(rendering, &items->items[i], path);
        if (!jinja_is_given(to) && jinja_is_given(fallback)) *to = *fallback;
    }
    return list;
}

/* The items, or an attribute of each where one is asked for. */
static const struct jinja_list *items_or_attributes(struct jinja_rendering *rendering, const struct jinja_value *value,
                                                    const struct jinja_value *path) {
    const struct jinja_value none = {0};
    const struct jinja_list *items = jinja_iterate(rendering, value);
    return jinja_is(path, JINJA_ABSENT) ? items : list_attributes(rendering, items, path, &none).list;
}

enum end { FIRST, LAST };

static struct jinja_value take_end(const struct jinja_list *items, enum end end) {
    if (items->count == 0) return jinja_undefined(jinja_literal("an item of nothing"));
    return items->items[end == FIRST ? 0 : items->count - 1];
}

JINJA_CALL(filter_end) { return take_end(jinja_iterate(rendering, self), (enum end)how); }

JINJA_CALL(filter_list) { return (struct jinja_value){.kind = JINJA_LIST, .list = jinja_iterate(rendering, self)}; }

JINJA_CALL(filter_reverse) {
    const struct jinja_list *items = jinja_iterate(rendering, self);
    const struct jinja_value separator = jinja_literal("");
    struct jinja_value list = jinja_make_list(rendering, JINJA_GENERATOR, items->count);
    for (size_t i = 0; i < items->count; i++)
        list.list->items[i] = items->items[items->count - 1 - i];
    return self->kind == JINJA_STRING ? jinja_join(rendering, &separator, list.list, false) : list;
}

/* The key by which an item is ordered: its attribute where one is asked for, strings without regard to case. */
static struct jinja_value order_key(struct jinja_rendering *rendering, const struct jinja_value *item,
                                    const struct jinja_value *attribute, const struct jinja_value *case_sensitive) {
    struct jinja_value key = jinja_is(attribute, JINJA_ABSENT) ? *item : get_path(rendering, item, attribute);
    if (jinja_is_true(case_sensitive) || key.kind != JINJA_STRING) return key;
    return jinja_change_case(rendering, &key, JINJA_CASE_LOWER);
}

/* Items in the order of their keys; equal ones stay in order. */
static struct jinja_value sort_items(struct jinja_rendering *rendering, const struct jinja_list *items,
                                     const struct jinja_value *attribute, const struct jinja_value *case_sensitive,
                                     bool reverse) {
    size_t count = items->count;
    struct jinja_pair *pairs = jinja_alloc(rendering, count, sizeof *pairs);
    const struct jinja_pair **order = jinja_alloc(rendering, count, sizeof *order);
    for (size_t i = 0; i < count; i++) {
        pairs[i].value = items->items[i];
        pairs[i].key = order_key(rendering, &items->items[i], attribute, case_sensitive);
        order[i] = &pairs[i];
    }
    jinja_sort_pairs(rendering, order, count, reverse);
    struct jinja_value sorted = jinja_make_list(rendering, JINJA_LIST, count);
    for (size_t i = 0; i < count; i++)
        sorted.list->items[i] = order[i]->value;
    return sorted;
}

JINJA_CALL(filter_unique) {
    const struct jinja_list *items = jinja_iterate(rendering, self);
    struct jinja_value list = jinja_make_list(rendering, JINJA_GENERATOR, items->count);
    struct jinja_value *keys = jinja_alloc(rendering, items->count, sizeof *keys);
    size_t count = 0;
    for (size_t i = 0; i < items->count; i++) {
        bool known = false;
        keys[count] = order_key(rendering, &items->items[i], &a[1], &a[0]);
        for (size_t k = 0; k < count && !known; k++)
            known = jinja_equal(rendering, &keys[k], &keys[count]);
        if (!known) list.list->items[count++] = items->items[i];
    }
    list.list->count = count;
    return list;
}

JINJA_CALL(filter_sort) {
    return sort_items(rendering, jinja_iterate(rendering, self), &a[2], &a[1], jinja_is_true(&a[0]));
}

JINJA_CALL(filter_dictsort) {
    if (self->kind != JINJA_DICT) jinja_fail(rendering, "'%s' object is not a dict", jinja_type_name(self));
    struct jinja_value index = jinja_integer(jinja_is_text(&a[1], "value"));
    struct jinja_value pairs = jinja_list_dict(rendering, self->dict, JINJA_PAIRS);
    return sort_items(rendering, pairs.list, &index, &a[0], jinja_is_true(&a[2]));
}

enum extreme { MIN, MAX };

JINJA_CALL(filter_extreme) {
    const struct jinja_list *items = jinja_iterate(rendering, self);
    return take_end(sort_items(rendering, items, &a[1], &a[0], how == MAX).list, FIRST);
}

JINJA_CALL(filter_sum) {
    const struct jinja_list *items = items_or_attributes(rendering, self, &a[0]);
    struct jinja_value sum = jinja_is_given(&a[1]) ? a[1] : jinja_integer(0);
    for (size_t i = 0; i < items->count; i++)
        sum = jinja_arithmetic(rendering, "+", 1, &sum, &items->items[i]);
    return sum;
}

/* map(attribute="name", default=…) */
JINJA_CALL(map_attribute) {
    struct jinja_value list = list_attributes(rendering, jinja_iterate(rendering, self), &a[0], &a[1]);
    list.kind = JINJA_GENERATOR;
    return list;
}

/* map("filter", arguments…), or map(attribute="name"). */
JINJA_CALL_WITH(filter_map) {
    static const struct jinja_callable by_attribute = {
        .name = "map", .max = 2, .call = map_attribute, .names = {"attribute", "default"}};
    if (arguments->count == 0) return jinja_call(rendering, &by_attribute, self, arguments);
    const struct jinja_list *items = jinja_iterate(rendering, self);
    const struct jinja_callable *filter = jinja_find(jinja_filters, JINJA_UNDEFINED, &arguments->items[0]);
    if (!filter) jinja_fail(rendering, "map: the filter is not supported");
    struct jinja_arguments rest = *arguments;
    rest.items++;
    rest.count--;
    struct jinja_value list = jinja_make_list(rendering, JINJA_GENERATOR, items->count);
    jinja_enter(rendering);
    for (size_t i = 0; i < items->count; i++)
        list.list->items[i] = jinja_call(rendering, filter, &items->items[i], &rest);
    rendering->depth--;
    return list;
}

/* The test that selects items, by its name or its sign. `argument` is the place of its own arguments. */
static const struct jinja_callable *find_test(struct jinja_rendering *rendering, const struct jinja_value *name,
                                              size_t argument_count) {
    static const char *const signs[][2] = {{"==", "eq"}, {"!=", "ne"}, {"<", "lt"},
                                           {"<=", "le"}, {">", "gt"},  {">=", "ge"}};
    struct jinja_value text = name->kind == JINJA_STRING ? *name : jinja_literal("");
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (jinja_is_text(name, signs[i][0])) text = jinja_literal(signs[i][1]);
    const struct jinja_callable *test = jinja_find(jinja_tests, JINJA_UNDEFINED, &text);
    if (!test) jinja_fail_unsupported(rendering, "test", text);
    if (argument_count != test->max) jinja_fail(rendering, "the test '%s' takes %zu arguments", test->name, test->max);
    return test;
}

enum selection { BY_ATTRIBUTE = 1, REJECT = 2 };

/* The arguments: the attribute's name where there is one, then a test's name and its argument; without a test the items
 * that are true. */
JINJA_CALL_WITH(filter_select) {
    const struct jinja_value none = {0};
    size_t at = (how & BY_ATTRIBUTE) != 0, given = arguments->count, count = 0;
    if (arguments->named.count > 0 || given < at || given > at + 2)
        jinja_fail(rendering, "select and reject: wrong number of arguments");
    const struct jinja_value *path = at > 0 ? &arguments->items[0] : NULL;
    const struct jinja_callable *test = given > at ? find_test(rendering, &arguments->items[at], given - at - 1) : NULL;
    const struct jinja_value *argument = given > at + 1 ? &arguments->items[at + 1] : &none;
    const struct jinja_list *items = jinja_iterate(rendering, self);
    struct jinja_value list = jinja_make_list(rendering, JINJA_GENERATOR, items->count);
    for (size_t i = 0; i < items->count; i++) {
        struct jinja_value value = path ? get_path(rendering, &items->items[i], path) : items->items[i];
        bool selected = test ? jinja_holds(rendering, test, &value, argument) : jinja_is_true(&value);
        if (selected != ((how & REJECT) != 0)) list.list->items[count++] = items->items[i];
    }
    list.list->count = count;
    return list;
}

/* --- of one value --- */

JINJA_CALL(filter_trim) {
    struct jinja_value text = jinja_to_string(rendering, self);
    return jinja_strip(rendering, &text, &a[0], JINJA_BOTH);
}

JINJA_CALL(filter_case) {
    struct jinja_value text = jinja_to_string(rendering, self);
    return jinja_change_case(rendering, &text, (enum jinja_case)how);
}

JINJA_CALL(filter_string) { return jinja_to_string(rendering, self); }

JINJA_CALL(filter_length) { return jinja_integer((int64_t)jinja_length(rendering, self)); }

JINJA_CALL(filter_default) {
    bool absent = !jinja_is_given(self) || (jinja_is_true(&a[1]) && !jinja_is_true(self));
    return !absent ? *self : jinja_is_given(&a[0]) ? a[0] : jinja_literal("");
}

JINJA_CALL(filter_replace) {
    struct jinja_value text = jinja_to_string(rendering, self);
    struct jinja_value from = jinja_to_string(rendering, &a[0]), to = jinja_to_string(rendering, &a[1]);
    return jinja_replace(rendering, &text, &from, &to, a[2].kind == JINJA_INTEGER ? a[2].integer : -1);
}

JINJA_CALL(filter_join) {
    struct jinja_value separator = jinja_to_string(rendering, &a[0]);
    return jinja_join(rendering, &separator, items_or_attributes(rendering, self, &a[1]), true);
}

/* The indent of json.dumps: a string, or so many blanks; undefined where there is none. */
static struct jinja_value read_indent(struct jinja_rendering *rendering, const struct jinja_value *value) {
    bool text = value->kind == JINJA_STRING;
    if (jinja_is(value, JINJA_ABSENT)) return (struct jinja_value){0};
    int64_t count = text ? (int64_t)value->string.bytes : value->kind == JINJA_INTEGER ? value->integer : INT64_MAX;
    if (count > 64) jinja_fail(rendering, "tojson: indent must be a string or a number of at most 64");
    if (text) return *value;
    if (count < 0) count = 0;
    char *indent = jinja_alloc(rendering, (size_t)count + 1, 1);
    memset(indent, ' ', (size_t)count);
    return jinja_string(indent, (size_t)count);
}

JINJA_CALL(filter_tojson) {
    struct jinja_json_options options = {
        .indent = read_indent(rendering, &a[1]), .ascii = jinja_is_true(&a[0]), .sort_keys = jinja_is_true(&a[3])};
    if (jinja_is(&a[2], JINJA_BIT(LIST) | JINJA_BIT(TUPLE))) {
        const struct jinja_value *two = a[2].list->items;
        if (a[2].list->count != 2 || two[0].kind != JINJA_STRING || two[1].kind != JINJA_STRING)
            jinja_fail(rendering, "tojson: separators must be two strings");
        options.item_separator = two[0];
        options.key_separator = two[1];
    }
    return jinja_print(rendering, self, &options);
}

/* Copies a number's text, without the white space around it if `trims`; false where it has other characters or is long.
 */
static bool copy_digits(const struct jinja_value *text, const char *allowed, bool trims, char digits[64]) {
    const char *from = text->string.text;
    size_t leading = trims ? jinja_leading_space(from, text->string.bytes) : 0;
    size_t bytes = text->string.bytes - leading;
    if (trims) bytes -= jinja_trailing_space(from + leading, bytes);
    if (bytes == 0 || bytes >= 64) return false;
    memcpy(digits, from + leading, bytes);
    digits[bytes] = '\0';
    return strspn(digits, allowed) == bytes;
}

/* As int() reads it; false when it is none or does not fit. */
static bool parse_integer(const struct jinja_value *text, int64_t *out) {
    char digits[64], *end;
    if (!copy_digits(text, "+-0123456789", true, digits) || strlen(digits) >= 32) return false;
    errno = 0;
    *out = strtoll(digits, &end, 10);
    return *end == '\0' && errno == 0;
}

static bool parse_float(const struct jinja_value *text, double *out) {
    char digits[64], *end;
    if (!copy_digits(text, "+-0123456789.eE", false, digits)) return false;
    *out = strtod(digits, &end);
    return *end == '\0';
}

/* int(value), or that of the number that float() makes of a text. */
static bool to_integer(const struct jinja_value *value, int64_t *out) {
    double number = NAN;
    if (jinja_is(value, JINJA_WHOLE)) {
        *out = jinja_whole(value);
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

JINJA_CALL(filter_int) {
    int64_t integer;
    if (jinja_is_given(&a[1])) jinja_fail_unsupported(rendering, "argument of int", jinja_literal("base"));
    jinja_charge(rendering, NUMBER_WORK);
    if (to_integer(self, &integer)) return jinja_integer(integer);
    return jinja_is_given(&a[0]) ? a[0] : jinja_integer(0);
}

JINJA_CALL(filter_float) {
    double number;
    jinja_charge(rendering, NUMBER_WORK);
    if (jinja_is(self, JINJA_NUMBER)) return jinja_float(jinja_number(self));
    if (self->kind == JINJA_STRING && parse_float(self, &number)) return jinja_float(number);
    return jinja_is_given(&a[0]) ? a[0] : jinja_float(0);
}

JINJA_CALL(filter_abs) {
    struct jinja_value zero = jinja_integer(0);
    if (!jinja_is(self, JINJA_NUMBER)) jinja_fail(rendering, "bad operand type for abs(): '%s'", jinja_type_name(self));
    if (self->kind == JINJA_FLOAT) return jinja_float(fabs(self->number));
    if (self->kind == JINJA_BOOL || self->integer >= 0) return *self;
    return jinja_arithmetic(rendering, "-", 1, &zero, self);
}

/* Puts so many blanks, or a string, before each line but the first (and before blank lines only if asked). */
JINJA_CALL(filter_indent) {
    struct jinja_value text = jinja_to_string(rendering, self), four = jinja_integer(4);
    struct jinja_value indent = read_indent(rendering, jinja_is_given(&a[0]) ? &a[0] : &four);
    const char *from = text.string.text, *end = from + text.string.bytes;
    size_t begin = rendering->text->count;
    for (bool more = true, at_first = true; more; at_first = false) {
        const char *newline = memchr(from, '\n', (size_t)(end - from));
        size_t bytes = (size_t)((newline ? newline : end) - from);
        jinja_charge(rendering, 4);
        jinja_charge_moved(rendering, bytes);
        bool indents = at_first ? jinja_is_true(&a[1]) : jinja_is_true(&a[2]) || bytes > 0;
        if (indents) jinja_append(rendering, indent.string.text, indent.string.bytes);
        jinja_append(rendering, from, bytes + (newline ? 1 : 0));
        more = newline != NULL;
        from += bytes + more;
    }
    return jinja_take_text(rendering, begin);
}

JINJA_CALL(filter_items) {
    if (!jinja_is(self, JINJA_BIT(DICT) | JINJA_BIT(UNDEFINED)))
        jinja_fail(rendering, "Can only get item pairs from a mapping.");
    if (!jinja_is_given(self)) return jinja_make_list(rendering, JINJA_LIST, 0);
    struct jinja_value items = jinja_list_dict(rendering, self->dict, JINJA_PAIRS);
    items.kind = JINJA_GENERATOR;
    return items;
}

#define ROW(text, function, ...)                                                                                       \
    { .name = (text), .call = (function), __VA_ARGS__ }

const struct jinja_callable jinja_filters[] = {
    ROW("abs", filter_abs),
    ROW("capitalize", filter_case, .how = JINJA_CASE_CAPITALIZE),
    ROW("count", filter_length),
    ROW("d", filter_default, .max = 2, .names = {"default_value", "boolean"}),
    ROW("default", filter_default, .max = 2, .names = {"default_value", "boolean"}),
    ROW("float", filter_float, .max = 1, .names = {"default"}),
    ROW("indent", filter_indent, .max = 3, .names = {"width", "first", "blank"}),
    ROW("int", filter_int, .max = 2, .names = {"default", "base"}),
    ROW("items", filter_items),
    ROW("join", filter_join, .max = 2, .names = {"d", "attribute"}),
    ROW("length", filter_length),
    ROW("lower", filter_case, .how = JINJA_CASE_LOWER),
    ROW("replace", filter_replace, .min = 2, .max = 3, .names = {"old", "new", "count"}),
    ROW("safe", filter_string),
    ROW("string", filter_string),
    ROW("tojson", filter_tojson, .max = 4, .names = {"ensure_ascii", "indent", "separators", "sort_keys"}),
    ROW("trim", filter_trim, .max = 1, .names = {"chars"}),
    ROW("upper", filter_case, .how = JINJA_CASE_UPPER),
    ROW("dictsort", filter_dictsort, .max = 3, .names = {"case_sensitive", "by", "reverse"}),
    ROW("first", filter_end, .how = FIRST),
    ROW("last", filter_end, .how = LAST),
    ROW("list", filter_list),
    {.name = "map", .call_with = filter_map},
    ROW("max", filter_extreme, .how = MAX, .max = 2, .names = {"case_sensitive", "attribute"}),
    ROW("min", filter_extreme, .how = MIN, .max = 2, .names = {"case_sensitive", "attribute"}),
    {.name = "reject", .call_with = filter_select, .how = REJECT},
    {.name = "rejectattr", .call_with = filter_select, .how = REJECT | BY_ATTRIBUTE},
    ROW("reverse", filter_reverse),
    {.name = "select", .call_with = filter_select},
    {.name = "selectattr", .call_with = filter_select, .how = BY_ATTRIBUTE},
    ROW("sort", filter_sort, .max = 3, .names = {"reverse", "case_sensitive", "attribute"}),
    ROW("sum", filter_sum, .max = 2, .names = {"attribute", "start"}),
    ROW("unique", filter_unique, .max = 2, .names = {"case_sensitive", "attribute"}),
    {0},
};
