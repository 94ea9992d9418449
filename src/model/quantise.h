/* Numbers of a matrix as a format of fewer bits (ir/weight_format.h).
 *
 * nf4: codes as bitsandbytes' quantize_4bit makes them, to the bit: numbers times the reciprocal of their block's
 * largest magnitude, to the nearest value (those of a last block that is not full are divided by it). Scales as its
 * double quantisation: less their mean, which is rounded once here and there is a sum in fp32, in 8 bits to the
 * nearest of the dynamic map. int8: its int8_vectorwise_quant of the numbers in fp32, rows of zeros as zeros. mxfp4:
 * the MX specification's: the power of two below the block's largest magnitude less the format's own exponent, to the
 * nearest value, ties to even, what is larger than the largest value as that. */
#ifndef BALLAST_MODEL_QUANTISE_H
#define BALLAST_MODEL_QUANTISE_H

#include <stdint.h>

#include "base/status.h"
#include "ir/tensor.h"
#include "ir/weight_sections.h"

/* Where numbers come from, in the order of the matrix. Any number of threads may read at once. */
struct number_source {
    enum status (*read)(const void *payload, int64_t first, int64_t count, float *out);
    const void *payload;
};

/* The sections of a weight, a piece at a time. Next to a piece it holds the scales alone (a number for each block, the
 * mean of nf4's scales is of all of them) and, for each of OpenMP's threads, QUANTISER_PIECE numbers or a row of int8.
 * Pieces that follow each other read each number once. The same bytes with any number of threads and in any pieces.
 * What the source reads outlives it. Reading: BAD_INPUT for a number that is not finite; FAILED without memory or where
 * the source fails. */
enum { QUANTISER_PIECE = WEIGHT_GROUP_BLOCKS * 64 };
struct quantiser;
enum status quantiser_open(const struct weight_code *code, const struct number_source *source, struct quantiser **out);
/* Closes NULL too. */
void quantiser_close(struct quantiser *quantiser);
struct weight_source quantiser_source(struct quantiser *quantiser);

/* All of them to `out`, shape_bytes of the weight's tensor. */
enum status quantise_weight(const struct weight_code *code, const struct number_source *source, void *out);

#endif
