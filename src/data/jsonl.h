/* Documents in JSON lines: one object a line, with the document in its field "text". */
#ifndef BALLAST_DATA_JSONL_H
#define BALLAST_DATA_JSONL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A place in a text of many lines. Zero-initialise but for `text` and `bytes`. */
struct line_reader {
    const char *text;
    size_t bytes, next; /* size of the text; where the next line begins */
    int64_t line;       /* number of the line that was read last; the first is 1 */
};

/* The next line without its "\n"; false at the end. Bytes after the last "\n" are a line if there are any. */
bool line_read(struct line_reader *reader, const char **line, size_t *bytes);

/* Parses a line. Blank lines are valid and hold no document: *out is NULL. Otherwise *text and *bytes are the document,
 * borrowed from *out, which the caller drops with json_decref. Other fields are ignored. BAD_INPUT with name and line
 * when it is not valid JSON (which is UTF-8) or its "text" is missing or no string. */
enum status jsonl_parse(const char *name, int64_t line, const char *json, size_t json_bytes, json_t **out,
                        const char **text, size_t *bytes);

#endif
