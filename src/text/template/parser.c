/* Statements to a tree, as in Jinja's grammar; and what is known of a template without rendering it. */
#include "text/template/jinja.h"
#include "text/template/parse.h"

enum { TEMPLATE_BYTES_MAX = 1 << 22 };

#define OPERATOR JINJA_TOKEN_OPERATOR
#define NAME JINJA_TOKEN_NAME

static struct jinja_node *parse_body(struct jinja_parser *parser, const char *const *ends);

/* --- statements --- */

#define ENDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct jinja_node *parse_one_target(struct jinja_parser *parser, bool fields) {
    const struct jinja_token *name = jinja_expect_name(parser);
    struct jinja_node *node = jinja_make_named(parser, JINJA_NODE_NAME, name, NULL, NULL);
    return fields && jinja_skip(parser, OPERATOR, ".") ? jinja_parse_attribute(parser, node) : node;
}

/* A name, a namespace's field (when `fields`), or a tuple of names. */
static struct jinja_node *parse_target(struct jinja_parser *parser, bool fields) {
    bool parentheses = jinja_skip(parser, OPERATOR, "(");
    struct jinja_node *target = parse_one_target(parser, fields && !parentheses);
    if (parentheses || jinja_next_is(parser, OPERATOR, ",")) {
        struct jinja_node *tuple = jinja_make_node(parser, JINJA_NODE_TUPLE, NULL, NULL);
        jinja_add_item(parser, tuple, target);
        while (jinja_skip(parser, OPERATOR, ",") && parser->next->kind == NAME && !jinja_next_is(parser, NAME, "in"))
            jinja_add_item(parser, tuple, parse_one_target(parser, false));
        target = tuple;
    }
    if (parentheses) jinja_expect(parser, OPERATOR, ")");
    return target;
}

static void end_tag(struct jinja_parser *parser) { jinja_expect(parser, JINJA_TOKEN_STATEMENT_END, NULL); }

/* Passes "word %}"; only the tag's beginning was passed. */
static void pass_end(struct jinja_parser *parser, const char *word) {
    jinja_expect(parser, NAME, word);
    end_tag(parser);
}

/* Behind "else", where that comes next: its body up to `end`. */
static struct jinja_node *parse_else(struct jinja_parser *parser, const char *end) {
    if (!jinja_skip(parser, NAME, "else")) return NULL;
    end_tag(parser);
    return parse_body(parser, ENDS(end));
}

static void parse_if(struct jinja_parser *parser, struct jinja_node *node) {
    for (struct jinja_node *last = node;;) {
        last->a = jinja_parse_tuple(parser, false);
        end_tag(parser);
        last->b = parse_body(parser, ENDS("elif", "else", "endif"));
        if (!jinja_skip(parser, NAME, "elif")) {
            last->c = parse_else(parser, "endif");
            break;
        }
        last = last->c = jinja_make_node(parser, JINJA_NODE_IF, NULL, NULL);
    }
    pass_end(parser, "endif");
}

static void parse_for(struct jinja_parser *parser, struct jinja_node *node) {
    node->a = parse_target(parser, false);
    jinja_expect(parser, NAME, "in");
    node->b = jinja_parse_tuple(parser, false);
    if (jinja_skip(parser, NAME, "if")) node->c = jinja_parse_expression(parser);
    if (jinja_next_is(parser, NAME, "recursive")) jinja_refuse(parser, "recursive loops are not supported");
    end_tag(parser);
    parser->loops++;
    node->d = parse_body(parser, ENDS("else", "endfor"));
    parser->loops--;
    node->e = parse_else(parser, "endfor");
    pass_end(parser, "endfor");
}

static void parse_set(struct jinja_parser *parser, struct jinja_node *node) {
    node->a = parse_target(parser, true);
    if (jinja_skip(parser, OPERATOR, "=")) {
        node->b = jinja_parse_tuple(parser, true);
        end_tag(parser);
        return;
    }
    if (node->a->kind == JINJA_NODE_TUPLE) jinja_refuse_next(parser, "'='");
    node->kind = JINJA_NODE_SET_BODY;
    node->c = jinja_parse_filters(parser, NULL);
    end_tag(parser);
    node->b = parse_body(parser, ENDS("endset"));
    pass_end(parser, "endset");
}

/* A body of its own in Jinja: break and continue do not reach out of it. */
static void parse_own_body(struct jinja_parser *parser, struct jinja_node *node, const char *end) {
    int loops = parser->loops;
    end_tag(parser);
    parser->loops = 0;
    node->a = parse_body(parser, ENDS(end));
    parser->loops = loops;
    pass_end(parser, end);
}

static void parse_macro(struct jinja_parser *parser, struct jinja_node *node) {
    node->text = jinja_expect_name(parser)->value;
    jinja_expect(parser, OPERATOR, "(");
    while (jinja_next_item(parser, ")", node->keyword_count == 0)) {
        struct jinja_node *fallback = NULL;
        const struct jinja_token *name = jinja_expect_name(parser);
        if (jinja_skip(parser, OPERATOR, "="))
            fallback = jinja_parse_expression(parser);
        else if (node->keyword_count > 0 && node->keywords[node->keyword_count - 1].value)
            jinja_refuse(parser, "a parameter without a default after one that has it");
        jinja_add_keyword(parser, node, name, fallback);
    }
    parse_own_body(parser, node, "endmacro");
}

static void parse_generation(struct jinja_parser *parser, struct jinja_node *node) {
    parser->template->generates = true;
    parse_own_body(parser, node, "endgeneration");
}

static void parse_flow(struct jinja_parser *parser, struct jinja_node *node) {
    (void)node;
    if (parser->loops == 0) jinja_refuse(parser, "break and continue belong within a for");
    end_tag(parser);
}

static const struct {
    const char *word;
    enum jinja_node_kind kind;
    void (*parse)(struct jinja_parser *parser, struct jinja_node *node); /* behind the word */
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
static struct jinja_node *parse_statement(struct jinja_parser *parser) {
    const struct jinja_token *word = parser->next;
    if (word->kind != NAME) jinja_refuse_next(parser, "a statement");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!jinja_is_text(&word->value, statements[i].word)) continue;
        struct jinja_node *node = jinja_make_node(parser, statements[i].kind, NULL, NULL);
        jinja_pass(parser);
        statements[i].parse(parser, node);
        return node;
    }
    jinja_refuse(parser, "the statement '%.*s' is not supported, or is not expected here",
                 (int)(word->value.string.bytes < 40 ? word->value.string.bytes : 40), word->value.string.text);
}

static struct jinja_node *parse_piece(struct jinja_parser *parser) {
    const struct jinja_token *token = parser->next;
    if (jinja_skip(parser, JINJA_TOKEN_DATA, NULL)) return jinja_make_named(parser, JINJA_NODE_TEXT, token, NULL, NULL);
    jinja_pass(parser);
    if (token->kind != JINJA_TOKEN_OUTPUT_BEGIN) return parse_statement(parser);
    struct jinja_node *node = jinja_make_node(parser, JINJA_NODE_OUTPUT, NULL, NULL);
    node->a = jinja_parse_tuple(parser, true);
    jinja_expect(parser, JINJA_TOKEN_OUTPUT_END, NULL);
    return node;
}

static bool at_end(const struct jinja_parser *parser, const char *const *ends) {
    if (parser->next->kind != JINJA_TOKEN_STATEMENT_BEGIN) return false;
    for (; *ends; ends++)
        if (jinja_token_is(parser->next + 1, NAME, *ends)) return true;
    return false;
}

/* Up to a tag that begins with one of the words, whose begin is passed; NULL: to the template's end. */
static struct jinja_node *parse_body(struct jinja_parser *parser, const char *const *ends) {
    jinja_go_deeper(parser);
    struct jinja_node *block = jinja_make_node(parser, JINJA_NODE_BLOCK, NULL, NULL);
    while (!ends || !at_end(parser, ends)) {
        if (parser->next->kind == JINJA_TOKEN_END) {
            if (!ends) break;
            jinja_refuse(parser, "the template ends before '%s'", ends[0]);
        }
        jinja_add_item(parser, block, parse_piece(parser));
    }
    if (ends) jinja_pass(parser);
    parser->depth--;
    return block;
}

/* --- templates --- */

static void keep_words(struct jinja_parser *parser, const struct jinja_tokens *tokens) {
    json_t *words = parser->template->words = json_object();
    int failed = !words;
    for (size_t i = 0; i < tokens->count && !failed; i++) {
        const struct jinja_token *token = &tokens->items[i];
        bool word = token->kind == NAME || token->kind == JINJA_TOKEN_STRING;
        if (word)
            failed =
                json_object_setn_new_nocheck(words, token->value.string.text, token->value.string.bytes, json_true());
    }
    jinja_check(parser, failed ? status_no_memory(0, "a template's words") : STATUS_OK);
}

/* Parsing returns here when it fails. The caller owns the targets of `parser` and `tokens`, so they stay valid. */
static enum status parse_template(struct jinja_parser *parser, const char *text, size_t bytes,
                                  struct jinja_tokens *tokens) {
    if (setjmp(parser->failed)) return parser->status;
    jinja_tokenize(parser, text, bytes, tokens);
    keep_words(parser, tokens);
    parser->next = tokens->items;
    parser->line = parser->next->line;
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
    struct jinja_parser parser = {.name = name, .template = template};
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
