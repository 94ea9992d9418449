/* Rows of training: which source each comes from, in which order a source's rows come, and how a row is filled. */
#pragma once

#include "base/base.h"
#include "data/corpus.h"

/* The order is a pure function of the seed.
 *
 * An endless sequence of ordinals goes through the rows in epochs. Later epochs permute all rows. The first permutes
 * them within shuffle buffers of 64, 128, 256, ... rows, the last of which ends where the rows do: whoever reads it
 * needs the beginning of the text only, and never more than 64 rows beyond twice what was read, so that training can
 * begin while the rest is being tokenized. The order is this one whether or not it is. Up to 64 rows are one shuffle
 * buffer. */

/* The end of the shuffle buffer of an ordinal >= 0, as if the number of rows were unlimited: more than the ordinal. */
int64_t row_order_shuffle_buffer_end(int64_t ordinal);

/* The row, 0 to rows - 1, of an ordinal. `rows` >= 1 is the number of rows, or any lower bound of it that is at least
 * row_order_shuffle_buffer_end(ordinal): all give the same row. */
int64_t row_order_at(uint64_t seed, int64_t ordinal, int64_t rows);

/* Which of several sources each row of training comes from: in exact proportions, and a pure function of the position,
 * so that there is nothing to save.
 *
 * The sources' weights are whole numbers with the sum W. Any W positions in a row hold exactly weight[k] draws of
 * source k, and any n positions at least 1 - K fewer or more than n * weight[k] / W would be (K sources). */

struct mixture {
    struct mixture_part {
        int64_t weight;
        int64_t rest;   /* of the weights from this part on */
        int64_t offset; /* 0 to rest - 1: where in the rotation the first position stands */
    } * parts;
    size_t count;
};

/* Weights of at least 1 whose sum fits 62 bits (BAD_INPUT otherwise); `seed` picks where the rotation begins. */
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
    int32_t *segments;  /* which segment a token is of, from 0 */
};

/* Tokens first .. first+length-1 of a corpus, each with its successor as target; *counted is the number of targets
 * that count. The row is one segment unless `border` is at least 0: then each token of that id ends a segment, and has
 * no target, since what follows is another document. As corpus_read. */
enum status row_fill_tokens(const struct row *row, struct corpus *corpus, int64_t first, int64_t border,
                            int64_t *counted);
/* From `from` on: tokens 0 with targets TARGET_PADDING, as one segment more. */
void row_fill_padding(const struct row *row, int64_t from, int32_t segment);

/* Which examples lie in which row of T tokens. */

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

/* Examines the marked ids of a corpus that is whole; `name` stands for it in messages. With `pack_examples` several
 * share a row, by best fit in decreasing order of length, and rows come in a fixed random order; otherwise one has a
 * row, in their order. Of pairs (examples 2i and 2i + 1) both have a row or none, one after the other, and they are not
 * packed. `held`, 0 to below 1: the last examples, this fraction of those with a row, share rows of their own, the last
 * ones; of examples that are packed alone. BAD_INPUT when an id is vocab_size or more, or when the ids are not
 * examples. There may be no rows. */
enum status packing_create(struct corpus *corpus, const struct dataset_options *options, double held, const char *name,
                           struct packing *out);
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
