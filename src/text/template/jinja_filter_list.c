/* Filters over the items of a list: first, last, list, reverse, unique, sort, min, max, sum, map, select, reject,
 * selectattr, rejectattr, dictsort. */
#include <stdlib.h>
#include <string.h>

#include "text/template/jinja_rendering.h"
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

enum status jinja_list_attributes(struct jinja_rendering *rendering, const struct jinja_list *items,
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
        TRY(jinja_list_attributes(rendering, items, &a[0], NULL, &attributes));
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
    TRY(jinja_list_attributes(rendering, items, &a[0], a[1].kind == JINJA_UNDEFINED ? NULL : &a[1], out));
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

const struct jinja_filter jinja_list_filters[] = {
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
