/* Templates as tokens; private to the jinja_* files. */
#ifndef BALLAST_TEXT_TEMPLATE_JINJA_LEXER_H
#define BALLAST_TEXT_TEMPLATE_JINJA_LEXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

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

#endif
