/* Tests: what may stand behind `is`. */
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/template/jinja_rendering.h"

#define PREDICATE(name)                                                                                                \
    static enum status name(struct jinja_rendering *rendering, const struct jinja_value *value,                        \
                            const struct jinja_value *argument, bool *out)
#define UNUSED (void)rendering, (void)value, (void)argument

#define KIND_PREDICATE(name, condition)                                                                                \
    PREDICATE(name) {                                                                                                  \
        UNUSED;                                                                                                        \
        *out = (condition);                                                                                            \
        return STATUS_OK;                                                                                              \
    }

KIND_PREDICATE(is_defined, value->kind != JINJA_UNDEFINED)
KIND_PREDICATE(is_undefined, value->kind == JINJA_UNDEFINED)
KIND_PREDICATE(is_none, value->kind == JINJA_NONE)
KIND_PREDICATE(is_boolean, value->kind == JINJA_BOOL)
KIND_PREDICATE(is_true, value->kind == JINJA_BOOL && value->truth)
KIND_PREDICATE(is_false, value->kind == JINJA_BOOL && !value->truth)
KIND_PREDICATE(is_integer, value->kind == JINJA_INTEGER)
KIND_PREDICATE(is_float, value->kind == JINJA_FLOAT)
KIND_PREDICATE(is_number, jinja_is_number(value))
KIND_PREDICATE(is_string, value->kind == JINJA_STRING)
KIND_PREDICATE(is_mapping, value->kind == JINJA_DICT)
KIND_PREDICATE(is_iterable, value->kind == JINJA_STRING || value->kind == JINJA_RANGE || value->kind == JINJA_SELF ||
                                value->kind == JINJA_LIST || value->kind == JINJA_TUPLE || value->kind == JINJA_DICT ||
                                value->kind == JINJA_UNDEFINED || value->kind == JINJA_GENERATOR)
KIND_PREDICATE(is_sequence, value->kind == JINJA_STRING || value->kind == JINJA_RANGE || value->kind == JINJA_LIST ||
                                value->kind == JINJA_TUPLE || value->kind == JINJA_DICT ||
                                value->kind == JINJA_UNDEFINED)
KIND_PREDICATE(is_callable, value->kind == JINJA_UNDEFINED || value->kind == JINJA_MACRO ||
                                value->kind == JINJA_FUNCTION || value->kind == JINJA_METHOD)

/* Identity, as far as values have one. */
PREDICATE(is_same) {
    *out = value->kind == argument->kind;
    if (!*out || value->kind == JINJA_NONE) return STATUS_OK;
    if (value->kind == JINJA_BOOL) return jinja_equal(rendering, value, argument, out);
    return jinja_fail(rendering, "sameas between values of type '%s' is not supported", jinja_type_name(value));
}

PREDICATE(is_equal) { return jinja_equal(rendering, value, argument, out); }

PREDICATE(is_unequal) {
    TRY(jinja_equal(rendering, value, argument, out));
    *out = !*out;
    return STATUS_OK;
}

#define ORDER_PREDICATE(name, condition)                                                                               \
    PREDICATE(name) {                                                                                                  \
        int order;                                                                                                     \
        TRY(jinja_compare(rendering, value, argument, &order));                                                        \
        *out = (condition);                                                                                            \
        return STATUS_OK;                                                                                              \
    }

ORDER_PREDICATE(is_less, order < 0)
ORDER_PREDICATE(is_less_or_equal, order <= 0)
ORDER_PREDICATE(is_greater, order > 0)
ORDER_PREDICATE(is_greater_or_equal, order >= 0)

PREDICATE(is_in) { return jinja_contains(rendering, argument, value, out); }

static enum status remainder_of(struct jinja_rendering *rendering, const struct jinja_value *value,
                                const struct jinja_value *divisor, bool *divides) {
    struct jinja_value rest, zero = jinja_integer(0);
    TRY(jinja_arithmetic(rendering, "%", 1, value, divisor, &rest));
    return jinja_equal(rendering, &rest, &zero, divides);
}

PREDICATE(is_divisible) { return remainder_of(rendering, value, argument, out); }

PREDICATE(is_even) {
    struct jinja_value two = jinja_integer(2);
    (void)argument;
    return remainder_of(rendering, value, &two, out);
}

PREDICATE(is_odd) {
    TRY(is_even(rendering, value, argument, out));
    *out = !*out;
    return STATUS_OK;
}

/* str.islower and str.isupper: some letter is, and none is of the other case. */
static enum status has_case(struct jinja_rendering *rendering, const struct jinja_value *value, bool upper, bool *out) {
    struct jinja_value text;
    size_t length;
    TRY(jinja_to_string(rendering, value, &text));
    TRY(jinja_charge(rendering, 2 * text.string.bytes));
    *out = false;
    for (size_t at = 0; at < text.string.bytes; at += length) {
        utf8proc_int32_t code = (utf8proc_int32_t)utf8_decode_valid(text.string.text + at, &length);
        bool is_lower = utf8proc_islower(code), is_upper = utf8proc_isupper(code);
        bool is_title = utf8proc_category(code) == UTF8PROC_CATEGORY_LT;
        if (is_title || (upper ? is_lower : is_upper)) {
            *out = false;
            return STATUS_OK;
        }
        *out |= upper ? is_upper : is_lower;
    }
    return STATUS_OK;
}

PREDICATE(is_lower) {
    (void)argument;
    return has_case(rendering, value, false, out);
}

PREDICATE(is_upper) {
    (void)argument;
    return has_case(rendering, value, true, out);
}

const struct jinja_predicate jinja_predicates[] = {
    {"defined", 0, is_defined},
    {"undefined", 0, is_undefined},
    {"none", 0, is_none},
    {"boolean", 0, is_boolean},
    {"true", 0, is_true},
    {"false", 0, is_false},
    {"integer", 0, is_integer},
    {"float", 0, is_float},
    {"number", 0, is_number},
    {"string", 0, is_string},
    {"mapping", 0, is_mapping},
    {"iterable", 0, is_iterable},
    {"sequence", 0, is_sequence},
    {"callable", 0, is_callable},
    {"sameas", 1, is_same},
    {"eq", 1, is_equal},
    {"equalto", 1, is_equal},
    {"ne", 1, is_unequal},
    {"lt", 1, is_less},
    {"lessthan", 1, is_less},
    {"le", 1, is_less_or_equal},
    {"gt", 1, is_greater},
    {"greaterthan", 1, is_greater},
    {"ge", 1, is_greater_or_equal},
    {"in", 1, is_in},
    {"divisibleby", 1, is_divisible},
    {"even", 0, is_even},
    {"odd", 0, is_odd},
    {"lower", 0, is_lower},
    {"upper", 0, is_upper},
    {0},
};

const struct jinja_predicate *jinja_find_predicate(const char *name, size_t bytes) {
    for (const struct jinja_predicate *test = jinja_predicates; test->name; test++)
        if (jinja_text_is(name, bytes, test->name)) return test;
    return NULL;
}
