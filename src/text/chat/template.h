/* The chat template of a model's directory, and conversations rendered by it as `transformers`' apply_chat_template
 * does.
 *
 * It reads chat_template.jinja, and additional_chat_templates/tool_use.jinja for conversations with tools. Without such
 * files it uses "chat_template" of tokenizer_config.json: a text, or a list of named texts. From a list it takes
 * "default", or "tool_use" for conversations with tools. Templates see the special tokens of tokenizer_config.json or
 * special_tokens_map.json by their names (bos_token, eos_token, …). */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "text/template/jinja.h"

struct chat_template;

/* BAD_INPUT, naming file and line, when there is none, or one that is malformed or not supported. */
enum status chat_template_open(const char *folder, struct chat_template **out);
/* The same where there may be none: *out is NULL then. */
enum status chat_template_find(const char *folder, struct chat_template **out);
/* NULL is allowed. */
void chat_template_free(struct chat_template *chat);

/* A hash of all that decides what it renders, including the time where a template uses it. */
void chat_template_hash(const struct chat_template *chat, int64_t now_s, uint64_t out[2]);
/* Whether a conversation with these tools (NULL or null: none) is rendered with generation blocks. */
bool chat_template_has_generation(const struct chat_template *chat, const json_t *tools);

/* As jinja_names, of any of its templates. */
bool chat_template_names(const struct chat_template *chat, const char *name);

/* A conversation is a list of at least one object with a "role", which is text. BAD_INPUT "messages…: …"; NULL: there
 * are none. */
enum status chat_check_messages(const json_t *messages);
/* Messages as transformers gives them to templates: without fields that are null, and with a message's thoughts under
 * each of the names that templates know them by. The caller drops them; NULL when out of memory. */
json_t *chat_normalize_messages(const json_t *messages);

/* A conversation to render. Variables may be NULL, except those that all templates have. */
struct chat_input {
    const json_t *messages;  /* normalized */
    const json_t *tools;     /* NULL: none */
    const json_t *variables; /* an object, such as {"enable_thinking": false} */
    bool add_generation_prompt;
    int64_t now_s;
};
/* As jinja_render. */
enum status chat_template_render(const struct chat_template *chat, const struct chat_input *input,
                                 struct jinja_output *out);

/* --- marks: strings that occur in no text, put where words begin and end, so that the words can be found in the
 * rendered text --- */

/* The place of a mark in the text without marks. */
struct chat_place {
    size_t at;
    bool own; /* it is of the message whose turn is looked for */
};
struct chat_marks {
    VEC(struct chat_place) places; /* in order */
};

/* A copy of the messages with marks. Other messages than `own` (SIZE_MAX: there is none) have one at the end of their
 * content's words. Message `own` has marks in content and thoughts: where the words begin and end, and behind tags of
 * thoughts (<think>), at which templates cut. White space at the ends stays outside of them, for templates that trim.
 * `sparse`: of the others only the last has a mark, and there is none in strings without words nor before words that
 * begin with a tag, for templates that look at what contents are. The caller drops the copy; NULL when out of memory,
 * with a message. */
json_t *chat_marks_put(const json_t *messages, size_t own, bool sparse);
/* Takes the marks out of a text in place and notes their places. */
enum status chat_marks_take(struct chat_marks *marks, struct text_buffer *text);

/* docs/chat.md: conversations as data, and what their templates may hold, from the tables by which they are read. */
void chat_print_document(FILE *out);
