/* Quantizes a matrix (ir/weight_format.h).
 *
 * - nf4: codes are bit-identical to bitsandbytes' quantize_4bit. Numbers are multiplied by the reciprocal of their
 *   block's largest magnitude and rounded to the nearest value; numbers of an incomplete last block are divided by it.
 *   Scales use its double quantization: their mean is subtracted, and the rest rounded to the nearest of the dynamic
 *   map in 8 bits. The mean is rounded once here; bitsandbytes sums in fp32.
 * - int8: bitsandbytes' int8_vectorwise_quant of the numbers in fp32; rows of zeros stay zero.
 * - mxfp4: the MX specification's. The scale is the power of two below the block's largest magnitude, minus the
 *   format's own exponent. Numbers are rounded to the nearest value, ties to even, and saturate at the largest
 * value. */
#pragma once

#include "base/base.h"
#include "ir/tensor.h"
#include "ir/weight_format.h"
#include "model/model.h"

/* Source of numbers, in the order of the matrix. Any number of threads may read at once. */
struct number_source {
    enum status (*read)(const void *payload, int64_t first, int64_t count, float *out);
    const void *payload;
};
struct quantiser;
enum status quantiser_open(const struct weight_code *code, const struct number_source *source, struct quantiser **out);
/* Accepts NULL. */
void quantiser_close(struct quantiser *quantiser);
struct weight_source quantiser_source(struct quantiser *quantiser);

/* Quantizes the whole weight to `out`, shape_bytes of the weight's tensor. */
enum status quantise_weight(const struct weight_code *code, const struct number_source *source, void *out);

/* Fills a program's part of a quantized weight (ir/weight_format.h): all of it, a run of its bytes, or a rank's part.
 * Blocks are those of the whole weight, which is never in memory. Pieces are read or quantized on demand, and those for
 * a store go through a buffer of BYTE_STORE_PIECE. Additional memory is that of a quantizer and a reader of parts
 * (ir/weight_format.h). */

/* The whole weight of which a tensor is a part, as a tensor of its own. If the tensor is no part, itself. It borrows
 * from `tensor`. */
struct tensor quantized_weight_whole(const struct tensor *tensor);

/* Fills the target from its source's pieces: into memory, or through a buffer to its store. */
enum status weight_target_fill(const struct weight_target *target, const struct weight_source *source);
/* Quantizes numbers of the whole weight, in its order. BAD_INPUT for one that is not finite. */
enum status quantized_weight_quantise(const struct weight_target *target, const struct number_source *numbers);
/* Reads files that have the whole weight in its format. */
enum status quantized_weight_read(const struct weight_target *target, const struct safetensors *set);
