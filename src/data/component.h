/* A component of a mixture: files of one kind with one weight, as rows of T tokens each. For pairs, a row is two such
 * sequences. */
#pragma once

#include "base/base.h"
#include "data/corpus.h"
#include "data/rows.h"
#include "data/source.h"

struct component {
    struct corpus *corpus;
    bool supervised;        /* rows are packed examples, not sequences of the corpus's tokens */
    struct packing packing; /* if supervised, in which case its corpus is complete */
    int64_t first_sequence; /* if supervised: index among the sequences of all components of a dataset */
    double held;    /* the last fraction, for validation: of examples if they are packed, else of rows; 0: none */
    int64_t weight; /* in millionths; 0: by size */
    char *name;     /* the first file's path, and the number of further ones */
};

/* A VEC. */
struct components {
    struct component *items;
    size_t count, capacity;
};

/* Opens all sources after those of *components, which has them also on failure. Without weights, neighboring sources of
 * a kind (documents, examples) are one component; with weights, those of an argument. Tokenizes examples, with
 * `effort`, but not yet documents. BAD_INPUT if only some have weights, if an argument with a weight holds both kinds,
 * or if there are no rows of examples; otherwise as corpus_open. The tokenizer must outlive them. `held` is that of
 * each component. */
enum status components_open(const struct sources *sources, const struct dataset_options *options, double held,
                            struct tokenize_effort effort, struct components *components);
void components_close(struct components *components);

/* Number of rows for training, from row 0 on, and of rows after them for validation. */
struct component_rows {
    int64_t train, held;
};
/* Waits for at least `train` training rows, or all (INT64_MAX). Makes missing tokens like corpus_require. *out is a
 * lower bound on the training rows. If it is less than `train`, it and `held` are exact. BAD_INPUT if all tokens
 * together make less than one row, or none besides those held out. */
enum status component_require(const struct component *component, const struct dataset_options *options, int64_t train,
                              struct tokenize_effort effort, struct component_rows *out);

/* Fills a sequence whose tokens are made: `index` counts the sequences of rows. *counted is the number of counted
 * targets. FAILED if it cannot be read. */
enum status component_fill_row(const struct component *component, const struct dataset_options *options, int64_t index,
                               const struct row *row, int64_t *counted);
/* Logs how full the rows of examples are, how many examples were truncated or omitted, and the notes on complete
 * texts. */
void component_report_cuts(const struct component *component, const struct dataset_options *options);
