/* The sections of a weight in fewer bits (weight_format.h), a piece at a time: what reads a file, quantises, or takes a
 * rank's part is a source of them, so that nobody holds a weight as a whole. */
#ifndef BALLAST_IR_WEIGHT_SECTIONS_H
#define BALLAST_IR_WEIGHT_SECTIONS_H

#include <stdint.h>

#include "base/status.h"

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

#endif
