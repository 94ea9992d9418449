/* A template engine for chat templates: the part of Jinja that the chat templates of language models use, with the
 * results of Jinja 3.1 in the environment that `transformers` makes for them (sandboxed and immutable, trim_blocks and
 * lstrip_blocks, loop controls, generation blocks, tojson, raise_exception, strftime_now).
 *
 *     struct jinja_template *template;
 *     TRY(jinja_parse("chat_template", text, bytes, &template));
 *     struct jinja_variable variables[] = {{"messages", messages}, {"bos_token", bos}};
 *     struct jinja_output output = {0};
 *     TRY(jinja_render(template, variables, 2, now_s, &output));
 *     ...
 *     jinja_output_free(&output);
 *     jinja_free(template);
 *
 * Statements: if, for (with filter and else, loop, break, continue), set (also of a namespace's field, and of a body),
 * macro, raw, generation. All expressions but await, calls with * and recursive loops. Filters, tests, functions and
 * methods are listed in filters.c and functions.c. Anything else is refused by name when the template is parsed, or
 * during rendering if only that shows it.
 *
 * Templates are not trusted: work, memory, output and depth of a rendering are bounded.
 *
 * Within this directory functions do not return a status: a failure ends the parsing or the rendering at once, by
 * longjmp to jinja_parse or jinja_render, which free all memory. So functions return their results.
 *
 * Files, in the order to read them:
 *   jinja: this file, the public calls;
 *   parse: tokens and trees; lexer: text to tokens; expression, parser: tokens to a tree;
 *   render: a rendering: bounds, scopes, values, statements; evaluate: expressions;
 *   value: values as Python has them; strings: how Python prints values and changes strings;
 *   filters, functions: what templates may call. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/text.h"

struct jinja_template;

enum jinja_names { JINJA_FILTERS, JINJA_TESTS, JINJA_FUNCTIONS, JINJA_STRING_METHODS, JINJA_DICT_METHODS };
/* Supported names, one after the other; NULL after the last. */
const char *jinja_name(enum jinja_names names, size_t index);

/* `name` stands for the template in messages ("FILE: chat_template"); the text is copied. BAD_INPUT with name and line
 * when it is malformed, or asks for what is not supported. */
enum status jinja_parse(const char *name, const char *text, size_t bytes, struct jinja_template **out);
/* NULL is allowed. */
void jinja_free(struct jinja_template *template);

/* Whether it has {% generation %} blocks, and whether its result may depend on the time. */
bool jinja_has_generation(const struct jinja_template *template);
bool jinja_uses_time(const struct jinja_template *template);
/* Whether this word is a name or string literal of the template. If none is, the template reads no variable or key of
 * that name, unless it iterates over all of an object's keys. */
bool jinja_names(const struct jinja_template *template, const char *name);

struct jinja_variable {
    const char *name;
    const json_t *value; /* borrowed */
};

struct jinja_output {
    struct text_buffer text;
    VEC(struct text_range) generations; /* what generation blocks made, in order */
    int64_t work;                       /* that it took, also where it failed; at most JINJA_WORK_MAX and a little */
};
void jinja_output_free(struct jinja_output *output);

/* Renders into `out`, which may hold an earlier result: it is replaced. `now_s`, seconds since 1970 in UTC, is the time
 * that strftime_now tells. BAD_INPUT with name and line when the template fails (also by raise_exception) or reaches a
 * bound. A const template may be rendered by any number of threads at once. */
enum status jinja_render(const struct jinja_template *template, const struct jinja_variable *variables, size_t count,
                         int64_t now_s, struct jinja_output *out);

/* Bytes of white space that valid UTF-8 begins or ends with, as str.isspace has it. */
size_t jinja_leading_space(const char *text, size_t bytes);
size_t jinja_trailing_space(const char *text, size_t bytes);
