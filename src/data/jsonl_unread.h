/* Keys of a file's rows that nothing reads. */
#ifndef BALLAST_DATA_JSONL_UNREAD_H
#define BALLAST_DATA_JSONL_UNREAD_H

#include <jansson.h>

#include "base/status.h"
#include "chat/chat_template.h"
#include "data/jsonl.h"
#include "data/source.h"

/* Adds the keys of a row that a file of this kind does not read to *names, an array of strings, each once; of messages,
 * tools and chat_template_kwargs also those that the chat template does not name (`chat` NULL: rows are texts). A key
 * whose value is null is left out. NULL stands for no names and is replaced where there are some; the caller drops it.
 * After the most names that are kept, "..." stands for the others. */
enum status jsonl_unread_add(const json_t *row, enum source_kind kind, const struct jsonl_columns *columns,
                             const struct chat_template *chat, json_t **names);
/* Adds the names of another list. */
enum status jsonl_unread_join(const json_t *more, json_t **names);
/* Logs them. */
void jsonl_unread_tell(const char *file, const json_t *names);

#endif
