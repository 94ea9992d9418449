/* Tokens and nodes, and expressions as in Jinja's grammar. */
#include "text/template/jinja.h"
#include "text/template/parse.h"

enum { PARSE_DEPTH_MAX = 60 };

#define OPERATOR JINJA_TOKEN_OPERATOR
#define NAME JINJA_TOKEN_NAME

static struct jinja_node *parse_unary(struct jinja_parser *parser, bool with_filters);

/* --- tokens --- */

const struct jinja_token *jinja_pass(struct jinja_parser *parser) {
    const struct jinja_token *passed = parser->next++;
    parser->line = parser->next->line;
    return passed;
}

bool jinja_token_is(const struct jinja_token *token, enum jinja_token_kind kind, const char *text) {
    return token->kind == kind && (!text || jinja_is_text(&token->value, text));
}

bool jinja_next_is(const struct jinja_parser *parser, enum jinja_token_kind kind, const char *text) {
    return jinja_token_is(parser->next, kind, text);
}

bool jinja_skip(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text) {
    return jinja_next_is(parser, kind, text) && jinja_pass(parser);
}

_Noreturn void jinja_refuse_next(struct jinja_parser *parser, const char *expected) {
    const struct jinja_token *token = parser->next;
    switch (token->kind) {
    case JINJA_TOKEN_NAME:
    case JINJA_TOKEN_OPERATOR:
        jinja_refuse(parser, "unexpected '%.*s', expected %s",
                     (int)(token->value.string.bytes < 40 ? token->value.string.bytes : 40), token->value.string.text,
                     expected);
    case JINJA_TOKEN_STRING: jinja_refuse(parser, "unexpected string, expected %s", expected);
    case JINJA_TOKEN_INTEGER:
    case JINJA_TOKEN_FLOAT: jinja_refuse(parser, "unexpected number, expected %s", expected);
    case JINJA_TOKEN_END: jinja_refuse(parser, "the template ends, expected %s", expected);
    default: jinja_refuse(parser, "the tag ends or begins, expected %s", expected);
    }
}

void jinja_expect(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text) {
    char expected[64];
    if (jinja_skip(parser, kind, text)) return;
    snprintf(expected, sizeof expected, text ? "'%s'" : "%s",
             text                                ? text
             : kind == JINJA_TOKEN_STATEMENT_END ? "the end of the tag"
                                                 : "the end of the output");
    jinja_refuse_next(parser, expected);
}

const struct jinja_token *jinja_expect_name(struct jinja_parser *parser) {
    if (parser->next->kind != NAME) jinja_refuse_next(parser, "a name");
    return jinja_pass(parser);
}

void jinja_go_deeper(struct jinja_parser *parser) {
    if (++parser->depth > PARSE_DEPTH_MAX) jinja_refuse(parser, "nested more than %d deep", PARSE_DEPTH_MAX);
}

/* --- nodes --- */

struct jinja_node *jinja_make_node(struct jinja_parser *parser, enum jinja_node_kind kind, struct jinja_node *a,
                                   struct jinja_node *b) {
    struct jinja_node *node = jinja_keep(parser, 1, sizeof *node);
    node->kind = kind;
    node->line = parser->next->line;
    node->a = a;
    node->b = b;
    return node;
}

struct jinja_node *jinja_make_named(struct jinja_parser *parser, enum jinja_node_kind kind,
                                    const struct jinja_token *name, struct jinja_node *a, struct jinja_node *b) {
    struct jinja_node *node = jinja_make_node(parser, kind, a, b);
    node->text = name->value;
    return node;
}

static struct jinja_node *make_constant(struct jinja_parser *parser, struct jinja_value value) {
    struct jinja_node *node = jinja_make_node(parser, JINJA_NODE_CONSTANT, NULL, NULL);
    node->text = value;
    return node;
}

/* The array with space for one more: it is full at powers of two, and when it is empty. */
static void *grow(struct jinja_parser *parser, void *items, size_t count, size_t size) {
    if (count & (count - 1)) return items;
    void *bigger = jinja_keep(parser, count > 0 ? 2 * count : 1, size);
    if (count > 0) memcpy(bigger, items, count * size);
    return bigger;
}

void jinja_add_item(struct jinja_parser *parser, struct jinja_node *node, struct jinja_node *item) {
    node->items = grow(parser, node->items, node->item_count, sizeof *node->items);
    node->items[node->item_count++] = item;
}

void jinja_add_keyword(struct jinja_parser *parser, struct jinja_node *node, const struct jinja_token *name,
                       struct jinja_node *value) {
    node->keywords = grow(parser, node->keywords, node->keyword_count, sizeof *node->keywords);
    node->keywords[node->keyword_count++] = (struct jinja_keyword){name->value, value};
}

/* --- expressions, from the loosest to the tightest binding --- */

/* Whether the next token is one of these operators, given with blanks between them. */
static bool next_is_any(const struct jinja_parser *parser, const char *operators) {
    char text[8] = " ";
    const struct jinja_token *token = parser->next;
    if (token->kind != OPERATOR || token->value.string.bytes > 2) return false;
    memcpy(text + 1, token->value.string.text, token->value.string.bytes);
    text[1 + token->value.string.bytes] = ' ';
    return strstr(operators, text) != NULL;
}

/* Left-associative operators by how tightly they bind. */
static const char *const binary_operators[] = {" + - ", " ~ ", " * / // % ", " ** "};
enum { BINARY_LEVELS = sizeof binary_operators / sizeof *binary_operators };

static struct jinja_node *parse_binary(struct jinja_parser *parser, int level) {
    if (level == BINARY_LEVELS) return parse_unary(parser, true);
    struct jinja_node *left = parse_binary(parser, level + 1);
    while (next_is_any(parser, binary_operators[level])) {
        const struct jinja_token *sign = jinja_pass(parser);
        struct jinja_node *right = parse_binary(parser, level + 1);
        left = jinja_make_named(parser, JINJA_NODE_BINARY, sign, left, right);
    }
    return left;
}

/* Passes a comparison's operator; false when there is none. */
static bool take_comparison(struct jinja_parser *parser, struct jinja_token *sign) {
    const struct jinja_token *token = parser->next;
    bool not_in = jinja_next_is(parser, NAME, "not") && jinja_token_is(token + 1, NAME, "in");
    if (!not_in && !next_is_any(parser, " == != < <= > >= ") && !jinja_next_is(parser, NAME, "in")) return false;
    *sign = *jinja_pass(parser);
    if (not_in) sign->value = jinja_literal("not in");
    if (not_in) jinja_pass(parser);
    return true;
}

static struct jinja_node *parse_comparison(struct jinja_parser *parser) {
    struct jinja_node *node = NULL, *first = parse_binary(parser, 0);
    struct jinja_token sign;
    while (take_comparison(parser, &sign)) {
        if (!node) node = jinja_make_node(parser, JINJA_NODE_COMPARE, first, NULL);
        struct jinja_node *operand = parse_binary(parser, 0);
        jinja_add_item(parser, node, jinja_make_named(parser, JINJA_NODE_BINARY, &sign, NULL, operand));
    }
    return node ? node : first;
}

static struct jinja_node *parse_not(struct jinja_parser *parser) {
    int count = 0;
    while (jinja_skip(parser, NAME, "not"))
        count++;
    struct jinja_node *node = parse_comparison(parser);
    for (int i = 0; i < (count > 2 ? 2 - count % 2 : count); i++)
        node = jinja_make_node(parser, JINJA_NODE_NOT, node, NULL);
    return node;
}

static struct jinja_node *parse_and(struct jinja_parser *parser) {
    struct jinja_node *left = parse_not(parser);
    while (jinja_skip(parser, NAME, "and")) {
        struct jinja_node *right = parse_not(parser);
        left = jinja_make_node(parser, JINJA_NODE_AND, left, right);
    }
    return left;
}

static struct jinja_node *parse_or(struct jinja_parser *parser) {
    struct jinja_node *left = parse_and(parser);
    while (jinja_skip(parser, NAME, "or")) {
        struct jinja_node *right = parse_and(parser);
        left = jinja_make_node(parser, JINJA_NODE_OR, left, right);
    }
    return left;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *parser) {
    jinja_go_deeper(parser);
    struct jinja_node *node = parse_or(parser);
    while (jinja_skip(parser, NAME, "if")) {
        struct jinja_node *condition = parse_or(parser);
        struct jinja_node *otherwise = jinja_skip(parser, NAME, "else") ? jinja_parse_expression(parser) : NULL;
        node = jinja_make_node(parser, JINJA_NODE_CONDITIONAL, node, condition);
        node->c = otherwise;
    }
    parser->depth--;
    return node;
}

static bool ends_tuple(const struct jinja_parser *parser) {
    return jinja_next_is(parser, JINJA_TOKEN_STATEMENT_END, NULL) ||
           jinja_next_is(parser, JINJA_TOKEN_OUTPUT_END, NULL) || jinja_next_is(parser, OPERATOR, ")") ||
           jinja_next_is(parser, OPERATOR, "=");
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *parser, bool conditional) {
    struct jinja_node *(*parse)(struct jinja_parser * parser) = conditional ? jinja_parse_expression : parse_or;
    struct jinja_node *first = parse(parser);
    if (!jinja_next_is(parser, OPERATOR, ",")) return first;
    struct jinja_node *tuple = jinja_make_node(parser, JINJA_NODE_TUPLE, NULL, NULL);
    jinja_add_item(parser, tuple, first);
    while (jinja_skip(parser, OPERATOR, ",") && !ends_tuple(parser))
        jinja_add_item(parser, tuple, parse(parser));
    return tuple;
}

/* Behind "(". */
static struct jinja_node *parse_parentheses(struct jinja_parser *parser) {
    if (jinja_skip(parser, OPERATOR, ")")) return jinja_make_node(parser, JINJA_NODE_TUPLE, NULL, NULL);
    struct jinja_node *node = jinja_parse_tuple(parser, true);
    jinja_expect(parser, OPERATOR, ")");
    return node;
}

bool jinja_next_item(struct jinja_parser *parser, const char *end, bool first) {
    if (jinja_skip(parser, OPERATOR, end)) return false;
    if (first) return true;
    jinja_expect(parser, OPERATOR, ",");
    return !jinja_skip(parser, OPERATOR, end);
}

/* At "[" or "{", up to its end; dicts have their keys and values in turn. */
static struct jinja_node *parse_items(struct jinja_parser *parser, bool dict) {
    struct jinja_node *node = jinja_make_node(parser, dict ? JINJA_NODE_DICT : JINJA_NODE_LIST, NULL, NULL);
    jinja_pass(parser);
    while (jinja_next_item(parser, dict ? "}" : "]", node->item_count == 0)) {
        jinja_add_item(parser, node, jinja_parse_expression(parser));
        if (!dict) continue;
        jinja_expect(parser, OPERATOR, ":");
        jinja_add_item(parser, node, jinja_parse_expression(parser));
    }
    return node;
}

static struct jinja_node *parse_name(struct jinja_parser *parser) {
    static const struct {
        const char *name;
        struct jinja_value value;
    } constants[] = {{"true", {.kind = JINJA_BOOL, .truth = true}},
                     {"True", {.kind = JINJA_BOOL, .truth = true}},
                     {"false", {.kind = JINJA_BOOL, .truth = false}},
                     {"False", {.kind = JINJA_BOOL, .truth = false}},
                     {"none", {.kind = JINJA_NONE}},
                     {"None", {.kind = JINJA_NONE}}};
    const struct jinja_token *token = jinja_pass(parser);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (jinja_is_text(&token->value, constants[i].name)) return make_constant(parser, constants[i].value);
    parser->template->uses_time |= jinja_is_text(&token->value, "strftime_now");
    return jinja_make_named(parser, JINJA_NODE_NAME, token, NULL, NULL);
}

/* String literals that follow each other are one. */
static struct jinja_node *parse_string(struct jinja_parser *parser) {
    const struct jinja_token *first = parser->next;
    size_t bytes = 0, used = 0;
    for (; parser->next->kind == JINJA_TOKEN_STRING; jinja_pass(parser))
        bytes += parser->next->value.string.bytes;
    char *text = jinja_keep(parser, bytes + 1, 1);
    for (const struct jinja_token *token = first; token < parser->next; token++) {
        memcpy(text + used, token->value.string.text, token->value.string.bytes);
        used += token->value.string.bytes;
    }
    return make_constant(parser, jinja_string(text, bytes));
}

static struct jinja_node *parse_primary(struct jinja_parser *parser) {
    switch (parser->next->kind) {
    case JINJA_TOKEN_NAME: return parse_name(parser);
    case JINJA_TOKEN_STRING: return parse_string(parser);
    case JINJA_TOKEN_INTEGER:
    case JINJA_TOKEN_FLOAT: return make_constant(parser, jinja_pass(parser)->value);
    default: break;
    }
    if (jinja_skip(parser, OPERATOR, "(")) return parse_parentheses(parser);
    bool list = jinja_next_is(parser, OPERATOR, "[");
    if (!list && !jinja_next_is(parser, OPERATOR, "{")) jinja_refuse_next(parser, "a value");
    return parse_items(parser, !list);
}

/* Behind "(". */
static void parse_arguments(struct jinja_parser *parser, struct jinja_node *node) {
    while (jinja_next_item(parser, ")", node->item_count + node->keyword_count == 0)) {
        const struct jinja_token *name = parser->next;
        if (next_is_any(parser, " * ** ")) jinja_refuse(parser, "a call with * is not supported");
        if (name->kind == NAME && jinja_token_is(name + 1, OPERATOR, "=")) {
            jinja_pass(parser);
            jinja_pass(parser);
            jinja_add_keyword(parser, node, name, jinja_parse_expression(parser));
        } else {
            if (node->keyword_count > 0) jinja_refuse_next(parser, "a keyword argument");
            jinja_add_item(parser, node, jinja_parse_expression(parser));
        }
    }
}

/* Behind "[": an index or a slice. */
static struct jinja_node *parse_subscript(struct jinja_parser *parser, struct jinja_node *object) {
    struct jinja_node *bounds[3] = {NULL};
    int colons = 0;
    for (int i = 0; i < 3 && !jinja_next_is(parser, OPERATOR, "]"); i++) {
        if (!jinja_next_is(parser, OPERATOR, ":")) bounds[i] = jinja_parse_expression(parser);
        if (i == 2 || !jinja_skip(parser, OPERATOR, ":")) break;
        colons++;
    }
    jinja_expect(parser, OPERATOR, "]");
    if (colons == 0 && !bounds[0]) jinja_refuse(parser, "an index is missing");
    struct jinja_node *node =
        jinja_make_node(parser, colons > 0 ? JINJA_NODE_SLICE : JINJA_NODE_ITEM, object, bounds[0]);
    node->c = bounds[1];
    node->d = bounds[2];
    return node;
}

struct jinja_node *jinja_parse_attribute(struct jinja_parser *parser, struct jinja_node *object) {
    if (parser->next->kind != JINJA_TOKEN_INTEGER)
        return jinja_make_named(parser, JINJA_NODE_ATTRIBUTE, jinja_expect_name(parser), object, NULL);
    struct jinja_node *index = make_constant(parser, jinja_pass(parser)->value);
    return jinja_make_node(parser, JINJA_NODE_ITEM, object, index);
}

/* Behind "(". */
static struct jinja_node *parse_call(struct jinja_parser *parser, struct jinja_node *callee) {
    struct jinja_node *node = jinja_make_node(parser, JINJA_NODE_CALL, callee, NULL);
    parse_arguments(parser, node);
    return node;
}

/* Behind "|". */
static struct jinja_node *parse_filter(struct jinja_parser *parser, struct jinja_node *value) {
    struct jinja_node *node = jinja_make_named(parser, JINJA_NODE_FILTER, jinja_expect_name(parser), value, NULL);
    node->callable = jinja_find(jinja_filters, JINJA_UNDEFINED, &node->text);
    if (!node->callable) jinja_refuse(parser, "the filter '%.*s' is not supported", JINJA_TEXT(node->text));
    if (jinja_skip(parser, OPERATOR, "(")) parse_arguments(parser, node);
    return node;
}

/* Chains like a.b.c are nested nodes too, and count as such. */
static void count_link(struct jinja_parser *parser, int *links) {
    if (++*links > PARSE_DEPTH_MAX)
        jinja_refuse(parser, "more than %d calls, filters and attributes in a row", PARSE_DEPTH_MAX);
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *value) {
    for (int links = 0; jinja_skip(parser, OPERATOR, "|"); count_link(parser, &links))
        value = parse_filter(parser, value);
    return value;
}

static struct jinja_node *parse_postfix(struct jinja_parser *parser, struct jinja_node *value) {
    for (int links = 0;; count_link(parser, &links)) {
        if (jinja_skip(parser, OPERATOR, "."))
            value = jinja_parse_attribute(parser, value);
        else if (jinja_skip(parser, OPERATOR, "["))
            value = parse_subscript(parser, value);
        else if (jinja_skip(parser, OPERATOR, "("))
            value = parse_call(parser, value);
        else
            return value;
    }
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
static struct jinja_node *parse_test(struct jinja_parser *parser, struct jinja_node *value) {
    bool negated = jinja_skip(parser, NAME, "not");
    struct jinja_node *node = jinja_make_named(parser, JINJA_NODE_TEST, jinja_expect_name(parser), value, NULL);
    node->callable = jinja_find(jinja_tests, JINJA_UNDEFINED, &node->text);
    if (!node->callable) jinja_refuse(parser, "the test '%.*s' is not supported", JINJA_TEXT(node->text));
    if (jinja_skip(parser, OPERATOR, "("))
        parse_arguments(parser, node);
    else if (argument_follows(parser))
        jinja_add_item(parser, node, parse_postfix(parser, parse_primary(parser)));
    if (node->keyword_count > 0 || node->item_count != node->callable->max)
        jinja_refuse(parser, "the test '%s' takes %zu arguments", node->callable->name, node->callable->max);
    return negated ? jinja_make_node(parser, JINJA_NODE_NOT, node, NULL) : node;
}

static struct jinja_node *parse_filters_and_tests(struct jinja_parser *parser, struct jinja_node *value) {
    for (int links = 0;; count_link(parser, &links)) {
        if (jinja_skip(parser, OPERATOR, "|"))
            value = parse_filter(parser, value);
        else if (jinja_skip(parser, NAME, "is"))
            value = parse_test(parser, value);
        else if (jinja_skip(parser, OPERATOR, "("))
            value = parse_call(parser, value);
        else
            return value;
    }
}

static struct jinja_node *parse_unary(struct jinja_parser *parser, bool with_filters) {
    jinja_go_deeper(parser);
    const struct jinja_token *token = parser->next;
    struct jinja_node *node;
    if (next_is_any(parser, " + - ")) {
        jinja_pass(parser);
        node = parse_unary(parser, false);
        node = jinja_make_named(parser, JINJA_NODE_UNARY, token, node, NULL);
    } else {
        node = parse_primary(parser);
    }
    node = parse_postfix(parser, node);
    if (with_filters) node = parse_filters_and_tests(parser, node);
    parser->depth--;
    return node;
}
