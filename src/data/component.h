/* A component of a mixture: files of one kind with one weight, as rows of T tokens each; of pairs, two such sequences
 * are a row. */
#pragma once

#include "base/base.h"
#include "data/corpus.h"
#include "data/rows.h"
#include "data/source.h"

struct component {
    struct corpus *corpus;
    bool supervised;        /* rows are packed examples, not sequences of the corpus's tokens */
    struct packing packing; /* of a supervised one, whose corpus is whole */
    int64_t first_sequence; /* of a supervised one: among those of all of a dataset's components */
    double held;    /* the fraction at the end that is for validation: of examples where they are packed, else of
                       rows; 0: none */
    int64_t weight; /* in millionths; 0: by size */
    char *name;     /* the first file's path, and how many more there are */
};

/* A VEC. */
struct components {
    struct component *items;
    size_t count, capacity;
};

/* Opens all sources behind those of *components, which has them on failure too: without weights neighbours of a kind
 * (documents, examples) are one component, with weights those of an argument. Examples are tokenized, with `effort`;
 * documents not yet. BAD_INPUT when only some have weights, or an argument that has one holds both kinds; when there
 * are no rows of examples; and as corpus_open. The tokenizer must outlive them. `held` is that of each component. */
enum status components_open(const struct sources *sources, const struct dataset_options *options, double held,
                            struct tokenize_effort effort, struct components *components);
void components_close(struct components *components);

/* How many rows there are for training, from row 0, and behind them for validation. */
struct component_rows {
    int64_t train, held;
};
/* Returns when there are at least `train` rows for training, or all (INT64_MAX): makes missing tokens as
 * corpus_require. *out is a lower bound of the rows for training; where it is less than `train`, it is exact, and so is
 * `held`. BAD_INPUT when all tokens together make less than one row, or none besides those held out. */
enum status component_require(const struct component *component, const struct dataset_options *options, int64_t train,
                              struct tokenize_effort effort, struct component_rows *out);

/* Fills a sequence whose tokens are made: `index` counts those of rows. *counted is the number of targets that count.
 * FAILED when it cannot be read. */
enum status component_fill_row(const struct component *component, const struct dataset_options *options, int64_t index,
                               const struct row *row, int64_t *counted);
/* Logs how full the rows of examples are, how many examples were cut or left out, and the notes about texts that are
 * whole. */
void component_report_cuts(const struct component *component, const struct dataset_options *options);
