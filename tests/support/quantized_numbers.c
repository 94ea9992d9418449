#include "support/quantized_numbers.h"

#include <math.h>
#include <string.h>

static float float_at(const unsigned char *bytes, int64_t at) {
    float value;
    memcpy(&value, bytes + at, sizeof value);
    return value;
}

static bool has_pairs(const struct weight_layout *layout) {
    return layout->format == WEIGHT_W4A16 || layout->format == WEIGHT_W4A16_ASYM;
}

static float integer_number(const struct weight_layout *layout, const unsigned char *bytes, int64_t index) {
    int64_t block = index / layout->block;
    int code = has_pairs(layout) ? (bytes[index / 2] >> (index % 2 ? 4 : 0) & 15) - 8 : (signed char)bytes[index];
    if (layout->zeros_at > 0) code -= (signed char)bytes[layout->zeros_at + block];
    return (float)code * float_at(bytes, layout->scales_at + 4 * block);
}

void quantized_fill_integers(const struct weight_layout *layout, void *to) {
    unsigned char *bytes = to;
    memset(bytes, 0, (size_t)layout->bytes);
    for (int64_t i = 0; i < layout->codes_bytes; i++)
        bytes[i] = (unsigned char)((uint64_t)(i + 5) * 2654435761u >> 13);
    for (int64_t i = 0; i < layout->scales; i++) {
        float scale = 0.0371f * (float)(i % 13 + 1);
        memcpy(bytes + layout->scales_at + 4 * i, &scale, sizeof scale);
        if (layout->zeros_at > 0)
            bytes[layout->zeros_at + i] = (unsigned char)((has_pairs(layout) ? i % 16 : i % 256) - 8);
    }
}

float quantized_number(const struct weight_layout *layout, const void *from, int64_t index) {
    const unsigned char *bytes = from;
    int64_t block = index / layout->block;
    if (layout->format == WEIGHT_INT8) {
        float code = (float)(signed char)bytes[index];
        code *= float_at(bytes, layout->scales_at + 4 * block);
        return code * WEIGHT_INT8_STEP;
    }
    if (weight_format_has_groups(layout->format)) return integer_number(layout, bytes, index);
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

static void vary_scale(const struct weight_layout *layout, unsigned char *scale, int64_t block) {
    float wide = 0.0625f * (float)(block % 13 + 1);
    if (layout->scale_bytes == (int64_t)sizeof wide)
        memcpy(scale, &wide, sizeof wide);
    else
        *scale = (unsigned char)(layout->format == WEIGHT_MXFP4 ? 122 + block % 5 : block * 7 % 256);
}

void quantized_vary_scales(const struct weight_layout *layout, void *to) {
    unsigned char *bytes = to;
    if (weight_format_has_groups(layout->format)) return quantized_fill_integers(layout, to);
    for (int64_t i = 0; i < layout->scales; i++)
        vary_scale(layout, bytes + layout->scales_at + i * layout->scale_bytes, i);
    for (int64_t i = 0; i < layout->groups; i++) {
        float group = 0.03125f * (float)(i % 5 + 1);
        memcpy(bytes + layout->groups_at + i * (int64_t)sizeof group, &group, sizeof group);
    }
}
