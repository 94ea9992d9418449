/* Files of all kinds as one run of tokens. */
#ifndef BALLAST_DATA_CORPUS_H
#define BALLAST_DATA_CORPUS_H

#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "data/source.h"
#include "data/token_cache.h"
#include "data/token_file.h"

struct corpus_part {
    struct file_map map;
    struct token_view view; /* into the map */
    uint64_t hash;          /* of the tokens */
    int64_t first;          /* where the part begins in the corpus */
};

struct corpus {
    struct corpus_part *parts; /* in order, none empty */
    size_t part_count;
    int64_t tokens; /* of all parts */
};

/* Opens the files in order. BAD_INPUT, naming the file, when one is malformed, has no tokens, or has an id that is
 * `vocab_size` or more. Of supervised files the tokens are marked ids (example.h), which are not compared with it. */
enum status corpus_open(const struct sources *sources, const struct token_cache_options *cache, int64_t vocab_size,
                        struct corpus *out);
void corpus_close(struct corpus *corpus);

/* Tokens first .. first+count-1, which must lie within the corpus, into out[count]. */
void corpus_read(const struct corpus *corpus, int64_t first, int64_t count, int32_t *out);

#endif
