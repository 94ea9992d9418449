#include "support/coded_numbers.h"

#include <math.h>
#include <string.h>

static float float_at(const unsigned char *bytes, int64_t at) {
    float value;
    memcpy(&value, bytes + at, sizeof value);
    return value;
}

float coded_number(const struct weight_layout *layout, const void *from, int64_t index) {
    const unsigned char *bytes = from;
    int64_t block = index / layout->block;
    if (layout->format == WEIGHT_INT8) {
        float code = (float)(signed char)bytes[index];
        code *= float_at(bytes, layout->scales_at + 4 * block);
        return code * WEIGHT_INT8_STEP;
    }
    int pair = bytes[index / 2], scale = bytes[layout->scales_at + block * layout->scale_bytes];
    if (layout->format == WEIGHT_MXFP4)
        return ldexpf(weight_mxfp4_values[index % 2 ? pair >> 4 : pair & 15], scale - 127);
    if (layout->format == WEIGHT_NF4_WIDE)
        return weight_nf4_values[index % 2 ? pair & 15 : pair >> 4] * float_at(bytes, layout->scales_at + 4 * block);
    float group = float_at(bytes, layout->groups_at + 4 * (block / 256));
    float size = weight_scale_map[scale] * group;
    size += float_at(bytes, layout->offset_at);
    return weight_nf4_values[index % 2 ? pair & 15 : pair >> 4] * size;
}
