/* Statements, and the public calls. */
#include <stdarg.h>

#include "text/template/jinja.h"
#include "text/template/parse.h"

enum { TEMPLATE_BYTES_MAX = 1 << 22 };

static enum status parse_body(struct jinja_parser *parser, const char *const *ends, struct jinja_node **out);

bool jinja_text_is(const char *text, size_t bytes, const char *word) {
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

enum status jinja_parse_refuse(const struct jinja_parser *parser, const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return jinja_refuse(parser->template->name, parser->next->line, "%s", text);
}

enum status jinja_parse_unexpected(const struct jinja_parser *parser, const char *expected) {
    const struct jinja_token *token = parser->next;
    switch (token->kind) {
    case JINJA_TOKEN_NAME:
    case JINJA_TOKEN_OPERATOR:
        return jinja_parse_refuse(parser, "unexpected '%.*s', expected %s",
                                  (int)(token->bytes < 40 ? token->bytes : 40), token->text, expected);
    case JINJA_TOKEN_STRING: return jinja_parse_refuse(parser, "unexpected string, expected %s", expected);
    case JINJA_TOKEN_INTEGER:
    case JINJA_TOKEN_FLOAT: return jinja_parse_refuse(parser, "unexpected number, expected %s", expected);
    case JINJA_TOKEN_END: return jinja_parse_refuse(parser, "the template ends, expected %s", expected);
    default: return jinja_parse_refuse(parser, "the tag ends or begins, expected %s", expected);
    }
}

bool jinja_next_is(const struct jinja_parser *parser, enum jinja_token_kind kind, const char *text) {
    const struct jinja_token *token = parser->next;
    return token->kind == kind && (!text || jinja_text_is(token->text, token->bytes, text));
}

bool jinja_skip(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text) {
    if (!jinja_next_is(parser, kind, text)) return false;
    parser->next++;
    return true;
}

enum status jinja_expect(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text) {
    char expected[64];
    if (jinja_skip(parser, kind, text)) return STATUS_OK;
    snprintf(expected, sizeof expected, text ? "'%s'" : "%s",
             text                                ? text
             : kind == JINJA_TOKEN_STATEMENT_END ? "the end of the tag"
                                                 : "the end of the output");
    return jinja_parse_unexpected(parser, expected);
}

enum status jinja_expect_name(struct jinja_parser *parser, const struct jinja_token **out) {
    if (parser->next->kind != JINJA_TOKEN_NAME) return jinja_parse_unexpected(parser, "a name");
    *out = parser->next++;
    return STATUS_OK;
}

enum status jinja_make_node(struct jinja_parser *parser, enum jinja_node_kind kind, struct jinja_node **out) {
    struct jinja_node *node = scratch_alloc(&parser->template->memory, 1, sizeof *node);
    if (!node) return STATUS_FAILED;
    node->kind = kind;
    node->line = parser->next->line;
    *out = node;
    return STATUS_OK;
}

/* Grows an array in the template's memory by one: to twice its size where it is full. */
static enum status grow(struct jinja_parser *parser, void **items, size_t count, size_t size) {
    if (count & (count - 1)) return STATUS_OK; /* full at powers of two, and when empty */
    void *bigger = scratch_alloc(&parser->template->memory, count > 0 ? 2 * count : 1, size);
    if (!bigger) return STATUS_FAILED;
    if (count > 0) memcpy(bigger, *items, count * size);
    *items = bigger;
    return STATUS_OK;
}

enum status jinja_add_item(struct jinja_parser *parser, struct jinja_node *node, struct jinja_node *item) {
    TRY(grow(parser, (void **)&node->items, node->item_count, sizeof *node->items));
    node->items[node->item_count++] = item;
    return STATUS_OK;
}

enum status jinja_add_keyword(struct jinja_parser *parser, struct jinja_node *node, const struct jinja_token *name,
                              struct jinja_node *value) {
    TRY(grow(parser, (void **)&node->keywords, node->keyword_count, sizeof *node->keywords));
    node->keywords[node->keyword_count++] = (struct jinja_keyword){name->text, name->bytes, value};
    return STATUS_OK;
}

#define ENDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static enum status end_tag(struct jinja_parser *parser) {
    return jinja_expect(parser, JINJA_TOKEN_STATEMENT_END, NULL);
}

/* Passes "word %}", of which only the tag's begin was passed. */
static enum status pass_end(struct jinja_parser *parser, const char *word) {
    TRY(jinja_expect(parser, JINJA_TOKEN_NAME, word));
    return end_tag(parser);
}

/* Behind "if" or "elif". */
static enum status parse_if(struct jinja_parser *parser, struct jinja_node *node) {
    TRY(jinja_parse_tuple(parser, false, &node->a));
    TRY(end_tag(parser));
    TRY(parse_body(parser, ENDS("elif", "else", "endif"), &node->b));
    struct jinja_node *last = node;
    while (jinja_skip(parser, JINJA_TOKEN_NAME, "elif")) {
        TRY(jinja_make_node(parser, JINJA_NODE_IF, &last->c));
        last = last->c;
        TRY(jinja_parse_tuple(parser, false, &last->a));
        TRY(end_tag(parser));
        TRY(parse_body(parser, ENDS("elif", "else", "endif"), &last->b));
    }
    if (jinja_skip(parser, JINJA_TOKEN_NAME, "else")) {
        TRY(end_tag(parser));
        TRY(parse_body(parser, ENDS("endif"), &last->c));
    }
    return pass_end(parser, "endif");
}

static enum status parse_for(struct jinja_parser *parser, struct jinja_node *node) {
    TRY(jinja_parse_target(parser, false, &node->a));
    TRY(jinja_expect(parser, JINJA_TOKEN_NAME, "in"));
    TRY(jinja_parse_tuple(parser, false, &node->b));
    if (jinja_skip(parser, JINJA_TOKEN_NAME, "if")) TRY(jinja_parse_expression(parser, &node->c));
    if (jinja_next_is(parser, JINJA_TOKEN_NAME, "recursive"))
        return jinja_parse_refuse(parser, "recursive loops are not supported");
    TRY(end_tag(parser));
    parser->loops++;
    TRY(parse_body(parser, ENDS("else", "endfor"), &node->d));
    parser->loops--;
    if (jinja_skip(parser, JINJA_TOKEN_NAME, "else")) {
        TRY(end_tag(parser));
        TRY(parse_body(parser, ENDS("endfor"), &node->e));
    }
    return pass_end(parser, "endfor");
}

static enum status parse_set(struct jinja_parser *parser, struct jinja_node *node) {
    TRY(jinja_parse_target(parser, true, &node->a));
    if (jinja_skip(parser, JINJA_TOKEN_OPERATOR, "=")) {
        TRY(jinja_parse_tuple(parser, true, &node->b));
        return end_tag(parser);
    }
    if (node->a->kind == JINJA_NODE_TUPLE) return jinja_parse_unexpected(parser, "'='");
    node->kind = JINJA_NODE_SET_BODY;
    TRY(jinja_parse_filters(parser, NULL, &node->c));
    TRY(end_tag(parser));
    TRY(parse_body(parser, ENDS("endset"), &node->b));
    return pass_end(parser, "endset");
}

static enum status parse_parameters(struct jinja_parser *parser, struct jinja_node *node) {
    const struct jinja_token *name;
    struct jinja_node *fallback;
    TRY(jinja_expect(parser, JINJA_TOKEN_OPERATOR, "("));
    while (!jinja_skip(parser, JINJA_TOKEN_OPERATOR, ")")) {
        if (node->keyword_count > 0) TRY(jinja_expect(parser, JINJA_TOKEN_OPERATOR, ","));
        if (node->keyword_count > 0 && jinja_skip(parser, JINJA_TOKEN_OPERATOR, ")")) break;
        TRY(jinja_expect_name(parser, &name));
        fallback = NULL;
        if (jinja_skip(parser, JINJA_TOKEN_OPERATOR, "="))
            TRY(jinja_parse_expression(parser, &fallback));
        else if (node->keyword_count > 0 && node->keywords[node->keyword_count - 1].value)
            return jinja_parse_refuse(parser, "a parameter without a default after one that has it");
        TRY(jinja_add_keyword(parser, node, name, fallback));
    }
    return STATUS_OK;
}

static enum status parse_macro(struct jinja_parser *parser, struct jinja_node *node) {
    const struct jinja_token *name;
    TRY(jinja_expect_name(parser, &name));
    node->text = name->text;
    node->bytes = name->bytes;
    TRY(parse_parameters(parser, node));
    TRY(end_tag(parser));
    int loops = parser->loops;
    parser->loops = 0;
    TRY(parse_body(parser, ENDS("endmacro"), &node->a));
    parser->loops = loops;
    return pass_end(parser, "endmacro");
}

static enum status parse_generation(struct jinja_parser *parser, struct jinja_node *node) {
    parser->template->generates = true;
    TRY(end_tag(parser));
    /* A body of its own in Jinja: break and continue do not reach out of it. */
    int loops = parser->loops;
    parser->loops = 0;
    TRY(parse_body(parser, ENDS("endgeneration"), &node->a));
    parser->loops = loops;
    return pass_end(parser, "endgeneration");
}

static enum status parse_flow(struct jinja_parser *parser, struct jinja_node *node) {
    (void)node;
    if (parser->loops == 0) return jinja_parse_refuse(parser, "break and continue belong within a for");
    return end_tag(parser);
}

static const struct {
    const char *word;
    enum jinja_node_kind kind;
    enum status (*parse)(struct jinja_parser *parser, struct jinja_node *node);
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
static enum status parse_statement(struct jinja_parser *parser, struct jinja_node **out) {
    const struct jinja_token *word = parser->next;
    if (word->kind != JINJA_TOKEN_NAME) return jinja_parse_unexpected(parser, "a statement");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!jinja_text_is(word->text, word->bytes, statements[i].word)) continue;
        TRY(jinja_make_node(parser, statements[i].kind, out));
        parser->next++;
        return statements[i].parse(parser, *out);
    }
    return jinja_parse_refuse(parser, "the statement '%.*s' is not supported, or is not expected here",
                              (int)(word->bytes < 40 ? word->bytes : 40), word->text);
}

static enum status parse_piece(struct jinja_parser *parser, struct jinja_node **out) {
    const struct jinja_token *token = parser->next;
    if (jinja_skip(parser, JINJA_TOKEN_DATA, NULL)) {
        TRY(jinja_make_node(parser, JINJA_NODE_TEXT, out));
        (*out)->text = token->text;
        (*out)->bytes = token->bytes;
        return STATUS_OK;
    }
    if (jinja_skip(parser, JINJA_TOKEN_OUTPUT_BEGIN, NULL)) {
        TRY(jinja_make_node(parser, JINJA_NODE_OUTPUT, out));
        TRY(jinja_parse_tuple(parser, true, &(*out)->a));
        return jinja_expect(parser, JINJA_TOKEN_OUTPUT_END, NULL);
    }
    parser->next++;
    return parse_statement(parser, out);
}

static bool at_end(const struct jinja_parser *parser, const char *const *ends) {
    if (parser->next->kind != JINJA_TOKEN_STATEMENT_BEGIN) return false;
    const struct jinja_token *word = parser->next + 1;
    for (; *ends; ends++)
        if (word->kind == JINJA_TOKEN_NAME && jinja_text_is(word->text, word->bytes, *ends)) return true;
    return false;
}

/* Up to a tag that begins with one of the words, whose begin is passed; NULL: to the template's end. */
static enum status parse_body(struct jinja_parser *parser, const char *const *ends, struct jinja_node **out) {
    if (++parser->depth > JINJA_PARSE_DEPTH_MAX)
        return jinja_parse_refuse(parser, "nested more than %d deep", JINJA_PARSE_DEPTH_MAX);
    struct jinja_node *block, *piece;
    TRY(jinja_make_node(parser, JINJA_NODE_BLOCK, &block));
    while (!ends || !at_end(parser, ends)) {
        if (parser->next->kind == JINJA_TOKEN_END) {
            if (!ends) break;
            return jinja_parse_refuse(parser, "the template ends before '%s'", ends[0]);
        }
        TRY(parse_piece(parser, &piece));
        TRY(jinja_add_item(parser, block, piece));
    }
    if (ends) parser->next++;
    parser->depth--;
    *out = block;
    return STATUS_OK;
}

static enum status keep_words(struct jinja_template *template, const struct jinja_tokens *tokens) {
    int failed = !(template->words = json_object());
    for (size_t i = 0; i < tokens->count && !failed; i++) {
        const struct jinja_token *token = &tokens->items[i];
        bool word = token->kind == JINJA_TOKEN_NAME || token->kind == JINJA_TOKEN_STRING;
        if (word) failed = json_object_setn_new_nocheck(template->words, token->text, token->bytes, json_true());
    }
    return failed ? status_no_memory(0, "a template's words") : STATUS_OK;
}

static enum status parse_template(struct jinja_template *template, const char *text, size_t bytes) {
    if (bytes > TEMPLATE_BYTES_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: %zu bytes are more than a template may have (%d)", template->name,
                          bytes, TEMPLATE_BYTES_MAX);
    struct jinja_tokens tokens = {0};
    enum status status = jinja_tokenize(template->name, text, bytes, &template->memory, &tokens);
    if (status == STATUS_OK) status = keep_words(template, &tokens);
    struct jinja_parser parser = {.template = template, .next = tokens.items};
    if (status == STATUS_OK) status = parse_body(&parser, NULL, &template->body);
    vec_free(&tokens);
    return status;
}

enum status jinja_parse(const char *name, const char *text, size_t bytes, struct jinja_template **out) {
    struct jinja_template *template = mem_array(1, sizeof *template);
    if (!template) return STATUS_FAILED;
    template->name = mem_string(name);
    enum status status = template->name ? parse_template(template, text, bytes) : STATUS_FAILED;
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
