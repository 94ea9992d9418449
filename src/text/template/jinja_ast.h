/* Templates as trees; private to the jinja_* files. */
#ifndef BALLAST_TEXT_TEMPLATE_JINJA_AST_H
#define BALLAST_TEXT_TEMPLATE_JINJA_AST_H

#include "base/mem.h"
#include "text/template/jinja_value.h"

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

#endif
