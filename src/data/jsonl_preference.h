/* Lines of two answers, of which the first is preferred. */
#ifndef BALLAST_DATA_JSONL_PREFERENCE_H
#define BALLAST_DATA_JSONL_PREFERENCE_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"
#include "data/jsonl.h"

/* A line's prompt with one of its answers, `field` (JSONL_CHOSEN or JSONL_REJECTED). Texts give {"prompt",
 * "completion"}. Messages give {"messages", "tools"}, of which those from *first on are the answer: the prompt's
 * messages and behind them the answer's, or where the prompt is no list, the answer's, which begin with those that both
 * answers begin with; a text is then what these say, and needs one of them. The caller drops *out. BAD_INPUT with name,
 * line and field for what is missing, of another type than the other answer, or has no answer. */
enum status jsonl_form_preference(const struct jsonl_columns *columns, const char *name, int64_t line,
                                  const json_t *object, enum jsonl_field field, json_t **out, size_t *first);

#endif
