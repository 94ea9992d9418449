/* Templates as tokens and as trees. Private to this directory. */
#pragma once

#include <jansson.h>
#include <setjmp.h>

#include "base/base.h"
#include "text/template/render.h"

/* --- tokens --- */

enum jinja_token_kind {
    JINJA_TOKEN_DATA,            /* text between tags, white space control applied */
    JINJA_TOKEN_STATEMENT_BEGIN, /* {% */
    JINJA_TOKEN_STATEMENT_END,
    JINJA_TOKEN_OUTPUT_BEGIN, /* {{ */
    JINJA_TOKEN_OUTPUT_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_STRING, /* text: its value */
    JINJA_TOKEN_INTEGER,
    JINJA_TOKEN_FLOAT,
    JINJA_TOKEN_OPERATOR,
    JINJA_TOKEN_END,
};

struct jinja_token {
    enum jinja_token_kind kind;
    int line;
    struct jinja_value value; /* a number, or a string: data, name, string, operator */
};

/* A VEC; the last is JINJA_TOKEN_END. */
struct jinja_tokens {
    struct jinja_token *items;
    size_t count, capacity;
};

/* --- trees --- */

enum jinja_node_kind {
    /* statements */
    JINJA_NODE_BLOCK,      /* items */
    JINJA_NODE_TEXT,       /* text */
    JINJA_NODE_OUTPUT,     /* a */
    JINJA_NODE_IF,         /* a: condition, b: then, c: else or NULL */
    JINJA_NODE_FOR,        /* a: target, b: what it goes over, c: filter or NULL, d: body, e: else or NULL */
    JINJA_NODE_SET,        /* a: target, b: value */
    JINJA_NODE_SET_BODY,   /* a: target, b: body, items: filters (their a is NULL) */
    JINJA_NODE_MACRO,      /* text: name; keywords: parameters with their defaults or NULL; a: body */
    JINJA_NODE_GENERATION, /* a: body */
    JINJA_NODE_BREAK,
    JINJA_NODE_CONTINUE,
    /* expressions */
    JINJA_NODE_CONSTANT,    /* text */
    JINJA_NODE_NAME,        /* text */
    JINJA_NODE_ATTRIBUTE,   /* a.text */
    JINJA_NODE_ITEM,        /* a[b] */
    JINJA_NODE_SLICE,       /* a[b:c:d], each of b, c, d may be NULL */
    JINJA_NODE_CALL,        /* a(items, keywords) */
    JINJA_NODE_FILTER,      /* a|text(items, keywords) */
    JINJA_NODE_TEST,        /* a is text(items) */
    JINJA_NODE_LIST,        /* items */
    JINJA_NODE_TUPLE,       /* items */
    JINJA_NODE_DICT,        /* items: key, value, key, value, … */
    JINJA_NODE_NOT,         /* a */
    JINJA_NODE_AND,         /* a, b */
    JINJA_NODE_OR,          /* a, b */
    JINJA_NODE_UNARY,       /* text, a */
    JINJA_NODE_BINARY,      /* a, text, b */
    JINJA_NODE_COMPARE,     /* a, then items: nodes of kind BINARY with text and b */
    JINJA_NODE_CONDITIONAL, /* a: value, b: condition, c: value else or NULL */
};

struct jinja_keyword {
    struct jinja_value name;
    struct jinja_node *value;
};

struct jinja_node {
    enum jinja_node_kind kind;
    int line;
    struct jinja_node *a, *b, *c, *d, *e;
    struct jinja_value text; /* a string; of CONSTANT any value */
    struct jinja_node **items;
    size_t item_count;
    struct jinja_keyword *keywords;
    size_t keyword_count;
    const struct jinja_callable *callable; /* of FILTER and TEST */
};

struct jinja_template {
    char *name;
    struct scratch memory;
    struct jinja_node *body;
    bool generates; /* has generation blocks */
    bool uses_time; /* calls strftime_now */
    json_t *words;  /* an object whose keys are the template's names and string literals */
};

/* --- parsing --- */

struct jinja_parser {
    const char *name; /* of the template */
    struct jinja_template *template;
    int line;                       /* of the next token */
    const struct jinja_token *next; /* the token that is read next; the last is never passed */
    int depth;
    int loops; /* that the present statement is in, within its macro */
    jmp_buf failed;
    enum status status; /* why it ended there */
};
/* Ends the parsing with BAD_INPUT "NAME: line N: …". */
_Noreturn void jinja_refuse(struct jinja_parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the parsing where the status is not OK. */
void jinja_check(struct jinja_parser *parser, enum status status);
/* Zeroed memory that stays as long as the template. */
void *jinja_keep(struct jinja_parser *parser, size_t count, size_t size);

/* Cuts a template into tokens as Jinja does with trim_blocks and lstrip_blocks. Their texts lie in the template's
 * memory or are constant. Fails where the text is malformed; the caller frees `out` in any case. */
void jinja_tokenize(struct jinja_parser *parser, const char *text, size_t bytes, struct jinja_tokens *out);

/* Shared by expressions (expression.c) and statements (parser.c). */

/* Passes the next token and returns it. */
const struct jinja_token *jinja_pass(struct jinja_parser *parser);
bool jinja_token_is(const struct jinja_token *token, enum jinja_token_kind kind, const char *text);
/* Whether the next token is this name or operator; skip passes it then, expect fails where it is another. */
bool jinja_next_is(const struct jinja_parser *parser, enum jinja_token_kind kind, const char *text);
bool jinja_skip(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text);
_Noreturn void jinja_refuse_next(struct jinja_parser *parser, const char *expected);
void jinja_expect(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text);
const struct jinja_token *jinja_expect_name(struct jinja_parser *parser);
void jinja_go_deeper(struct jinja_parser *parser);
/* A node of the next token's line. */
struct jinja_node *jinja_make_node(struct jinja_parser *parser, enum jinja_node_kind kind, struct jinja_node *a,
                                   struct jinja_node *b);
/* The same with a token's value. */
struct jinja_node *jinja_make_named(struct jinja_parser *parser, enum jinja_node_kind kind,
                                    const struct jinja_token *name, struct jinja_node *a, struct jinja_node *b);
void jinja_add_item(struct jinja_parser *parser, struct jinja_node *node, struct jinja_node *item);
void jinja_add_keyword(struct jinja_parser *parser, struct jinja_node *node, const struct jinja_token *name,
                       struct jinja_node *value);
struct jinja_node *jinja_parse_expression(struct jinja_parser *parser);
/* Expressions with commas between them are a tuple. `conditional`: they may have an if of their own. */
struct jinja_node *jinja_parse_tuple(struct jinja_parser *parser, bool conditional);
/* Passes the `end` of a list, or the comma before its next item; whether there is one. */
bool jinja_next_item(struct jinja_parser *parser, const char *end, bool first);
/* Behind ".": a name, or an index. */
struct jinja_node *jinja_parse_attribute(struct jinja_parser *parser, struct jinja_node *object);
/* The filters that follow, over `value` (NULL: what they are later applied to). */
struct jinja_node *jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *value);
