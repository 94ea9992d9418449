/* Keys of a file's rows that nothing reads. */
#ifndef BALLAST_DATA_JSONL_UNREAD_H
#define BALLAST_DATA_JSONL_UNREAD_H

#include <jansson.h>

#include "base/status.h"
#include "data/jsonl.h"
#include "data/source.h"
#include "text/chat/chat_template.h"

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

#endif
