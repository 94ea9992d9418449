/* Fills what a program has of a weight in fewer bits (ir/weight_format.h): all of it, a run of its bytes, a rank's
 * part. Blocks are those of the whole weight, which is never in memory: pieces are read or quantised as they are
 * needed, and those for a store go through a buffer of BYTE_STORE_PIECE. Besides that there is what a quantiser
 * (model/quantise.h) and a reader of parts (ir/weight_part.h) hold. */
#ifndef BALLAST_MODEL_QUANTIZED_WEIGHTS_H
#define BALLAST_MODEL_QUANTIZED_WEIGHTS_H

#include "model/model.h"
#include "model/quantise.h"

/* The weight that a tensor is a part of, as a tensor of its own; what is no part, itself. It borrows from `tensor`. */
struct tensor quantized_weight_whole(const struct tensor *tensor);

/* From numbers of the whole weight, in its order. BAD_INPUT for one that is not finite. */
enum status quantized_weight_quantise(const struct weight_target *target, const struct number_source *numbers);
/* From files that have the whole weight in its format. */
enum status quantized_weight_read(const struct weight_target *target, const struct safetensors *set);

#endif
