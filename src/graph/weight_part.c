#include "graph/weight_part.h"

#include <string.h>

#include "base/status.h"

enum { NF4_ZERO = 0x77, INTEGERS_ZERO = 0x88 };

enum weight_format weight_part_format(enum weight_format whole) {
    return whole == WEIGHT_NF4 ? WEIGHT_NF4_WIDE : whole;
}

struct weight_code weight_part_whole(const struct tensor *tensor) {
    return (struct weight_code){tensor->part->whole_format, tensor->part->whole, tensor->code.block};
}

/* The part as if it held its numbers, for tensor_part_find. */
static struct tensor numbers_of(const struct tensor *tensor) {
    struct tensor numbers = *tensor;
    numbers.shape = tensor->code.values;
    return numbers;
}

/* Blocks are rows or all: any part has whole ones, of the columns that it has. */
static bool has_rows(const struct weight_code *code) {
    return code->format == WEIGHT_INT8 || (weight_format_has_groups(code->format) && code->block <= 0);
}

static bool cuts_columns(const struct tensor_part *part) {
    for (int c = 0; c < part->count; c++)
        if (part->cuts[c].dimension == 1) return true;
    return false;
}

bool weight_part_fits(const struct tensor *tensor) {
    const struct weight_code whole = weight_part_whole(tensor);
    if (has_rows(&whole)) return true;
    if (!weight_format_fits(tensor->code.format, tensor->code.block, tensor->code.values.dims[1])) return false;
    struct tensor numbers = numbers_of(tensor);
    int64_t block = weight_code_layout(&whole).block, columns = tensor->code.values.dims[1], run;
    bool by_columns = cuts_columns(tensor->part);
    if (by_columns && (columns % block != 0 || whole.values.dims[1] % block != 0)) return false;
    /* Each row is as the first one. */
    int64_t end = by_columns ? columns : shape_elements(&tensor->code.values);
    for (int64_t at = 0; at < end; at += run) {
        int64_t from = tensor_part_find(&numbers, at, &run);
        if (at % block != 0 || (from != TENSOR_NOWHERE && from % block != 0)) return false;
    }
    return true;
}

static bool has_bytes(const struct weight_layout *layout) {
    return layout->format == WEIGHT_INT8 || layout->format == WEIGHT_W8A16 || layout->format == WEIGHT_W8A16_ASYM;
}

static bool first_is_high(const struct weight_layout *layout) {
    return layout->format == WEIGHT_NF4 || layout->format == WEIGHT_NF4_WIDE;
}

static void put_code(const struct weight_layout *layout, unsigned char *out, int64_t index, int code) {
    int shift = (index % 2 == 0) == first_is_high(layout) ? 4 : 0;
    out[index / 2] = (unsigned char)((out[index / 2] & ~(15 << shift)) | code << shift);
}

static int code_at(const struct weight_layout *layout, const unsigned char *codes, int64_t index) {
    return codes[index / 2] >> ((index % 2 == 0) == first_is_high(layout) ? 4 : 0) & 15;
}

static void take_codes(const struct weight_layout *layout, const unsigned char *whole, int64_t from, int64_t at,
                       int64_t count, unsigned char *out) {
    if (has_bytes(layout)) {
        memcpy(out + at, whole + from, (size_t)count);
        return;
    }
    int64_t done = 0;
    if (from % 2 == 0 && at % 2 == 0) {
        memcpy(out + at / 2, whole + from / 2, (size_t)(count / 2));
        done = count / 2 * 2;
    }
    for (; done < count; done++)
        put_code(layout, out, at + done, code_at(layout, whole, from + done));
}

static float nf4_scale(const struct weight_layout *layout, const unsigned char *whole, int64_t block) {
    float group, offset;
    memcpy(&group, whole + layout->groups_at + block / WEIGHT_GROUP_BLOCKS * (int64_t)sizeof group, sizeof group);
    memcpy(&offset, whole + layout->offset_at, sizeof offset);
    float scale = weight_scale_map[whole[layout->scales_at + block]] * group;
    return scale + offset;
}

static void take_scale(const struct weight_layout *from, const unsigned char *whole, int64_t from_block,
                       const struct weight_layout *to, int64_t block, unsigned char *out) {
    unsigned char *scale = out + to->scales_at + block * to->scale_bytes;
    if (from->format == WEIGHT_NF4) {
        float value = nf4_scale(from, whole, from_block);
        memcpy(scale, &value, sizeof value);
    } else {
        memcpy(scale, whole + from->scales_at + from_block * from->scale_bytes, (size_t)from->scale_bytes);
    }
    if (to->zeros_at > 0) out[to->zeros_at + block] = whole[from->zeros_at + from_block];
}

/* Scales of numbers [at, at + count), which begin at `first` of the whole. */
static void take_scales(const struct weight_layout *from, const unsigned char *whole, int64_t first,
                        const struct weight_layout *to, int64_t at, int64_t count, unsigned char *out) {
    for (int64_t done = 0, step; done < count; done += step) {
        int64_t block = (at + done) / to->block;
        take_scale(from, whole, (first + done) / from->block, to, block, out);
        step = (block + 1) * to->block - (at + done);
    }
}

static void fill_zeros(const struct weight_layout *layout, unsigned char *out) {
    bool integers = layout->format == WEIGHT_W4A16 || layout->format == WEIGHT_W4A16_ASYM;
    memset(out, 0, (size_t)layout->bytes);
    if (first_is_high(layout)) memset(out, NF4_ZERO, (size_t)layout->codes_bytes);
    if (integers) memset(out, INTEGERS_ZERO, (size_t)layout->codes_bytes);
}

void weight_part_take(const struct tensor *tensor, const unsigned char *whole, unsigned char *out) {
    const struct weight_code code = weight_part_whole(tensor);
    const struct weight_layout from = weight_code_layout(&code), to = weight_code_layout(&tensor->code);
    struct tensor numbers = numbers_of(tensor);
    int64_t all = shape_elements(&tensor->code.values), run;
    BUG_IF(!weight_part_fits(tensor), "a part of %s cuts blocks", tensor->name);
    fill_zeros(&to, out);
    for (int64_t at = 0; at < all; at += run) {
        int64_t first = tensor_part_find(&numbers, at, &run);
        if (first == TENSOR_NOWHERE) continue;
        take_codes(&to, whole, first, at, run, out);
        take_scales(&from, whole, first, &to, at, run, out);
    }
}
