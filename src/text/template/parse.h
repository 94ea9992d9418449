/* Templates as tokens and as trees, and the parser's two halves, statements and expressions. Private to this directory.
 */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "text/template/value.h"

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
    const char *text; /* data, name, string, operator; not NUL-terminated */
    size_t bytes;
    int64_t integer;
    double number;
};

/* A VEC; the last is JINJA_TOKEN_END. */
struct jinja_tokens {
    struct jinja_token *items;
    size_t count, capacity;
};

/* Cuts a template of valid UTF-8 into tokens as Jinja does with trim_blocks and lstrip_blocks. Their texts lie in
 * `memory` or the template. BAD_INPUT with name and line when it is malformed; `out` is to be freed in any case. */
enum status jinja_tokenize(const char *name, const char *text, size_t bytes, struct scratch *memory,
                           struct jinja_tokens *out);

/* BAD_INPUT "NAME: line N: …". */
enum status jinja_refuse(const char *name, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

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
    JINJA_NODE_CONSTANT,    /* constant */
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
    const char *name;
    size_t bytes;
    struct jinja_node *value;
};

struct jinja_node {
    enum jinja_node_kind kind;
    int line;
    struct jinja_node *a, *b, *c, *d, *e;
    const char *text; /* not NUL-terminated */
    size_t bytes;
    struct jinja_value constant;
    struct jinja_node **items;
    size_t item_count;
    struct jinja_keyword *keywords;
    size_t keyword_count;
    const struct jinja_filter *filter;  /* of FILTER */
    const struct jinja_predicate *test; /* of TEST */
};

struct jinja_template {
    char *name;
    struct scratch memory;
    struct jinja_node *body;
    bool generates; /* has generation blocks */
    bool uses_time; /* calls strftime_now */
    json_t *words;  /* an object whose keys are the template's names and string literals */
};

/* Whether a text is a word. */
bool jinja_text_is(const char *text, size_t bytes, const char *word);

/* --- the parser --- */

enum { JINJA_PARSE_DEPTH_MAX = 60 };

struct jinja_parser {
    struct jinja_template *template;
    const struct jinja_token *next; /* the token that is read next; the last is never passed */
    int depth;
    int loops; /* that the present statement is in, within its macro */
};

enum status jinja_parse_refuse(const struct jinja_parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "unexpected …, expected WHAT". */
enum status jinja_parse_unexpected(const struct jinja_parser *parser, const char *expected);

/* Whether the next token is this name or operator; skip passes it then, expect fails where it is another. */
bool jinja_next_is(const struct jinja_parser *parser, enum jinja_token_kind kind, const char *text);
bool jinja_skip(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text);
enum status jinja_expect(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text);
/* Passes a name and returns its token. */
enum status jinja_expect_name(struct jinja_parser *parser, const struct jinja_token **out);

/* A node of the next token's line. */
enum status jinja_make_node(struct jinja_parser *parser, enum jinja_node_kind kind, struct jinja_node **out);
enum status jinja_add_item(struct jinja_parser *parser, struct jinja_node *node, struct jinja_node *item);
enum status jinja_add_keyword(struct jinja_parser *parser, struct jinja_node *node, const struct jinja_token *name,
                              struct jinja_node *value);

enum status jinja_parse_expression(struct jinja_parser *parser, struct jinja_node **out);
/* Expressions with commas between them are a tuple. */
enum status jinja_parse_tuple(struct jinja_parser *parser, bool conditional, struct jinja_node **out);
/* A name, a namespace's field (when `fields`), or a tuple of names. */
enum status jinja_parse_target(struct jinja_parser *parser, bool fields, struct jinja_node **out);
/* The filters that follow, over `value` (NULL: what they are later applied to). */
enum status jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *value, struct jinja_node **out);
