/* Expressions, with arithmetic, attributes, items and slices as in Python; and calls. */
#include <math.h>

#include "text/template/parse.h"
#include "text/template/render.h"

static struct jinja_value repeat_text(struct jinja_rendering *rendering, const struct jinja_value *text,
                                      const struct jinja_value *times) {
    int64_t count = jinja_whole(times);
    size_t total, bytes = text->string.bytes;
    if (count < 0) count = 0;
    if (!mem_multiply(bytes, (size_t)count, &total) || total >= JINJA_MEMORY_MAX)
        jinja_fail(rendering, "a string of more than %d bytes", JINJA_MEMORY_MAX);
    char *copy = jinja_alloc(rendering, total + 1, 1);
    for (size_t done = 0, here; done < total; done += here) {
        here = done == 0 ? bytes : done < total - done ? done : total - done; /* twice as much each time */
        memcpy(copy + done, done == 0 ? text->string.text : copy, here);
    }
    return jinja_string(copy, total);
}

static struct jinja_value add_lists(struct jinja_rendering *rendering, const struct jinja_value *a,
                                    const struct jinja_value *b) {
    size_t first = a->list->count, second = b->list->count;
    struct jinja_value sum = jinja_make_list(rendering, a->kind, first + second);
    if (first > 0) memcpy(sum.list->items, a->list->items, first * sizeof *sum.list->items);
    if (second > 0) memcpy(sum.list->items + first, b->list->items, second * sizeof *sum.list->items);
    return sum;
}

enum { FLOAT_WORK = 400 }; /* of a rest, which is found bit by bit */

static double floor_modulo(double x, double y) {
    double rest = fmod(x, y);
    bool other_sign = (rest < 0) != (y < 0) && (rest < 0 || rest > 0);
    return other_sign ? rest + y : copysign(rest, rest < 0 || rest > 0 ? rest : y);
}

/* `sign` is the operator's first character, which `twice` stands there. */
static struct jinja_value compute_floats(struct jinja_rendering *rendering, char sign, bool twice, double x, double y) {
    jinja_charge(rendering, FLOAT_WORK);
    if (fpclassify(y) == FP_ZERO && strchr("/%", sign)) jinja_fail(rendering, "division by zero");
    switch (sign) {
    case '+': return jinja_float(x + y);
    case '-': return jinja_float(x - y);
    case '/': return jinja_float(twice ? floor(x / y) : x / y);
    case '%': return jinja_float(floor_modulo(x, y));
    default: return jinja_float(twice ? pow(x, y) : x * y);
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

static struct jinja_value compute_integers(struct jinja_rendering *rendering, char sign, bool twice, int64_t x,
                                           int64_t y) {
    int64_t result = 0, rest = 0;
    bool fits = true;
    if ((sign == '/' && !twice) || (sign == '*' && twice && y < 0))
        return compute_floats(rendering, sign, twice, (double)x, (double)y);
    switch (sign) {
    case '+': fits = !__builtin_add_overflow(x, y, &result); break;
    case '-': fits = !__builtin_sub_overflow(x, y, &result); break;
    case '*': fits = twice ? power(x, y, &result) : !__builtin_mul_overflow(x, y, &result); break;
    default:
        if (y == 0) jinja_fail(rendering, "integer division or modulo by zero");
        fits = !(x == INT64_MIN && y == -1);
        if (fits) divide(x, y, &result, &rest);
    }
    if (!fits) jinja_fail(rendering, "whole numbers beyond 64 bits are not supported");
    return jinja_integer(sign == '%' ? rest : result);
}

struct jinja_value jinja_arithmetic(struct jinja_rendering *rendering, const char *operator, size_t bytes,
                                    const struct jinja_value *a, const struct jinja_value *b) {
    jinja_charge(rendering, 2);
    char sign = *operator;
    bool twice = bytes == 2, plus = sign == '+' && a->kind == b->kind, times = sign == '*' && !twice;
    bool whole_a = jinja_is(a, JINJA_WHOLE), whole_b = jinja_is(b, JINJA_WHOLE);
    if (plus && a->kind == JINJA_STRING) return jinja_concatenate(rendering, *a, *b);
    if (plus && jinja_is(a, JINJA_BIT(LIST) | JINJA_BIT(TUPLE))) return add_lists(rendering, a, b);
    if (times && a->kind == JINJA_STRING && whole_b) return repeat_text(rendering, a, b);
    if (times && b->kind == JINJA_STRING && whole_a) return repeat_text(rendering, b, a);
    if (sign == '%' && a->kind == JINJA_STRING)
        jinja_fail_unsupported(rendering, "operator", jinja_literal("% on text"));
    const struct jinja_value *undefined = a->kind == JINJA_UNDEFINED ? a : b->kind == JINJA_UNDEFINED ? b : NULL;
    if (undefined) jinja_fail(rendering, "'%.*s' is undefined", JINJA_TEXT(*undefined));
    if (!jinja_is(a, JINJA_NUMBER) || !jinja_is(b, JINJA_NUMBER))
        jinja_fail(rendering, "unsupported operand types for %.*s: '%s' and '%s'", (int)bytes, operator,
                   jinja_type_name(a), jinja_type_name(b));
    if (whole_a && whole_b) return compute_integers(rendering, sign, twice, jinja_whole(a), jinja_whole(b));
    return compute_floats(rendering, sign, twice, jinja_number(a), jinja_number(b));
}

/* --- attributes, items, slices --- */

/* The fields of `loop`. */
static struct jinja_value get_loop_field(struct jinja_rendering *rendering, const struct jinja_loop *loop,
                                         const struct jinja_value *name) {
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
        {"previtem", index > 0 ? loop->items->items[index - 1] : jinja_undefined(*name)},
        {"nextitem", index + 1 < count ? loop->items->items[index + 1] : jinja_undefined(*name)},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (jinja_is_text(name, fields[i].name)) return fields[i].value;
    jinja_fail_unsupported(rendering, "field of loop", *name);
}

enum { METHODS_WORK = 3 }; /* of looking a name up among them */

/* obj.name */
static struct jinja_value get_attribute(struct jinja_rendering *rendering, const struct jinja_value *object,
                                        const struct jinja_value *name) {
    if (object->kind == JINJA_UNDEFINED)
        jinja_fail(rendering, "'%.*s' is undefined, and has no field '%.*s'", JINJA_TEXT(*object), JINJA_TEXT(*name));
    if (object->kind == JINJA_LOOP && !jinja_is_text(name, "cycle"))
        return get_loop_field(rendering, object->loop, name);
    jinja_charge(rendering, METHODS_WORK);
    const struct jinja_callable *callable = jinja_find(jinja_methods, object->kind, name);
    if (callable) {
        struct jinja_method *method = jinja_alloc(rendering, 1, sizeof *method);
        *method = (struct jinja_method){*object, callable};
        return (struct jinja_value){.kind = JINJA_METHOD, .method = method};
    }
    const struct jinja_value *found =
        jinja_is(object, JINJA_BIT(DICT) | JINJA_BIT(NAMESPACE)) ? jinja_dict_get(rendering, object->dict, name) : NULL;
    return found ? *found : jinja_undefined(*name);
}

/* A whole number as an index: Python's, negative ones from the end. */
static struct jinja_value get_indexed(struct jinja_rendering *rendering, const struct jinja_value *object,
                                      const struct jinja_value *key) {
    int64_t count = (int64_t)jinja_length(rendering, object), index = jinja_whole(key);
    bool is_text = object->kind == JINJA_STRING;
    const char *text = object->string.text;
    size_t bytes = object->string.bytes;
    if (is_text) jinja_charge_searched(rendering, bytes, 1);
    if (index < 0) index += count;
    if (index < 0 || index >= count) return jinja_undefined(jinja_literal("an item out of range"));
    if (!is_text) return object->list->items[index];
    size_t from = jinja_find_character(text, bytes, (size_t)index);
    return jinja_string(text + from, jinja_find_character(text + from, bytes - from, 1));
}

struct jinja_value jinja_get_item(struct jinja_rendering *rendering, const struct jinja_value *object,
                                  const struct jinja_value *key) {
    if (object->kind == JINJA_UNDEFINED)
        jinja_fail(rendering, "'%.*s' is undefined, and has no items", JINJA_TEXT(*object));
    if (jinja_is(object, JINJA_ITEMS | JINJA_BIT(STRING)) && jinja_is(key, JINJA_WHOLE))
        return get_indexed(rendering, object, key);
    const struct jinja_value *found = object->kind == JINJA_DICT ? jinja_dict_get(rendering, object->dict, key) : NULL;
    if (found) return *found;
    /* As in Jinja, a name that is no item may be an attribute. */
    if (key->kind != JINJA_STRING) return jinja_undefined(jinja_literal("an item"));
    return get_attribute(rendering, object, key);
}

/* Python's slice.indices over `count` items, and how many of them are taken. */
struct slice {
    int64_t first, past, step, taken;
};

static struct slice find_bounds(struct jinja_rendering *rendering, const struct jinja_value bounds[3], int64_t count) {
    for (int i = 0; i < 3; i++)
        if (!jinja_is(&bounds[i], JINJA_WHOLE | JINJA_BIT(NONE)))
            jinja_fail(rendering, "slice indices must be integers or None, not %s", jinja_type_name(&bounds[i]));
    struct slice slice = {.step = bounds[2].kind == JINJA_NONE ? 1 : jinja_whole(&bounds[2])};
    if (slice.step == 0) jinja_fail(rendering, "slice step cannot be zero");
    bool forward = slice.step > 0;
    int64_t low = forward ? 0 : -1, high = forward ? count : count - 1;
    int64_t *const ends[2] = {&slice.first, &slice.past};
    for (int i = 0; i < 2; i++) {
        bool none = bounds[i].kind == JINJA_NONE, at_low = (i == 0) == forward;
        int64_t value = none ? (at_low ? low : high) : jinja_whole(&bounds[i]);
        if (!none && value < 0) value = value < -count ? low : value + count;
        *ends[i] = value < low ? low : value > high ? high : value;
    }
    int64_t distance = forward ? slice.past - slice.first : slice.first - slice.past;
    int64_t stride = forward ? slice.step : slice.step == INT64_MIN ? INT64_MAX : -slice.step;
    slice.taken = distance > 0 ? (distance - 1) / stride + 1 : 0;
    return slice;
}

static struct jinja_value slice_text(struct jinja_rendering *rendering, const struct jinja_value *object,
                                     const struct slice *slice) {
    const char *text = object->string.text;
    size_t bytes = object->string.bytes, used = 0;
    if (slice->step == 1) {
        jinja_charge_searched(rendering, bytes, 1);
        size_t from = jinja_find_character(text, bytes, (size_t)slice->first);
        return jinja_string(text + from, jinja_find_character(text + from, bytes - from, (size_t)slice->taken));
    }
    const struct jinja_list *characters = jinja_iterate(rendering, object);
    char *copy = jinja_alloc(rendering, bytes + 1, 1);
    for (int64_t i = 0; i < slice->taken; i++) {
        const struct jinja_value *one = &characters->items[slice->first + i * slice->step];
        memcpy(copy + used, one->string.text, one->string.bytes);
        used += one->string.bytes;
    }
    return jinja_string(copy, used);
}

static struct jinja_value slice_range(struct jinja_rendering *rendering, const struct jinja_list *list,
                                      const struct slice *slice) {
    int64_t first, past, step;
    bool fits = !__builtin_mul_overflow(slice->first, list->step, &first) &&
                !__builtin_add_overflow(first, list->first, &first) &&
                !__builtin_mul_overflow(slice->past, list->step, &past) &&
                !__builtin_add_overflow(past, list->first, &past) &&
                !__builtin_mul_overflow(list->step, slice->step, &step);
    if (!fits) jinja_fail(rendering, "whole numbers beyond 64 bits are not supported");
    return jinja_make_range(rendering, first, past, step, (size_t)slice->taken);
}

static struct jinja_value get_slice(struct jinja_rendering *rendering, const struct jinja_value *object,
                                    const struct jinja_value bounds[3]) {
    if (!jinja_is(object, JINJA_ITEMS | JINJA_BIT(STRING)))
        jinja_fail(rendering, "'%s' object cannot be sliced", jinja_type_name(object));
    const struct slice slice = find_bounds(rendering, bounds, (int64_t)jinja_length(rendering, object));
    if (object->kind == JINJA_STRING) return slice_text(rendering, object, &slice);
    if (object->kind == JINJA_RANGE) return slice_range(rendering, object->list, &slice);
    struct jinja_value part = jinja_make_list(rendering, object->kind, (size_t)slice.taken);
    for (int64_t i = 0; i < slice.taken; i++)
        part.list->items[i] = object->list->items[slice.first + i * slice.step];
    return part;
}

/* --- calls --- */

const struct jinja_callable *jinja_find(const struct jinja_callable *table, enum jinja_kind kind,
                                        const struct jinja_value *name) {
    for (; table->name; table++)
        if (table->kind == kind && jinja_is_text(name, table->name)) return table;
    return NULL;
}

struct jinja_arguments jinja_evaluate_arguments(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_arguments arguments = {.count = node->item_count};
    arguments.items = jinja_alloc(rendering, node->item_count, sizeof *arguments.items);
    for (size_t i = 0; i < node->item_count; i++)
        arguments.items[i] = jinja_evaluate(rendering, node->items[i]);
    for (size_t i = 0; i < node->keyword_count; i++) {
        const struct jinja_value *name = &node->keywords[i].name;
        if (jinja_dict_get(rendering, &arguments.named, name))
            jinja_fail(rendering, "the argument '%.*s' is given twice", JINJA_TEXT(*name));
        jinja_dict_set(rendering, &arguments.named, *name, jinja_evaluate(rendering, node->keywords[i].value));
    }
    rendering->line = node->line;
    return arguments;
}

/* The values of the parameters, those not given undefined. */
static void bind_arguments(struct jinja_rendering *rendering, const struct jinja_callable *callable,
                           const struct jinja_arguments *arguments, struct jinja_value *out) {
    const char *what = callable->name;
    if (arguments->count + arguments->named.count < callable->min)
        jinja_fail(rendering, "%s takes at least %zu arguments", what, callable->min);
    if (arguments->count > callable->max)
        jinja_fail(rendering, "%s: %zu arguments are too many (%zu)", what, arguments->count, callable->max);
    for (size_t i = 0; i < arguments->count; i++)
        out[i] = arguments->items[i];
    for (size_t k = 0; k < arguments->named.count; k++) {
        const struct jinja_pair *named = &arguments->named.pairs[k];
        size_t i = 0;
        while (i < callable->max && !(callable->names[i] && jinja_is_text(&named->key, callable->names[i])))
            i++;
        if (i == callable->max)
            jinja_fail(rendering, "%s: the argument '%.*s' is not supported", what, JINJA_TEXT(named->key));
        if (i < arguments->count)
            jinja_fail(rendering, "%s: the argument '%s' is given twice", what, callable->names[i]);
        out[i] = named->value;
    }
}

struct jinja_value jinja_call(struct jinja_rendering *rendering, const struct jinja_callable *callable,
                              const struct jinja_value *self, const struct jinja_arguments *arguments) {
    struct jinja_value values[JINJA_ARGUMENTS_MAX] = {0};
    if (callable->call_with) return callable->call_with(rendering, self, arguments, callable->how);
    if (!callable->call) jinja_fail_unsupported(rendering, "method", jinja_literal(callable->name));
    bind_arguments(rendering, callable, arguments, values);
    return callable->call(rendering, self, values, callable->how);
}

bool jinja_holds(struct jinja_rendering *rendering, const struct jinja_callable *test, const struct jinja_value *value,
                 const struct jinja_value *argument) {
    return test->call(rendering, value, argument, test->how).truth;
}

static void bind_parameter(struct jinja_rendering *rendering, const struct jinja_node *macro, size_t index,
                           const struct jinja_arguments *arguments) {
    const struct jinja_keyword *parameter = &macro->keywords[index];
    const struct jinja_value *named = jinja_dict_get(rendering, &arguments->named, &parameter->name);
    struct jinja_value value = jinja_undefined(parameter->name);
    if (named && index < arguments->count)
        jinja_fail(rendering, "the argument '%.*s' is given twice", JINJA_TEXT(parameter->name));
    if (index < arguments->count)
        value = arguments->items[index];
    else if (named)
        value = *named;
    else if (parameter->value)
        value = jinja_evaluate(rendering, parameter->value);
    jinja_bind(rendering, parameter->name, value);
}

static void check_keywords(struct jinja_rendering *rendering, const struct jinja_node *macro,
                           const struct jinja_arguments *arguments) {
    for (size_t k = 0; k < arguments->named.count; k++) {
        const struct jinja_value *name = &arguments->named.pairs[k].key;
        size_t i = 0;
        while (i < macro->keyword_count && !jinja_equal(rendering, name, &macro->keywords[i].name))
            i++;
        if (i == macro->keyword_count)
            jinja_fail(rendering, "the macro '%.*s' has no argument '%.*s'", JINJA_TEXT(macro->text),
                       JINJA_TEXT(*name));
    }
}

static struct jinja_value call_macro(struct jinja_rendering *rendering, const struct jinja_macro *macro,
                                     const struct jinja_arguments *arguments) {
    const struct jinja_node *node = macro->node;
    struct jinja_scope *caller = rendering->scope;
    enum jinja_flow flow = rendering->flow;
    if (arguments->count > node->keyword_count)
        jinja_fail(rendering, "the macro '%.*s' takes not more than %zu arguments", JINJA_TEXT(node->text),
                   node->keyword_count);
    check_keywords(rendering, node, arguments);
    jinja_enter_scope(rendering, macro->scope);
    for (size_t i = 0; i < node->keyword_count; i++)
        bind_parameter(rendering, node, i, arguments);
    struct jinja_value text = jinja_capture(rendering, node->a);
    rendering->scope = caller;
    rendering->flow = flow;
    return text;
}

static struct jinja_value evaluate_call(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value callee = jinja_evaluate(rendering, node->a);
    struct jinja_arguments arguments = jinja_evaluate_arguments(rendering, node);
    switch (callee.kind) {
    case JINJA_MACRO: return call_macro(rendering, callee.macro, &arguments);
    case JINJA_FUNCTION: return jinja_call(rendering, callee.function, NULL, &arguments);
    case JINJA_METHOD: return jinja_call(rendering, callee.method->callable, &callee.method->self, &arguments);
    case JINJA_UNDEFINED: jinja_fail(rendering, "'%.*s' is undefined, or not supported", JINJA_TEXT(callee));
    default: jinja_fail(rendering, "'%s' object is not callable", jinja_type_name(&callee));
    }
}

static struct jinja_value evaluate_filter(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value value = jinja_evaluate(rendering, node->a);
    struct jinja_arguments arguments = jinja_evaluate_arguments(rendering, node);
    return jinja_call(rendering, node->callable, &value, &arguments);
}

static struct jinja_value evaluate_test(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value value = jinja_evaluate(rendering, node->a), argument = {0};
    if (node->item_count > 0) argument = jinja_evaluate(rendering, node->items[0]);
    return jinja_bool(jinja_holds(rendering, node->callable, &value, &argument));
}

/* --- other nodes --- */

static struct jinja_value look_up(struct jinja_rendering *rendering, const struct jinja_value *name) {
    for (const struct jinja_scope *scope = rendering->scope; scope; scope = scope->parent) {
        const struct jinja_value *found = jinja_dict_get(rendering, &scope->names, name);
        if (found) return *found;
    }
    if (jinja_is_text(name, "self")) return (struct jinja_value){.kind = JINJA_SELF};
    const struct jinja_callable *function = jinja_find(jinja_functions, JINJA_UNDEFINED, name);
    return function ? (struct jinja_value){.kind = JINJA_FUNCTION, .function = function} : jinja_undefined(*name);
}

static struct jinja_value evaluate_items(struct jinja_rendering *rendering, const struct jinja_node *node,
                                         enum jinja_kind kind) {
    struct jinja_value list = jinja_make_list(rendering, kind, node->item_count);
    for (size_t i = 0; i < node->item_count; i++)
        list.list->items[i] = jinja_evaluate(rendering, node->items[i]);
    return list;
}

static struct jinja_value evaluate_dict(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value dict = jinja_make_dict(rendering);
    for (size_t i = 0; i + 1 < node->item_count; i += 2) {
        struct jinja_value key = jinja_evaluate(rendering, node->items[i]);
        jinja_dict_set(rendering, dict.dict, key, jinja_evaluate(rendering, node->items[i + 1]));
    }
    return dict;
}

static struct jinja_value evaluate_slice(struct jinja_rendering *rendering, const struct jinja_node *node) {
    const struct jinja_node *const nodes[3] = {node->b, node->c, node->d};
    struct jinja_value object = jinja_evaluate(rendering, node->a), bounds[3];
    for (int i = 0; i < 3; i++)
        bounds[i] = nodes[i] ? jinja_evaluate(rendering, nodes[i]) : jinja_none();
    return get_slice(rendering, &object, bounds);
}

static bool compare_once(struct jinja_rendering *rendering, const struct jinja_node *step, const struct jinja_value *a,
                         const struct jinja_value *b) {
    const char *sign = step->text.string.text;
    char first = sign[0], second = step->text.string.bytes > 1 ? sign[1] : '\0';
    if (first == 'i' || first == 'n') return jinja_contains(rendering, b, a) != (first == 'n');
    if (first == '=' || first == '!') return jinja_equal(rendering, a, b) != (first == '!');
    int order = jinja_compare(rendering, a, b);
    return (first == '<' ? order < 0 : order > 0) || (second == '=' && order == 0);
}

/* a < b < c is a < b and b < c. */
static struct jinja_value evaluate_compare(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value left = jinja_evaluate(rendering, node->a);
    bool truth = true;
    for (size_t i = 0; i < node->item_count && truth; i++) {
        struct jinja_value right = jinja_evaluate(rendering, node->items[i]->b);
        rendering->line = node->line;
        truth = compare_once(rendering, node->items[i], &left, &right);
        left = right;
    }
    return jinja_bool(truth);
}

static struct jinja_value evaluate_binary(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value a = jinja_evaluate(rendering, node->a), b = jinja_evaluate(rendering, node->b);
    rendering->line = node->line;
    const char *sign = node->text.string.text;
    if (*sign != '~') return jinja_arithmetic(rendering, sign, node->text.string.bytes, &a, &b);
    struct jinja_value left = jinja_to_string(rendering, &a), right = jinja_to_string(rendering, &b);
    return jinja_arithmetic(rendering, "+", 1, &left, &right);
}

static struct jinja_value evaluate_unary(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value value = jinja_evaluate(rendering, node->a), zero = jinja_integer(0);
    const char *sign = node->text.string.text;
    if (!jinja_is(&value, JINJA_NUMBER))
        jinja_fail(rendering, "bad operand type for unary %c: '%s'", *sign, jinja_type_name(&value));
    if (value.kind != JINJA_FLOAT) return jinja_arithmetic(rendering, sign, 1, &zero, &value);
    return jinja_float(*sign == '-' ? -value.number : value.number);
}

/* and, or, and `a if b else c` give one of their values. */
static struct jinja_value evaluate_choice(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value value = jinja_evaluate(rendering, node->kind == JINJA_NODE_CONDITIONAL ? node->b : node->a);
    bool truth = jinja_is_true(&value);
    if (node->kind == JINJA_NODE_AND) return truth ? jinja_evaluate(rendering, node->b) : value;
    if (node->kind == JINJA_NODE_OR) return truth ? value : jinja_evaluate(rendering, node->b);
    if (truth) return jinja_evaluate(rendering, node->a);
    return node->c ? jinja_evaluate(rendering, node->c) : (struct jinja_value){0};
}

static struct jinja_value evaluate_part(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value object = jinja_evaluate(rendering, node->a);
    if (node->kind == JINJA_NODE_NOT) return jinja_bool(!jinja_is_true(&object));
    if (node->kind == JINJA_NODE_ATTRIBUTE) return get_attribute(rendering, &object, &node->text);
    struct jinja_value key = jinja_evaluate(rendering, node->b);
    return jinja_get_item(rendering, &object, &key);
}

static struct jinja_value evaluate(struct jinja_rendering *rendering, const struct jinja_node *node) {
    switch (node->kind) {
    case JINJA_NODE_CONSTANT: return node->text;
    case JINJA_NODE_NAME: return look_up(rendering, &node->text);
    case JINJA_NODE_NOT:
    case JINJA_NODE_ATTRIBUTE:
    case JINJA_NODE_ITEM: return evaluate_part(rendering, node);
    case JINJA_NODE_SLICE: return evaluate_slice(rendering, node);
    case JINJA_NODE_CALL: return evaluate_call(rendering, node);
    case JINJA_NODE_FILTER: return evaluate_filter(rendering, node);
    case JINJA_NODE_TEST: return evaluate_test(rendering, node);
    case JINJA_NODE_LIST: return evaluate_items(rendering, node, JINJA_LIST);
    case JINJA_NODE_TUPLE: return evaluate_items(rendering, node, JINJA_TUPLE);
    case JINJA_NODE_DICT: return evaluate_dict(rendering, node);
    case JINJA_NODE_AND:
    case JINJA_NODE_OR:
    case JINJA_NODE_CONDITIONAL: return evaluate_choice(rendering, node);
    case JINJA_NODE_UNARY: return evaluate_unary(rendering, node);
    case JINJA_NODE_BINARY: return evaluate_binary(rendering, node);
    case JINJA_NODE_COMPARE: return evaluate_compare(rendering, node);
    default: BUG("expression of kind %d", (int)node->kind);
    }
}

struct jinja_value jinja_evaluate(struct jinja_rendering *rendering, const struct jinja_node *node) {
    jinja_charge(rendering, 1);
    rendering->line = node->line;
    jinja_enter(rendering);
    struct jinja_value value = evaluate(rendering, node);
    rendering->depth--;
    rendering->line = node->line;
    return value;
}
