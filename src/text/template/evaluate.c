/* Expressions, with arithmetic, attributes, items and slices as in Python. */
#include <math.h>

#include "text/template/render.h"
#include "text/template/value.h"

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

/* obj.name */
static enum status get_attribute(struct jinja_rendering *rendering, const struct jinja_value *object, const char *name,
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
    return get_attribute(rendering, object, key->string.text, key->string.bytes, out);
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

static enum status get_slice(struct jinja_rendering *rendering, const struct jinja_value *object,
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

/* --- nodes --- */

static enum status look_up(struct jinja_rendering *rendering, const struct jinja_node *node, struct jinja_value *out) {
    for (const struct jinja_scope *scope = rendering->scope; scope; scope = scope->parent) {
        TRY(jinja_charge(rendering, 1 + scope->count / 4 + node->bytes / 16));
        for (size_t i = 0; i < scope->count; i++)
            if (scope->bindings[i].bytes == node->bytes &&
                memcmp(scope->bindings[i].name, node->text, node->bytes) == 0) {
                *out = scope->bindings[i].value;
                return STATUS_OK;
            }
    }
    if (jinja_text_is(node->text, node->bytes, "self")) {
        *out = (struct jinja_value){.kind = JINJA_SELF};
        return STATUS_OK;
    }
    const struct jinja_function *function = jinja_find_function(node->text, node->bytes);
    *out = function ? (struct jinja_value){.kind = JINJA_FUNCTION, .function = function}
                    : jinja_undefined(node->text, node->bytes);
    return STATUS_OK;
}

static enum status evaluate_items(struct jinja_rendering *rendering, const struct jinja_node *node,
                                  enum jinja_kind kind, struct jinja_value *out) {
    struct jinja_value *items;
    TRY(jinja_make_list(rendering, kind, node->item_count, out, &items));
    for (size_t i = 0; i < node->item_count; i++)
        TRY(jinja_evaluate(rendering, node->items[i], &items[i]));
    return STATUS_OK;
}

static enum status evaluate_dict(struct jinja_rendering *rendering, const struct jinja_node *node,
                                 struct jinja_value *out) {
    TRY(jinja_make_dict(rendering, out));
    for (size_t i = 0; i + 1 < node->item_count; i += 2) {
        struct jinja_value key, value;
        TRY(jinja_evaluate(rendering, node->items[i], &key));
        TRY(jinja_evaluate(rendering, node->items[i + 1], &value));
        TRY(jinja_dict_set(rendering, out->dict, key, value));
    }
    return STATUS_OK;
}

enum status jinja_evaluate_arguments(struct jinja_rendering *rendering, const struct jinja_node *node,
                                     struct jinja_arguments *out) {
    *out = (struct jinja_arguments){.count = node->item_count, .keyword_count = node->keyword_count};
    TRY(jinja_alloc(rendering, node->item_count, sizeof *out->items, &out->items));
    TRY(jinja_alloc(rendering, node->keyword_count, sizeof *out->keywords, &out->keywords));
    for (size_t i = 0; i < node->item_count; i++)
        TRY(jinja_evaluate(rendering, node->items[i], &out->items[i]));
    for (size_t i = 0; i < node->keyword_count; i++) {
        const struct jinja_keyword *keyword = &node->keywords[i];
        out->keywords[i] = (struct jinja_argument){.name = keyword->name, .bytes = keyword->bytes};
        TRY(jinja_evaluate(rendering, keyword->value, &out->keywords[i].value));
    }
    rendering->line = node->line;
    return STATUS_OK;
}

enum status jinja_bind_arguments(struct jinja_rendering *rendering, const char *what,
                                 const struct jinja_arguments *arguments, const char *const *names, size_t count,
                                 struct jinja_value *out) {
    if (arguments->count > count)
        return jinja_fail(rendering, "%s: %zu arguments are too many (%zu)", what, arguments->count, count);
    for (size_t i = 0; i < count; i++)
        out[i] = i < arguments->count ? arguments->items[i] : jinja_undefined("", 0);
    for (size_t k = 0; k < arguments->keyword_count; k++) {
        const struct jinja_argument *keyword = &arguments->keywords[k];
        size_t i = 0;
        while (i < count && !(names && names[i] && jinja_text_is(keyword->name, keyword->bytes, names[i])))
            i++;
        if (i == count)
            return jinja_fail(rendering, "%s: the argument '%.*s' is not supported", what, (int)keyword->bytes,
                              keyword->name);
        if (i < arguments->count) return jinja_fail(rendering, "%s: the argument '%s' is given twice", what, names[i]);
        out[i] = keyword->value;
    }
    return STATUS_OK;
}

static enum status bind_parameter(struct jinja_rendering *rendering, const struct jinja_node *macro, size_t index,
                                  const struct jinja_arguments *arguments) {
    const struct jinja_keyword *parameter = &macro->keywords[index];
    struct jinja_value value = jinja_undefined(parameter->name, parameter->bytes);
    bool given = index < arguments->count;
    TRY(jinja_charge(rendering, 1 + arguments->keyword_count));
    TRY(jinja_charge_moved(rendering, parameter->bytes * arguments->keyword_count));
    if (given) value = arguments->items[index];
    for (size_t k = 0; k < arguments->keyword_count; k++) {
        const struct jinja_argument *keyword = &arguments->keywords[k];
        bool same = keyword->bytes == parameter->bytes && memcmp(keyword->name, parameter->name, keyword->bytes) == 0;
        if (!same) continue;
        if (given)
            return jinja_fail(rendering, "the argument '%.*s' is given twice", (int)keyword->bytes, keyword->name);
        given = true;
        value = keyword->value;
    }
    if (!given && parameter->value) TRY(jinja_evaluate(rendering, parameter->value, &value));
    return jinja_bind(rendering, parameter->name, parameter->bytes, value);
}

static enum status check_keywords(struct jinja_rendering *rendering, const struct jinja_node *macro,
                                  const struct jinja_arguments *arguments) {
    for (size_t k = 0; k < arguments->keyword_count; k++) {
        const struct jinja_argument *keyword = &arguments->keywords[k];
        bool known = false;
        TRY(jinja_charge(rendering, macro->keyword_count));
        TRY(jinja_charge_moved(rendering, keyword->bytes * macro->keyword_count));
        for (size_t i = 0; i < macro->keyword_count; i++)
            known |= macro->keywords[i].bytes == keyword->bytes &&
                     memcmp(macro->keywords[i].name, keyword->name, keyword->bytes) == 0;
        if (!known)
            return jinja_fail(rendering, "the macro '%.*s' has no argument '%.*s'", (int)macro->bytes, macro->text,
                              (int)keyword->bytes, keyword->name);
    }
    return STATUS_OK;
}

static enum status call_macro(struct jinja_rendering *rendering, const struct jinja_macro *macro,
                              const struct jinja_arguments *arguments, struct jinja_value *out) {
    const struct jinja_node *node = macro->node;
    struct jinja_scope *caller = rendering->scope;
    enum jinja_flow flow = rendering->flow;
    if (arguments->count > node->keyword_count)
        return jinja_fail(rendering, "the macro '%.*s' takes not more than %zu arguments", (int)node->bytes, node->text,
                          node->keyword_count);
    TRY(check_keywords(rendering, node, arguments));
    TRY(jinja_enter_scope(rendering, macro->scope));
    for (size_t i = 0; i < node->keyword_count; i++)
        TRY(bind_parameter(rendering, node, i, arguments));
    TRY(jinja_capture(rendering, node->a, out));
    rendering->scope = caller;
    rendering->flow = flow;
    return STATUS_OK;
}

static enum status evaluate_call(struct jinja_rendering *rendering, const struct jinja_node *node,
                                 struct jinja_value *out) {
    struct jinja_value callee;
    struct jinja_arguments arguments;
    TRY(jinja_evaluate(rendering, node->a, &callee));
    TRY(jinja_evaluate_arguments(rendering, node, &arguments));
    switch (callee.kind) {
    case JINJA_MACRO: return call_macro(rendering, callee.macro, &arguments, out);
    case JINJA_FUNCTION: return callee.function->call(rendering, &arguments, out);
    case JINJA_METHOD: return jinja_call_method(rendering, callee.method, &arguments, out);
    case JINJA_UNDEFINED:
        return jinja_fail(rendering, "'%.*s' is undefined, or not supported", (int)callee.string.bytes,
                          callee.string.text);
    default: return jinja_fail(rendering, "'%s' object is not callable", jinja_type_name(&callee));
    }
}

static enum status evaluate_slice(struct jinja_rendering *rendering, const struct jinja_node *node,
                                  struct jinja_value *out) {
    const struct jinja_node *const nodes[3] = {node->b, node->c, node->d};
    struct jinja_value object, bounds[3];
    TRY(jinja_evaluate(rendering, node->a, &object));
    for (int i = 0; i < 3; i++) {
        bounds[i] = jinja_none();
        if (nodes[i]) TRY(jinja_evaluate(rendering, nodes[i], &bounds[i]));
    }
    return get_slice(rendering, &object, bounds, out);
}

static enum status evaluate_test(struct jinja_rendering *rendering, const struct jinja_node *node,
                                 struct jinja_value *out) {
    struct jinja_value value, argument = jinja_undefined("", 0);
    bool truth;
    TRY(jinja_evaluate(rendering, node->a, &value));
    if (node->item_count > 0) TRY(jinja_evaluate(rendering, node->items[0], &argument));
    TRY(node->test->apply(rendering, &value, &argument, &truth));
    *out = jinja_bool(truth);
    return STATUS_OK;
}

static enum status evaluate_filter(struct jinja_rendering *rendering, const struct jinja_node *node,
                                   struct jinja_value *out) {
    struct jinja_value value;
    struct jinja_arguments arguments;
    TRY(jinja_evaluate(rendering, node->a, &value));
    TRY(jinja_evaluate_arguments(rendering, node, &arguments));
    return node->filter->apply(rendering, &value, &arguments, out);
}

static enum status compare_once(struct jinja_rendering *rendering, const struct jinja_node *step,
                                const struct jinja_value *a, const struct jinja_value *b, bool *out) {
    char first = step->text[0], second = step->bytes > 1 ? step->text[1] : '\0';
    int order;
    if (first == 'i' || first == 'n') {
        TRY(jinja_contains(rendering, b, a, out));
        *out ^= first == 'n';
        return STATUS_OK;
    }
    if (first == '=' || first == '!') {
        TRY(jinja_equal(rendering, a, b, out));
        *out ^= first == '!';
        return STATUS_OK;
    }
    TRY(jinja_compare(rendering, a, b, &order));
    *out = (first == '<' ? order < 0 : order > 0) || (second == '=' && order == 0);
    return STATUS_OK;
}

/* a < b < c is a < b and b < c. */
static enum status evaluate_compare(struct jinja_rendering *rendering, const struct jinja_node *node,
                                    struct jinja_value *out) {
    struct jinja_value left, right;
    bool truth = true;
    TRY(jinja_evaluate(rendering, node->a, &left));
    for (size_t i = 0; i < node->item_count && truth; i++) {
        TRY(jinja_evaluate(rendering, node->items[i]->b, &right));
        rendering->line = node->line;
        TRY(compare_once(rendering, node->items[i], &left, &right, &truth));
        left = right;
    }
    *out = jinja_bool(truth);
    return STATUS_OK;
}

static enum status concatenate(struct jinja_rendering *rendering, const struct jinja_value *a,
                               const struct jinja_value *b, struct jinja_value *out) {
    struct jinja_value left, right;
    TRY(jinja_to_string(rendering, a, &left));
    TRY(jinja_to_string(rendering, b, &right));
    return jinja_arithmetic(rendering, "+", 1, &left, &right, out);
}

static enum status evaluate_binary(struct jinja_rendering *rendering, const struct jinja_node *node,
                                   struct jinja_value *out) {
    struct jinja_value a, b;
    TRY(jinja_evaluate(rendering, node->a, &a));
    TRY(jinja_evaluate(rendering, node->b, &b));
    rendering->line = node->line;
    if (node->text[0] == '~') return concatenate(rendering, &a, &b, out);
    return jinja_arithmetic(rendering, node->text, node->bytes, &a, &b, out);
}

static enum status evaluate_unary(struct jinja_rendering *rendering, const struct jinja_node *node,
                                  struct jinja_value *out) {
    struct jinja_value value, zero = jinja_integer(0);
    TRY(jinja_evaluate(rendering, node->a, &value));
    if (!jinja_is_number(&value))
        return jinja_fail(rendering, "bad operand type for unary %c: '%s'", node->text[0], jinja_type_name(&value));
    if (value.kind == JINJA_FLOAT) {
        *out = jinja_float(node->text[0] == '-' ? -value.number : value.number);
        return STATUS_OK;
    }
    return jinja_arithmetic(rendering, node->text, 1, &zero, &value, out);
}

/* and, or, and `a if b else c` give one of their values. */
static enum status evaluate_choice(struct jinja_rendering *rendering, const struct jinja_node *node,
                                   struct jinja_value *out) {
    TRY(jinja_evaluate(rendering, node->kind == JINJA_NODE_CONDITIONAL ? node->b : node->a, out));
    bool truth = jinja_is_true(out);
    if (node->kind == JINJA_NODE_AND) return truth ? jinja_evaluate(rendering, node->b, out) : STATUS_OK;
    if (node->kind == JINJA_NODE_OR) return truth ? STATUS_OK : jinja_evaluate(rendering, node->b, out);
    if (truth) return jinja_evaluate(rendering, node->a, out);
    if (node->c) return jinja_evaluate(rendering, node->c, out);
    *out = jinja_undefined("", 0);
    return STATUS_OK;
}

static enum status evaluate_part(struct jinja_rendering *rendering, const struct jinja_node *node,
                                 struct jinja_value *out) {
    struct jinja_value object, key;
    TRY(jinja_evaluate(rendering, node->a, &object));
    if (node->kind == JINJA_NODE_NOT) {
        *out = jinja_bool(!jinja_is_true(&object));
        return STATUS_OK;
    }
    if (node->kind == JINJA_NODE_ATTRIBUTE) return get_attribute(rendering, &object, node->text, node->bytes, out);
    TRY(jinja_evaluate(rendering, node->b, &key));
    return jinja_get_item(rendering, &object, &key, out);
}

static enum status evaluate(struct jinja_rendering *rendering, const struct jinja_node *node, struct jinja_value *out) {
    switch (node->kind) {
    case JINJA_NODE_CONSTANT: *out = node->constant; return STATUS_OK;
    case JINJA_NODE_NAME: return look_up(rendering, node, out);
    case JINJA_NODE_NOT:
    case JINJA_NODE_ATTRIBUTE:
    case JINJA_NODE_ITEM: return evaluate_part(rendering, node, out);
    case JINJA_NODE_SLICE: return evaluate_slice(rendering, node, out);
    case JINJA_NODE_CALL: return evaluate_call(rendering, node, out);
    case JINJA_NODE_FILTER: return evaluate_filter(rendering, node, out);
    case JINJA_NODE_TEST: return evaluate_test(rendering, node, out);
    case JINJA_NODE_LIST: return evaluate_items(rendering, node, JINJA_LIST, out);
    case JINJA_NODE_TUPLE: return evaluate_items(rendering, node, JINJA_TUPLE, out);
    case JINJA_NODE_DICT: return evaluate_dict(rendering, node, out);
    case JINJA_NODE_AND:
    case JINJA_NODE_OR:
    case JINJA_NODE_CONDITIONAL: return evaluate_choice(rendering, node, out);
    case JINJA_NODE_UNARY: return evaluate_unary(rendering, node, out);
    case JINJA_NODE_BINARY: return evaluate_binary(rendering, node, out);
    case JINJA_NODE_COMPARE: return evaluate_compare(rendering, node, out);
    default: BUG("expression of kind %d", (int)node->kind);
    }
}

enum status jinja_evaluate(struct jinja_rendering *rendering, const struct jinja_node *node, struct jinja_value *out) {
    TRY(jinja_charge(rendering, 1));
    rendering->line = node->line;
    if (++rendering->depth > JINJA_DEPTH_MAX) return jinja_fail(rendering, "nested more than %d deep", JINJA_DEPTH_MAX);
    TRY(evaluate(rendering, node, out));
    rendering->depth--;
    rendering->line = node->line;
    return STATUS_OK;
}
