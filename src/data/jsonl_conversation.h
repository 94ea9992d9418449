/* A row's conversation: its messages with what stands next to them. */
#ifndef BALLAST_DATA_JSONL_CONVERSATION_H
#define BALLAST_DATA_JSONL_CONVERSATION_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Takes over `messages` (NULL: out of memory). *out is {"messages", "tools", "chat_template_kwargs"} and is dropped by
 * the caller. The row's "tools" are a list or JSON text of one; "system", a text, becomes the first message, and
 * *first, unless NULL, then grows by one. BAD_INPUT with name, line and key for a value of another type, a system
 * prompt that contradicts the first message, a number beyond 64 bits, and what cannot be applied (images, history). */
enum status jsonl_make_conversation(const char *name, int64_t line, const json_t *object, json_t *messages,
                                    json_t **out, size_t *first);
/* For a row of texts: BAD_INPUT with name, line and key when it has one of the keys that only a chat template reads. */
enum status jsonl_refuse_beside(const char *name, int64_t line, const json_t *object);
/* A list, or JSON text of one; *out is NULL for null, an empty text or no value, and is dropped by the caller. */
enum status jsonl_read_list(const char *name, int64_t line, const json_t *object, const char *key, json_t **out);

#endif
