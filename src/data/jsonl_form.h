/* Converts lines in other tools' forms to the forms that are read here. */
#ifndef BALLAST_DATA_JSONL_FORM_H
#define BALLAST_DATA_JSONL_FORM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/jsonl.h"

/* A line's conversation (jsonl_conversation.h): messages of {"role", "content"}, or turns of ShareGPT, {"from",
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

#endif
