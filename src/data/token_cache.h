/* The ids of a text file, made once and kept in a cache file that later runs map.
 *
 * A cache holds the tokens, then a footer with the key that they were made from (size and hash of the text, hash of
 * tokenizer.json, EOS token) and their own hash. Those of supervised files are marked ids (example.h). One whose key or
 * hash does not match is made again. It is written beside and renamed, so that two runs may share a folder. */
#ifndef BALLAST_DATA_TOKEN_CACHE_H
#define BALLAST_DATA_TOKEN_CACHE_H

#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "data/source.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

struct token_cache_options {
    const char *folder;                /* of the cache files; created when missing */
    const struct tokenizer *tokenizer; /* may be NULL: then text is refused */
    const char *tokenizer_path;        /* the tokenizer.json that it was read from */
    int64_t eos_token;                 /* after each document; -1 for none */
    const char *chat_folder;           /* where the chat template is, for conversations (chat_template.h) */
    int64_t chat_time_s;               /* what the template is told of the time */
};

/* A mapped cache. */
struct token_cache {
    struct file_map map;
    struct token_view view; /* into the map */
    uint64_t hash;          /* of the tokens, as token_view_examine's */
};

/* Maps the ids of a .txt or .jsonl file, making the cache first where needed. BAD_INPUT for a bad text file; FAILED
 * when the cache cannot be written, which leaves nothing behind. */
enum status token_cache_open(const struct token_cache_options *options, const struct source *source,
                             struct token_cache *out);
void token_cache_close(struct token_cache *cache);

#endif
