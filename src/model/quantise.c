#include "model/quantise.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/wide_vectors.h"
#include "graph/finite.h"

/* Numbers that a thread reads at a time: whole blocks, and whole pairs of codes. */
enum { PIECE = WEIGHT_GROUP_BLOCKS * 64 };

/* What all threads make of one weight. */
struct quantising {
    const struct weight_layout *layout;
    const struct number_source *source;
    unsigned char *out;
    float *largest; /* nf4: of each block */
    enum status status;
    char message[512];
};

/* Of finite numbers. */
WIDE_VECTORS static float largest_of(const float *numbers, int64_t count) {
    float largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < count; i++)
        largest = fabsf(numbers[i]) > largest ? fabsf(numbers[i]) : largest;
    return largest;
}

/* Pairs of codes, the first one in the high bits or in the low ones; numbers after the last have the code `rest`. */
static void write_pairs(const uint8_t *codes, int64_t count, bool high_first, uint8_t rest, unsigned char *out) {
    for (int64_t i = 0; i < count; i += 2) {
        uint8_t first = codes[i], second = i + 1 < count ? codes[i + 1] : rest;
        out[i / 2] = (unsigned char)(high_first ? first << 4 | second : second << 4 | first);
    }
}

/* ---- nf4 ---- */

enum { NF4_BLOCK = 64, NF4_ZERO = 7 };

/* How many of the borders between neighbouring values are below each number. */
WIDE_VECTORS static void nf4_codes(const float *numbers, int64_t count, uint8_t *codes) {
    int32_t below[NF4_BLOCK] = {0};
    for (int border = 0; border + 1 < WEIGHT_CODES; border++) {
        float middle = (weight_nf4_values[border] + weight_nf4_values[border + 1]) / 2;
        for (int64_t i = 0; i < NF4_BLOCK; i++)
            below[i] += numbers[i] > middle;
    }
    for (int64_t i = 0; i < count; i++)
        codes[i] = (uint8_t)below[i];
}

static void nf4_block(const float *numbers, int64_t count, float *largest, uint8_t *codes) {
    static const float least = 1e-38f;
    bool full = count == NF4_BLOCK;
    *largest = largest_of(numbers, count);
    float divisor = *largest > least ? *largest : least, factor = 1.0f / divisor;
    float scaled[NF4_BLOCK] = {0};
    if (!full) *largest = divisor;
    for (int64_t i = 0; i < count; i++)
        scaled[i] = full ? numbers[i] * factor : numbers[i] / divisor;
    nf4_codes(scaled, count, codes);
}

static void nf4_piece(struct quantising *work, const float *numbers, int64_t first, int64_t count) {
    uint8_t codes[PIECE];
    for (int64_t at = 0; at < count; at += NF4_BLOCK)
        nf4_block(numbers + at, count - at < NF4_BLOCK ? count - at : NF4_BLOCK,
                  &work->largest[(first + at) / NF4_BLOCK], codes + at);
    write_pairs(codes, count, true, NF4_ZERO, work->out + first / 2);
}

/* The nearest of the map's numbers, which ascend; half way between two the higher one. */
static uint8_t scale_code(float number) {
    int low = 0, high = WEIGHT_SCALES - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (weight_scale_map[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    return (uint8_t)(number >= (weight_scale_map[low] + weight_scale_map[high]) * 0.5f ? high : low);
}

static void nf4_group(float *scales, int64_t count, float *group, unsigned char *codes) {
    *group = largest_of(scales, count);
    float factor = *group > 0 ? 1.0f / *group : 0;
    for (int64_t i = 0; i < count; i++)
        codes[i] = scale_code(scales[i] * factor);
}

static void nf4_scales(const struct quantising *work) {
    const struct weight_layout *layout = work->layout;
    double sum = 0;
    for (int64_t i = 0; i < layout->scales; i++)
        sum += (double)work->largest[i];
    float offset = (float)(sum / (double)layout->scales);
    for (int64_t i = 0; i < layout->scales; i++)
        work->largest[i] -= offset;
    for (int64_t g = 0; g < layout->groups; g++) {
        int64_t first = g * WEIGHT_GROUP_BLOCKS, left = layout->scales - first;
        float group;
        nf4_group(work->largest + first, left < WEIGHT_GROUP_BLOCKS ? left : WEIGHT_GROUP_BLOCKS, &group,
                  work->out + layout->scales_at + first);
        memcpy(work->out + layout->groups_at + g * (int64_t)sizeof group, &group, sizeof group);
    }
    memcpy(work->out + layout->offset_at, &offset, sizeof offset);
}

/* ---- int8 ---- */

static void int8_row(struct quantising *work, const float *numbers, int64_t first, int64_t count) {
    float largest = largest_of(numbers, count), factor = largest > 0 ? 1.0f / largest * 127.0f : 0;
    int8_t *codes = (int8_t *)work->out + first;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        codes[i] = (int8_t)rintf(numbers[i] * factor);
    memcpy(work->out + work->layout->scales_at + first / count * (int64_t)sizeof largest, &largest, sizeof largest);
}

/* ---- mxfp4 ---- */

enum { MXFP4_BLOCK = 32, MXFP4_EXPONENT = 2, EXPONENT_BIAS = 127, EXPONENT_MOST = 254 };

/* To the nearest of the magnitudes 0, 1/2, 1, 3/2, 2, 3, 4, 6, ties to the even code. */
static uint8_t mxfp4_code(float number) {
    float size = fabsf(number);
    uint8_t code = size > 0.25f;
    code = (uint8_t)(code + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) + (size > 2.5f) + (size >= 3.5f) +
                     (size > 5.0f));
    return signbit(number) ? code | 8 : code;
}

static void mxfp4_piece(struct quantising *work, const float *numbers, int64_t first, int64_t count) {
    uint8_t codes[PIECE];
    for (int64_t at = 0; at < count; at += MXFP4_BLOCK) {
        float largest = largest_of(numbers + at, MXFP4_BLOCK);
        int exponent = largest > 0 ? ilogbf(largest) - MXFP4_EXPONENT : -EXPONENT_BIAS;
        exponent = exponent < -EXPONENT_BIAS ? -EXPONENT_BIAS : exponent;
        for (int64_t i = at; i < at + MXFP4_BLOCK; i++)
            codes[i] = mxfp4_code(ldexpf(numbers[i], -exponent));
        work->out[work->layout->scales_at + (first + at) / MXFP4_BLOCK] = (unsigned char)(exponent + EXPONENT_BIAS);
    }
    write_pairs(codes, count, false, 0, work->out + first / 2);
}

/* ---- all ---- */

static void keep_failure(struct quantising *work, enum status status) {
#pragma omp critical(quantise_failure)
    {
        work->status = status;
        snprintf(work->message, sizeof work->message, "%s", status_message());
    }
}

static enum status quantise_piece(struct quantising *work, int64_t first, int64_t count, float *numbers) {
    TRY(work->source->read(work->source->payload, first, count, numbers));
    if (values_find_nonfinite(DTYPE_F32, numbers, count) >= 0)
        return status_set(STATUS_BAD_INPUT, "holds a value that is not finite");
    switch (work->layout->format) {
    case WEIGHT_NF4:
    case WEIGHT_NF4_WIDE: nf4_piece(work, numbers, first, count); break;
    case WEIGHT_INT8: int8_row(work, numbers, first, count); break;
    case WEIGHT_MXFP4: mxfp4_piece(work, numbers, first, count); break;
    default: BUG("quantising as %s", weight_format_name(work->layout->format));
    }
    return STATUS_OK;
}

/* A piece of int8 is a row. */
static enum status quantise_pieces(struct quantising *work) {
    const struct weight_layout *layout = work->layout;
    int64_t all = layout->rows * layout->columns, piece = layout->format == WEIGHT_INT8 ? layout->columns : PIECE;
    float *rooms = mem_array((size_t)omp_get_max_threads() * (size_t)piece, sizeof *rooms);
    if (!rooms) return STATUS_FAILED;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t at = 0; at < all; at += piece) {
        enum status status =
            quantise_piece(work, at, all - at < piece ? all - at : piece, rooms + omp_get_thread_num() * piece);
        if (status != STATUS_OK) keep_failure(work, status);
    }
    mem_free(rooms);
    return work->status == STATUS_OK ? STATUS_OK : status_set(work->status, "%s", work->message);
}

enum status quantise_weight(const struct weight_code *code, const struct number_source *source, void *out) {
    struct weight_layout layout = weight_code_layout(code);
    struct quantising work = {.layout = &layout, .source = source, .out = out};
    memset(out, 0, (size_t)layout.bytes);
    bool nf4 = code->format == WEIGHT_NF4 || code->format == WEIGHT_NF4_WIDE;
    if (nf4) {
        work.largest = mem_array((size_t)layout.scales, sizeof *work.largest);
        if (!work.largest) return STATUS_FAILED;
    }
    enum status status = quantise_pieces(&work);
    if (status == STATUS_OK && code->format == WEIGHT_NF4) nf4_scales(&work);
    if (status == STATUS_OK && code->format == WEIGHT_NF4_WIDE)
        memcpy(work.out + layout.scales_at, work.largest, (size_t)layout.scales * sizeof *work.largest);
    mem_free(work.largest);
    return status;
}
