/* Token ids as they lie in a file: llm.c's token files (`.bin`) and the token cache.
 *
 * A token file is a header of 256 little-endian int32 (magic, version, count of tokens, the rest unused) and the
 * tokens: magic 20240520 with version 1 is uint16 tokens (GPT-2), magic 20240801 with version 7 is uint32 (Llama 3).
 * A cache is written under a temporary name and renamed, and found again by its key. */
#pragma once

#include <jansson.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/text.h"

/* Ids in a file that another owns. */
struct token_view {
    struct file_input input; /* borrowed */
    size_t offset;           /* of the first one */
    int token_bytes;         /* 2 or 4 */
    int64_t count;
    int64_t id_limit; /* all ids are below it: what their width allows, or less where more is known */
};

/* Hands bytes [from, to) of a file on, piece by piece. */
enum status file_input_pass(const struct file_input *file, size_t from, size_t to,
                            enum status (*sink)(void *payload, const void *data, size_t bytes), void *payload);

/* The tokens of a `.bin` file. BAD_INPUT, with `name` for the path, when magic or version is unknown or the count
 * contradicts the size. */
enum status token_file_parse(const char *name, const struct file_input *input, struct token_view *out);

/* Reads all tokens: BAD_INPUT naming the first whose id is `vocab_size` or more; *hash is XXH3's of their bytes. */
enum status token_view_examine(const char *name, const struct token_view *view, int64_t vocab_size, uint64_t *hash);

/* BAD_INPUT that says that token `index` has an id that is `vocab_size` or more. */
enum status token_refuse_id(const char *name, int64_t index, uint32_t id, int64_t vocab_size);

/* Tokens first .. first+count-1, which must lie within the view, into out[count]. FAILED when they cannot be read. */
enum status token_view_read(const struct token_view *view, int64_t first, int64_t count, int32_t *out);

/* Who makes a cache: of several processes that need the ids of one text, such as the ranks of a node, the one that has
 * the lock on PATH.lock makes them, and tells there how far it is; the others read its unfinished cache. The lock is
 * the kernel's: it goes with its process, however that ends. */

enum token_lock_state {
    TOKEN_LOCK_MINE,
    TOKEN_LOCK_OTHERS, /* another process has it, or this one for another use of the text */
    TOKEN_LOCK_NONE    /* there are no locks here */
};

/* What the maker has written so far. No padding, so that it hashes as bytes. */
struct token_making {
    char magic[8];
    uint64_t boot;        /* of the system that the maker runs on: on another, unfinished files may not be readable */
    int64_t pid;          /* of the maker */
    uint64_t key;         /* of what the ids are made from (glance in token_cache.c) */
    int64_t count;        /* ids that can be read */
    uint64_t text_bytes;  /* that they are made of */
    char file[4096 - 56]; /* where they are */
    uint64_t self;        /* hash of the fields before */
};

struct token_lock {
    int descriptor; /* while `open` */
    bool open, mine;
    char *path;
};

/* Takes the lock of the cache at `path`, or opens it to watch who has it. Free with token_lock_close in any case. */
enum token_lock_state token_lock_open(const char *path, struct token_lock *out);
/* Takes the lock that another process has let go of meanwhile. */
enum token_lock_state token_lock_retry(struct token_lock *lock);
/* The maker tells. A failure is of no consequence: the others wait and then make their own. */
void token_lock_write(const struct token_lock *lock, uint64_t key, int64_t count, uint64_t text_bytes,
                      const char *file);
/* What the maker told last; false where that cannot be read. */
bool token_lock_read(const struct token_lock *lock, struct token_making *out);
/* Whether another process on this system tells. */
bool token_making_is_near(const struct token_making *making);
/* Lets go. One that is not open is left alone. */
void token_lock_close(struct token_lock *lock);

/* The file that holds a text's ids: written under a temporary name and renamed, found again by its key. Private to the
 * token cache. */

/* The cache's version changes with its layout and with the ids; TOKEN_IDS_VERSION, which a run's checkpoints keep,
 * when the same text would give other ids. Version 2 is of Ballast 0.1.0 (token_cache_check_0_1_0). */
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
    json_t *unread;            /* keys of its rows (source.h); NULL: none */
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
