/* Rows of training: the source of each row, the order of a source's rows, and the contents of a row. */
#pragma once

#include "base/base.h"
#include "data/corpus.h"

/* Order of rows, a pure function of the seed.
 *
 * An endless sequence of ordinals goes through the rows in epochs. Later epochs permute all rows. The first epoch
 * permutes them within shuffle buffers of 64, 128, 256, ... rows; the last one ends with the rows. So readers need only
 * the beginning of the text, at most 64 rows beyond twice the rows read. Training can begin while the rest is being
 * tokenized. The order does not depend on tokenizing. Up to 64 rows are one shuffle buffer. */

/* The end of the shuffle buffer of an ordinal >= 0, for an unlimited number of rows: more than the ordinal. */
int64_t row_order_shuffle_buffer_end(int64_t ordinal);

/* The row, 0 to rows - 1, of an ordinal. `rows` >= 1 is the number of rows, or any lower bound on it that is at least
 * row_order_shuffle_buffer_end(ordinal): all give the same row. */
int64_t row_order_at(uint64_t seed, int64_t ordinal, int64_t rows);

/* Chooses the source of each training row: in exact proportions, as a pure function of the position, so there is no
 * state to save.
 *
 * The sources' weights are integers with the sum W. Any W consecutive positions hold exactly weight[k] draws of source
 * k. Any n positions hold at most K - 1 fewer or more than n * weight[k] / W (K sources). */

struct mixture {
    struct mixture_part {
        int64_t weight;
        int64_t rest;   /* of the weights from this part on */
        int64_t offset; /* 0 to rest - 1: the first position's place in the rotation */
    } * parts;
    size_t count;
};

/* Weights of at least 1 whose sum fits 62 bits (BAD_INPUT otherwise); `seed` chooses the start of the rotation. */
enum status mixture_create(const int64_t *weights, size_t count, uint64_t seed, struct mixture *out);
void mixture_free(struct mixture *mixture);

/* Draw number `ordinal` (from 0, without gaps as positions grow) of source `part`. */
struct mixture_draw {
    size_t part;
    int64_t ordinal;
};
/* `position` is at least 0 and below INT64_MAX. */
struct mixture_draw mixture_at(const struct mixture *mixture, int64_t position);

/* One sequence of a batch, and how it is filled. */

/* Arrays of `length`. positions and segments may be NULL. */
struct row {
    int64_t length;
    int32_t *tokens, *targets;
    int32_t *positions; /* of a token in its segment, from 0 */
    int32_t *segments;  /* segment of a token, from 0 */
};

/* Fills the row with tokens first .. first+length-1 of a corpus, each with its successor as target. *counted is the
 * number of counted targets. The row is one segment unless `border` is at least 0. Then each token of that id ends a
 * segment and has no target, since another document follows. Errors as in corpus_read. */
enum status row_fill_tokens(const struct row *row, struct corpus *corpus, int64_t first, int64_t border,
                            int64_t *counted);
/* Fills from `from` on: tokens 0 with targets TARGET_PADDING, as one more segment. */
void row_fill_padding(const struct row *row, int64_t from, int32_t segment);

/* Assignment of examples to rows of T tokens. */

/* Row r holds the examples order[row_first[r]] .. order[row_first[r + 1] - 1], one after the other. Example e has the
 * marked ids starts[e] .. starts[e + 1] - 1 of the corpus. An example of n ids takes n - 1 positions of a row: its last
 * id is only a target. */
struct packing {
    int64_t *starts; /* [examples + 1] */
    uint32_t *order;
    int64_t *row_first; /* [rows + 1] */
    int64_t examples, rows;
    int64_t held_rows;   /* the last rows, which have the held-out examples; 0: none */
    int64_t places;      /* positions in all rows with a token of an example */
    int64_t packed_rows; /* rows that packed examples would need; for pairs `rows` */
    int64_t cut;         /* examples longer than a row, which are truncated */
    /* If examples are truncated: the longest length and the 95th percentile, in positions of a row. */
    int64_t longest, percentile_95;
    int64_t left_out; /* examples, or pairs, without a target in the part that fits a row */
};

/* Assigns examples to rows, from the marked ids of a complete corpus; `name` is the corpus in messages.
 * - With `pack_examples` several examples share a row, by best fit in decreasing order of length; rows have a fixed
 *   random order. Otherwise each example has its own row, in order.
 * - Pairs (examples 2i and 2i + 1) are adjacent, both with a row or both without, and are not packed.
 * - `held`, 0 to below 1: this fraction of the examples with a row, the last ones, have the last rows to themselves.
 *   Only for packed examples.
 *
 * BAD_INPUT if an id is vocab_size or more, or if the ids are not examples. There may be no rows. */
enum status packing_create(struct corpus *corpus, const struct dataset_options *options, double held, const char *name,
                           struct packing *out);
void packing_free(struct packing *packing);

/* Number of `count` rows or examples that this fraction holds out: at least one if it is above 0, and never all. */
int64_t packing_held(int64_t count, double fraction);

/* Fills a row; *counted is the number of counted targets. FAILED if it cannot be read. */
enum status packing_fill_row(const struct packing *packing, struct corpus *corpus, int64_t index, bool loss_on_all,
                             const struct row *row, int64_t *counted);

/* Packs items of these sizes (1 to `capacity` each) into rows: row_of[i] for each item, by best fit in decreasing
 * order. Items of size 0 get UINT32_MAX. *rows is the number of rows. */
enum status packing_fit(const int32_t *sizes, int64_t count, int64_t capacity, uint32_t *row_of, int64_t *rows);
