/* Dequantizes a weight number by number, by the definition of ir/weight_format.h. */
#pragma once

#include "ir/weight_format.h"

/* Number `index` of the weight whose sections begin at `bytes`. */
float quantized_number(const struct weight_layout *layout, const void *bytes, int64_t index);
/* Fills the sections of a weight of integers in groups: any codes, and each block with a scale and a zero of its own.
 */
void quantized_fill_integers(const struct weight_layout *layout, void *bytes);
/* Gives each block of a weight whose codes are there another scale than its neighbours; fills one of integers. */
void quantized_vary_scales(const struct weight_layout *layout, void *bytes);
