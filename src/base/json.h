/* Reading JSON files with errors that name the file and the field. Values are jansson's. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/manifest.h"

/* Parses a file whose top value is an object; BAD_INPUT with line and column when malformed, nested too deeply, given
 * duplicate keys, or larger than `limit_bytes`. The caller drops the result with json_decref. */
enum status json_read_object(const char *path, size_t limit_bytes, json_t **out);
/* json_loadb, except that a byte-order mark before the text is passed over, and an integer beyond 64 bits becomes a
 * real: other programs write such numbers, for example as the length of a tokenizer without a limit. *widened, unless
 * NULL, says whether there was one. NULL on failure, with an empty error->text where memory ran out. */
json_t *json_load(const char *text, size_t bytes, size_t flags, bool *widened, json_error_t *error);
/* json_read_object for text already in memory; `name` stands for the path in messages. */
enum status json_parse_object(const char *name, const char *text, size_t bytes, json_t **out);

/* The field's value; NULL where it is absent or null. */
const json_t *json_present(const json_t *object, const char *field);

/* Fields of an object. Each fails with BAD_INPUT "FILE: FIELD: what is wrong" if the field has another type or is out
 * of range. For a number out of range, the hint is the nearest legal one. A missing field (or null) leaves *out
 * unchanged: set the default first, or use json_require before. */
enum status json_require(const char *file, const json_t *object, const char *field);
enum status json_read_int(const char *file, const json_t *object, const char *field, int64_t min, int64_t max,
                          int64_t *out);
/* The required field "version" of a format whose newest version here is `newest`. A higher one needs a newer Ballast,
 * as the message and the hint say. */
enum status json_read_version(const char *file, const json_t *object, int64_t newest, int64_t *out);
enum status json_read_double(const char *file, const json_t *object, const char *field, double min, double max,
                             double *out);
enum status json_read_bool(const char *file, const json_t *object, const char *field, bool *out);
/* BAD_INPUT "FILE: WHEREkey: unknown field" for a key that is not among the known ones; the hint names the nearest. */
enum status json_refuse_unknown(const char *file, const char *where, const json_t *object, const char *const *known,
                                size_t count);
/* The names of one thing in an older version of a format and now. */
struct json_renamed {
    const char *before, *now;
};
/* The current name of a field that older versions call `before`. */
const char *json_name_now(const struct json_renamed *renamed, size_t count, const char *before);
/* Renames the keys of an object that an older version wrote. BAD_INPUT "FILE: WHEREkey: unknown field" for a name that
 * the older version lacks. */
enum status json_rename_keys(const char *file, const char *where, json_t *object, const struct json_renamed *renamed,
                             size_t count);
/* Borrowed from the object. */
enum status json_read_string(const char *file, const json_t *object, const char *field, const char **out);
/* Copied; BAD_INPUT with the most that is legal as hint where text and NUL are more than `bytes`. */
enum status json_read_text(const char *file, const json_t *object, const char *field, size_t bytes, char *out);

/* jansson's flags for JSON that people read. */
#define JSON_FILE_FLAGS (JSON_INDENT(2) | JSON_REAL_PRECISION(17))
/* Writes pretty JSON in place of the file (file_replace). */
enum status json_write(const char *path, const json_t *value);
/* The same; `sums`, begun and of no other bytes, takes those of the file. NULL: not wanted. */
enum status json_write_summed(const char *path, const json_t *value, struct file_sums *sums);
/* The same on one line, numbers with `digits` digits: for files that are large and read by programs. */
enum status json_write_compact(const char *path, const json_t *value, int digits);
/* Add a value to an object or an array. If the value is NULL or memory runs out, the whole object is freed and becomes
 * NULL, which further calls leave as it is. So callers check once, at the end. */
void json_put(json_t **object, const char *key, json_t *value);
void json_push(json_t **array, json_t *value);
/* The value, unless part of it could not be made: then NULL, and the value is dropped. */
json_t *json_unless(int failed, json_t *value);
/* The same, also if the value itself could not be created; then the message reports no memory for `what`. */
json_t *json_made(int failed, json_t *value, const char *what);
/* The value as text, freed by the caller with mem_free; `flags` are jansson's. NULL, with a message, without memory.
 * Use this in place of json_dumps, which leaves out a key for whose text it gets no memory, and returns the rest. */
char *json_text(const json_t *value, size_t flags);
