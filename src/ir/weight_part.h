/* A rank's part of a frozen weight in fewer bits, which ranks share: a weight of its own, with the codes and scales
 * that the whole weight has for these numbers. Blocks are those of the whole weight; a part whose numbers would not be
 * whole blocks of it is none. Rows of int8 and of integers, where a row is a block, and the one block of all may be
 * cut: each part has the scale.
 *
 * nf4 becomes nf4-fp32, since the groups of its scales are not those of a part's: the scales are the same numbers. */
#pragma once

#include "base/base.h"
#include "ir/tensor.h"

/* The sections of a weight in fewer bits (weight_format.h), a piece at a time: what reads a file, quantises, or takes a
 * rank's part is a source of them, so that nobody holds a weight as a whole. */

/* Bytes [first, first + bytes) of all that a weight has, and where they go. */
struct weight_piece {
    int64_t first, bytes;
    unsigned char *out;
};

/* Fills any piece of one weight, one call at a time; bytes between sections are 0. Cheapest from the first byte to the
 * last. What fails leaves the piece undefined. */
struct weight_source {
    enum status (*read)(void *payload, const struct weight_piece *piece);
    void *payload;
};

/* What a piece has of bytes [at, at + bytes) of the weight: [*begin, *begin + the result), counted from `at`. */
int64_t weight_piece_overlap(const struct weight_piece *piece, int64_t at, int64_t bytes, int64_t *begin);
/* Where the piece has byte `at` of the weight, which lies in it. */
static inline unsigned char *weight_piece_at(const struct weight_piece *piece, int64_t at) {
    return piece->out + (at - piece->first);
}

/* Copies what the piece has of bytes [at, at + bytes) of the weight, which are at `from`. */
void weight_piece_put(const struct weight_piece *piece, int64_t at, int64_t bytes, const void *from);

/* Of a part of a weight in that format. */
enum weight_format weight_part_format(enum weight_format whole);
/* What the whole is, of a tensor with `part` and `code`. */
struct weight_code weight_part_whole(const struct tensor *tensor);
/* Whether a tensor's numbers are whole blocks of the whole weight. */
bool weight_part_fits(const struct tensor *tensor);
struct weight_part_reader;
enum status weight_part_open(const struct tensor *tensor, struct weight_source whole, struct weight_part_reader **out);
/* Closes NULL too. */
void weight_part_close(struct weight_part_reader *reader);
/* The reader must outlive it. */
struct weight_source weight_part_source(struct weight_part_reader *reader);
