/* What a mixture is made of: files of one kind under one weight, as rows of T tokens each. */
#ifndef BALLAST_DATA_COMPONENT_H
#define BALLAST_DATA_COMPONENT_H

#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "data/corpus.h"
#include "data/source.h"

struct component {
    struct corpus corpus;
    int64_t rows;
    int64_t weight;   /* in millionths; 0: by size */
    const char *name; /* the first file's path; borrowed from the sources, valid as long as they are */
};

/* A VEC. */
struct components {
    struct component *items;
    size_t count, capacity;
};

struct component_options {
    struct token_cache_options cache;
    int64_t vocab_size;
    int64_t sequence_tokens; /* T */
};

/* Opens all sources: those without weights as one component, others by argument. BAD_INPUT when only some have weights,
 * and as corpus_open, or when a component has less than one row. */
enum status components_open(const struct sources *sources, const struct component_options *options,
                            struct components *out);
void components_close(struct components *components);

#endif
