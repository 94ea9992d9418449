/* Files of token ids: llm.c's token files (`.bin`) and the token cache.
 *
 * A token file is a header of 256 little-endian int32 (magic, version, count of tokens, the rest unused) followed by
 * the tokens. Magic 20240520 with version 1 has uint16 tokens (GPT-2), magic 20240801 with version 7 uint32 (Llama 3).
 * A cache is written under a temporary name and renamed; its key identifies it. */
#pragma once

#include <jansson.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/text.h"

/* Ids in a file with another owner. */
struct token_view {
    struct file_input input; /* borrowed */
    size_t offset;           /* of the first one */
    int token_bytes;         /* 2 or 4 */
    int64_t count;
    int64_t id_limit; /* exclusive upper bound of ids: that of their width, or less if known */
};

/* Passes bytes [from, to) of a file on, piece by piece. */
enum status file_input_pass(const struct file_input *file, size_t from, size_t to,
                            enum status (*sink)(void *payload, const void *data, size_t bytes), void *payload);

/* The tokens of a `.bin` file. BAD_INPUT, with `name` for the path, if magic or version is unknown or the count
 * contradicts the size. */
enum status token_file_parse(const char *name, const struct file_input *input, struct token_view *out);

/* Reads all tokens: BAD_INPUT naming the first whose id is `vocab_size` or more; *hash is XXH3's of their bytes. */
enum status token_view_examine(const char *name, const struct token_view *view, int64_t vocab_size, uint64_t *hash);

/* BAD_INPUT: token `index` has an id that is `vocab_size` or more. */
enum status token_refuse_id(const char *name, int64_t index, uint32_t id, int64_t vocab_size);

/* Reads tokens first .. first+count-1, which must be in the view, into out[count]. FAILED if they cannot be read. */
enum status token_view_read(const struct token_view *view, int64_t first, int64_t count, int32_t *out);

/* Chooses the maker of a cache among processes that need the ids of one text, such as the ranks of a node. The process
 * that holds the lock on PATH.lock makes them and records its progress there; the others read its incomplete cache. It
 * is a kernel lock, so it ends with its process in any case. */

enum token_lock_state {
    TOKEN_LOCK_MINE,
    TOKEN_LOCK_OTHERS, /* another process has it, or this one for another use of the text */
    TOKEN_LOCK_NONE    /* locks are not supported here */
};

/* The maker's progress so far. No padding, so that it hashes as bytes. */
struct token_making {
    char magic[8];
    uint64_t boot;        /* of the maker's system: another system may be unable to read unfinished files */
    int64_t pid;          /* of the maker */
    uint64_t key;         /* of the ids' inputs (glance in token_cache.c) */
    int64_t count;        /* readable ids */
    uint64_t text_bytes;  /* length of their text */
    char file[4096 - 56]; /* file of the ids */
    uint64_t self;        /* hash of the fields above */
};

struct token_lock {
    int descriptor; /* valid if `open` */
    bool open, mine;
    char *path;
};

/* Takes the lock of the cache at `path`, or opens it to watch its holder. Free with token_lock_close in any case. */
enum token_lock_state token_lock_open(const char *path, struct token_lock *out);
/* Takes the lock if another process has released it meanwhile. */
enum token_lock_state token_lock_retry(struct token_lock *lock);
/* Records the maker's progress. Failures do not matter: the others wait, then make their own ids. */
void token_lock_write(const struct token_lock *lock, uint64_t key, int64_t count, uint64_t text_bytes,
                      const char *file);
/* The maker's last record; false if it cannot be read. */
bool token_lock_read(const struct token_lock *lock, struct token_making *out);
/* Whether another process on this system wrote the record. */
bool token_making_is_near(const struct token_making *making);
/* Releases the lock. Ignores one that is not open. */
void token_lock_close(struct token_lock *lock);

/* The file of a text's ids: written under a temporary name and renamed, identified by its key. Private to the token
 * cache. */

/* The cache's version changes with its layout and with the ids. TOKEN_IDS_VERSION, which a run's checkpoints record,
 * changes if the same text would give other ids. Version 2 is that of Ballast 0.1.0 (token_cache_check_0_1_0). */
enum { TOKEN_CACHE_VERSION = 4, TOKEN_IDS_VERSION = 3, TOKEN_CACHE_VERSION_OF_0_1_0 = 2 };

/* Inputs of a cache. No padding, so that keys compare and hash as bytes. */
struct token_cache_key {
    char magic[8];
    uint64_t version, kind, text_bytes;
    uint64_t text_hash[2], tokenizer_hash[2], chat_hash[2];
    int64_t eos_token;
    uint64_t token_bytes;
};

/* DIR/<name of the text file>-<hash of its absolute path>.tokens, so that changed text replaces its old cache. In fresh
 * memory; NULL if out of memory or if there is no such text. */
char *token_cache_path(const char *folder, const char *text_path);

/* Properties of a text, which later runs report, too. */
struct text_notes {
    struct utf8_damage damage; /* of the tokenized part */
    json_t *unread;            /* keys of its rows (source.h); NULL: none */
};

/* Opens a cache and reads all of it; false if it is missing, damaged or has another key. `view` borrows `file`; the
 * caller drops notes->unread. */
bool token_cache_file_open(const char *path, const struct token_cache_key *key, struct file_input *file,
                           struct token_view *view, struct text_notes *notes);

/* Why an existing cache does not match `key`: "changed since it was tokenized", of the text. */
const char *token_cache_file_refusal(const char *path, const struct token_cache_key *key);

/* Storage of ids while they are made. If a file can no longer be written, its ids are copied to the next place. So the
 * only cost of a missing cache is that the next run tokenizes the text again. */
enum token_cache_place {
    PLACE_CACHE,  /* next to the cache's path, to which it is renamed */
    PLACE_SPARE,  /* an unnamed file in $TMPDIR, or /var/tmp: it ends with the process */
    PLACE_MEMORY, /* an unnamed file in memory */
    PLACES
};
struct token_cache_writer {
    VEC(struct file_input) files; /* the last one has all written ids; others may still be read */
    enum token_cache_place place;
    const char *path; /* of the cache; borrowed. NULL: not open */
    char *beside;     /* its path in PLACE_CACHE */
    XXH3_state_t *hash;
    int token_bytes;
    int64_t count; /* ids written */
};

/* Begins a cache in `folder`, which is created if missing. Removes unfinished caches of ended processes there. FAILED
 * without any place, or without memory. */
enum status token_cache_writer_open(const char *folder, const char *path, int token_bytes,
                                    struct token_cache_writer *out);
enum status token_cache_writer_write(struct token_cache_writer *writer, const uint32_t *ids, size_t count);
/* The written ids, readable until the writer is closed. */
struct token_view token_cache_writer_view(const struct token_cache_writer *writer, int64_t id_limit);
/* All ids are written: renames the file in PLACE_CACHE. Only warns on failure. */
void token_cache_writer_publish(struct token_cache_writer *writer, const struct token_cache_key *key, int64_t id_limit,
                                const struct text_notes *notes);
/* Removes files that were not published. Ignores a closed writer. */
void token_cache_writer_close(struct token_cache_writer *writer);
