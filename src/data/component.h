/* What a mixture is made of: files of one kind under one weight, as rows of T tokens each. */
#ifndef BALLAST_DATA_COMPONENT_H
#define BALLAST_DATA_COMPONENT_H

#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "data/corpus.h"
#include "data/packing.h"
#include "data/row.h"
#include "data/source.h"

struct component {
    struct corpus corpus;
    bool supervised;        /* rows are packed examples, not sequences of the corpus's tokens */
    struct packing packing; /* of a supervised one */
    int64_t rows;
    int64_t weight; /* in millionths; 0: by size */
    char *name;     /* the first file's path */
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
    int64_t border;          /* id of the token that ends a segment; -1: sequences are one segment */
    bool pack_examples;      /* several to a row */
    bool loss_on_all;        /* in examples too */
};

/* Opens all sources: without weights neighbours of a kind (documents, examples) are one component, with weights those
 * of an argument. BAD_INPUT when only some have weights, or an argument that has one holds both kinds; when a component
 * has less than one row; and as corpus_open. */
enum status components_open(const struct sources *sources, const struct component_options *options,
                            struct components *out);
void components_close(struct components *components);

/* Fills a row, 0 <= index < rows as opened; returns the number of targets that count. */
int64_t component_fill_row(const struct component *component, const struct component_options *options, int64_t index,
                           const struct row *row);
/* Says how many examples were cut or left out, if any were. */
void component_tell_cuts(const struct component *component);

#endif
