/* Arithmetic, attributes, items and slices, as in Python. */
#include <math.h>
#include <string.h>

#include "text/template/jinja_rendering.h"
#include "text/template/jinja_text.h"

static enum status repeat_text(struct jinja_rendering *rendering, const struct jinja_value *text,
                               const struct jinja_value *times, struct jinja_value *out) {
    int64_t count = times->kind == JINJA_BOOL ? (int64_t)times->truth : times->integer;
    size_t total, bytes = text->string.bytes;
    char *copy;
    if (count < 0) count = 0;
    if (!mem_multiply(bytes, (size_t)count, &total) || total >= JINJA_MEMORY_MAX)
        return jinja_fail(rendering, "a string of more than %d bytes", JINJA_MEMORY_MAX);
    TRY(jinja_alloc(rendering, total + 1, 1, &copy));
    for (size_t done = 0, here; done < total; done += here) {
        here = done == 0 ? bytes : done < total - done ? done : total - done; /* twice as much each time */
        memcpy(copy + done, done == 0 ? text->string.text : copy, here);
    }
    *out = jinja_string(copy, total);
    return STATUS_OK;
}

static enum status add_texts(struct jinja_rendering *rendering, const struct jinja_value *a,
                             const struct jinja_value *b, struct jinja_value *out) {
    size_t bytes = a->string.bytes + b->string.bytes;
    char *text;
    TRY(jinja_alloc(rendering, bytes + 1, 1, &text));
    if (a->string.bytes > 0) memcpy(text, a->string.text, a->string.bytes);
    if (b->string.bytes > 0) memcpy(text + a->string.bytes, b->string.text, b->string.bytes);
    *out = jinja_string(text, bytes);
    return STATUS_OK;
}

static enum status add_lists(struct jinja_rendering *rendering, const struct jinja_value *a,
                             const struct jinja_value *b, struct jinja_value *out) {
    struct jinja_value *items;
    size_t first = a->list->count, second = b->list->count;
    TRY(jinja_make_list(rendering, a->kind, first + second, out, &items));
    if (first > 0) memcpy(items, a->list->items, first * sizeof *items);
    if (second > 0) memcpy(items + first, b->list->items, second * sizeof *items);
    return STATUS_OK;
}

enum { FLOAT_WORK = 400 }; /* of a rest, which is found bit by bit */

static double floor_modulo(double x, double y) {
    double rest = fmod(x, y);
    bool other_sign = (rest < 0) != (y < 0) && (rest < 0 || rest > 0);
    return other_sign ? rest + y : copysign(rest, rest < 0 || rest > 0 ? rest : y);
}

static enum status compute_floats(struct jinja_rendering *rendering, char operator, bool twice, double x, double y,
                                  struct jinja_value *out) {
    bool zero = fpclassify(y) == FP_ZERO;
    TRY(jinja_charge(rendering, FLOAT_WORK));
    if (zero && strchr("/%", operator)) return jinja_fail(rendering, "division by zero");
    switch (operator) {
    case '+': *out = jinja_float(x + y); return STATUS_OK;
    case '-': *out = jinja_float(x - y); return STATUS_OK;
    case '/': *out = jinja_float(twice ? floor(x / y) : x / y); return STATUS_OK;
    case '%': *out = jinja_float(floor_modulo(x, y)); return STATUS_OK;
    default: *out = jinja_float(twice ? pow(x, y) : x * y); return STATUS_OK;
    }
}

static bool power(int64_t base, int64_t exponent, int64_t *out) {
    *out = 1;
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 == 1 && __builtin_mul_overflow(*out, base, out)) return false;
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return false;
    }
    return true;
}

/* Rounded down, the rest with the sign of the divisor. */
static void divide(int64_t x, int64_t y, int64_t *quotient, int64_t *rest) {
    *quotient = x / y;
    *rest = x % y;
    if (*rest != 0 && (*rest < 0) != (y < 0)) {
        --*quotient;
        *rest += y;
    }
}

static enum status compute_integers(struct jinja_rendering *rendering, char operator, bool twice, int64_t x, int64_t y,
                                    struct jinja_value *out) {
    int64_t result = 0, rest = 0;
    bool fits = true;
    if (operator== '/' && !twice) return compute_floats(rendering, '/', false, (double)x, (double)y, out);
    if (operator== '*' && twice && y<0) return compute_floats(rendering, '*', true, (double)x, (double)y, out);
    if (strchr("/%", operator)) {
        if (y == 0) return jinja_fail(rendering, "integer division or modulo by zero");
        fits = !(x == INT64_MIN && y == -1);
        if (fits) divide(x, y, &result, &rest);
        if (operator== '%') result = rest;
    } else if (operator== '+') {
        fits = !__builtin_add_overflow(x, y, &result);
    } else if (operator== '-') {
        fits = !__builtin_sub_overflow(x, y, &result);
    } else {
        fits = twice ? power(x, y, &result) : !__builtin_mul_overflow(x, y, &result);
    }
    if (!fits) return jinja_fail(rendering, "whole numbers beyond 64 bits are not supported");
    *out = jinja_integer(result);
    return STATUS_OK;
}

enum status jinja_arithmetic(struct jinja_rendering *rendering, const char *operator, size_t bytes,
                             const struct jinja_value *a, const struct jinja_value *b, struct jinja_value *out) {
    TRY(jinja_charge(rendering, 2));
    bool twice = bytes == 2, both = a->kind == b->kind, times = operator[0] == '*' && !twice;
    bool int_a = a->kind == JINJA_INTEGER || a->kind == JINJA_BOOL;
    bool int_b = b->kind == JINJA_INTEGER || b->kind == JINJA_BOOL;
    if (operator[0] == '+' && both && a->kind == JINJA_STRING) return add_texts(rendering, a, b, out);
    if (operator[0] == '+' && both &&(a->kind == JINJA_LIST || a->kind == JINJA_TUPLE))
        return add_lists(rendering, a, b, out);
    if (times && a->kind == JINJA_STRING && int_b) return repeat_text(rendering, a, b, out);
    if (times && b->kind == JINJA_STRING && int_a) return repeat_text(rendering, b, a, out);
    if (operator[0] == '%' && a->kind == JINJA_STRING)
        return jinja_fail_unsupported(rendering, "operator", "% on text", 9);
    const struct jinja_value *undefined = a->kind == JINJA_UNDEFINED ? a : b->kind == JINJA_UNDEFINED ? b : NULL;
    if (undefined)
        return jinja_fail(rendering, "'%.*s' is undefined", (int)undefined->string.bytes, undefined->string.text);
    if (!jinja_is_number(a) || !jinja_is_number(b))
        return jinja_fail(rendering, "unsupported operand types for %.*s: '%s' and '%s'", (int)bytes, operator,
                          jinja_type_name(a), jinja_type_name(b));
    if (!int_a || !int_b) return compute_floats(rendering, operator[0], twice, jinja_number(a), jinja_number(b), out);
    return compute_integers(rendering, operator[0], twice, a->kind == JINJA_BOOL ? (int64_t)a->truth : a->integer,
                            b->kind == JINJA_BOOL ? (int64_t)b->truth : b->integer, out);
}

/* The fields of `loop`. */
static enum status get_loop_field(struct jinja_rendering *rendering, const struct jinja_loop *loop, const char *name,
                                  size_t bytes, struct jinja_value *out) {
    int64_t index = (int64_t)loop->index, count = (int64_t)loop->items->count;
    const struct {
        const char *name;
        struct jinja_value value;
    } fields[] = {
        {"index", jinja_integer(index + 1)},
        {"index0", jinja_integer(index)},
        {"revindex", jinja_integer(count - index)},
        {"revindex0", jinja_integer(count - index - 1)},
        {"first", jinja_bool(index == 0)},
        {"last", jinja_bool(index + 1 == count)},
        {"length", jinja_integer(count)},
        {"depth", jinja_integer(1)},
        {"depth0", jinja_integer(0)},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (jinja_text_is(name, bytes, fields[i].name)) {
            *out = fields[i].value;
            return STATUS_OK;
        }
    bool previous = jinja_text_is(name, bytes, "previtem"), next = jinja_text_is(name, bytes, "nextitem");
    if (!previous && !next) return jinja_fail_unsupported(rendering, "field of loop", name, bytes);
    int64_t at = previous ? index - 1 : index + 1;
    *out = at >= 0 && at < count ? loop->items->items[at] : jinja_undefined(name, bytes);
    return STATUS_OK;
}

enum { METHODS_WORK = 3 }; /* of looking a name up among them */

enum status jinja_get_attribute(struct jinja_rendering *rendering, const struct jinja_value *object, const char *name,
                                size_t bytes, struct jinja_value *out) {
    if (object->kind == JINJA_UNDEFINED)
        return jinja_fail(rendering, "'%.*s' is undefined, and has no field '%.*s'", (int)object->string.bytes,
                          object->string.text, (int)bytes, name);
    if (object->kind == JINJA_LOOP && !jinja_text_is(name, bytes, "cycle"))
        return get_loop_field(rendering, object->loop, name, bytes, out);
    TRY(jinja_charge(rendering, METHODS_WORK));
    if (jinja_has_method(object, name, bytes)) {
        struct jinja_method *method;
        TRY(jinja_alloc(rendering, 1, sizeof *method, &method));
        *method = (struct jinja_method){*object, name, bytes};
        *out = (struct jinja_value){.kind = JINJA_METHOD, .method = method};
        return STATUS_OK;
    }
    *out = jinja_undefined(name, bytes);
    if (object->kind != JINJA_DICT && object->kind != JINJA_NAMESPACE) return STATUS_OK;
    struct jinja_value key = jinja_string(name, bytes);
    const struct jinja_value *found;
    TRY(jinja_dict_get(rendering, object->dict, &key, &found));
    if (found) *out = *found;
    return STATUS_OK;
}

/* An index as Python takes it, negative ones from the end; false when it is out of range. */
static bool place_of(const struct jinja_value *key, size_t count, size_t *out) {
    int64_t index = key->kind == JINJA_BOOL ? (int64_t)key->truth : key->integer;
    if (index < 0) index += (int64_t)count;
    *out = (size_t)index;
    return index >= 0 && index < (int64_t)count;
}

static struct jinja_value character_at(const struct jinja_value *text, size_t index) {
    const char *start = text->string.text;
    size_t from = jinja_find_character(start, text->string.bytes, index);
    return jinja_string(start + from, jinja_find_character(start + from, text->string.bytes - from, 1));
}

static enum status get_indexed(struct jinja_rendering *rendering, const struct jinja_value *object,
                               const struct jinja_value *key, struct jinja_value *out) {
    size_t count, index;
    TRY(jinja_length(rendering, object, &count));
    if (object->kind == JINJA_STRING) TRY(jinja_charge_searched(rendering, object->string.bytes, 1));
    if (!place_of(key, count, &index))
        *out = jinja_undefined("an item out of range", 20);
    else
        *out = object->kind == JINJA_STRING ? character_at(object, index) : object->list->items[index];
    return STATUS_OK;
}

enum status jinja_get_item(struct jinja_rendering *rendering, const struct jinja_value *object,
                           const struct jinja_value *key, struct jinja_value *out) {
    bool indexed = object->kind == JINJA_LIST || object->kind == JINJA_TUPLE || object->kind == JINJA_RANGE ||
                   object->kind == JINJA_STRING;
    if (object->kind == JINJA_UNDEFINED)
        return jinja_fail(rendering, "'%.*s' is undefined, and has no items", (int)object->string.bytes,
                          object->string.text);
    if (indexed && (key->kind == JINJA_INTEGER || key->kind == JINJA_BOOL))
        return get_indexed(rendering, object, key, out);
    if (object->kind == JINJA_DICT) {
        const struct jinja_value *found;
        TRY(jinja_dict_get(rendering, object->dict, key, &found));
        if (found) {
            *out = *found;
            return STATUS_OK;
        }
    }
    /* As in Jinja, a name that is no item may be an attribute. */
    if (key->kind != JINJA_STRING) {
        *out = jinja_undefined("an item", 7);
        return STATUS_OK;
    }
    return jinja_get_attribute(rendering, object, key->string.text, key->string.bytes, out);
}

/* Python's slice.indices: first, past-the-end and step over `count` items. */
static enum status find_bounds(struct jinja_rendering *rendering, const struct jinja_value bounds[3], int64_t count,
                               int64_t *first, int64_t *last, int64_t *step) {
    int64_t values[3];
    for (int i = 0; i < 3; i++) {
        bool is_int = bounds[i].kind == JINJA_INTEGER || bounds[i].kind == JINJA_BOOL;
        if (!is_int && bounds[i].kind != JINJA_NONE)
            return jinja_fail(rendering, "slice indices must be integers or None, not %s", jinja_type_name(&bounds[i]));
        values[i] = bounds[i].kind == JINJA_BOOL ? (int64_t)bounds[i].truth : bounds[i].integer;
    }
    *step = bounds[2].kind == JINJA_NONE ? 1 : values[2];
    if (*step == 0) return jinja_fail(rendering, "slice step cannot be zero");
    int64_t low = *step > 0 ? 0 : -1, high = *step > 0 ? count : count - 1;
    int64_t *const ends[2] = {first, last};
    for (int i = 0; i < 2; i++) {
        bool none = bounds[i].kind == JINJA_NONE, at_low = (i == 0) == (*step > 0);
        int64_t value = none ? (at_low ? low : high) : values[i];
        if (!none && value < 0) value = value < -count ? low : value + count;
        *ends[i] = value < low ? low : value > high ? high : value;
    }
    return STATUS_OK;
}

static enum status slice_text(struct jinja_rendering *rendering, const struct jinja_value *object, int64_t first,
                              int64_t count, int64_t step, struct jinja_value *out) {
    const char *text = object->string.text;
    size_t bytes = object->string.bytes, used = 0;
    if (step == 1) {
        TRY(jinja_charge_searched(rendering, bytes, 1));
        size_t from = jinja_find_character(text, bytes, (size_t)first);
        *out = jinja_string(text + from, jinja_find_character(text + from, bytes - from, (size_t)count));
        return STATUS_OK;
    }
    struct jinja_value characters = *object;
    const struct jinja_list *list;
    char *copy;
    TRY(jinja_iterate(rendering, &characters, &list));
    TRY(jinja_alloc(rendering, bytes + 1, 1, &copy));
    for (int64_t i = 0; i < count; i++) {
        const struct jinja_value *one = &list->items[first + i * step];
        memcpy(copy + used, one->string.text, one->string.bytes);
        used += one->string.bytes;
    }
    *out = jinja_string(copy, used);
    return STATUS_OK;
}

static enum status slice_range(struct jinja_rendering *rendering, const struct jinja_list *list, int64_t first,
                               int64_t last, int64_t step, int64_t count, struct jinja_value *out) {
    int64_t from, past, stride;
    bool fits = !__builtin_mul_overflow(first, list->step, &from) && !__builtin_add_overflow(from, list->first, &from);
    fits =
        fits && !__builtin_mul_overflow(last, list->step, &past) && !__builtin_add_overflow(past, list->first, &past);
    if (!fits || __builtin_mul_overflow(list->step, step, &stride))
        return jinja_fail(rendering, "whole numbers beyond 64 bits are not supported");
    return jinja_make_range(rendering, from, past, stride, (size_t)count, out);
}

enum status jinja_get_slice(struct jinja_rendering *rendering, const struct jinja_value *object,
                            const struct jinja_value bounds[3], struct jinja_value *out) {
    size_t length;
    int64_t first = 0, last = 0, step = 1;
    bool sliced = object->kind == JINJA_LIST || object->kind == JINJA_TUPLE || object->kind == JINJA_RANGE ||
                  object->kind == JINJA_STRING;
    if (!sliced) return jinja_fail(rendering, "'%s' object cannot be sliced", jinja_type_name(object));
    TRY(jinja_length(rendering, object, &length));
    TRY(find_bounds(rendering, bounds, (int64_t)length, &first, &last, &step));
    int64_t distance = step > 0 ? last - first : first - last, stride = step > 0            ? step
                                                                        : step == INT64_MIN ? INT64_MAX
                                                                                            : -step;
    int64_t count = distance > 0 ? (distance - 1) / stride + 1 : 0;
    if (object->kind == JINJA_STRING) return slice_text(rendering, object, first, count, step, out);
    if (object->kind == JINJA_RANGE) return slice_range(rendering, object->list, first, last, step, count, out);
    struct jinja_value *items;
    TRY(jinja_make_list(rendering, object->kind, (size_t)count, out, &items));
    for (int64_t i = 0; i < count; i++)
        items[i] = object->list->items[first + i * step];
    return STATUS_OK;
}
