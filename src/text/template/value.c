#include "text/template/value.h"

#include <math.h>

#include "text/template/render.h"

bool jinja_is_space(uint32_t code) {
    if (code <= 0x20) return code == ' ' || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
    if (code < 0x1680) return code == 0x85 || code == 0xA0;
    return code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
           code == 0x205F || code == 0x3000;
}

size_t jinja_leading_space(const char *text, size_t bytes) {
    size_t at = 0, length;
    while (at < bytes && jinja_is_space(utf8_decode_valid(text + at, &length)))
        at += length;
    return at;
}

size_t jinja_trailing_space(const char *text, size_t bytes) {
    size_t end = bytes, length;
    while (end > 0 && jinja_is_space(utf8_decode_last(text, end, &length)))
        end -= length;
    return bytes - end;
}

size_t jinja_count_characters(const char *text, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

size_t jinja_find_character(const char *text, size_t bytes, size_t index) {
    size_t at = 0;
    for (; at < bytes; at++)
        if (((unsigned char)text[at] & 0xC0) != 0x80 && index-- == 0) break;
    return at;
}

size_t jinja_find_text(const char *text, size_t bytes, size_t from, const char *part, size_t part_bytes) {
    if (part_bytes == 0) return from;
    const char *found = from <= bytes ? memmem(text + from, bytes - from, part, part_bytes) : NULL;
    return found ? (size_t)(found - text) : bytes + 1;
}

struct jinja_value jinja_undefined(const char *name, size_t bytes) {
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .string = {name, bytes}};
}

struct jinja_value jinja_none(void) {
    return (struct jinja_value){.kind = JINJA_NONE};
}

struct jinja_value jinja_bool(bool truth) {
    return (struct jinja_value){.kind = JINJA_BOOL, .truth = truth};
}

struct jinja_value jinja_integer(int64_t integer) {
    return (struct jinja_value){.kind = JINJA_INTEGER, .integer = integer};
}

struct jinja_value jinja_float(double number) {
    return (struct jinja_value){.kind = JINJA_FLOAT, .number = number};
}

struct jinja_value jinja_string(const char *text, size_t bytes) {
    return (struct jinja_value){.kind = JINJA_STRING, .string = {text, bytes}};
}

struct jinja_value jinja_literal(const char *text) {
    return jinja_string(text, strlen(text));
}

enum status jinja_copy_string(struct jinja_rendering *rendering, const char *text, size_t bytes,
                              struct jinja_value *out) {
    char *copy;
    TRY(jinja_alloc(rendering, bytes + 1, 1, &copy));
    if (bytes > 0) memcpy(copy, text, bytes);
    *out = jinja_string(copy, bytes);
    return STATUS_OK;
}

enum status jinja_take_string(struct jinja_rendering *rendering, enum status status, struct text_buffer *text,
                              struct jinja_value *out) {
    if (status == STATUS_OK) status = jinja_copy_string(rendering, text->items, text->count, out);
    vec_free(text);
    return status;
}

enum status jinja_make_list(struct jinja_rendering *rendering, enum jinja_kind kind, size_t count,
                            struct jinja_value *out, struct jinja_value **items) {
    struct jinja_list *list;
    TRY(jinja_alloc(rendering, 1, sizeof *list, &list));
    TRY(jinja_alloc(rendering, count, sizeof *list->items, &list->items));
    list->count = count;
    *items = list->items;
    *out = (struct jinja_value){.kind = kind, .list = list};
    return STATUS_OK;
}

enum status jinja_make_range(struct jinja_rendering *rendering, int64_t first, int64_t past, int64_t step, size_t count,
                             struct jinja_value *out) {
    struct jinja_value *items;
    TRY(jinja_make_list(rendering, JINJA_RANGE, count, out, &items));
    struct jinja_list *list = (struct jinja_list *)(uintptr_t)out->list;
    list->first = first;
    list->past = past;
    list->step = step;
    for (size_t i = 0; i < count; i++)
        items[i] = jinja_integer(first + (int64_t)i * step);
    return STATUS_OK;
}

enum status jinja_make_dict(struct jinja_rendering *rendering, struct jinja_value *out) {
    struct jinja_dict *dict;
    TRY(jinja_alloc(rendering, 1, sizeof *dict, &dict));
    *out = (struct jinja_value){.kind = JINJA_DICT, .dict = dict};
    return STATUS_OK;
}

/* Of two strings. */
static enum status equal_texts(struct jinja_rendering *rendering, const struct jinja_value *a,
                               const struct jinja_value *b, bool *out) {
    size_t bytes = a->string.bytes;
    *out = bytes == b->string.bytes;
    if (!*out) return STATUS_OK;
    TRY(jinja_charge_moved(rendering, bytes));
    *out = memcmp(a->string.text, b->string.text, bytes) == 0;
    return STATUS_OK;
}

/* Keys are compared one by one: dicts of templates and messages are small, and the work is counted. */
static enum status find_pair(struct jinja_rendering *rendering, const struct jinja_dict *dict,
                             const struct jinja_value *key, struct jinja_pair **out) {
    *out = NULL;
    TRY(jinja_charge(rendering, 1 + dict->count / 4));
    for (size_t i = 0; i < dict->count && !*out; i++) {
        const struct jinja_value *own = &dict->pairs[i].key;
        bool same;
        if (own->kind == JINJA_STRING && key->kind == JINJA_STRING)
            TRY(equal_texts(rendering, own, key, &same));
        else
            TRY(jinja_equal(rendering, own, key, &same));
        if (same) *out = &dict->pairs[i];
    }
    return STATUS_OK;
}

enum status jinja_dict_set(struct jinja_rendering *rendering, struct jinja_dict *dict, struct jinja_value key,
                           struct jinja_value value) {
    struct jinja_pair *pair;
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT || key.kind == JINJA_NAMESPACE)
        return jinja_fail(rendering, "unhashable type: '%s'", jinja_type_name(&key));
    TRY(find_pair(rendering, dict, &key, &pair));
    if (pair) {
        pair->value = value;
        return STATUS_OK;
    }
    if (dict->count == dict->capacity) {
        size_t capacity = dict->capacity > 0 ? 2 * dict->capacity : 4;
        struct jinja_pair *pairs;
        TRY(jinja_alloc(rendering, capacity, sizeof *pairs, &pairs));
        if (dict->count > 0) memcpy(pairs, dict->pairs, dict->count * sizeof *pairs);
        dict->pairs = pairs;
        dict->capacity = capacity;
    }
    dict->pairs[dict->count++] = (struct jinja_pair){key, value};
    return STATUS_OK;
}

enum status jinja_dict_get(struct jinja_rendering *rendering, const struct jinja_dict *dict,
                           const struct jinja_value *key, const struct jinja_value **out) {
    struct jinja_pair *pair;
    TRY(find_pair(rendering, dict, key, &pair));
    *out = pair ? &pair->value : NULL;
    return STATUS_OK;
}

static enum status list_from_json(struct jinja_rendering *rendering, const json_t *json, struct jinja_value *out) {
    struct jinja_value *items;
    TRY(jinja_make_list(rendering, JINJA_LIST, json_array_size(json), out, &items));
    for (size_t i = 0; i < json_array_size(json); i++)
        TRY(jinja_from_json(rendering, json_array_get(json, i), &items[i]));
    return STATUS_OK;
}

/* Keys of a JSON object are all different. */
static enum status dict_from_json(struct jinja_rendering *rendering, const json_t *json, struct jinja_value *out) {
    const char *key;
    json_t *value;
    size_t count = json_object_size(json);
    TRY(jinja_make_dict(rendering, out));
    TRY(jinja_alloc(rendering, count, sizeof *out->dict->pairs, &out->dict->pairs));
    out->dict->capacity = count;
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        struct jinja_pair *pair = &out->dict->pairs[out->dict->count++];
        pair->key = jinja_literal(key);
        TRY(jinja_from_json(rendering, value, &pair->value));
    }
    return STATUS_OK;
}

enum status jinja_from_json(struct jinja_rendering *rendering, const json_t *json, struct jinja_value *out) {
    TRY(jinja_charge(rendering, 1));
    switch (json ? json_typeof(json) : JSON_NULL) {
    case JSON_NULL: *out = jinja_none(); return STATUS_OK;
    case JSON_TRUE: *out = jinja_bool(true); return STATUS_OK;
    case JSON_FALSE: *out = jinja_bool(false); return STATUS_OK;
    case JSON_INTEGER: *out = jinja_integer(json_integer_value(json)); return STATUS_OK;
    case JSON_REAL: *out = jinja_float(json_real_value(json)); return STATUS_OK;
    case JSON_STRING: *out = jinja_string(json_string_value(json), json_string_length(json)); return STATUS_OK;
    case JSON_ARRAY: return list_from_json(rendering, json, out);
    case JSON_OBJECT: return dict_from_json(rendering, json, out);
    }
    BUG("a JSON value of type %d", (int)json_typeof(json));
}

const char *jinja_type_name(const struct jinja_value *value) {
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "undefined", [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",           [JINJA_INTEGER] = "int",
        [JINJA_FLOAT] = "float",         [JINJA_STRING] = "str",
        [JINJA_GENERATOR] = "generator", [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",         [JINJA_DICT] = "dict",
        [JINJA_NAMESPACE] = "namespace", [JINJA_LOOP] = "loop",
        [JINJA_RANGE] = "range",         [JINJA_SELF] = "TemplateReference",
        [JINJA_MACRO] = "macro",         [JINJA_FUNCTION] = "function",
        [JINJA_METHOD] = "method",
    };
    return names[value->kind];
}

bool jinja_is_number(const struct jinja_value *value) {
    return value->kind == JINJA_BOOL || value->kind == JINJA_INTEGER || value->kind == JINJA_FLOAT;
}

double jinja_number(const struct jinja_value *value) {
    if (value->kind == JINJA_FLOAT) return value->number;
    return value->kind == JINJA_BOOL ? (double)value->truth : (double)value->integer;
}

static int64_t int_value(const struct jinja_value *value) {
    return value->kind == JINJA_BOOL ? (int64_t)value->truth : value->integer;
}

bool jinja_is_true(const struct jinja_value *value) {
    switch (value->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return value->truth;
    case JINJA_INTEGER: return value->integer != 0;
    case JINJA_FLOAT: return fpclassify(value->number) != FP_ZERO;
    case JINJA_STRING: return value->string.bytes > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE: return value->list->count > 0;
    case JINJA_DICT: return value->dict->count > 0;
    default: return true;
    }
}

bool jinja_is_text(const struct jinja_value *value, const char *text) {
    return value->kind == JINJA_STRING && jinja_text_is(value->string.text, value->string.bytes, text);
}

static int compare_numbers(const struct jinja_value *a, const struct jinja_value *b) {
    if (a->kind == JINJA_FLOAT || b->kind == JINJA_FLOAT) {
        double x = jinja_number(a), y = jinja_number(b);
        return x < y ? -1 : x > y ? 1 : 0;
    }
    int64_t x = int_value(a), y = int_value(b);
    return x < y ? -1 : x > y ? 1 : 0;
}

static enum status equal_lists(struct jinja_rendering *rendering, const struct jinja_list *a,
                               const struct jinja_list *b, bool *out) {
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++)
        TRY(jinja_equal(rendering, &a->items[i], &b->items[i], out));
    return STATUS_OK;
}

static enum status equal_dicts(struct jinja_rendering *rendering, const struct jinja_dict *a,
                               const struct jinja_dict *b, bool *out) {
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++) {
        struct jinja_pair *other;
        TRY(find_pair(rendering, b, &a->pairs[i].key, &other));
        *out = other != NULL;
        if (other) TRY(jinja_equal(rendering, &a->pairs[i].value, &other->value, out));
    }
    return STATUS_OK;
}

static bool is_nan(const struct jinja_value *value) { return value->kind == JINJA_FLOAT && isnan(value->number); }

static enum status equal_values(struct jinja_rendering *rendering, const struct jinja_value *a,
                                const struct jinja_value *b, bool *out) {
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
        return STATUS_OK;
    }
    *out = a->kind == b->kind;
    if (!*out) return STATUS_OK;
    switch (a->kind) {
    case JINJA_STRING: return equal_texts(rendering, a, b, out);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE: return equal_lists(rendering, a->list, b->list, out);
    case JINJA_DICT: return equal_dicts(rendering, a->dict, b->dict, out);
    case JINJA_NAMESPACE: *out = a->dict == b->dict; return STATUS_OK;
    case JINJA_MACRO: *out = a->macro == b->macro; return STATUS_OK;
    case JINJA_FUNCTION: *out = a->function == b->function; return STATUS_OK;
    default: return STATUS_OK;
    }
}

enum status jinja_equal(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b,
                        bool *out) {
    TRY(jinja_charge(rendering, 1));
    if (++rendering->depth > JINJA_DEPTH_MAX) return jinja_fail(rendering, "values nested too deeply");
    TRY(equal_values(rendering, a, b, out));
    rendering->depth--;
    return STATUS_OK;
}

enum status jinja_compare(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b,
                          int *out) {
    TRY(jinja_charge(rendering, 1));
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = compare_numbers(a, b);
        return STATUS_OK;
    }
    if (a->kind != JINJA_STRING || b->kind != JINJA_STRING)
        return jinja_fail(rendering, "'%s' and '%s' have no order", jinja_type_name(a), jinja_type_name(b));
    size_t common = a->string.bytes < b->string.bytes ? a->string.bytes : b->string.bytes;
    TRY(jinja_charge_moved(rendering, common));
    int order = memcmp(a->string.text, b->string.text, common); /* UTF-8 has the order of its code points */
    *out = order != 0 ? order : (a->string.bytes > b->string.bytes) - (a->string.bytes < b->string.bytes);
    return STATUS_OK;
}

enum status jinja_contains(struct jinja_rendering *rendering, const struct jinja_value *container,
                           const struct jinja_value *item, bool *out) {
    *out = false;
    switch (container->kind) {
    case JINJA_UNDEFINED: return STATUS_OK;
    case JINJA_STRING:
        if (item->kind != JINJA_STRING)
            return jinja_fail(rendering, "'in <string>' requires string, not %s", jinja_type_name(item));
        TRY(jinja_charge_searched(rendering, container->string.bytes, item->string.bytes));
        *out = jinja_find_text(container->string.text, container->string.bytes, 0, item->string.text,
                               item->string.bytes) <= container->string.bytes;
        return STATUS_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_GENERATOR: {
        const struct jinja_list *list;
        TRY(jinja_iterate(rendering, container, &list));
        for (size_t i = 0; i < list->count && !*out; i++)
            TRY(jinja_equal(rendering, &list->items[i], item, out));
        return STATUS_OK;
    }
    case JINJA_DICT: {
        struct jinja_pair *pair;
        TRY(find_pair(rendering, container->dict, item, &pair));
        *out = pair != NULL;
        return STATUS_OK;
    }
    default: return jinja_fail(rendering, "argument of type '%s' is not iterable", jinja_type_name(container));
    }
}

enum status jinja_length(struct jinja_rendering *rendering, const struct jinja_value *value, size_t *out) {
    switch (value->kind) {
    case JINJA_UNDEFINED: *out = 0; return STATUS_OK;
    case JINJA_STRING:
        TRY(jinja_charge_moved(rendering, value->string.bytes));
        *out = jinja_count_characters(value->string.text, value->string.bytes);
        return STATUS_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE: *out = value->list->count; return STATUS_OK;
    case JINJA_DICT: *out = value->dict->count; return STATUS_OK;
    default: return jinja_fail(rendering, "object of type '%s' has no len()", jinja_type_name(value));
    }
}

static enum status list_characters(struct jinja_rendering *rendering, const struct jinja_value *value,
                                   struct jinja_value *out) {
    const char *text = value->string.text;
    size_t bytes = value->string.bytes, at = 0;
    struct jinja_value *items;
    TRY(jinja_charge(rendering, bytes));
    TRY(jinja_make_list(rendering, JINJA_LIST, jinja_count_characters(text, bytes), out, &items));
    for (size_t i = 0; i < out->list->count; i++) {
        size_t length = jinja_find_character(text + at, bytes - at, 1);
        items[i] = jinja_string(text + at, length);
        at += length;
    }
    return STATUS_OK;
}

static enum status take_generator(struct jinja_rendering *rendering, const struct jinja_value *value,
                                  const struct jinja_list **out) {
    struct jinja_list *list = (struct jinja_list *)(uintptr_t)value->list;
    struct jinja_value empty, *items;
    TRY(jinja_make_list(rendering, JINJA_LIST, 0, &empty, &items));
    *out = list->taken ? empty.list : list;
    list->taken = true;
    return STATUS_OK;
}

enum status jinja_iterate(struct jinja_rendering *rendering, const struct jinja_value *value,
                          const struct jinja_list **out) {
    struct jinja_value list, *items;
    if (value->kind == JINJA_LIST || value->kind == JINJA_TUPLE || value->kind == JINJA_RANGE) {
        *out = value->list;
        return STATUS_OK;
    }
    if (value->kind == JINJA_GENERATOR) return take_generator(rendering, value, out);
    if (value->kind == JINJA_STRING) {
        TRY(list_characters(rendering, value, &list));
    } else if (value->kind == JINJA_DICT || value->kind == JINJA_UNDEFINED) {
        size_t count = value->kind == JINJA_DICT ? value->dict->count : 0;
        TRY(jinja_make_list(rendering, JINJA_LIST, count, &list, &items));
        for (size_t i = 0; i < count; i++)
            items[i] = value->dict->pairs[i].key;
    } else {
        return jinja_fail(rendering, "'%s' object is not iterable", jinja_type_name(value));
    }
    *out = list.list;
    return STATUS_OK;
}
