/* The file that holds a text's ids: written under a temporary name and renamed, found again by its key. Private to the
 * token cache. */
#ifndef BALLAST_DATA_TOKEN_CACHE_FILE_H
#define BALLAST_DATA_TOKEN_CACHE_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <xxhash.h>

#include "base/file_input.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/token_file.h"

/* The cache's version changes with its layout and with the ids; TOKEN_IDS_VERSION, which a run's checkpoints keep,
 * when the same text would give other ids. Version 2 is of Ballast 0.1.0 (tokens_of_0_1_0.h). */
enum { TOKEN_CACHE_VERSION = 4, TOKEN_IDS_VERSION = 3, TOKEN_CACHE_VERSION_OF_0_1_0 = 2 };

/* What a cache was made from. No padding, so that keys compare and hash as bytes. */
struct token_cache_key {
    char magic[8];
    uint64_t version, kind, text_bytes;
    uint64_t text_hash[2], tokenizer_hash[2], chat_hash[2];
    int64_t eos_token;
    uint64_t token_bytes;
};

/* DIR/<name of the text file>-<hash of its absolute path>.tokens, so that changed text takes its old cache's place.
 * In fresh memory; NULL when out of memory or when there is no such text. */
char *token_cache_path(const char *folder, const char *text_path);

/* Properties of a text, which later runs report too. */
struct text_notes {
    struct utf8_damage damage; /* as far as it was tokenized */
    json_t *unread;            /* keys of its rows (jsonl_unread.h); NULL: none */
};

/* Opens a cache and reads all of it; false when it is not there, damaged or has another key. `view` borrows `file`; the
 * caller drops notes->unread. */
bool token_cache_file_open(const char *path, const struct token_cache_key *key, struct file_input *file,
                           struct token_view *view, struct text_notes *notes);

/* Why a cache that is there is not the one of `key`: "changed since it was tokenized", of the text. */
const char *token_cache_file_refusal(const char *path, const struct token_cache_key *key);

/* Where ids are kept while they are made. When a file can no longer be written, its ids are copied to the next place.
 * So without a cache the only cost is that the next run tokenizes the text again. */
enum token_cache_place {
    PLACE_CACHE,  /* next to the cache's path, which it then gets */
    PLACE_SPARE,  /* a file without a name in $TMPDIR, or /var/tmp: it ends with the process */
    PLACE_MEMORY, /* the same in memory */
    PLACES
};
struct token_cache_writer {
    VEC(struct file_input) files; /* the last one has all ids that were written; others may still be read */
    enum token_cache_place place;
    const char *path; /* of the cache; borrowed. NULL: not open */
    char *beside;     /* where it is written in PLACE_CACHE */
    XXH3_state_t *hash;
    int token_bytes;
    int64_t count; /* ids written */
};

/* Begins a cache in `folder`, which is created when missing; unfinished caches that ended processes left there
 * are removed. FAILED where there is no place at all, or no memory. */
enum status token_cache_writer_open(const char *folder, const char *path, int token_bytes,
                                    struct token_cache_writer *out);
enum status token_cache_writer_write(struct token_cache_writer *writer, const uint32_t *ids, size_t count);
/* What was written, to be read for as long as the writer is not closed. */
struct token_view token_cache_writer_view(const struct token_cache_writer *writer, int64_t id_limit);
/* All ids are written: in PLACE_CACHE the file gets its name. A failure is only a warning. */
void token_cache_writer_publish(struct token_cache_writer *writer, const struct token_cache_key *key, int64_t id_limit,
                                const struct text_notes *notes);
/* Removes what was not published. One that is closed is left alone. */
void token_cache_writer_close(struct token_cache_writer *writer);

#endif
