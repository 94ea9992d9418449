/* Expressions. */
#include <string.h>

#include "text/template/jinja_rendering.h"

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
    return jinja_get_slice(rendering, &object, bounds, out);
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
    if (node->kind == JINJA_NODE_ATTRIBUTE)
        return jinja_get_attribute(rendering, &object, node->text, node->bytes, out);
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
