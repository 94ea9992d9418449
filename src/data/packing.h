/* Which examples lie in which row of T tokens. */
#pragma once

#include "base/base.h"
#include "data/corpus.h"
#include "data/rows.h"

/* Row r holds the examples order[row_first[r]] .. order[row_first[r + 1] - 1], one after the other; example e has the
 * marked ids starts[e] .. starts[e + 1] - 1 of the corpus. An example of n ids takes n - 1 places of a row: its last id
 * is a target only. */
struct packing {
    int64_t *starts; /* [examples + 1] */
    uint32_t *order;
    int64_t *row_first; /* [rows + 1] */
    int64_t examples, rows;
    int64_t held_rows;   /* the last rows, which hold the held-out examples; 0: none */
    int64_t places;      /* positions in all rows that hold a token of an example */
    int64_t packed_rows; /* rows that packed examples would need; for pairs `rows` */
    int64_t cut;         /* examples longer than a row, which are truncated */
    /* If examples are cut: the longest length and the 95th percentile, in positions of a row. */
    int64_t longest, percentile_95;
    int64_t left_out; /* examples, or pairs, with nothing to train on in the part that fits a row */
};

struct packing_options {
    int64_t sequence_tokens; /* T */
    int64_t vocab_size;
    bool together; /* several examples to a row, by best fit in decreasing order of length; rows in a fixed random
                      order. Otherwise one to a row, in their order */
    double held;   /* the last examples, this fraction of those with a row, share rows of their own, the last ones; 0 to
                      below 1. Of examples that are packed alone */
    bool loss_on_all; /* trains on all tokens but masked ones, not only on marked ones */
    bool pairs; /* examples 2i and 2i + 1 are a pair: both have a row or none, one after the other; not together */
    const char *name; /* of the corpus, in messages */
};

/* Examines the marked ids of a corpus that is whole. BAD_INPUT when an id is vocab_size or more, or when the ids are
 * not examples. There may be no rows. */
enum status packing_create(struct corpus *corpus, const struct packing_options *options, struct packing *out);
void packing_free(struct packing *packing);

/* How many of `count` rows or examples are held out for this fraction: at least one where it is above 0, and never
 * all. */
int64_t packing_held(int64_t count, double fraction);

/* Fills a row; *counted is the number of targets that count. FAILED when it cannot be read. */
enum status packing_fill_row(const struct packing *packing, struct corpus *corpus, int64_t index, bool loss_on_all,
                             const struct row *row, int64_t *counted);

/* Rows for items of these sizes (1 to `capacity` each): row_of[i] for each item, by best fit in decreasing order; items
 * of size 0 get UINT32_MAX. *rows is their number. */
enum status packing_fit(const int32_t *sizes, int64_t count, int64_t capacity, uint32_t *row_of, int64_t *rows);
