/* Values as Python has them: making, comparing and going over them. */
#include <math.h>

#include "base/text.h"
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

size_t jinja_find_text(struct jinja_rendering *rendering, const struct jinja_value *text, size_t from,
                       const struct jinja_value *part) {
    const char *start = text->string.text + from;
    size_t left = text->string.bytes - from, wanted = part->string.bytes;
    const char *found = wanted > 0 ? memmem(start, left, part->string.text, wanted) : start;
    jinja_charge_searched(rendering, found ? (size_t)(found - start) : left, wanted);
    return found ? from + (size_t)(found - start) : text->string.bytes + 1;
}

/* --- making values --- */

struct jinja_value jinja_concatenate(struct jinja_rendering *rendering, struct jinja_value a, struct jinja_value b) {
    size_t bytes = a.string.bytes + b.string.bytes;
    char *text = jinja_alloc(rendering, bytes + 1, 1);
    if (a.string.bytes > 0) memcpy(text, a.string.text, a.string.bytes);
    if (b.string.bytes > 0) memcpy(text + a.string.bytes, b.string.text, b.string.bytes);
    return jinja_string(text, bytes);
}

struct jinja_value jinja_make_list(struct jinja_rendering *rendering, enum jinja_kind kind, size_t count) {
    struct jinja_list *list = jinja_alloc(rendering, 1, sizeof *list);
    list->items = jinja_alloc(rendering, count, sizeof *list->items);
    list->count = count;
    return (struct jinja_value){.kind = kind, .list = list};
}

struct jinja_value jinja_make_range(struct jinja_rendering *rendering, int64_t first, int64_t past, int64_t step,
                                    size_t count) {
    struct jinja_value range = jinja_make_list(rendering, JINJA_RANGE, count);
    range.list->first = first;
    range.list->past = past;
    range.list->step = step;
    for (size_t i = 0; i < count; i++)
        range.list->items[i] = jinja_integer(first + (int64_t)i * step);
    return range;
}

struct jinja_value jinja_make_dict(struct jinja_rendering *rendering) {
    struct jinja_dict *dict = jinja_alloc(rendering, 1, sizeof *dict);
    return (struct jinja_value){.kind = JINJA_DICT, .dict = dict};
}

static bool equal_texts(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b) {
    if (a->string.bytes != b->string.bytes) return false;
    jinja_charge(rendering, a->string.bytes / 16); /* the caller charges the rest */
    return memcmp(a->string.text, b->string.text, a->string.bytes) == 0;
}

/* Keys are compared one by one: dicts of templates and messages, and scopes, are small, and the work is counted. */
static struct jinja_pair *find_pair(struct jinja_rendering *rendering, const struct jinja_dict *dict,
                                    const struct jinja_value *key) {
    jinja_charge(rendering, 1 + dict->count / 4);
    for (size_t i = 0; i < dict->count; i++) {
        const struct jinja_value *own = &dict->pairs[i].key;
        bool texts = own->kind == JINJA_STRING && key->kind == JINJA_STRING;
        if (texts ? equal_texts(rendering, own, key) : jinja_equal(rendering, own, key)) return &dict->pairs[i];
    }
    return NULL;
}

void jinja_dict_set(struct jinja_rendering *rendering, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value) {
    if (jinja_is(&key, JINJA_BIT(LIST) | JINJA_BIT(DICT) | JINJA_BIT(NAMESPACE)))
        jinja_fail(rendering, "unhashable type: '%s'", jinja_type_name(&key));
    struct jinja_pair *pair = find_pair(rendering, dict, &key);
    if (!pair) {
        dict->pairs = jinja_grow(rendering, dict->pairs, dict->count, sizeof *dict->pairs);
        pair = &dict->pairs[dict->count++];
        pair->key = key;
    }
    pair->value = value;
}

const struct jinja_value *jinja_dict_get(struct jinja_rendering *rendering, const struct jinja_dict *dict,
                                         const struct jinja_value *key) {
    const struct jinja_pair *pair = find_pair(rendering, dict, key);
    return pair ? &pair->value : NULL;
}

static struct jinja_value list_from_json(struct jinja_rendering *rendering, const json_t *json) {
    struct jinja_value list = jinja_make_list(rendering, JINJA_LIST, json_array_size(json));
    for (size_t i = 0; i < json_array_size(json); i++)
        list.list->items[i] = jinja_from_json(rendering, json_array_get(json, i));
    return list;
}

/* Keys of a JSON object are all different. */
static struct jinja_value dict_from_json(struct jinja_rendering *rendering, const json_t *json) {
    struct jinja_value dict = jinja_make_dict(rendering);
    const char *key;
    json_t *value;
    dict.dict->pairs = jinja_alloc(rendering, json_object_size(json), sizeof *dict.dict->pairs);
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        struct jinja_pair *pair = &dict.dict->pairs[dict.dict->count++];
        pair->key = jinja_literal(key);
        pair->value = jinja_from_json(rendering, value);
    }
    return dict;
}

struct jinja_value jinja_from_json(struct jinja_rendering *rendering, const json_t *json) {
    jinja_charge(rendering, 1);
    switch (json ? json_typeof(json) : JSON_NULL) {
    case JSON_NULL: return jinja_none();
    case JSON_TRUE: return jinja_bool(true);
    case JSON_FALSE: return jinja_bool(false);
    case JSON_INTEGER: return jinja_integer(json_integer_value(json));
    case JSON_REAL: return jinja_float(json_real_value(json));
    case JSON_STRING: return jinja_string(json_string_value(json), json_string_length(json));
    case JSON_ARRAY: return list_from_json(rendering, json);
    case JSON_OBJECT: return dict_from_json(rendering, json);
    }
    BUG("a JSON value of type %d", (int)json_typeof(json));
}

/* --- asking about values --- */

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

int64_t jinja_whole(const struct jinja_value *value) {
    return value->kind == JINJA_BOOL ? (int64_t)value->truth : value->integer;
}

double jinja_number(const struct jinja_value *value) {
    return value->kind == JINJA_FLOAT ? value->number : (double)jinja_whole(value);
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
    return value->kind == JINJA_STRING && strlen(text) == value->string.bytes &&
           memcmp(value->string.text, text, value->string.bytes) == 0;
}

static int compare_numbers(const struct jinja_value *a, const struct jinja_value *b) {
    if (a->kind == JINJA_FLOAT || b->kind == JINJA_FLOAT) {
        double x = jinja_number(a), y = jinja_number(b);
        return x < y ? -1 : x > y ? 1 : 0;
    }
    int64_t x = jinja_whole(a), y = jinja_whole(b);
    return x < y ? -1 : x > y ? 1 : 0;
}

static bool equal_lists(struct jinja_rendering *rendering, const struct jinja_list *a, const struct jinja_list *b) {
    bool equal = a->count == b->count;
    for (size_t i = 0; i < a->count && equal; i++)
        equal = jinja_equal(rendering, &a->items[i], &b->items[i]);
    return equal;
}

static bool equal_dicts(struct jinja_rendering *rendering, const struct jinja_dict *a, const struct jinja_dict *b) {
    bool equal = a->count == b->count;
    for (size_t i = 0; i < a->count && equal; i++) {
        const struct jinja_value *other = jinja_dict_get(rendering, b, &a->pairs[i].key);
        equal = other && jinja_equal(rendering, &a->pairs[i].value, other);
    }
    return equal;
}

static bool is_nan(const struct jinja_value *value) { return value->kind == JINJA_FLOAT && isnan(value->number); }

static bool equal_values(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b) {
    if (jinja_is(a, JINJA_NUMBER) && jinja_is(b, JINJA_NUMBER))
        return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case JINJA_STRING: return equal_texts(rendering, a, b);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE: return equal_lists(rendering, a->list, b->list);
    case JINJA_DICT: return equal_dicts(rendering, a->dict, b->dict);
    case JINJA_NAMESPACE: return a->dict == b->dict;
    case JINJA_MACRO: return a->macro == b->macro;
    case JINJA_FUNCTION: return a->function == b->function;
    default: return true;
    }
}

bool jinja_equal(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b) {
    jinja_charge(rendering, 1);
    jinja_enter(rendering);
    bool equal = equal_values(rendering, a, b);
    rendering->depth--;
    return equal;
}

/* Of two strings; UTF-8 has the order of its code points. */
static int compare_texts(const struct jinja_value *a, const struct jinja_value *b) {
    size_t common = a->string.bytes < b->string.bytes ? a->string.bytes : b->string.bytes;
    int order = memcmp(a->string.text, b->string.text, common);
    return order != 0 ? order : (a->string.bytes > b->string.bytes) - (a->string.bytes < b->string.bytes);
}

int jinja_compare(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b) {
    jinja_charge(rendering, 1);
    if (jinja_is(a, JINJA_NUMBER) && jinja_is(b, JINJA_NUMBER)) return compare_numbers(a, b);
    if (a->kind != JINJA_STRING || b->kind != JINJA_STRING)
        jinja_fail(rendering, "'%s' and '%s' have no order", jinja_type_name(a), jinja_type_name(b));
    size_t common = a->string.bytes < b->string.bytes ? a->string.bytes : b->string.bytes;
    jinja_charge_moved(rendering, common);
    return compare_texts(a, b);
}

/* A number exactly: all of an integer's 64 bits too. */
static long double exact_number(const struct jinja_value *value) {
    return value->kind == JINJA_FLOAT ? value->number : (long double)jinja_whole(value);
}

/* A total order, in which NaN is the largest number. */
static int by_key(const void *a, const void *b, void *reverse) {
    const struct jinja_pair *x = *(const struct jinja_pair *const *)a, *y = *(const struct jinja_pair *const *)b;
    int order;
    if (x->key.kind == JINJA_STRING) {
        order = compare_texts(&x->key, &y->key);
    } else {
        long double p = exact_number(&x->key), q = exact_number(&y->key);
        order = is_nan(&x->key) || is_nan(&y->key) ? is_nan(&x->key) - is_nan(&y->key) : (p > q) - (p < q);
    }
    if (order == 0) return (x > y) - (x < y);
    return *(const bool *)reverse ? -order : order;
}

/* Some 32 comparisons of each key, by all of it. */
void jinja_sort_pairs(struct jinja_rendering *rendering, const struct jinja_pair **pairs, size_t count, bool reverse) {
    for (size_t i = 0; i < count; i++) {
        bool text = pairs[i]->key.kind == JINJA_STRING;
        if (i > 0) (void)jinja_compare(rendering, &pairs[0]->key, &pairs[i]->key);
        jinja_charge(rendering, 32 + (text ? 2 * pairs[i]->key.string.bytes : 0));
    }
    if (count > 1) qsort_r(pairs, count, sizeof *pairs, by_key, &reverse);
}

bool jinja_contains(struct jinja_rendering *rendering, const struct jinja_value *container,
                    const struct jinja_value *item) {
    const struct jinja_list *list;
    bool found = false;
    switch (container->kind) {
    case JINJA_UNDEFINED: return false;
    case JINJA_STRING:
        if (item->kind != JINJA_STRING)
            jinja_fail(rendering, "'in <string>' requires string, not %s", jinja_type_name(item));
        return jinja_find_text(rendering, container, 0, item) <= container->string.bytes;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_GENERATOR:
        list = jinja_iterate(rendering, container);
        for (size_t i = 0; i < list->count && !found; i++)
            found = jinja_equal(rendering, &list->items[i], item);
        return found;
    case JINJA_DICT: return find_pair(rendering, container->dict, item);
    default: jinja_fail(rendering, "argument of type '%s' is not iterable", jinja_type_name(container));
    }
}

size_t jinja_length(struct jinja_rendering *rendering, const struct jinja_value *value) {
    switch (value->kind) {
    case JINJA_UNDEFINED: return 0;
    case JINJA_STRING:
        jinja_charge_moved(rendering, value->string.bytes);
        return jinja_count_characters(value->string.text, value->string.bytes);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE: return value->list->count;
    case JINJA_DICT: return value->dict->count;
    default: jinja_fail(rendering, "object of type '%s' has no len()", jinja_type_name(value));
    }
}

static struct jinja_list *list_characters(struct jinja_rendering *rendering, const struct jinja_value *value) {
    const char *text = value->string.text;
    size_t bytes = value->string.bytes, at = 0;
    jinja_charge(rendering, bytes);
    struct jinja_value list = jinja_make_list(rendering, JINJA_LIST, jinja_count_characters(text, bytes));
    for (size_t i = 0; i < list.list->count; i++) {
        size_t length = jinja_find_character(text + at, bytes - at, 1);
        list.list->items[i] = jinja_string(text + at, length);
        at += length;
    }
    return list.list;
}

struct jinja_value jinja_list_dict(struct jinja_rendering *rendering, const struct jinja_dict *dict,
                                   enum jinja_parts parts) {
    struct jinja_value list = jinja_make_list(rendering, JINJA_LIST, dict->count);
    for (size_t i = 0; i < dict->count; i++) {
        struct jinja_value *item = &list.list->items[i];
        const struct jinja_pair *pair = &dict->pairs[i];
        *item = parts == JINJA_KEYS     ? pair->key
                : parts == JINJA_VALUES ? pair->value
                                        : jinja_make_list(rendering, JINJA_TUPLE, 2);
        if (parts != JINJA_PAIRS) continue;
        item->list->items[0] = pair->key;
        item->list->items[1] = pair->value;
    }
    return list;
}

struct jinja_list *jinja_iterate(struct jinja_rendering *rendering, const struct jinja_value *value) {
    switch (value->kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE: return value->list;
    case JINJA_GENERATOR:
        if (value->list->taken) return jinja_make_list(rendering, JINJA_LIST, 0).list;
        value->list->taken = true;
        return value->list;
    case JINJA_STRING: return list_characters(rendering, value);
    case JINJA_DICT: return jinja_list_dict(rendering, value->dict, JINJA_KEYS).list;
    case JINJA_UNDEFINED: return jinja_make_list(rendering, JINJA_LIST, 0).list;
    default: jinja_fail(rendering, "'%s' object is not iterable", jinja_type_name(value));
    }
}
