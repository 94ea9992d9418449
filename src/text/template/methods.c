/* Methods of strings and dicts, and loop.cycle. */

#include "base/utf8.h"
#include "text/template/render.h"
#include "text/template/value.h"

#define METHOD(name)                                                                                                   \
    static enum status name(struct jinja_rendering *rendering, const struct jinja_value *self,                         \
                            const struct jinja_value *a, struct jinja_value *out)

struct method {
    enum jinja_kind kind;
    const char *name;
    size_t min, max; /* arguments */
    enum status (*call)(struct jinja_rendering *rendering, const struct jinja_value *self, const struct jinja_value *a,
                        struct jinja_value *out);
    const char *names[2]; /* of the arguments that may be given by name */
};

static bool is_given(const struct jinja_value *value) { return value->kind != JINJA_UNDEFINED; }

/* An optional whole number. */
static enum status read_count(struct jinja_rendering *rendering, const struct jinja_value *value, int64_t absent,
                              int64_t *out) {
    *out = absent;
    if (!is_given(value)) return STATUS_OK;
    if (value->kind != JINJA_INTEGER && value->kind != JINJA_BOOL)
        return jinja_fail(rendering, "'%s' object cannot be interpreted as an integer", jinja_type_name(value));
    *out = value->kind == JINJA_BOOL ? (int64_t)value->truth : value->integer;
    return STATUS_OK;
}

static enum status require_string(struct jinja_rendering *rendering, const struct jinja_value *value) {
    if (value->kind == JINJA_STRING) return STATUS_OK;
    return jinja_fail(rendering, "a string is expected, not '%s'", jinja_type_name(value));
}

METHOD(call_strip) { return jinja_strip(rendering, self, &a[0], true, true, out); }
METHOD(call_lstrip) { return jinja_strip(rendering, self, &a[0], true, false, out); }
METHOD(call_rstrip) { return jinja_strip(rendering, self, &a[0], false, true, out); }

#define CASE_METHOD(name, change)                                                                                      \
    METHOD(name) {                                                                                                     \
        (void)a;                                                                                                       \
        return jinja_change_case(rendering, self, change, out);                                                        \
    }

CASE_METHOD(call_lower, JINJA_CASE_LOWER)
CASE_METHOD(call_upper, JINJA_CASE_UPPER)
CASE_METHOD(call_capitalize, JINJA_CASE_CAPITALIZE)
CASE_METHOD(call_title, JINJA_CASE_TITLE)

METHOD(call_replace) {
    int64_t max;
    TRY(read_count(rendering, &a[2], -1, &max));
    return jinja_replace(rendering, self, &a[0], &a[1], max, out);
}

METHOD(call_join) {
    const struct jinja_list *items;
    TRY(jinja_iterate(rendering, &a[0], &items));
    return jinja_join(rendering, self, items, false, out);
}

static enum status has_end(struct jinja_rendering *rendering, const struct jinja_value *self,
                           const struct jinja_value *end, bool front, bool *out) {
    size_t bytes = self->string.bytes, wanted = end->string.bytes;
    *out = wanted <= bytes;
    if (!*out) return STATUS_OK;
    TRY(jinja_charge_moved(rendering, wanted));
    *out = memcmp(self->string.text + (front ? 0 : bytes - wanted), end->string.text, wanted) == 0;
    return STATUS_OK;
}

/* startswith and endswith: a string, or any of a tuple. */
static enum status match_end(struct jinja_rendering *rendering, const struct jinja_value *self,
                             const struct jinja_value *ends, bool front, struct jinja_value *out) {
    bool found = false;
    if (ends->kind == JINJA_TUPLE) {
        for (size_t i = 0; i < ends->list->count && !found; i++) {
            TRY(require_string(rendering, &ends->list->items[i]));
            TRY(has_end(rendering, self, &ends->list->items[i], front, &found));
        }
    } else {
        TRY(require_string(rendering, ends));
        TRY(has_end(rendering, self, ends, front, &found));
    }
    *out = jinja_bool(found);
    return STATUS_OK;
}

METHOD(call_startswith) { return match_end(rendering, self, &a[0], true, out); }
METHOD(call_endswith) { return match_end(rendering, self, &a[0], false, out); }

static enum status remove_end(struct jinja_rendering *rendering, const struct jinja_value *self,
                              const struct jinja_value *end, bool front, struct jinja_value *out) {
    bool found;
    TRY(require_string(rendering, end));
    *out = *self;
    TRY(has_end(rendering, self, end, front, &found));
    if (!found) return STATUS_OK;
    *out = jinja_string(self->string.text + (front ? end->string.bytes : 0), self->string.bytes - end->string.bytes);
    return STATUS_OK;
}

METHOD(call_removeprefix) { return remove_end(rendering, self, &a[0], true, out); }
METHOD(call_removesuffix) { return remove_end(rendering, self, &a[0], false, out); }

/* The parts of a split, between its cuts. */
struct parts {
    struct jinja_rendering *rendering;
    VEC(struct text_range) ranges;
};

/* At most as many as a list may have. */
static enum status add_part(struct parts *parts, size_t from, size_t to) {
    size_t max = (JINJA_MEMORY_MAX - parts->rendering->memory_bytes) / sizeof(struct jinja_value);
    TRY(jinja_charge(parts->rendering, 2));
    if (parts->ranges.count >= max)
        return jinja_fail(parts->rendering, "the template takes more than %d bytes of memory", JINJA_MEMORY_MAX);
    return vec_push(&parts->ranges, (struct text_range){from, to});
}

static enum status split_at(const struct jinja_value *self, const struct jinja_value *separator, int64_t max,
                            struct parts *parts) {
    size_t at = 0, bytes = self->string.bytes;
    for (int64_t cuts = 0; max < 0 || cuts < max; cuts++) {
        size_t found = jinja_find_text(self->string.text, bytes, at, separator->string.text, separator->string.bytes);
        TRY(jinja_charge_searched(parts->rendering, (found > bytes ? bytes : found) - at, separator->string.bytes));
        if (found > bytes) break;
        TRY(add_part(parts, at, found));
        at = found + separator->string.bytes;
    }
    return add_part(parts, at, bytes);
}

/* Whether a part begins at a place, where there are bytes enough. */
static enum status text_is_at(struct jinja_rendering *rendering, const char *text, const struct jinja_value *part,
                              bool *out) {
    size_t bytes = part->string.bytes;
    bool begins = bytes == 0 || *text == *part->string.text;
    TRY(jinja_charge_moved(rendering, begins ? bytes : 0));
    *out = begins && memcmp(text, part->string.text, bytes) == 0;
    return STATUS_OK;
}

/* The same from the end; parts come in reverse. */
static enum status split_at_last(const struct jinja_value *self, const struct jinja_value *separator, int64_t max,
                                 struct parts *parts) {
    const char *text = self->string.text;
    size_t end = self->string.bytes, wanted = separator->string.bytes, at = end;
    int64_t cuts = 0;
    while (at >= wanted && (max < 0 || cuts < max)) {
        bool here;
        TRY(text_is_at(parts->rendering, text + at - wanted, separator, &here));
        if (!here) {
            at--;
            continue;
        }
        TRY(add_part(parts, at, end));
        end = at = at - wanted;
        cuts++;
    }
    return add_part(parts, 0, end);
}

/* Splits at white space. No part begins or ends with white space, but the last may where `max` cuts are made. */
static enum status split_at_space(const struct jinja_value *self, int64_t max, struct parts *parts) {
    const char *text = self->string.text;
    size_t bytes = self->string.bytes, at = jinja_leading_space(text, bytes), length;
    for (int64_t cuts = 0; at < bytes; cuts++) {
        size_t end = at;
        while (end < bytes && !jinja_is_space(utf8_decode_valid(text + end, &length)))
            end += length;
        if (max >= 0 && cuts >= max) end = bytes;
        TRY(add_part(parts, at, end));
        at = end + jinja_leading_space(text + end, bytes - end);
    }
    return STATUS_OK;
}

static enum status list_parts(struct jinja_rendering *rendering, const struct jinja_value *self,
                              const struct parts *parts, bool reversed, struct jinja_value *out) {
    struct jinja_value *items;
    size_t count = parts->ranges.count;
    TRY(jinja_make_list(rendering, JINJA_LIST, count, out, &items));
    for (size_t i = 0; i < count; i++) {
        const struct text_range *range = &parts->ranges.items[reversed ? count - 1 - i : i];
        items[i] = jinja_string(self->string.text + range->from, range->to - range->from);
    }
    return STATUS_OK;
}

static enum status split(struct jinja_rendering *rendering, const struct jinja_value *self, const struct jinja_value *a,
                         bool last, struct jinja_value *out) {
    bool space = !is_given(&a[0]) || a[0].kind == JINJA_NONE;
    struct parts parts = {.rendering = rendering};
    int64_t max;
    TRY(read_count(rendering, &a[1], -1, &max));
    if (space) TRY(jinja_charge(rendering, self->string.bytes));
    if (!space) TRY(require_string(rendering, &a[0]));
    if (!space && a[0].string.bytes == 0) return jinja_fail(rendering, "empty separator");
    if (space && last && max >= 0) return jinja_fail_unsupported(rendering, "method", "rsplit() at white space", 23);
    enum status status;
    TRY_GOTO(status,
             space  ? split_at_space(self, max, &parts)
             : last ? split_at_last(self, &a[0], max, &parts)
                    : split_at(self, &a[0], max, &parts),
             done);
    TRY_GOTO(status, list_parts(rendering, self, &parts, last && !space, out), done);
done:
    vec_free(&parts.ranges);
    return status;
}

METHOD(call_split) { return split(rendering, self, a, false, out); }
METHOD(call_rsplit) { return split(rendering, self, a, true, out); }

static bool ends_line(uint32_t code) {
    return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

METHOD(call_splitlines) {
    const char *text = self->string.text;
    size_t bytes = self->string.bytes, at = 0, begin = 0, length;
    struct parts parts = {.rendering = rendering};
    bool keep = jinja_is_true(&a[0]);
    enum status status;
    TRY_GOTO(status, jinja_charge(rendering, bytes), done);
    while (at < bytes) {
        uint32_t code = utf8_decode_valid(text + at, &length);
        size_t end = at;
        at += length;
        if (!ends_line(code)) continue;
        if (code == '\r' && at < bytes && text[at] == '\n') at++;
        TRY_GOTO(status, add_part(&parts, begin, keep ? at : end), done);
        begin = at;
    }
    if (begin < bytes) TRY_GOTO(status, add_part(&parts, begin, bytes), done);
    TRY_GOTO(status, list_parts(rendering, self, &parts, false, out), done);
done:
    vec_free(&parts.ranges);
    return status;
}

/* In characters; -1 when there is none. */
METHOD(call_find) {
    const char *text = self->string.text;
    TRY(require_string(rendering, &a[0]));
    TRY(jinja_charge_searched(rendering, self->string.bytes, a[0].string.bytes));
    size_t found = jinja_find_text(text, self->string.bytes, 0, a[0].string.text, a[0].string.bytes);
    bool none = found > self->string.bytes;
    *out = jinja_integer(none ? -1 : (int64_t)jinja_count_characters(text, found));
    return STATUS_OK;
}

METHOD(call_rfind) {
    const char *text = self->string.text;
    TRY(require_string(rendering, &a[0]));
    size_t wanted = a[0].string.bytes, bytes = self->string.bytes;
    *out = jinja_integer(-1);
    bool found = false;
    for (size_t at = wanted > bytes ? 0 : bytes - wanted + 1; at-- > 0 && !found;) {
        TRY(text_is_at(rendering, text + at, &a[0], &found));
        if (found) *out = jinja_integer((int64_t)jinja_count_characters(text, at));
    }
    return STATUS_OK;
}

METHOD(call_count) {
    TRY(require_string(rendering, &a[0]));
    size_t bytes = self->string.bytes, wanted = a[0].string.bytes;
    int64_t count = 0;
    TRY(jinja_charge_searched(rendering, bytes, wanted));
    if (wanted == 0) {
        *out = jinja_integer((int64_t)jinja_count_characters(self->string.text, bytes) + 1);
        return STATUS_OK;
    }
    for (size_t at = 0; (at = jinja_find_text(self->string.text, bytes, at, a[0].string.text, wanted)) <= bytes;) {
        TRY(jinja_charge_searched(rendering, 0, wanted));
        count++;
        at += wanted;
    }
    *out = jinja_integer(count);
    return STATUS_OK;
}

METHOD(call_isdigit) {
    bool digits = self->string.bytes > 0;
    size_t length;
    (void)a;
    TRY(jinja_charge(rendering, 2 * self->string.bytes));
    for (size_t at = 0; at < self->string.bytes && digits; at += length)
        digits = unicode_is_digit(utf8_decode_valid(self->string.text + at, &length));
    *out = jinja_bool(digits);
    return STATUS_OK;
}

METHOD(call_get) {
    const struct jinja_value *found;
    TRY(jinja_dict_get(rendering, self->dict, &a[0], &found));
    *out = found ? *found : is_given(&a[1]) ? a[1] : jinja_none();
    return STATUS_OK;
}

static enum status list_dict(struct jinja_rendering *rendering, const struct jinja_value *self, bool keys, bool values,
                             struct jinja_value *out) {
    const struct jinja_dict *dict = self->dict;
    struct jinja_value *items, *pair;
    TRY(jinja_make_list(rendering, JINJA_LIST, dict->count, out, &items));
    for (size_t i = 0; i < dict->count; i++) {
        items[i] = keys ? dict->pairs[i].key : dict->pairs[i].value;
        if (!keys || !values) continue;
        TRY(jinja_make_list(rendering, JINJA_TUPLE, 2, &items[i], &pair));
        pair[0] = dict->pairs[i].key;
        pair[1] = dict->pairs[i].value;
    }
    return STATUS_OK;
}

METHOD(call_items) {
    (void)a;
    return list_dict(rendering, self, true, true, out);
}

METHOD(call_keys) {
    (void)a;
    return list_dict(rendering, self, true, false, out);
}

METHOD(call_values) {
    (void)a;
    return list_dict(rendering, self, false, true, out);
}

/* Those without a call are known as methods of Python's types, so that they hide a dict's key of that name as there. */
static const struct method methods[] = {
    {JINJA_STRING, "strip", 0, 1, call_strip, {0}},
    {JINJA_STRING, "lstrip", 0, 1, call_lstrip, {0}},
    {JINJA_STRING, "rstrip", 0, 1, call_rstrip, {0}},
    {JINJA_STRING, "lower", 0, 0, call_lower, {0}},
    {JINJA_STRING, "upper", 0, 0, call_upper, {0}},
    {JINJA_STRING, "capitalize", 0, 0, call_capitalize, {0}},
    {JINJA_STRING, "title", 0, 0, call_title, {0}},
    {JINJA_STRING, "replace", 2, 3, call_replace, {0}},
    {JINJA_STRING, "join", 1, 1, call_join, {0}},
    {JINJA_STRING, "startswith", 1, 1, call_startswith, {0}},
    {JINJA_STRING, "endswith", 1, 1, call_endswith, {0}},
    {JINJA_STRING, "removeprefix", 1, 1, call_removeprefix, {0}},
    {JINJA_STRING, "removesuffix", 1, 1, call_removesuffix, {0}},
    {JINJA_STRING, "split", 0, 2, call_split, {"sep", "maxsplit"}},
    {JINJA_STRING, "rsplit", 0, 2, call_rsplit, {"sep", "maxsplit"}},
    {JINJA_STRING, "splitlines", 0, 1, call_splitlines, {"keepends"}},
    {JINJA_STRING, "find", 1, 1, call_find, {0}},
    {JINJA_STRING, "rfind", 1, 1, call_rfind, {0}},
    {JINJA_STRING, "count", 1, 1, call_count, {0}},
    {JINJA_STRING, "isdigit", 0, 0, call_isdigit, {0}},
    {JINJA_DICT, "get", 1, 2, call_get, {0}},
    {JINJA_DICT, "items", 0, 0, call_items, {0}},
    {JINJA_DICT, "keys", 0, 0, call_keys, {0}},
    {JINJA_DICT, "values", 0, 0, call_values, {0}},
    {JINJA_DICT, "clear", 0, 0, NULL, {0}},
    {JINJA_DICT, "copy", 0, 0, NULL, {0}},
    {JINJA_DICT, "fromkeys", 0, 0, NULL, {0}},
    {JINJA_DICT, "pop", 0, 0, NULL, {0}},
    {JINJA_DICT, "popitem", 0, 0, NULL, {0}},
    {JINJA_DICT, "setdefault", 0, 0, NULL, {0}},
    {JINJA_DICT, "update", 0, 0, NULL, {0}},
    {JINJA_STRING, "format", 0, 0, NULL, {0}},
    {JINJA_LIST, "append", 0, 0, NULL, {0}},
    {JINJA_LIST, "extend", 0, 0, NULL, {0}},
    {JINJA_LIST, "insert", 0, 0, NULL, {0}},
    {JINJA_LIST, "pop", 0, 0, NULL, {0}},
    {JINJA_LIST, "index", 0, 0, NULL, {0}},
    {JINJA_LIST, "count", 0, 0, NULL, {0}},
};

const char *jinja_method_name(size_t index, enum jinja_kind kind) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == kind && methods[i].call && index-- == 0) return methods[i].name;
    return NULL;
}

static const struct method *find_method(const struct jinja_value *value, const char *name, size_t bytes) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == value->kind && jinja_text_is(name, bytes, methods[i].name)) return &methods[i];
    return NULL;
}

bool jinja_has_method(const struct jinja_value *value, const char *name, size_t bytes) {
    return find_method(value, name, bytes) || (value->kind == JINJA_LOOP && jinja_text_is(name, bytes, "cycle"));
}

static enum status call_cycle(struct jinja_rendering *rendering, const struct jinja_loop *loop,
                              const struct jinja_arguments *arguments, struct jinja_value *out) {
    if (arguments->count == 0) return jinja_fail(rendering, "no items for cycling given");
    *out = arguments->items[loop->index % arguments->count];
    return STATUS_OK;
}

enum status jinja_call_method(struct jinja_rendering *rendering, const struct jinja_method *method,
                              const struct jinja_arguments *arguments, struct jinja_value *out) {
    enum { ARGUMENTS_MAX = 3 };
    struct jinja_value values[ARGUMENTS_MAX];
    char what[32] = "";
    if (method->self.kind == JINJA_LOOP) return call_cycle(rendering, method->self.loop, arguments, out);
    const struct method *found = find_method(&method->self, method->name, method->name_bytes);
    if (!found->call) return jinja_fail_unsupported(rendering, "method", method->name, method->name_bytes);
    memcpy(what, found->name, strlen(found->name));
    if (arguments->count + arguments->keyword_count < found->min)
        return jinja_fail(rendering, "%s() takes at least %zu arguments", what, found->min);
    for (size_t i = 0; i < ARGUMENTS_MAX; i++)
        values[i] = jinja_undefined("", 0);
    const char *const names[ARGUMENTS_MAX] = {found->names[0], found->names[1]};
    TRY(jinja_bind_arguments(rendering, what, arguments, names, found->max, values));
    return found->call(rendering, &method->self, values, out);
}
