/* Converts lines in other tools' forms to the forms that are read here. */
#ifndef BALLAST_DATA_JSONL_FORM_H
#define BALLAST_DATA_JSONL_FORM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/jsonl.h"

/* {"messages": [{"role", "content"}, ...], "tools": [...]} of a line whose messages are like that, or as ShareGPT has
 * them: "conversations" of {"from": human, gpt or system, "value"}, and a "system" beside them. The caller drops *out,
 * which may be the object itself. BAD_INPUT with name and line for another "from". */
enum status jsonl_form_conversation(const struct jsonl_columns *columns, const char *name, int64_t line, json_t *object,
                                    json_t **out);
/* Alpaca's {"instruction", "input", "output"}, and a "system" beside them, as a conversation ("chat": the user's
 * message is the instruction, an empty line and the input where there is one) or else as {"prompt", "completion"} in
 * the words that Alpaca's models were trained with. The caller drops *out. BAD_INPUT with name and line for what is
 * missing or no string, and for a "history". */
enum status jsonl_form_alpaca(const struct jsonl_columns *columns, const char *name, int64_t line, const json_t *object,
                              bool chat, json_t **out);

#endif
