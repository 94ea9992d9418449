/* Tokens to a tree, as in Jinja's grammar; and what is known of a template without rendering it. */
#include <stdarg.h>

#include "text/template/jinja.h"
#include "text/template/parse.h"

enum { TEMPLATE_BYTES_MAX = 1 << 22, PARSE_DEPTH_MAX = 60 };

#define OPERATOR JINJA_TOKEN_OPERATOR
#define NAME JINJA_TOKEN_NAME

struct parser {
    struct jinja_parsing parsing;
    struct jinja_template *template;
    const struct jinja_token *next; /* the token that is read next; the last is never passed */
    int depth;
    int loops; /* that the present statement is in, within its macro */
};

static struct jinja_node *parse_expression(struct parser *parser);
static struct jinja_node *parse_unary(struct parser *parser, bool with_filters);
static struct jinja_node *parse_body(struct parser *parser, const char *const *ends);

bool jinja_text_is(const char *text, size_t bytes, const char *word) {
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

/* --- tokens --- */

static bool token_is(const struct jinja_token *token, enum jinja_token_kind kind, const char *text) {
    return token->kind == kind && (!text || jinja_text_is(token->text, token->bytes, text));
}

/* Whether the next token is this name or operator; skip passes it then, expect fails where it is another. */
static bool next_is(const struct parser *parser, enum jinja_token_kind kind, const char *text) {
    return token_is(parser->next, kind, text);
}

static bool skip(struct parser *parser, enum jinja_token_kind kind, const char *text) {
    if (!next_is(parser, kind, text)) return false;
    parser->next++;
    return true;
}

__attribute__((format(printf, 2, 3))) _Noreturn static void refuse(struct parser *parser, const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    jinja_refuse(&parser->parsing, parser->next->line, "%s", text);
}

static int shown_bytes(const struct jinja_token *token) { return (int)(token->bytes < 40 ? token->bytes : 40); }

_Noreturn static void refuse_next(struct parser *parser, const char *expected) {
    const struct jinja_token *token = parser->next;
    switch (token->kind) {
    case JINJA_TOKEN_NAME:
    case JINJA_TOKEN_OPERATOR:
        refuse(parser, "unexpected '%.*s', expected %s", shown_bytes(token), token->text, expected);
    case JINJA_TOKEN_STRING: refuse(parser, "unexpected string, expected %s", expected);
    case JINJA_TOKEN_INTEGER:
    case JINJA_TOKEN_FLOAT: refuse(parser, "unexpected number, expected %s", expected);
    case JINJA_TOKEN_END: refuse(parser, "the template ends, expected %s", expected);
    default: refuse(parser, "the tag ends or begins, expected %s", expected);
    }
}

static void expect(struct parser *parser, enum jinja_token_kind kind, const char *text) {
    char expected[64];
    if (skip(parser, kind, text)) return;
    snprintf(expected, sizeof expected, text ? "'%s'" : "%s",
             text                                ? text
             : kind == JINJA_TOKEN_STATEMENT_END ? "the end of the tag"
                                                 : "the end of the output");
    refuse_next(parser, expected);
}

static const struct jinja_token *expect_name(struct parser *parser) {
    if (parser->next->kind != NAME) refuse_next(parser, "a name");
    return parser->next++;
}

static void enter(struct parser *parser) {
    if (++parser->depth > PARSE_DEPTH_MAX) refuse(parser, "nested more than %d deep", PARSE_DEPTH_MAX);
}

/* --- nodes --- */

/* A node of the next token's line. */
static struct jinja_node *make_node(struct parser *parser, enum jinja_node_kind kind, struct jinja_node *a,
                                    struct jinja_node *b) {
    struct jinja_node *node = jinja_keep(&parser->parsing, 1, sizeof *node);
    node->kind = kind;
    node->line = parser->next->line;
    node->a = a;
    node->b = b;
    return node;
}

/* The same with a token's text. */
static struct jinja_node *make_named(struct parser *parser, enum jinja_node_kind kind, const struct jinja_token *name,
                                     struct jinja_node *a, struct jinja_node *b) {
    struct jinja_node *node = make_node(parser, kind, a, b);
    node->text = name->text;
    node->bytes = name->bytes;
    return node;
}

static struct jinja_node *make_constant(struct parser *parser, struct jinja_value value) {
    struct jinja_node *node = make_node(parser, JINJA_NODE_CONSTANT, NULL, NULL);
    node->constant = value;
    return node;
}

/* The array with space for one more: it is full at powers of two, and when it is empty. */
static void *grow(struct parser *parser, void *items, size_t count, size_t size) {
    if (count & (count - 1)) return items;
    void *bigger = jinja_keep(&parser->parsing, count > 0 ? 2 * count : 1, size);
    if (count > 0) memcpy(bigger, items, count * size);
    return bigger;
}

static void add_item(struct parser *parser, struct jinja_node *node, struct jinja_node *item) {
    node->items = grow(parser, node->items, node->item_count, sizeof *node->items);
    node->items[node->item_count++] = item;
}

static void add_keyword(struct parser *parser, struct jinja_node *node, const struct jinja_token *name,
                        struct jinja_node *value) {
    node->keywords = grow(parser, node->keywords, node->keyword_count, sizeof *node->keywords);
    node->keywords[node->keyword_count++] = (struct jinja_keyword){name->text, name->bytes, value};
}

/* --- expressions, from the loosest to the tightest binding --- */

/* Whether the next token is one of these operators, given with blanks between them. */
static bool next_is_any(const struct parser *parser, const char *operators) {
    char text[8] = " ";
    const struct jinja_token *token = parser->next;
    if (token->kind != OPERATOR || token->bytes > 2) return false;
    memcpy(text + 1, token->text, token->bytes);
    text[1 + token->bytes] = ' ';
    return strstr(operators, text) != NULL;
}

/* Left-associative operators by how tightly they bind. */
static const char *const binary_operators[] = {" + - ", " ~ ", " * / // % ", " ** "};
enum { BINARY_LEVELS = sizeof binary_operators / sizeof *binary_operators };

static struct jinja_node *parse_binary(struct parser *parser, int level) {
    if (level == BINARY_LEVELS) return parse_unary(parser, true);
    struct jinja_node *left = parse_binary(parser, level + 1);
    while (next_is_any(parser, binary_operators[level])) {
        const struct jinja_token *sign = parser->next++;
        struct jinja_node *right = parse_binary(parser, level + 1);
        left = make_named(parser, JINJA_NODE_BINARY, sign, left, right);
    }
    return left;
}

/* Passes a comparison's operator; false when there is none. */
static bool take_comparison(struct parser *parser, struct jinja_token *sign) {
    const struct jinja_token *token = parser->next;
    *sign = *token;
    if (next_is_any(parser, " == != < <= > >= ") || next_is(parser, NAME, "in")) {
        parser->next++;
        return true;
    }
    if (!next_is(parser, NAME, "not") || !token_is(token + 1, NAME, "in")) return false;
    sign->text = "not in";
    sign->bytes = strlen("not in");
    parser->next += 2;
    return true;
}

static struct jinja_node *parse_comparison(struct parser *parser) {
    struct jinja_node *node = NULL, *first = parse_binary(parser, 0);
    struct jinja_token sign;
    while (take_comparison(parser, &sign)) {
        if (!node) node = make_node(parser, JINJA_NODE_COMPARE, first, NULL);
        struct jinja_node *operand = parse_binary(parser, 0);
        add_item(parser, node, make_named(parser, JINJA_NODE_BINARY, &sign, NULL, operand));
    }
    return node ? node : first;
}

static struct jinja_node *parse_not(struct parser *parser) {
    int count = 0;
    while (skip(parser, NAME, "not"))
        count++;
    struct jinja_node *node = parse_comparison(parser);
    for (int i = 0; i < (count > 2 ? 2 - count % 2 : count); i++)
        node = make_node(parser, JINJA_NODE_NOT, node, NULL);
    return node;
}

static struct jinja_node *parse_and(struct parser *parser) {
    struct jinja_node *left = parse_not(parser);
    while (skip(parser, NAME, "and")) {
        struct jinja_node *right = parse_not(parser);
        left = make_node(parser, JINJA_NODE_AND, left, right);
    }
    return left;
}

static struct jinja_node *parse_or(struct parser *parser) {
    struct jinja_node *left = parse_and(parser);
    while (skip(parser, NAME, "or")) {
        struct jinja_node *right = parse_and(parser);
        left = make_node(parser, JINJA_NODE_OR, left, right);
    }
    return left;
}

static struct jinja_node *parse_expression(struct parser *parser) {
    enter(parser);
    struct jinja_node *node = parse_or(parser);
    while (skip(parser, NAME, "if")) {
        struct jinja_node *condition = parse_or(parser);
        struct jinja_node *otherwise = skip(parser, NAME, "else") ? parse_expression(parser) : NULL;
        node = make_node(parser, JINJA_NODE_CONDITIONAL, node, condition);
        node->c = otherwise;
    }
    parser->depth--;
    return node;
}

static bool ends_tuple(const struct parser *parser) {
    return next_is(parser, JINJA_TOKEN_STATEMENT_END, NULL) || next_is(parser, JINJA_TOKEN_OUTPUT_END, NULL) ||
           next_is(parser, OPERATOR, ")") || next_is(parser, OPERATOR, "=");
}

/* Expressions with commas between them are a tuple. `conditional`: they may have an if of their own. */
static struct jinja_node *parse_tuple(struct parser *parser, bool conditional) {
    struct jinja_node *(*parse)(struct parser * parser) = conditional ? parse_expression : parse_or;
    struct jinja_node *first = parse(parser);
    if (!next_is(parser, OPERATOR, ",")) return first;
    struct jinja_node *tuple = make_node(parser, JINJA_NODE_TUPLE, NULL, NULL);
    add_item(parser, tuple, first);
    while (skip(parser, OPERATOR, ",") && !ends_tuple(parser))
        add_item(parser, tuple, parse(parser));
    return tuple;
}

/* Behind "(". */
static struct jinja_node *parse_parentheses(struct parser *parser) {
    if (skip(parser, OPERATOR, ")")) return make_node(parser, JINJA_NODE_TUPLE, NULL, NULL);
    struct jinja_node *node = parse_tuple(parser, true);
    expect(parser, OPERATOR, ")");
    return node;
}

/* Passes the `end` of a list, or the comma before its next item; whether there is one. */
static bool next_item(struct parser *parser, const char *end, bool first) {
    if (skip(parser, OPERATOR, end)) return false;
    if (first) return true;
    expect(parser, OPERATOR, ",");
    return !skip(parser, OPERATOR, end);
}

/* At "[" or "{", up to its end; dicts have their keys and values in turn. */
static struct jinja_node *parse_items(struct parser *parser, bool dict) {
    struct jinja_node *node = make_node(parser, dict ? JINJA_NODE_DICT : JINJA_NODE_LIST, NULL, NULL);
    parser->next++;
    while (next_item(parser, dict ? "}" : "]", node->item_count == 0)) {
        add_item(parser, node, parse_expression(parser));
        if (!dict) continue;
        expect(parser, OPERATOR, ":");
        add_item(parser, node, parse_expression(parser));
    }
    return node;
}

static struct jinja_node *parse_name(struct parser *parser) {
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
            return make_constant(parser, constants[i].value);
    parser->template->uses_time |= jinja_text_is(token->text, token->bytes, "strftime_now");
    return make_named(parser, JINJA_NODE_NAME, token, NULL, NULL);
}

/* String literals that follow each other are one. */
static struct jinja_node *parse_string(struct parser *parser) {
    const struct jinja_token *first = parser->next;
    size_t bytes = 0, used = 0;
    for (; parser->next->kind == JINJA_TOKEN_STRING; parser->next++)
        bytes += parser->next->bytes;
    char *text = jinja_keep(&parser->parsing, bytes + 1, 1);
    for (const struct jinja_token *token = first; token < parser->next; token++) {
        memcpy(text + used, token->text, token->bytes);
        used += token->bytes;
    }
    return make_constant(parser, jinja_string(text, bytes));
}

static struct jinja_node *parse_primary(struct parser *parser) {
    switch (parser->next->kind) {
    case JINJA_TOKEN_NAME: return parse_name(parser);
    case JINJA_TOKEN_STRING: return parse_string(parser);
    case JINJA_TOKEN_INTEGER: return make_constant(parser, jinja_integer(parser->next++->integer));
    case JINJA_TOKEN_FLOAT: return make_constant(parser, jinja_float(parser->next++->number));
    default: break;
    }
    if (skip(parser, OPERATOR, "(")) return parse_parentheses(parser);
    bool list = next_is(parser, OPERATOR, "[");
    if (!list && !next_is(parser, OPERATOR, "{")) refuse_next(parser, "a value");
    return parse_items(parser, !list);
}

/* Behind "(". */
static void parse_arguments(struct parser *parser, struct jinja_node *node) {
    while (next_item(parser, ")", node->item_count + node->keyword_count == 0)) {
        const struct jinja_token *name = parser->next;
        if (next_is_any(parser, " * ** ")) refuse(parser, "a call with * is not supported");
        if (name->kind == NAME && token_is(name + 1, OPERATOR, "=")) {
            parser->next += 2;
            add_keyword(parser, node, name, parse_expression(parser));
        } else {
            if (node->keyword_count > 0) refuse_next(parser, "a keyword argument");
            add_item(parser, node, parse_expression(parser));
        }
    }
}

/* Behind "[": an index or a slice. */
static struct jinja_node *parse_subscript(struct parser *parser, struct jinja_node *object) {
    struct jinja_node *bounds[3] = {NULL};
    int colons = 0;
    for (int i = 0; i < 3 && !next_is(parser, OPERATOR, "]"); i++) {
        if (!next_is(parser, OPERATOR, ":")) bounds[i] = parse_expression(parser);
        if (i == 2 || !skip(parser, OPERATOR, ":")) break;
        colons++;
    }
    expect(parser, OPERATOR, "]");
    if (colons == 0 && !bounds[0]) refuse(parser, "an index is missing");
    struct jinja_node *node = make_node(parser, colons > 0 ? JINJA_NODE_SLICE : JINJA_NODE_ITEM, object, bounds[0]);
    node->c = bounds[1];
    node->d = bounds[2];
    return node;
}

/* Behind ".": a name, or an index. */
static struct jinja_node *parse_attribute(struct parser *parser, struct jinja_node *object) {
    if (parser->next->kind != JINJA_TOKEN_INTEGER)
        return make_named(parser, JINJA_NODE_ATTRIBUTE, expect_name(parser), object, NULL);
    struct jinja_node *index = make_constant(parser, jinja_integer(parser->next++->integer));
    return make_node(parser, JINJA_NODE_ITEM, object, index);
}

/* Behind "(". */
static struct jinja_node *parse_call(struct parser *parser, struct jinja_node *callee) {
    struct jinja_node *node = make_node(parser, JINJA_NODE_CALL, callee, NULL);
    parse_arguments(parser, node);
    return node;
}

/* Behind "|". */
static struct jinja_node *parse_filter(struct parser *parser, struct jinja_node *value) {
    struct jinja_node *node = make_named(parser, JINJA_NODE_FILTER, expect_name(parser), value, NULL);
    node->callable = jinja_find(jinja_filters, JINJA_UNDEFINED, node->text, node->bytes);
    if (!node->callable) refuse(parser, "the filter '%.*s' is not supported", (int)node->bytes, node->text);
    if (skip(parser, OPERATOR, "(")) parse_arguments(parser, node);
    return node;
}

/* Chains like a.b.c are nested nodes too, and count as such. */
static void count_link(struct parser *parser, int *links) {
    if (++*links > PARSE_DEPTH_MAX)
        refuse(parser, "more than %d calls, filters and attributes in a row", PARSE_DEPTH_MAX);
}

/* The filters that follow, over `value` (NULL: what they are later applied to). */
static struct jinja_node *parse_filters(struct parser *parser, struct jinja_node *value) {
    for (int links = 0; skip(parser, OPERATOR, "|"); count_link(parser, &links))
        value = parse_filter(parser, value);
    return value;
}

static struct jinja_node *parse_postfix(struct parser *parser, struct jinja_node *value) {
    for (int links = 0;; count_link(parser, &links)) {
        if (skip(parser, OPERATOR, "."))
            value = parse_attribute(parser, value);
        else if (skip(parser, OPERATOR, "["))
            value = parse_subscript(parser, value);
        else if (skip(parser, OPERATOR, "("))
            value = parse_call(parser, value);
        else
            return value;
    }
}

/* Whether a test's only argument begins here, without parentheses. */
static bool argument_follows(const struct parser *parser) {
    static const char *const keywords[] = {"else", "or", "and", "is", "if", "in", "not"};
    enum jinja_token_kind kind = parser->next->kind;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (next_is(parser, NAME, keywords[i])) return false;
    return kind == NAME || kind == JINJA_TOKEN_STRING || kind == JINJA_TOKEN_INTEGER || kind == JINJA_TOKEN_FLOAT ||
           next_is(parser, OPERATOR, "[") || next_is(parser, OPERATOR, "{");
}

/* Behind "is". */
static struct jinja_node *parse_test(struct parser *parser, struct jinja_node *value) {
    bool negated = skip(parser, NAME, "not");
    struct jinja_node *node = make_named(parser, JINJA_NODE_TEST, expect_name(parser), value, NULL);
    node->callable = jinja_find(jinja_tests, JINJA_UNDEFINED, node->text, node->bytes);
    if (!node->callable) refuse(parser, "the test '%.*s' is not supported", (int)node->bytes, node->text);
    if (skip(parser, OPERATOR, "("))
        parse_arguments(parser, node);
    else if (argument_follows(parser))
        add_item(parser, node, parse_postfix(parser, parse_primary(parser)));
    if (node->keyword_count > 0 || node->item_count != node->callable->max)
        refuse(parser, "the test '%s' takes %zu arguments", node->callable->name, node->callable->max);
    return negated ? make_node(parser, JINJA_NODE_NOT, node, NULL) : node;
}

static struct jinja_node *parse_filters_and_tests(struct parser *parser, struct jinja_node *value) {
    for (int links = 0;; count_link(parser, &links)) {
        if (skip(parser, OPERATOR, "|"))
            value = parse_filter(parser, value);
        else if (skip(parser, NAME, "is"))
            value = parse_test(parser, value);
        else if (skip(parser, OPERATOR, "("))
            value = parse_call(parser, value);
        else
            return value;
    }
}

static struct jinja_node *parse_unary(struct parser *parser, bool with_filters) {
    enter(parser);
    const struct jinja_token *token = parser->next;
    struct jinja_node *node;
    if (next_is_any(parser, " + - ")) {
        parser->next++;
        node = parse_unary(parser, false);
        node = make_named(parser, JINJA_NODE_UNARY, token, node, NULL);
    } else {
        node = parse_primary(parser);
    }
    node = parse_postfix(parser, node);
    if (with_filters) node = parse_filters_and_tests(parser, node);
    parser->depth--;
    return node;
}

/* --- statements --- */

#define ENDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct jinja_node *parse_one_target(struct parser *parser, bool fields) {
    const struct jinja_token *name = expect_name(parser);
    struct jinja_node *node = make_named(parser, JINJA_NODE_NAME, name, NULL, NULL);
    return fields && skip(parser, OPERATOR, ".") ? parse_attribute(parser, node) : node;
}

/* A name, a namespace's field (when `fields`), or a tuple of names. */
static struct jinja_node *parse_target(struct parser *parser, bool fields) {
    bool parentheses = skip(parser, OPERATOR, "(");
    struct jinja_node *target = parse_one_target(parser, fields && !parentheses);
    if (parentheses || next_is(parser, OPERATOR, ",")) {
        struct jinja_node *tuple = make_node(parser, JINJA_NODE_TUPLE, NULL, NULL);
        add_item(parser, tuple, target);
        while (skip(parser, OPERATOR, ",") && parser->next->kind == NAME && !next_is(parser, NAME, "in"))
            add_item(parser, tuple, parse_one_target(parser, false));
        target = tuple;
    }
    if (parentheses) expect(parser, OPERATOR, ")");
    return target;
}

static void end_tag(struct parser *parser) { expect(parser, JINJA_TOKEN_STATEMENT_END, NULL); }

/* Passes "word %}", of which only the tag's begin was passed. */
static void pass_end(struct parser *parser, const char *word) {
    expect(parser, NAME, word);
    end_tag(parser);
}

/* Behind "else", where that comes next: its body up to `end`. */
static struct jinja_node *parse_else(struct parser *parser, const char *end) {
    if (!skip(parser, NAME, "else")) return NULL;
    end_tag(parser);
    return parse_body(parser, ENDS(end));
}

static void parse_if(struct parser *parser, struct jinja_node *node) {
    for (struct jinja_node *last = node;;) {
        last->a = parse_tuple(parser, false);
        end_tag(parser);
        last->b = parse_body(parser, ENDS("elif", "else", "endif"));
        if (!skip(parser, NAME, "elif")) {
            last->c = parse_else(parser, "endif");
            break;
        }
        last = last->c = make_node(parser, JINJA_NODE_IF, NULL, NULL);
    }
    pass_end(parser, "endif");
}

static void parse_for(struct parser *parser, struct jinja_node *node) {
    node->a = parse_target(parser, false);
    expect(parser, NAME, "in");
    node->b = parse_tuple(parser, false);
    if (skip(parser, NAME, "if")) node->c = parse_expression(parser);
    if (next_is(parser, NAME, "recursive")) refuse(parser, "recursive loops are not supported");
    end_tag(parser);
    parser->loops++;
    node->d = parse_body(parser, ENDS("else", "endfor"));
    parser->loops--;
    node->e = parse_else(parser, "endfor");
    pass_end(parser, "endfor");
}

static void parse_set(struct parser *parser, struct jinja_node *node) {
    node->a = parse_target(parser, true);
    if (skip(parser, OPERATOR, "=")) {
        node->b = parse_tuple(parser, true);
        end_tag(parser);
        return;
    }
    if (node->a->kind == JINJA_NODE_TUPLE) refuse_next(parser, "'='");
    node->kind = JINJA_NODE_SET_BODY;
    node->c = parse_filters(parser, NULL);
    end_tag(parser);
    node->b = parse_body(parser, ENDS("endset"));
    pass_end(parser, "endset");
}

/* A body of its own in Jinja: break and continue do not reach out of it. */
static void parse_own_body(struct parser *parser, struct jinja_node *node, const char *end) {
    int loops = parser->loops;
    end_tag(parser);
    parser->loops = 0;
    node->a = parse_body(parser, ENDS(end));
    parser->loops = loops;
    pass_end(parser, end);
}

static void parse_macro(struct parser *parser, struct jinja_node *node) {
    const struct jinja_token *name = expect_name(parser);
    node->text = name->text;
    node->bytes = name->bytes;
    expect(parser, OPERATOR, "(");
    while (next_item(parser, ")", node->keyword_count == 0)) {
        struct jinja_node *fallback = NULL;
        name = expect_name(parser);
        if (skip(parser, OPERATOR, "="))
            fallback = parse_expression(parser);
        else if (node->keyword_count > 0 && node->keywords[node->keyword_count - 1].value)
            refuse(parser, "a parameter without a default after one that has it");
        add_keyword(parser, node, name, fallback);
    }
    parse_own_body(parser, node, "endmacro");
}

static void parse_generation(struct parser *parser, struct jinja_node *node) {
    parser->template->generates = true;
    parse_own_body(parser, node, "endgeneration");
}

static void parse_flow(struct parser *parser, struct jinja_node *node) {
    (void)node;
    if (parser->loops == 0) refuse(parser, "break and continue belong within a for");
    end_tag(parser);
}

static const struct {
    const char *word;
    enum jinja_node_kind kind;
    void (*parse)(struct parser *parser, struct jinja_node *node); /* behind the word */
} statements[] = {
    {"if", JINJA_NODE_IF, parse_if},
    {"for", JINJA_NODE_FOR, parse_for},
    {"set", JINJA_NODE_SET, parse_set},
    {"macro", JINJA_NODE_MACRO, parse_macro},
    {"generation", JINJA_NODE_GENERATION, parse_generation},
    {"break", JINJA_NODE_BREAK, parse_flow},
    {"continue", JINJA_NODE_CONTINUE, parse_flow},
};

/* Behind the begin of a tag. */
static struct jinja_node *parse_statement(struct parser *parser) {
    const struct jinja_token *word = parser->next;
    if (word->kind != NAME) refuse_next(parser, "a statement");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!jinja_text_is(word->text, word->bytes, statements[i].word)) continue;
        struct jinja_node *node = make_node(parser, statements[i].kind, NULL, NULL);
        parser->next++;
        statements[i].parse(parser, node);
        return node;
    }
    refuse(parser, "the statement '%.*s' is not supported, or is not expected here", shown_bytes(word), word->text);
}

static struct jinja_node *parse_piece(struct parser *parser) {
    const struct jinja_token *token = parser->next;
    if (skip(parser, JINJA_TOKEN_DATA, NULL)) return make_named(parser, JINJA_NODE_TEXT, token, NULL, NULL);
    parser->next++;
    if (token->kind != JINJA_TOKEN_OUTPUT_BEGIN) return parse_statement(parser);
    struct jinja_node *node = make_node(parser, JINJA_NODE_OUTPUT, NULL, NULL);
    node->a = parse_tuple(parser, true);
    expect(parser, JINJA_TOKEN_OUTPUT_END, NULL);
    return node;
}

static bool at_end(const struct parser *parser, const char *const *ends) {
    if (parser->next->kind != JINJA_TOKEN_STATEMENT_BEGIN) return false;
    for (; *ends; ends++)
        if (token_is(parser->next + 1, NAME, *ends)) return true;
    return false;
}

/* Up to a tag that begins with one of the words, whose begin is passed; NULL: to the template's end. */
static struct jinja_node *parse_body(struct parser *parser, const char *const *ends) {
    enter(parser);
    struct jinja_node *block = make_node(parser, JINJA_NODE_BLOCK, NULL, NULL);
    while (!ends || !at_end(parser, ends)) {
        if (parser->next->kind == JINJA_TOKEN_END) {
            if (!ends) break;
            refuse(parser, "the template ends before '%s'", ends[0]);
        }
        add_item(parser, block, parse_piece(parser));
    }
    if (ends) parser->next++;
    parser->depth--;
    return block;
}

/* --- templates --- */

static void keep_words(struct parser *parser, const struct jinja_tokens *tokens) {
    json_t *words = parser->template->words = json_object();
    int failed = !words;
    for (size_t i = 0; i < tokens->count && !failed; i++) {
        const struct jinja_token *token = &tokens->items[i];
        bool word = token->kind == NAME || token->kind == JINJA_TOKEN_STRING;
        if (word) failed = json_object_setn_new_nocheck(words, token->text, token->bytes, json_true());
    }
    jinja_check(&parser->parsing, failed ? status_no_memory(0, "a template's words") : STATUS_OK);
}

/* Where the parsing comes back when it fails. What `parser` and `tokens` point to is the caller's and stays valid. */
static enum status parse_template(struct parser *parser, const char *text, size_t bytes, struct jinja_tokens *tokens) {
    if (setjmp(parser->parsing.failed)) return parser->parsing.status;
    jinja_tokenize(&parser->parsing, text, bytes, tokens);
    keep_words(parser, tokens);
    parser->next = tokens->items;
    parser->template->body = parse_body(parser, NULL);
    return STATUS_OK;
}

static enum status check_text(const char *name, const char *text, size_t bytes) {
    if (bytes > TEMPLATE_BYTES_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: %zu bytes are more than a template may have (%d)", name, bytes,
                          TEMPLATE_BYTES_MAX);
    if (bytes > 0 && utf8_valid_bytes(text, bytes) != bytes)
        return status_set(STATUS_BAD_INPUT, "%s: is not UTF-8", name);
    if (bytes > 0 && memchr(text, '\0', bytes)) return status_set(STATUS_BAD_INPUT, "%s: has a NUL character", name);
    return STATUS_OK;
}

enum status jinja_parse(const char *name, const char *text, size_t bytes, struct jinja_template **out) {
    TRY(check_text(name, text, bytes));
    struct jinja_template *template = mem_array(1, sizeof *template);
    if (!template) return STATUS_FAILED;
    struct jinja_tokens tokens = {0};
    struct parser parser = {.parsing = {.name = name, .memory = &template->memory}, .template = template};
    template->name = mem_string(name);
    enum status status = template->name ? parse_template(&parser, text, bytes, &tokens) : STATUS_FAILED;
    vec_free(&tokens);
    if (status == STATUS_OK)
        *out = template;
    else
        jinja_free(template);
    return status;
}

void jinja_free(struct jinja_template *template) {
    if (!template) return;
    scratch_free(&template->memory);
    json_decref(template->words);
    mem_free(template->name);
    mem_free(template);
}

bool jinja_has_generation(const struct jinja_template *template) { return template->generates; }

bool jinja_names(const struct jinja_template *template, const char *word) {
    return json_object_get(template->words, word) != NULL;
}

bool jinja_uses_time(const struct jinja_template *template) { return template->uses_time; }
