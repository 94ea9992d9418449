/* Documents and supervised examples in JSON lines: one object a line. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/file.h"

/* A place in a text of many lines. Zero-initialise but for `text` and `bytes`. */
struct line_reader {
    const char *text;
    size_t bytes, next; /* size of the text; where the next line begins */
    int64_t line;       /* number of the line that was read last; the first is 1 */
};

/* The next line without its "\n"; false at the end. Bytes after the last "\n" are a line if there are any. */
bool line_read(struct line_reader *reader, const char **line, size_t *bytes);

/* The fields that are read of a line, with their keys unless columns give other keys. */
#define JSONL_FIELD_LIST(X)                                                                                            \
    X(TEXT, "text")                                                                                                    \
    X(PROMPT, "prompt")                                                                                                \
    X(COMPLETION, "completion")                                                                                        \
    X(MESSAGES, "messages")                                                                                            \
    X(INSTRUCTION, "instruction")                                                                                      \
    X(INPUT, "input")                                                                                                  \
    X(OUTPUT, "output")                                                                                                \
    X(CHOSEN, "chosen")                                                                                                \
    X(REJECTED, "rejected")
enum jsonl_field {
#define JSONL_FIELD_ENUM(name, key) JSONL_##name,
    JSONL_FIELD_LIST(JSONL_FIELD_ENUM)
#undef JSONL_FIELD_ENUM
        JSONL_FIELDS
};

/* The keys by which fields are read; all NULL: their own. Zero-initialise; jsonl_columns_free. */
struct jsonl_columns {
    char *keys[JSONL_FIELDS];
};
/* Reads "prompt=question,completion=answer"; "" is valid. BAD_INPUT when it is malformed, or names neither text, nor
 * prompt and completion, nor messages, nor instruction and output, nor chosen and rejected. */
enum status jsonl_columns_parse(const char *text, struct jsonl_columns *out);
void jsonl_columns_free(struct jsonl_columns *columns);
/* The key of a field; NULL when the columns are given without it. */
const char *jsonl_key(const struct jsonl_columns *columns, enum jsonl_field field);

/* What the lines of a file hold. */
enum jsonl_kind {
    JSONL_KIND_TEXT,    /* {"text": ...}: a document */
    JSONL_KIND_PROMPTS, /* {"prompt": ..., "completion": ...}: a supervised example */
    JSONL_KIND_CHAT, /* {"messages": [{"role": ..., "content": ...}, ...]}, as ShareGPT has it, or prompt and completion
                        as lists of messages: a conversation */
    JSONL_KIND_ALPACA, /* {"instruction": ..., "input": ..., "output": ...}: a supervised example */
    /* {"prompt": ..., "chosen": ..., "rejected": ...}: two answers, of which the first is preferred; as texts, */
    JSONL_KIND_PREFERENCES,
    JSONL_KIND_PREFERENCE_CHATS, /* and as lists of messages */
};
/* The kind of a file, of which only the beginning is read: the one that the columns name, else that of the first line
 * that is not blank; JSONL_KIND_TEXT when it is of none, so that reading the line reports what is wrong. "chosen" and
 * "rejected" come before "messages", these before "prompt" and "completion", these before "text", and all of them
 * before "conversations" and "instruction" with "output". FAILED when the file cannot be read. */
enum status jsonl_find_file_kind(const struct file_input *file, const struct jsonl_columns *columns,
                                 enum jsonl_kind *out);

/* Parses a line. Blank lines are valid: *out is NULL. Otherwise *out is an object, which the caller drops with
 * json_decref. Integers beyond 64 bits come as reals. BAD_INPUT with name and line when it is not valid JSON (which is
 * UTF-8) or no object. */
enum status jsonl_parse_object(const char *name, int64_t line, const char *json, size_t json_bytes, json_t **out);
/* BAD_INPUT "NAME: line N: FIELD WRONG" with a hint of what lines may be. */
enum status jsonl_refuse(const char *name, int64_t line, const char *field, const char *wrong);
/* The same of a field that is missing, with the keys that are there. */
enum status jsonl_refuse_missing(const char *name, int64_t line, const char *field, const json_t *object);
/* A string of a line's object, borrowed from it. BAD_INPUT with name and line when it is missing (then with the keys
 * that are there) or no string. */
enum status jsonl_read_string(const char *name, int64_t line, const json_t *object, const char *field,
                              const char **text, size_t *bytes);
