/* The parser's two halves, statements and expressions; private to the jinja_* files. */
#ifndef BALLAST_TEXT_TEMPLATE_JINJA_PARSER_H
#define BALLAST_TEXT_TEMPLATE_JINJA_PARSER_H

#include "text/template/jinja_ast.h"
#include "text/template/jinja_lexer.h"

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

#endif
