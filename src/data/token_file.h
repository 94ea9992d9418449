/* Token ids as they lie in a file: llm.c's token files (`.bin`) and the token cache.
 *
 * A token file is a header of 256 little-endian int32 (magic, version, count of tokens, the rest unused) and the
 * tokens: magic 20240520 with version 1 is uint16 tokens (GPT-2), magic 20240801 with version 7 is uint32 (Llama 3). */
#ifndef BALLAST_DATA_TOKEN_FILE_H
#define BALLAST_DATA_TOKEN_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/file_input.h"
#include "base/status.h"

/* Ids in a file that another owns. */
struct token_view {
    struct file_input input; /* borrowed */
    size_t offset;           /* of the first one */
    int token_bytes;         /* 2 or 4 */
    int64_t count;
    int64_t id_limit; /* all ids are below it: what their width allows, or less where more is known */
};

/* The tokens of a `.bin` file. BAD_INPUT, with `name` for the path, when magic or version is unknown or the count
 * contradicts the size. */
enum status token_file_parse(const char *name, const struct file_input *input, struct token_view *out);

/* Reads all tokens: BAD_INPUT naming the first whose id is `vocab_size` or more; *hash is XXH3's of their bytes. */
enum status token_view_examine(const char *name, const struct token_view *view, int64_t vocab_size, uint64_t *hash);

/* BAD_INPUT that says that token `index` has an id that is `vocab_size` or more. */
enum status token_refuse_id(const char *name, int64_t index, uint32_t id, int64_t vocab_size);

/* Tokens first .. first+count-1, which must lie within the view, into out[count]. FAILED when they cannot be read. */
enum status token_view_read(const struct token_view *view, int64_t first, int64_t count, int32_t *out);

#endif
