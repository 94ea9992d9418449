/* Expressions, from the loosest to the tightest binding, as in Jinja's grammar. */

#include "text/template/parse.h"
#include "text/template/render.h"

#define OPERATOR JINJA_TOKEN_OPERATOR
#define NAME JINJA_TOKEN_NAME

static enum status parse_unary(struct jinja_parser *parser, bool with_filters, struct jinja_node **out);

static enum status make_two(struct jinja_parser *parser, enum jinja_node_kind kind, struct jinja_node *a,
                            struct jinja_node *b, struct jinja_node **out) {
    struct jinja_node *node;
    TRY(jinja_make_node(parser, kind, &node));
    node->a = a;
    node->b = b;
    *out = node;
    return STATUS_OK;
}

/* Whether the next token is one of these operators, given with blanks between them. */
static bool next_is_any(const struct jinja_parser *parser, const char *operators) {
    char text[8] = " ";
    const struct jinja_token *token = parser->next;
    if (token->kind != OPERATOR || token->bytes > 2) return false;
    memcpy(text + 1, token->text, token->bytes);
    text[1 + token->bytes] = ' ';
    return strstr(operators, text) != NULL;
}

/* Left-associative: operand, then any number of operator and operand. */
static enum status parse_binary(struct jinja_parser *parser, const char *operators,
                                enum status (*operand)(struct jinja_parser *, struct jinja_node **),
                                struct jinja_node **out) {
    struct jinja_node *left, *right;
    TRY(operand(parser, &left));
    while (next_is_any(parser, operators)) {
        const struct jinja_token *token = parser->next++;
        TRY(operand(parser, &right));
        TRY(make_two(parser, JINJA_NODE_BINARY, left, right, &left));
        left->text = token->text;
        left->bytes = token->bytes;
    }
    *out = left;
    return STATUS_OK;
}

static enum status parse_signed(struct jinja_parser *parser, struct jinja_node **out) {
    return parse_unary(parser, true, out);
}

static enum status parse_power(struct jinja_parser *parser, struct jinja_node **out) {
    return parse_binary(parser, " ** ", parse_signed, out);
}

static enum status parse_product(struct jinja_parser *parser, struct jinja_node **out) {
    return parse_binary(parser, " * / // % ", parse_power, out);
}

static enum status parse_concatenation(struct jinja_parser *parser, struct jinja_node **out) {
    return parse_binary(parser, " ~ ", parse_product, out);
}

static enum status parse_sum(struct jinja_parser *parser, struct jinja_node **out) {
    return parse_binary(parser, " + - ", parse_concatenation, out);
}

/* Passes a comparison's operator; false when there is none. */
static bool take_comparison(struct jinja_parser *parser, const char **text, size_t *bytes) {
    const struct jinja_token *token = parser->next;
    *text = token->text;
    *bytes = token->bytes;
    if (next_is_any(parser, " == != < <= > >= ") || jinja_next_is(parser, NAME, "in")) {
        parser->next++;
        return true;
    }
    if (jinja_next_is(parser, NAME, "not") && jinja_text_is(token[1].text, token[1].bytes, "in") &&
        token[1].kind == NAME) {
        *text = "not in";
        *bytes = strlen(*text);
        parser->next += 2;
        return true;
    }
    return false;
}

static enum status parse_comparison(struct jinja_parser *parser, struct jinja_node **out) {
    struct jinja_node *node = NULL, *first, *operand;
    const char *text;
    size_t bytes;
    TRY(parse_sum(parser, &first));
    while (take_comparison(parser, &text, &bytes)) {
        if (!node) TRY(make_two(parser, JINJA_NODE_COMPARE, first, NULL, &node));
        struct jinja_node *step;
        TRY(parse_sum(parser, &operand));
        TRY(make_two(parser, JINJA_NODE_BINARY, NULL, operand, &step));
        step->text = text;
        step->bytes = bytes;
        TRY(jinja_add_item(parser, node, step));
    }
    *out = node ? node : first;
    return STATUS_OK;
}

static enum status parse_not(struct jinja_parser *parser, struct jinja_node **out) {
    int count = 0;
    while (jinja_skip(parser, NAME, "not"))
        count++;
    TRY(parse_comparison(parser, out));
    for (int i = 0; i < (count > 2 ? 2 - count % 2 : count); i++)
        TRY(make_two(parser, JINJA_NODE_NOT, *out, NULL, out));
    return STATUS_OK;
}

static enum status parse_and(struct jinja_parser *parser, struct jinja_node **out) {
    struct jinja_node *right;
    TRY(parse_not(parser, out));
    while (jinja_skip(parser, NAME, "and")) {
        TRY(parse_not(parser, &right));
        TRY(make_two(parser, JINJA_NODE_AND, *out, right, out));
    }
    return STATUS_OK;
}

static enum status parse_or(struct jinja_parser *parser, struct jinja_node **out) {
    struct jinja_node *right;
    TRY(parse_and(parser, out));
    while (jinja_skip(parser, NAME, "or")) {
        TRY(parse_and(parser, &right));
        TRY(make_two(parser, JINJA_NODE_OR, *out, right, out));
    }
    return STATUS_OK;
}

static enum status parse_conditional(struct jinja_parser *parser, struct jinja_node **out) {
    TRY(parse_or(parser, out));
    while (jinja_skip(parser, NAME, "if")) {
        struct jinja_node *condition, *otherwise = NULL;
        TRY(parse_or(parser, &condition));
        if (jinja_skip(parser, NAME, "else")) TRY(jinja_parse_expression(parser, &otherwise));
        TRY(make_two(parser, JINJA_NODE_CONDITIONAL, *out, condition, out));
        (*out)->c = otherwise;
    }
    return STATUS_OK;
}

enum status jinja_parse_expression(struct jinja_parser *parser, struct jinja_node **out) {
    if (++parser->depth > JINJA_PARSE_DEPTH_MAX)
        return jinja_parse_refuse(parser, "nested more than %d deep", JINJA_PARSE_DEPTH_MAX);
    enum status status = parse_conditional(parser, out);
    parser->depth--;
    return status;
}

static bool ends_tuple(const struct jinja_parser *parser) {
    return parser->next->kind == JINJA_TOKEN_STATEMENT_END || parser->next->kind == JINJA_TOKEN_OUTPUT_END ||
           jinja_next_is(parser, OPERATOR, ")") || jinja_next_is(parser, OPERATOR, "=");
}

enum status jinja_parse_tuple(struct jinja_parser *parser, bool conditional, struct jinja_node **out) {
    struct jinja_node *first, *tuple, *item;
    TRY(conditional ? jinja_parse_expression(parser, &first) : parse_or(parser, &first));
    if (!jinja_next_is(parser, OPERATOR, ",")) {
        *out = first;
        return STATUS_OK;
    }
    TRY(jinja_make_node(parser, JINJA_NODE_TUPLE, &tuple));
    TRY(jinja_add_item(parser, tuple, first));
    while (jinja_skip(parser, OPERATOR, ",") && !ends_tuple(parser)) {
        TRY(conditional ? jinja_parse_expression(parser, &item) : parse_or(parser, &item));
        TRY(jinja_add_item(parser, tuple, item));
    }
    *out = tuple;
    return STATUS_OK;
}

/* Behind "(". */
static enum status parse_parentheses(struct jinja_parser *parser, struct jinja_node **out) {
    if (jinja_skip(parser, OPERATOR, ")")) return jinja_make_node(parser, JINJA_NODE_TUPLE, out);
    TRY(jinja_parse_tuple(parser, true, out));
    return jinja_expect(parser, OPERATOR, ")");
}

/* Behind "[" or "{", up to its `end`; dicts have their keys and values in turn. */
static enum status parse_items(struct jinja_parser *parser, const char *end, bool pairs, struct jinja_node *node) {
    struct jinja_node *item;
    while (!jinja_skip(parser, OPERATOR, end)) {
        if (node->item_count > 0) {
            TRY(jinja_expect(parser, OPERATOR, ","));
            if (jinja_skip(parser, OPERATOR, end)) break;
        }
        TRY(jinja_parse_expression(parser, &item));
        TRY(jinja_add_item(parser, node, item));
        if (!pairs) continue;
        TRY(jinja_expect(parser, OPERATOR, ":"));
        TRY(jinja_parse_expression(parser, &item));
        TRY(jinja_add_item(parser, node, item));
    }
    return STATUS_OK;
}

static enum status make_constant(struct jinja_parser *parser, struct jinja_value value, struct jinja_node **out) {
    TRY(jinja_make_node(parser, JINJA_NODE_CONSTANT, out));
    (*out)->constant = value;
    return STATUS_OK;
}

static enum status parse_name(struct jinja_parser *parser, struct jinja_node **out) {
    static const struct {
        const char *name;
        struct jinja_value value;
    } constants[] = {{"true", {.kind = JINJA_BOOL, .truth = true}},
                     {"True", {.kind = JINJA_BOOL, .truth = true}},
                     {"false", {.kind = JINJA_BOOL, .truth = false}},
                     {"False", {.kind = JINJA_BOOL, .truth = false}},
                     {"none", {.kind = JINJA_NONE}},
                     {"None", {.kind = JINJA_NONE}}};
    const struct jinja_token *token = parser->next++;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (jinja_text_is(token->text, token->bytes, constants[i].name))
            return make_constant(parser, constants[i].value, out);
    TRY(jinja_make_node(parser, JINJA_NODE_NAME, out));
    (*out)->text = token->text;
    (*out)->bytes = token->bytes;
    parser->template->uses_time |= jinja_text_is(token->text, token->bytes, "strftime_now");
    return STATUS_OK;
}

/* String literals that follow each other are one. */
static enum status parse_string(struct jinja_parser *parser, struct jinja_node **out) {
    const struct jinja_token *first = parser->next;
    size_t bytes = 0, used = 0;
    for (; parser->next->kind == JINJA_TOKEN_STRING; parser->next++)
        bytes += parser->next->bytes;
    char *text = scratch_alloc(&parser->template->memory, bytes + 1, 1);
    if (!text) return STATUS_FAILED;
    for (const struct jinja_token *token = first; token < parser->next; token++) {
        memcpy(text + used, token->text, token->bytes);
        used += token->bytes;
    }
    return make_constant(parser, jinja_string(text, bytes), out);
}

static enum status parse_primary(struct jinja_parser *parser, struct jinja_node **out) {
    switch (parser->next->kind) {
    case JINJA_TOKEN_NAME: return parse_name(parser, out);
    case JINJA_TOKEN_STRING: return parse_string(parser, out);
    case JINJA_TOKEN_INTEGER: return make_constant(parser, jinja_integer(parser->next++->integer), out);
    case JINJA_TOKEN_FLOAT: return make_constant(parser, jinja_float(parser->next++->number), out);
    default: break;
    }
    if (jinja_skip(parser, OPERATOR, "(")) return parse_parentheses(parser, out);
    bool list = jinja_next_is(parser, OPERATOR, "[");
    if (!list && !jinja_next_is(parser, OPERATOR, "{")) return jinja_parse_unexpected(parser, "a value");
    TRY(jinja_make_node(parser, list ? JINJA_NODE_LIST : JINJA_NODE_DICT, out));
    parser->next++;
    return parse_items(parser, list ? "]" : "}", !list, *out);
}

/* Behind "(". */
static enum status parse_arguments(struct jinja_parser *parser, struct jinja_node *node) {
    struct jinja_node *value;
    while (!jinja_skip(parser, OPERATOR, ")")) {
        if (node->item_count + node->keyword_count > 0) {
            TRY(jinja_expect(parser, OPERATOR, ","));
            if (jinja_skip(parser, OPERATOR, ")")) break;
        }
        const struct jinja_token *name = parser->next;
        if (next_is_any(parser, " * ** ")) return jinja_parse_refuse(parser, "a call with * is not supported");
        if (name->kind == NAME && name[1].kind == OPERATOR && jinja_text_is(name[1].text, name[1].bytes, "=")) {
            parser->next += 2;
            TRY(jinja_parse_expression(parser, &value));
            TRY(jinja_add_keyword(parser, node, name, value));
        } else {
            if (node->keyword_count > 0) return jinja_parse_unexpected(parser, "a keyword argument");
            TRY(jinja_parse_expression(parser, &value));
            TRY(jinja_add_item(parser, node, value));
        }
    }
    return STATUS_OK;
}

/* Behind "[": an index or a slice. */
static enum status parse_subscript(struct jinja_parser *parser, struct jinja_node *object, struct jinja_node **out) {
    struct jinja_node *bounds[3] = {NULL}, *node;
    int colons = 0;
    for (int i = 0; i < 3 && !jinja_next_is(parser, OPERATOR, "]"); i++) {
        if (!jinja_next_is(parser, OPERATOR, ":")) TRY(jinja_parse_expression(parser, &bounds[i]));
        if (i == 2 || !jinja_skip(parser, OPERATOR, ":")) break;
        colons++;
    }
    TRY(jinja_expect(parser, OPERATOR, "]"));
    if (colons == 0 && !bounds[0]) return jinja_parse_refuse(parser, "an index is missing");
    TRY(make_two(parser, colons > 0 ? JINJA_NODE_SLICE : JINJA_NODE_ITEM, object, bounds[0], &node));
    node->c = bounds[1];
    node->d = bounds[2];
    *out = node;
    return STATUS_OK;
}

/* Behind ".": a name, or an index. */
static enum status parse_attribute(struct jinja_parser *parser, struct jinja_node *object, struct jinja_node **out) {
    const struct jinja_token *token = parser->next;
    struct jinja_node *node;
    if (token->kind == JINJA_TOKEN_INTEGER) {
        struct jinja_node *index;
        parser->next++;
        TRY(make_constant(parser, jinja_integer(token->integer), &index));
        return make_two(parser, JINJA_NODE_ITEM, object, index, out);
    }
    TRY(jinja_expect_name(parser, &token));
    TRY(make_two(parser, JINJA_NODE_ATTRIBUTE, object, NULL, &node));
    node->text = token->text;
    node->bytes = token->bytes;
    *out = node;
    return STATUS_OK;
}

static enum status parse_call(struct jinja_parser *parser, struct jinja_node *callee, struct jinja_node **out) {
    struct jinja_node *node;
    TRY(make_two(parser, JINJA_NODE_CALL, callee, NULL, &node));
    TRY(parse_arguments(parser, node));
    *out = node;
    return STATUS_OK;
}

/* Chains like a.b.c are nested nodes too, and count as such. */
static enum status count_link(const struct jinja_parser *parser, int *links) {
    if (++*links <= JINJA_PARSE_DEPTH_MAX) return STATUS_OK;
    return jinja_parse_refuse(parser, "more than %d calls, filters and attributes in a row", JINJA_PARSE_DEPTH_MAX);
}

static enum status parse_postfix(struct jinja_parser *parser, struct jinja_node **out) {
    for (int links = 0;;) {
        if (jinja_skip(parser, OPERATOR, "."))
            TRY(parse_attribute(parser, *out, out));
        else if (jinja_skip(parser, OPERATOR, "["))
            TRY(parse_subscript(parser, *out, out));
        else if (jinja_skip(parser, OPERATOR, "("))
            TRY(parse_call(parser, *out, out));
        else
            return STATUS_OK;
        TRY(count_link(parser, &links));
    }
}

/* Behind "|". */
static enum status parse_filter(struct jinja_parser *parser, struct jinja_node *value, struct jinja_node **out) {
    const struct jinja_token *name;
    struct jinja_node *node;
    TRY(jinja_expect_name(parser, &name));
    TRY(make_two(parser, JINJA_NODE_FILTER, value, NULL, &node));
    node->text = name->text;
    node->bytes = name->bytes;
    node->filter = jinja_find_filter(name->text, name->bytes);
    if (!node->filter)
        return jinja_parse_refuse(parser, "the filter '%.*s' is not supported", (int)name->bytes, name->text);
    if (jinja_skip(parser, OPERATOR, "(")) TRY(parse_arguments(parser, node));
    *out = node;
    return STATUS_OK;
}

enum status jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *value, struct jinja_node **out) {
    int links = 0;
    *out = value;
    while (jinja_skip(parser, OPERATOR, "|")) {
        TRY(parse_filter(parser, *out, out));
        TRY(count_link(parser, &links));
    }
    return STATUS_OK;
}

/* Whether a test's only argument begins here, without parentheses. */
static bool argument_follows(const struct jinja_parser *parser) {
    static const char *const keywords[] = {"else", "or", "and", "is", "if", "in", "not"};
    enum jinja_token_kind kind = parser->next->kind;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (jinja_next_is(parser, NAME, keywords[i])) return false;
    return kind == NAME || kind == JINJA_TOKEN_STRING || kind == JINJA_TOKEN_INTEGER || kind == JINJA_TOKEN_FLOAT ||
           jinja_next_is(parser, OPERATOR, "[") || jinja_next_is(parser, OPERATOR, "{");
}

/* Behind "is". */
static enum status parse_test(struct jinja_parser *parser, struct jinja_node *value, struct jinja_node **out) {
    bool negated = jinja_skip(parser, NAME, "not");
    const struct jinja_token *name;
    struct jinja_node *node;
    TRY(jinja_expect_name(parser, &name));
    TRY(make_two(parser, JINJA_NODE_TEST, value, NULL, &node));
    node->text = name->text;
    node->bytes = name->bytes;
    node->test = jinja_find_predicate(name->text, name->bytes);
    if (!node->test)
        return jinja_parse_refuse(parser, "the test '%.*s' is not supported", (int)name->bytes, name->text);
    if (jinja_skip(parser, OPERATOR, "(")) {
        TRY(parse_arguments(parser, node));
    } else if (argument_follows(parser)) {
        struct jinja_node *argument;
        TRY(parse_primary(parser, &argument));
        TRY(parse_postfix(parser, &argument));
        TRY(jinja_add_item(parser, node, argument));
    }
    if (node->keyword_count > 0 || node->item_count != (size_t)node->test->arguments)
        return jinja_parse_refuse(parser, "the test '%s' takes %d arguments", node->test->name, node->test->arguments);
    if (negated) TRY(make_two(parser, JINJA_NODE_NOT, node, NULL, &node));
    *out = node;
    return STATUS_OK;
}

static enum status parse_filters_and_tests(struct jinja_parser *parser, struct jinja_node **out) {
    for (int links = 0;;) {
        if (jinja_skip(parser, OPERATOR, "|"))
            TRY(parse_filter(parser, *out, out));
        else if (jinja_skip(parser, NAME, "is"))
            TRY(parse_test(parser, *out, out));
        else if (jinja_skip(parser, OPERATOR, "("))
            TRY(parse_call(parser, *out, out));
        else
            return STATUS_OK;
        TRY(count_link(parser, &links));
    }
}

static enum status parse_unary(struct jinja_parser *parser, bool with_filters, struct jinja_node **out) {
    if (++parser->depth > JINJA_PARSE_DEPTH_MAX)
        return jinja_parse_refuse(parser, "nested more than %d deep", JINJA_PARSE_DEPTH_MAX);
    const struct jinja_token *token = parser->next;
    if (next_is_any(parser, " + - ")) {
        struct jinja_node *operand;
        parser->next++;
        TRY(parse_unary(parser, false, &operand));
        TRY(make_two(parser, JINJA_NODE_UNARY, operand, NULL, out));
        (*out)->text = token->text;
        (*out)->bytes = token->bytes;
    } else {
        TRY(parse_primary(parser, out));
    }
    TRY(parse_postfix(parser, out));
    if (with_filters) TRY(parse_filters_and_tests(parser, out));
    parser->depth--;
    return STATUS_OK;
}

static enum status parse_one_target(struct jinja_parser *parser, bool fields, struct jinja_node **out) {
    const struct jinja_token *name;
    TRY(jinja_expect_name(parser, &name));
    TRY(jinja_make_node(parser, JINJA_NODE_NAME, out));
    (*out)->text = name->text;
    (*out)->bytes = name->bytes;
    if (fields && jinja_skip(parser, OPERATOR, ".")) return parse_attribute(parser, *out, out);
    return STATUS_OK;
}

enum status jinja_parse_target(struct jinja_parser *parser, bool fields, struct jinja_node **out) {
    struct jinja_node *target;
    bool parentheses = jinja_skip(parser, OPERATOR, "(");
    TRY(parse_one_target(parser, fields && !parentheses, &target));
    if (parentheses || jinja_next_is(parser, OPERATOR, ",")) {
        struct jinja_node *tuple;
        TRY(jinja_make_node(parser, JINJA_NODE_TUPLE, &tuple));
        TRY(jinja_add_item(parser, tuple, target));
        while (jinja_skip(parser, OPERATOR, ",") && parser->next->kind == NAME && !jinja_next_is(parser, NAME, "in")) {
            TRY(parse_one_target(parser, false, &target));
            TRY(jinja_add_item(parser, tuple, target));
        }
        target = tuple;
    }
    if (parentheses) TRY(jinja_expect(parser, OPERATOR, ")"));
    *out = target;
    return STATUS_OK;
}
