/* Rows of .jsonl files as conversations, prompts and pairs of answers, also from the forms of other tools. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "data/jsonl.h"
#include "data/source.h"
#include "text/chat/template.h"

/* Takes over `messages` (NULL: out of memory). *out is {"messages", "tools", "chat_template_kwargs"} and is dropped by
 * the caller. The row's "tools" are a list or JSON text of one; "system", a text, becomes the first message, and
 * *first, unless NULL, then grows by one. BAD_INPUT with name, line and key for a value of another type, a system
 * prompt that contradicts the first message, a number beyond 64 bits, and what cannot be applied (images, history). */
enum status jsonl_make_conversation(const char *name, int64_t line, const json_t *object, json_t *messages,
                                    json_t **out, size_t *first);
/* For a row of texts: BAD_INPUT with name, line and key when it has one of the keys that only a chat template reads. */
enum status jsonl_refuse_beside(const char *name, int64_t line, const json_t *object);

/* A line's conversation: messages of {"role", "content"}, or turns of ShareGPT, {"from",
 * "value"} and any other keys of a message; or prompt and completion as lists of messages. Messages from *first on are
 * trained on. The caller drops *out. BAD_INPUT with name and line for turns of another form. */
enum status jsonl_form_conversation(const struct jsonl_columns *columns, const char *name, int64_t line, json_t *object,
                                    json_t **out, size_t *first);
/* Alpaca's {"instruction", "input", "output"}, with "system" and "history", as a conversation ("chat": the user's
 * message is the instruction, an empty line and the input where there is one) or else as {"prompt", "completion"} in
 * the words that Alpaca's models were trained with, of which a system prompt replaces the first paragraph. The caller
 * drops *out. BAD_INPUT with name and line for what is missing or no string, and without a chat template for what needs
 * one. */
enum status jsonl_form_alpaca(const struct jsonl_columns *columns, const char *name, int64_t line, const json_t *object,
                              bool chat, json_t **out);

/* Lines of two answers, of which the first is preferred. */

/* A line's prompt with one of its answers, `field` (JSONL_CHOSEN or JSONL_REJECTED). Texts give {"prompt",
 * "completion"}. Messages give {"messages", "tools"}, of which those from *first on are the answer: the prompt's
 * messages and behind them the answer's, or where the prompt is no list, the answer's, which begin with those that both
 * answers begin with; a text is then what these say, and needs one of them. The caller drops *out. BAD_INPUT with name,
 * line and field for what is missing, of another type than the other answer, or has no answer. */
enum status jsonl_form_preference(const struct jsonl_columns *columns, const char *name, int64_t line,
                                  const json_t *object, enum jsonl_field field, json_t **out, size_t *first);

/* --- keys of a file's rows that nothing reads --- */

/* Adds the row's keys that files of this kind do not read to *names, an array of distinct strings. Also adds keys of
 * messages, tools and chat_template_kwargs that the chat template does not name (`chat` NULL: rows are texts). Skips
 * keys whose value is null. *names may be NULL, for none; the caller releases it. Beyond a maximum, "..." stands for
 * all further names. */
enum status jsonl_unread_add(const json_t *row, enum source_kind kind, const struct jsonl_columns *columns,
                             const struct chat_template *chat, json_t **names);
/* Adds the names of another list. */
enum status jsonl_unread_join(const json_t *more, json_t **names);
/* Logs them. */
void jsonl_unread_report(const char *file, const json_t *names);
