/* The maps of moments in 8 bits. The numbers of the signed one are also those of scales (ir/weight_format.h). */
#include "backend/moment_map.h"

#include "backend/moment_numbers.h"

static const float unsigned_numbers[MOMENT_CODES] = {MOMENT_UNSIGNED_NUMBERS};

const struct moment_map moment_map_signed = {.numbers = weight_scale_map, .zero = 127, .levels = MOMENT_LEVELS_OF(1)};
const struct moment_map moment_map_unsigned = {.numbers = unsigned_numbers, .zero = 0, .levels = MOMENT_LEVELS_OF(2)};
