/* What compressed-tensors stores, for stored_format: quantization_config, and integers in groups (w4a16, w8a16). A
 * weight NAME.weight lies in NAME.weight_packed      I32 [rows, words]: codes of 4 or 8 bits plus 8 or 128, the first
 * one in the lowest bits; a row begins with a word NAME.weight_shape       I64: rows, columns or, of int-quantized,
 * codes of 8 bits that are not packed, in NAME.weight             I8 [rows, columns] and in NAME.weight_scale F32, BF16
 * or F16 [rows, groups], of the whole tensor [1] NAME.weight_zero_point  where it is asymmetric: as codes, packed along
 * the rows [words, groups]; of the whole tensor, and where codes are not packed, I8 as the scales The numbers are those
 * of compressed-tensors' dequantize, (code - zero) * scale, before it rounds them to the scale's dtype; a GEMM
 * rounds them to its own. */
#ifndef BALLAST_MODEL_STORED_COMPRESSED_H
#define BALLAST_MODEL_STORED_COMPRESSED_H

#include "model/stored_format.h"

/* stored_format_read_config of quantization_config that compressed-tensors wrote. */
enum status compressed_read_config(const char *file, const json_t *object, struct stored_format *out);
/* stored_weight_check and stored_weight_read of integers in groups; the piece is filled with zeros. */
enum status compressed_check(const struct safetensors *set, const struct tensor *parameter, bool *used);
enum status compressed_read(const struct safetensors *set, const struct tensor *parameter,
                            const struct weight_piece *piece);

#endif
