/* Tests, which may stand behind `is`; functions; and methods of strings and dicts, and loop.cycle. */
#include <time.h>
#include <utf8proc.h>

#include "base/text.h"
#include "text/template/render.h"

/* --- tests --- */

/* Whether the value's kind is one of the set `how`. */
JINJA_CALL(is_kind) { return jinja_bool(jinja_is(self, how)); }
JINJA_CALL(is_truth) { return jinja_bool(self->kind == JINJA_BOOL && self->truth == (how != 0)); }

/* Identity, as far as values have one. */
JINJA_CALL(is_same) {
    if (self->kind != a->kind) return jinja_bool(false);
    if (!jinja_is(self, JINJA_BIT(NONE) | JINJA_BIT(BOOL)))
        jinja_fail(rendering, "sameas between values of type '%s' is not supported", jinja_type_name(self));
    return jinja_bool(self->kind == JINJA_NONE || jinja_equal(rendering, self, a));
}

JINJA_CALL(is_equal) { return jinja_bool(jinja_equal(rendering, self, a) == (how != 0)); }

enum order { BELOW = 1, SAME = 2, ABOVE = 4 };

/* Whether the value stands to the argument in one of the orders of the set `how`. */
JINJA_CALL(is_ordered) {
    int order = jinja_compare(rendering, self, a);
    return jinja_bool(how & (order < 0 ? BELOW : order > 0 ? ABOVE : SAME));
}

JINJA_CALL(is_in) { return jinja_bool(jinja_contains(rendering, a, self)); }

JINJA_CALL(is_divisible) {
    struct jinja_value zero = jinja_integer(0), rest = jinja_arithmetic(rendering, "%", 1, self, a);
    return jinja_bool(jinja_equal(rendering, &rest, &zero));
}

/* Even, or odd where `how` is 1. */
JINJA_CALL(has_parity) {
    struct jinja_value two = jinja_integer(2), even = is_divisible(rendering, self, &two, 0);
    return jinja_bool(even.truth == (how == 0));
}

/* str.islower and str.isupper: some letter is, and none is of the other case. */
JINJA_CALL(has_case) {
    struct jinja_value text = jinja_to_string(rendering, self);
    bool upper = how == JINJA_CASE_UPPER, found = false;
    size_t length;
    jinja_charge(rendering, 2 * text.string.bytes);
    for (size_t at = 0; at < text.string.bytes; at += length) {
        utf8proc_int32_t code = (utf8proc_int32_t)utf8_decode_valid(text.string.text + at, &length);
        bool is_lower = utf8proc_islower(code), is_upper = utf8proc_isupper(code);
        bool is_title = utf8proc_category(code) == UTF8PROC_CATEGORY_LT;
        if (is_title || (upper ? is_lower : is_upper)) return jinja_bool(false);
        found |= upper ? is_upper : is_lower;
    }
    return jinja_bool(found);
}

enum {
    SEQUENCES = JINJA_ITEMS | JINJA_BIT(STRING) | JINJA_BIT(DICT) | JINJA_BIT(UNDEFINED),
    ITERABLES = SEQUENCES | JINJA_BIT(SELF) | JINJA_BIT(GENERATOR),
    CALLABLES = JINJA_BIT(UNDEFINED) | JINJA_BIT(MACRO) | JINJA_BIT(FUNCTION) | JINJA_BIT(METHOD),
};

#define KIND_TEST(text, kinds)                                                                                         \
    { .name = (text), .call = is_kind, .how = (kinds) }
#define TEST(text, function, arguments, with)                                                                          \
    { .name = (text), .min = (arguments), .max = (arguments), .call = (function), .how = (with) }

const struct jinja_callable jinja_tests[] = {
    KIND_TEST("defined", ~JINJA_BIT(UNDEFINED)),
    KIND_TEST("undefined", JINJA_BIT(UNDEFINED)),
    KIND_TEST("none", JINJA_BIT(NONE)),
    KIND_TEST("boolean", JINJA_BIT(BOOL)),
    TEST("true", is_truth, 0, true),
    TEST("false", is_truth, 0, false),
    KIND_TEST("integer", JINJA_BIT(INTEGER)),
    KIND_TEST("float", JINJA_BIT(FLOAT)),
    KIND_TEST("number", JINJA_NUMBER),
    KIND_TEST("string", JINJA_BIT(STRING)),
    KIND_TEST("mapping", JINJA_BIT(DICT)),
    KIND_TEST("iterable", ITERABLES),
    KIND_TEST("sequence", SEQUENCES),
    KIND_TEST("callable", CALLABLES),
    TEST("sameas", is_same, 1, 0),
    TEST("eq", is_equal, 1, true),
    TEST("equalto", is_equal, 1, true),
    TEST("ne", is_equal, 1, false),
    TEST("lt", is_ordered, 1, BELOW),
    TEST("lessthan", is_ordered, 1, BELOW),
    TEST("le", is_ordered, 1, BELOW | SAME),
    TEST("gt", is_ordered, 1, ABOVE),
    TEST("greaterthan", is_ordered, 1, ABOVE),
    TEST("ge", is_ordered, 1, ABOVE | SAME),
    TEST("in", is_in, 1, 0),
    TEST("divisibleby", is_divisible, 1, 0),
    TEST("even", has_parity, 0, 0),
    TEST("odd", has_parity, 0, 1),
    TEST("lower", has_case, 0, JINJA_CASE_LOWER),
    TEST("upper", has_case, 0, JINJA_CASE_UPPER),
    {0},
};

/* --- functions --- */

JINJA_CALL(call_range) {
    bool both = jinja_is_given(&a[1]);
    const struct jinja_value zero = jinja_integer(0), one = jinja_integer(1);
    const struct jinja_value *bounds[] = {both ? &a[0] : &zero, both ? &a[1] : &a[0],
                                          jinja_is_given(&a[2]) ? &a[2] : &one};
    for (int i = 0; i < 3; i++)
        if (!jinja_is(bounds[i], JINJA_WHOLE))
            jinja_fail(rendering, "range: '%s' is not a whole number", jinja_type_name(bounds[i]));
    int64_t first = jinja_whole(bounds[0]), past = jinja_whole(bounds[1]), step = jinja_whole(bounds[2]);
    if (step == 0) jinja_fail(rendering, "range: the step is zero");
    __int128 distance = step > 0 ? (__int128)past - first : (__int128)first - past;
    __int128 stride = step > 0 ? step : -(__int128)step, count = distance > 0 ? (distance - 1) / stride + 1 : 0;
    if (count > JINJA_RANGE_MAX) jinja_fail(rendering, "range: more than %d items", JINJA_RANGE_MAX);
    return jinja_make_range(rendering, first, past, step, (size_t)count);
}

/* dict(mapping, key=value, …), and the same as a namespace: a value of kind `how`. */
JINJA_CALL_WITH(call_dict) {
    if (arguments->count > 1) jinja_fail(rendering, "expected at most 1 argument, got %zu", arguments->count);
    struct jinja_value made = jinja_make_dict(rendering);
    if (arguments->count == 1) {
        const struct jinja_value *mapping = &arguments->items[0];
        if (mapping->kind != JINJA_DICT)
            jinja_fail(rendering, "making a dict of a '%s' is not supported", jinja_type_name(mapping));
        for (size_t i = 0; i < mapping->dict->count; i++)
            jinja_dict_set(rendering, made.dict, mapping->dict->pairs[i].key, mapping->dict->pairs[i].value);
    }
    for (size_t i = 0; i < arguments->named.count; i++)
        jinja_dict_set(rendering, made.dict, arguments->named.pairs[i].key, arguments->named.pairs[i].value);
    made.kind = (enum jinja_kind)how;
    return made;
}

JINJA_CALL(call_raise) {
    struct jinja_value text = jinja_to_string(rendering, &a[0]);
    int bytes = text.string.bytes < 300 ? (int)text.string.bytes : 300;
    jinja_fail(rendering, "the template says: %.*s", bytes, text.string.text);
}

enum { DATE_WORK = 500 };

/* In UTC and in English, so that the same data give the same tokens everywhere. */
JINJA_CALL(call_strftime) {
    static const char known[] = "aAbBdHIjmMpSuUwWyYFTDRe%n";
    char format[128], text[512];
    size_t format_bytes = a[0].string.bytes, from = rendering->text->count;
    if (a[0].kind != JINJA_STRING || format_bytes == 0 || format_bytes >= sizeof format)
        jinja_fail(rendering, "strftime_now: a format of 1 to %zu bytes is expected", sizeof format - 1);
    memcpy(format, a[0].string.text, format_bytes);
    format[format_bytes] = '\0';
    for (const char *at = strchr(format, '%'); at; at = strchr(at + 2, '%'))
        if (at[1] == '\0' || !strchr(known, at[1]))
            jinja_fail(rendering, "strftime_now: the format '%s' is not supported", format);
    jinja_charge(rendering, DATE_WORK);
    time_t now = (time_t)rendering->now_s;
    struct tm date;
    if (!gmtime_r(&now, &date)) jinja_fail(rendering, "strftime_now: the time is out of range");
    jinja_append(rendering, text, strftime(text, sizeof text, format, &date));
    return jinja_take_text(rendering, from);
}

const struct jinja_callable jinja_functions[] = {
    {.name = "range", .max = 3, .call = call_range},
    {.name = "dict", .call_with = call_dict, .how = JINJA_DICT},
    {.name = "namespace", .call_with = call_dict, .how = JINJA_NAMESPACE},
    {.name = "raise_exception", .max = 1, .call = call_raise, .names = {"message"}},
    {.name = "strftime_now", .max = 1, .call = call_strftime, .names = {"format"}},
    {0},
};

/* --- methods of strings --- */

/* An optional whole number; -1 where it is not given. */
static int64_t read_count(struct jinja_rendering *rendering, const struct jinja_value *value) {
    if (!jinja_is_given(value)) return -1;
    if (!jinja_is(value, JINJA_WHOLE))
        jinja_fail(rendering, "'%s' object cannot be interpreted as an integer", jinja_type_name(value));
    return jinja_whole(value);
}

static void require_string(struct jinja_rendering *rendering, const struct jinja_value *value) {
    if (value->kind != JINJA_STRING) jinja_fail(rendering, "a string is expected, not '%s'", jinja_type_name(value));
}

JINJA_CALL(call_strip) { return jinja_strip(rendering, self, &a[0], (enum jinja_sides)how); }
JINJA_CALL(call_case) { return jinja_change_case(rendering, self, (enum jinja_case)how); }
JINJA_CALL(call_replace) { return jinja_replace(rendering, self, &a[0], &a[1], read_count(rendering, &a[2])); }
JINJA_CALL(call_join) { return jinja_join(rendering, self, jinja_iterate(rendering, &a[0]), false); }

/* Whether a string begins with another, or ends. */
static bool has_end(struct jinja_rendering *rendering, const struct jinja_value *self, const struct jinja_value *end,
                    enum jinja_sides side) {
    require_string(rendering, end);
    size_t bytes = self->string.bytes, wanted = end->string.bytes;
    if (wanted > bytes) return false;
    jinja_charge_moved(rendering, wanted);
    return memcmp(self->string.text + (side == JINJA_LEFT ? 0 : bytes - wanted), end->string.text, wanted) == 0;
}

/* startswith and endswith: a string, or any of a tuple. */
JINJA_CALL(call_has_end) {
    bool tuple = a[0].kind == JINJA_TUPLE, found = false;
    for (size_t i = 0; i < (tuple ? a[0].list->count : 1) && !found; i++)
        found = has_end(rendering, self, tuple ? &a[0].list->items[i] : &a[0], (enum jinja_sides)how);
    return jinja_bool(found);
}

JINJA_CALL(call_remove_end) {
    if (!has_end(rendering, self, &a[0], (enum jinja_sides)how)) return *self;
    return jinja_string(self->string.text + (how == JINJA_LEFT ? a[0].string.bytes : 0),
                        self->string.bytes - a[0].string.bytes);
}

static void add_part(struct jinja_rendering *rendering, struct jinja_list *parts, const char *text, size_t bytes) {
    jinja_charge(rendering, 2);
    parts->items = jinja_grow(rendering, parts->items, parts->count, sizeof *parts->items);
    parts->items[parts->count++] = jinja_string(text, bytes);
}

static void split_at(struct jinja_rendering *rendering, const struct jinja_value *self,
                     const struct jinja_value *separator, int64_t max, struct jinja_list *parts) {
    const char *text = self->string.text;
    size_t at = 0, bytes = self->string.bytes;
    for (int64_t cuts = 0; max < 0 || cuts < max; cuts++) {
        size_t found = jinja_find_text(rendering, self, at, separator);
        if (found > bytes) break;
        add_part(rendering, parts, text + at, found - at);
        at = found + separator->string.bytes;
    }
    add_part(rendering, parts, text + at, bytes - at);
}

/* Whether a part begins at a place, where there are bytes enough. */
static bool text_is_at(struct jinja_rendering *rendering, const char *text, const struct jinja_value *part) {
    size_t bytes = part->string.bytes;
    bool begins = bytes == 0 || *text == *part->string.text;
    jinja_charge_moved(rendering, begins ? bytes : 0);
    return begins && memcmp(text, part->string.text, bytes) == 0;
}

/* The same from the end; parts are put in order at last. */
static void split_at_last(struct jinja_rendering *rendering, const struct jinja_value *self,
                          const struct jinja_value *separator, int64_t max, struct jinja_list *parts) {
    const char *text = self->string.text;
    size_t end = self->string.bytes, wanted = separator->string.bytes, at = end;
    int64_t cuts = 0;
    while (at >= wanted && (max < 0 || cuts < max)) {
        if (!text_is_at(rendering, text + at - wanted, separator)) {
            at--;
            continue;
        }
        add_part(rendering, parts, text + at, end - at);
        end = at = at - wanted;
        cuts++;
    }
    add_part(rendering, parts, text, end);
    for (size_t i = 0, last = parts->count - 1; i < last; i++, last--) {
        struct jinja_value part = parts->items[i];
        parts->items[i] = parts->items[last];
        parts->items[last] = part;
    }
}

/* Splits at white space. No part begins or ends with white space, but the last may where `max` cuts are made. */
static void split_at_space(struct jinja_rendering *rendering, const struct jinja_value *self, int64_t max,
                           struct jinja_list *parts) {
    const char *text = self->string.text;
    size_t bytes = self->string.bytes, at = jinja_leading_space(text, bytes), length;
    for (int64_t cuts = 0; at < bytes; cuts++) {
        size_t end = at;
        while (end < bytes && !jinja_is_space(utf8_decode_valid(text + end, &length)))
            end += length;
        if (max >= 0 && cuts >= max) end = bytes;
        add_part(rendering, parts, text + at, end - at);
        at = end + jinja_leading_space(text + end, bytes - end);
    }
}

/* split, and rsplit from the right. */
JINJA_CALL(call_split) {
    struct jinja_value parts = jinja_make_list(rendering, JINJA_LIST, 0);
    bool last = how == JINJA_RIGHT;
    int64_t max = read_count(rendering, &a[1]);
    if (jinja_is(&a[0], JINJA_ABSENT)) {
        jinja_charge(rendering, self->string.bytes);
        if (last && max >= 0) jinja_fail_unsupported(rendering, "method", jinja_literal("rsplit() at white space"));
        split_at_space(rendering, self, max, parts.list);
        return parts;
    }
    require_string(rendering, &a[0]);
    if (a[0].string.bytes == 0) jinja_fail(rendering, "empty separator");
    (last ? split_at_last : split_at)(rendering, self, &a[0], max, parts.list);
    return parts;
}

static bool ends_line(uint32_t code) {
    return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

JINJA_CALL(call_splitlines) {
    const char *text = self->string.text;
    size_t bytes = self->string.bytes, at = 0, begin = 0, length;
    bool keep = jinja_is_true(&a[0]);
    struct jinja_value parts = jinja_make_list(rendering, JINJA_LIST, 0);
    jinja_charge(rendering, bytes);
    while (at < bytes) {
        uint32_t code = utf8_decode_valid(text + at, &length);
        size_t end = at;
        at += length;
        if (!ends_line(code)) continue;
        if (code == '\r' && at < bytes && text[at] == '\n') at++;
        add_part(rendering, parts.list, text + begin, (keep ? at : end) - begin);
        begin = at;
    }
    if (begin < bytes) add_part(rendering, parts.list, text + begin, bytes - begin);
    return parts;
}

/* In characters; -1 when there is none. */
JINJA_CALL(call_find) {
    const char *text = self->string.text;
    require_string(rendering, &a[0]);
    size_t found = jinja_find_text(rendering, self, 0, &a[0]);
    return jinja_integer(found > self->string.bytes ? -1 : (int64_t)jinja_count_characters(text, found));
}

JINJA_CALL(call_rfind) {
    const char *text = self->string.text;
    require_string(rendering, &a[0]);
    size_t wanted = a[0].string.bytes, bytes = self->string.bytes;
    for (size_t at = wanted > bytes ? 0 : bytes - wanted + 1; at-- > 0;)
        if (text_is_at(rendering, text + at, &a[0])) return jinja_integer((int64_t)jinja_count_characters(text, at));
    return jinja_integer(-1);
}

JINJA_CALL(call_count) {
    require_string(rendering, &a[0]);
    size_t bytes = self->string.bytes, wanted = a[0].string.bytes;
    int64_t count = 0;
    jinja_charge_moved(rendering, bytes);
    if (wanted == 0) return jinja_integer((int64_t)jinja_count_characters(self->string.text, bytes) + 1);
    for (size_t at = 0; (at = jinja_find_text(rendering, self, at, &a[0])) <= bytes; at += wanted)
        count++;
    return jinja_integer(count);
}

JINJA_CALL(call_isdigit) {
    bool digits = self->string.bytes > 0;
    size_t length;
    jinja_charge(rendering, 2 * self->string.bytes);
    for (size_t at = 0; at < self->string.bytes && digits; at += length)
        digits = unicode_is_digit(utf8_decode_valid(self->string.text + at, &length));
    return jinja_bool(digits);
}

/* --- methods of dicts and loops --- */

JINJA_CALL(call_get) {
    const struct jinja_value *found = jinja_dict_get(rendering, self->dict, &a[0]);
    return found ? *found : jinja_is_given(&a[1]) ? a[1] : jinja_none();
}

JINJA_CALL(call_list_dict) { return jinja_list_dict(rendering, self->dict, (enum jinja_parts)how); }

JINJA_CALL_WITH(call_cycle) {
    if (arguments->count == 0) jinja_fail(rendering, "no items for cycling given");
    return arguments->items[self->loop->index % arguments->count];
}

#define METHOD(of, text, function, ...)                                                                                \
    { .kind = JINJA_##of, .name = (text), .call = (function), __VA_ARGS__ }
#define UNSUPPORTED(of, text)                                                                                          \
    { .kind = JINJA_##of, .name = (text) }

/* Those without a call are known as methods of Python's types, so that they hide a dict's key of that name as there. */
const struct jinja_callable jinja_methods[] = {
    METHOD(STRING, "strip", call_strip, .max = 1, .how = JINJA_BOTH),
    METHOD(STRING, "lstrip", call_strip, .max = 1, .how = JINJA_LEFT),
    METHOD(STRING, "rstrip", call_strip, .max = 1, .how = JINJA_RIGHT),
    METHOD(STRING, "lower", call_case, .how = JINJA_CASE_LOWER),
    METHOD(STRING, "upper", call_case, .how = JINJA_CASE_UPPER),
    METHOD(STRING, "capitalize", call_case, .how = JINJA_CASE_CAPITALIZE),
    METHOD(STRING, "title", call_case, .how = JINJA_CASE_TITLE),
    METHOD(STRING, "replace", call_replace, .min = 2, .max = 3),
    METHOD(STRING, "join", call_join, .min = 1, .max = 1),
    METHOD(STRING, "startswith", call_has_end, .min = 1, .max = 1, .how = JINJA_LEFT),
    METHOD(STRING, "endswith", call_has_end, .min = 1, .max = 1, .how = JINJA_RIGHT),
    METHOD(STRING, "removeprefix", call_remove_end, .min = 1, .max = 1, .how = JINJA_LEFT),
    METHOD(STRING, "removesuffix", call_remove_end, .min = 1, .max = 1, .how = JINJA_RIGHT),
    METHOD(STRING, "split", call_split, .max = 2, .names = {"sep", "maxsplit"}, .how = JINJA_LEFT),
    METHOD(STRING, "rsplit", call_split, .max = 2, .names = {"sep", "maxsplit"}, .how = JINJA_RIGHT),
    METHOD(STRING, "splitlines", call_splitlines, .max = 1, .names = {"keepends"}),
    METHOD(STRING, "find", call_find, .min = 1, .max = 1),
    METHOD(STRING, "rfind", call_rfind, .min = 1, .max = 1),
    METHOD(STRING, "count", call_count, .min = 1, .max = 1),
    METHOD(STRING, "isdigit", call_isdigit, .max = 0),
    METHOD(DICT, "get", call_get, .min = 1, .max = 2),
    METHOD(DICT, "items", call_list_dict, .how = JINJA_PAIRS),
    METHOD(DICT, "keys", call_list_dict, .how = JINJA_KEYS),
    METHOD(DICT, "values", call_list_dict, .how = JINJA_VALUES),
    UNSUPPORTED(DICT, "clear"),
    UNSUPPORTED(DICT, "copy"),
    UNSUPPORTED(DICT, "fromkeys"),
    UNSUPPORTED(DICT, "pop"),
    UNSUPPORTED(DICT, "popitem"),
    UNSUPPORTED(DICT, "setdefault"),
    UNSUPPORTED(DICT, "update"),
    UNSUPPORTED(STRING, "format"),
    UNSUPPORTED(LIST, "append"),
    UNSUPPORTED(LIST, "extend"),
    UNSUPPORTED(LIST, "insert"),
    UNSUPPORTED(LIST, "pop"),
    UNSUPPORTED(LIST, "index"),
    UNSUPPORTED(LIST, "count"),
    {.kind = JINJA_LOOP, .name = "cycle", .call_with = call_cycle},
    {0},
};

/* Read off the tables by which names are found. */
const char *jinja_name(enum jinja_names names, size_t index) {
    static const struct {
        const struct jinja_callable *table;
        enum jinja_kind kind;
    } lists[] = {
        [JINJA_FILTERS] = {jinja_filters, JINJA_UNDEFINED},     [JINJA_TESTS] = {jinja_tests, JINJA_UNDEFINED},
        [JINJA_FUNCTIONS] = {jinja_functions, JINJA_UNDEFINED}, [JINJA_STRING_METHODS] = {jinja_methods, JINJA_STRING},
        [JINJA_DICT_METHODS] = {jinja_methods, JINJA_DICT},
    };
    for (const struct jinja_callable *row = lists[names].table; row->name; row++)
        if (row->kind == lists[names].kind && (row->call || row->call_with) && index-- == 0) return row->name;
    return NULL;
}
