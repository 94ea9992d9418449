/* Numbers of a matrix as a format of fewer bits (ir/weight_format.h).
 *
 * nf4: codes as bitsandbytes' quantize_4bit makes them, to the bit: numbers times the reciprocal of their block's
 * largest magnitude, to the nearest value (those of a last block that is not full are divided by it). Scales as its
 * double quantisation: less their mean, which is rounded once here and there is a sum in fp32, in 8 bits to the
 * nearest of the dynamic map. int8: its int8_vectorwise_quant of the numbers in fp32, rows of zeros as zeros. mxfp4:
 * the MX specification's: the power of two below the block's largest magnitude less the format's own exponent, to the
 * nearest value, ties to even, what is larger than the largest value as that. */
#pragma once

#include "base/base.h"
#include "ir/tensor.h"
#include "ir/weight_format.h"
#include "model/model.h"

/* Where numbers come from, in the order of the matrix. Any number of threads may read at once. */
struct number_source {
    enum status (*read)(const void *payload, int64_t first, int64_t count, float *out);
    const void *payload;
};
struct quantiser;
enum status quantiser_open(const struct weight_code *code, const struct number_source *source, struct quantiser **out);
/* Closes NULL too. */
void quantiser_close(struct quantiser *quantiser);
struct weight_source quantiser_source(struct quantiser *quantiser);

/* All of them to `out`, shape_bytes of the weight's tensor. */
enum status quantise_weight(const struct weight_code *code, const struct number_source *source, void *out);

/* Fills what a program has of a weight in fewer bits (ir/weight_format.h): all of it, a run of its bytes, a rank's
 * part. Blocks are those of the whole weight, which is never in memory: pieces are read or quantised as they are
 * needed, and those for a store go through a buffer of BYTE_STORE_PIECE. Besides that there is what a quantiser
 * and a reader of parts (ir/weight_format.h) hold. */

/* The weight that a tensor is a part of, as a tensor of its own; what is no part, itself. It borrows from `tensor`. */
struct tensor quantized_weight_whole(const struct tensor *tensor);

/* What the target has, from its source's pieces: into memory, or through a buffer to its store. */
enum status weight_target_fill(const struct weight_target *target, const struct weight_source *source);
/* From numbers of the whole weight, in its order. BAD_INPUT for one that is not finite. */
enum status quantized_weight_quantise(const struct weight_target *target, const struct number_source *numbers);
/* From files that have the whole weight in its format. */
enum status quantized_weight_read(const struct weight_target *target, const struct safetensors *set);
