/* Numbers of a matrix as a format of fewer bits (graph/weight_format.h).
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
#include "graph/tensor.h"

/* Where numbers come from, in the order of the matrix. Any number of threads may read at once. */
struct number_source {
    enum status (*read)(const void *payload, int64_t first, int64_t count, float *out);
    const void *payload;
};

/* Writes the sections of the weight to `out`, shape_bytes of its tensor; with OpenMP's threads, and the same bytes with
 * any number. BAD_INPUT for a number that is not finite; FAILED without memory or where the source fails. */
enum status quantise_weight(const struct weight_code *code, const struct number_source *source, void *out);

#endif
