/* The file that holds a text's ids: written beside and renamed, found again by its key. Private to the token cache. */
#ifndef BALLAST_DATA_TOKEN_CACHE_FILE_H
#define BALLAST_DATA_TOKEN_CACHE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <xxhash.h>

#include "base/file.h"
#include "data/token_file.h"
#include "data/utf8.h"

enum { TOKEN_CACHE_VERSION = 2 }; /* changes when the same text would give other ids */

/* What a cache was made from. No padding, so that keys compare and hash as bytes. */
struct token_cache_key {
    char magic[8];
    uint64_t version, kind, text_bytes;
    uint64_t text_hash[2], tokenizer_hash[2], chat_hash[2];
    int64_t eos_token;
    uint64_t token_bytes;
};

/* FOLDER/<name of the text file>-<hash of its absolute path>.tokens, so that changed text takes its old cache's place.
 * In fresh memory; NULL when out of memory or when there is no such text. */
char *token_cache_path(const char *folder, const char *text_path);

/* Maps a cache and reads all of it; false when it is not there, damaged or has another key. *damage is of the text. */
bool token_cache_file_map(const char *path, const struct token_cache_key *key, struct file_map *map,
                          struct token_view *view, struct utf8_damage *damage);

struct token_cache_writer {
    struct file_writer file; /* path NULL: nothing is being written */
    char *beside;            /* where it is written */
    XXH3_state_t *hash;
    int token_bytes;
    int64_t count; /* ids written */
};

/* Begins a cache in `folder`, which is created when missing; what processes left there that ended before theirs were
 * whole is removed. */
enum status token_cache_writer_open(const char *folder, const char *path, int token_bytes,
                                    struct token_cache_writer *out);
enum status token_cache_writer_write(struct token_cache_writer *writer, const uint32_t *ids, size_t count);
/* The file gets its name. However it ends, the writer is closed. FAILED: nothing is left behind. */
enum status token_cache_writer_publish(struct token_cache_writer *writer, const struct token_cache_key *key,
                                       int64_t id_limit, const struct utf8_damage *damage, const char *path);
/* Closes and removes what was written. One that is closed is left alone. */
void token_cache_writer_abandon(struct token_cache_writer *writer);

#endif
