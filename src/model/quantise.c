#include "model/quantise.h"

#include <math.h>
#include <omp.h>

#include "base/base.h"
#include "ir/tensor.h"
#include "ir/weight_format.h"
#include "model/stored_format.h"

/* Computes the sections of a quantized weight piece by piece. Besides a piece it holds only:
 * - the scales, a number for each block, since the mean of nf4's scales covers all of them;
 * - for each OpenMP thread, QUANTISER_PIECE numbers or a row of int8.
 *
 * Consecutive pieces read each number once. The bytes do not depend on the number of threads or on the pieces. The
 * source outlives it. Reading: BAD_INPUT for a number that is not finite; FAILED without memory or if the source
 * fails. */
enum { QUANTISER_PIECE = WEIGHT_GROUP_BLOCKS * 64 };

/* A unit is the work item of a thread: a row of int8, otherwise complete blocks; for nf4, those of one group of
 * scales. */
struct quantiser {
    struct weight_layout layout;
    struct number_source source;
    int64_t unit, units;
    unsigned char *made;   /* of each unit: whether its scales are in `scales` */
    unsigned char *scales; /* of each block: for mxfp4 its exponent, otherwise an fp32 number, the largest magnitude */
    int64_t scale_bytes;
    bool has_offset; /* nf4 */
    float offset;
};

/* Working memory of one thread. */
struct unit {
    int64_t first, count; /* numbers */
    float *numbers;
    uint8_t *codes;        /* one per byte; NULL: only scales are wanted */
    unsigned char *packed; /* as they are stored */
};

/* The numbers are finite. */
WIDE_VECTORS static float largest_of(const float *numbers, int64_t count) {
    float largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < count; i++)
        largest = fabsf(numbers[i]) > largest ? fabsf(numbers[i]) : largest;
    return largest;
}

/* Pairs of codes, the first in the high bits or in the low ones. Numbers after the last have the code `rest`. */
static void write_pairs(const uint8_t *codes, int64_t count, bool high_first, uint8_t rest, unsigned char *out) {
    for (int64_t i = 0; i < count; i += 2) {
        uint8_t first = codes[i], second = i + 1 < count ? codes[i + 1] : rest;
        out[i / 2] = (unsigned char)(high_first ? first << 4 | second : second << 4 | first);
    }
}

/* ---- nf4 ---- */

enum { NF4_BLOCK = 64, NF4_ZERO = 7 };

/* How many of the borders between neighboring values are below each number. */
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

/* Minimum divisor of numbers. */
#define NF4_MIN 1e-38f

static void nf4_block(const float *numbers, int64_t count, float largest, uint8_t *codes) {
    bool full = count == NF4_BLOCK;
    float divisor = largest > NF4_MIN ? largest : NF4_MIN, factor = 1.0f / divisor;
    float scaled[NF4_BLOCK] = {0};
    for (int64_t i = 0; i < count; i++)
        scaled[i] = full ? numbers[i] * factor : numbers[i] / divisor;
    nf4_codes(scaled, count, codes);
}

static void nf4_unit(float *scales, const struct unit *unit) {
    for (int64_t at = 0; at < unit->count; at += NF4_BLOCK) {
        int64_t count = unit->count - at < NF4_BLOCK ? unit->count - at : NF4_BLOCK;
        float largest = largest_of(unit->numbers + at, count);
        if (count < NF4_BLOCK && largest < NF4_MIN) largest = NF4_MIN;
        scales[at / NF4_BLOCK] = largest;
        if (unit->codes) nf4_block(unit->numbers + at, count, largest, unit->codes + at);
    }
    if (unit->codes) write_pairs(unit->codes, unit->count, true, NF4_ZERO, unit->packed);
}

/* The nearest of the map's ascending numbers; ties go to the higher one. */
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

/* Over all scales, in their order. */
static void find_offset(struct quantiser *work) {
    const float *largest = (const float *)(const void *)work->scales;
    double sum = 0;
    for (int64_t i = 0; i < work->layout.scales; i++)
        sum += (double)largest[i];
    work->offset = (float)(sum / (double)work->layout.scales);
    work->has_offset = true;
}

/* Writes one group: the piece's part of its 8-bit scales, and its own scale. */
static void put_group(const struct quantiser *work, int64_t number, const struct weight_piece *piece) {
    const struct weight_layout *layout = &work->layout;
    int64_t first = number * WEIGHT_GROUP_BLOCKS, left = layout->scales - first;
    int64_t count = left < WEIGHT_GROUP_BLOCKS ? left : WEIGHT_GROUP_BLOCKS;
    float scales[WEIGHT_GROUP_BLOCKS];
    unsigned char codes[WEIGHT_GROUP_BLOCKS];
    memcpy(scales, work->scales + first * (int64_t)sizeof *scales, (size_t)count * sizeof *scales);
    for (int64_t i = 0; i < count; i++)
        scales[i] -= work->offset;
    float group = largest_of(scales, count), factor = group > 0 ? 1.0f / group : 0;
    for (int64_t i = 0; i < count; i++)
        codes[i] = scale_code(scales[i] * factor);
    weight_piece_put(piece, layout->scales_at + first, count, codes);
    weight_piece_put(piece, layout->groups_at + number * (int64_t)sizeof group, sizeof group, &group);
}

static void put_groups(struct quantiser *work, const struct weight_piece *piece) {
    const struct weight_layout *layout = &work->layout;
    int64_t scale, group, scales = weight_piece_overlap(piece, layout->scales_at, layout->scales, &scale);
    int64_t groups = weight_piece_overlap(piece, layout->groups_at, layout->groups * (int64_t)sizeof(float), &group);
    int64_t first = scales > 0 ? scale / WEIGHT_GROUP_BLOCKS : layout->groups, end = 0;
    if (!work->has_offset) find_offset(work);
    if (scales > 0) end = (scale + scales - 1) / WEIGHT_GROUP_BLOCKS + 1;
    if (groups > 0) {
        int64_t low = group / (int64_t)sizeof(float), high = (group + groups - 1) / (int64_t)sizeof(float) + 1;
        first = low < first ? low : first;
        end = high > end ? high : end;
    }
    for (int64_t number = first; number < end; number++)
        put_group(work, number, piece);
    weight_piece_put(piece, layout->offset_at, sizeof work->offset, &work->offset);
}

/* ---- int8 ---- */

static void int8_row(float *scale, const struct unit *unit) {
    float largest = largest_of(unit->numbers, unit->count), factor = largest > 0 ? 1.0f / largest * 127.0f : 0;
    const float *numbers = unit->numbers;
    int8_t *codes = (int8_t *)unit->packed;
    *scale = largest;
    if (!unit->codes) return;
#pragma omp simd
    for (int64_t i = 0; i < unit->count; i++)
        codes[i] = (int8_t)rintf(numbers[i] * factor);
}

/* ---- mxfp4 ---- */

enum { MXFP4_BLOCK = 32, MXFP4_EXPONENT = 2, EXPONENT_BIAS = 127 };

/* To the nearest of the magnitudes 0, 1/2, 1, 3/2, 2, 3, 4, 6; ties to the even code. */
static uint8_t mxfp4_code(float number) {
    float size = fabsf(number);
    uint8_t code = size > 0.25f;
    code = (uint8_t)(code + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) + (size > 2.5f) + (size >= 3.5f) +
                     (size > 5.0f));
    return signbit(number) ? code | 8 : code;
}

static void mxfp4_unit(unsigned char *scales, const struct unit *unit) {
    for (int64_t at = 0; at < unit->count; at += MXFP4_BLOCK) {
        float largest = largest_of(unit->numbers + at, MXFP4_BLOCK);
        int exponent = largest > 0 ? ilogbf(largest) - MXFP4_EXPONENT : -EXPONENT_BIAS;
        exponent = exponent < -EXPONENT_BIAS ? -EXPONENT_BIAS : exponent;
        for (int64_t i = at; unit->codes && i < at + MXFP4_BLOCK; i++)
            unit->codes[i] = mxfp4_code(ldexpf(unit->numbers[i], -exponent));
        scales[at / MXFP4_BLOCK] = (unsigned char)(exponent + EXPONENT_BIAS);
    }
    if (unit->codes) write_pairs(unit->codes, unit->count, false, 0, unit->packed);
}

/* ---- all ---- */

static int64_t codes_per_byte(const struct weight_layout *layout) { return layout->format == WEIGHT_INT8 ? 1 : 2; }

/* Computes unit `number`: its scales, and the piece's part of its codes. */
static enum status make_unit(struct quantiser *work, int64_t number, const struct weight_piece *piece,
                             const struct unit *buffers) {
    const struct weight_layout *layout = &work->layout;
    struct unit unit = *buffers;
    int64_t all = layout->rows * layout->columns, per = codes_per_byte(layout);
    unit.first = number * work->unit;
    unit.count = all - unit.first < work->unit ? all - unit.first : work->unit;
    TRY(work->source.read(work->source.payload, unit.first, unit.count, unit.numbers));
    if (values_find_nonfinite(DTYPE_F32, unit.numbers, unit.count) >= 0)
        return status_set(STATUS_BAD_INPUT, "holds a value that is not finite");
    unsigned char *scales = work->scales + unit.first / layout->block * work->scale_bytes;
    switch (layout->format) {
    case WEIGHT_NF4:
    case WEIGHT_NF4_WIDE: nf4_unit((float *)(void *)scales, &unit); break;
    case WEIGHT_INT8: int8_row((float *)(void *)scales, &unit); break;
    case WEIGHT_MXFP4: mxfp4_unit(scales, &unit); break;
    default: BUG("quantising as %s", weight_format_name(layout->format));
    }
    if (unit.codes) weight_piece_put(piece, unit.first / per, (unit.count + per - 1) / per, unit.packed);
    work->made[number] = true;
    return STATUS_OK;
}

/* Computes units [first, end): with `piece` all of them with their codes, otherwise those without scales. */
static enum status make_units(struct quantiser *work, int64_t first, int64_t end, const struct weight_piece *piece) {
    struct status_copy failure = {.status = STATUS_OK}; /* of any thread */
    size_t threads = (size_t)omp_get_max_threads(), unit = (size_t)work->unit;
    float *numbers = mem_array(threads * unit, sizeof *numbers);
    uint8_t *codes = mem_array(threads * unit, 2);
    enum status status = numbers && codes ? STATUS_OK : STATUS_FAILED;
    int64_t last = status == STATUS_OK ? end : first;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t number = first; number < last; number++) {
        if (!piece && work->made[number]) continue;
        size_t at = (size_t)omp_get_thread_num() * unit;
        const struct unit buffers = {
            .numbers = numbers + at, .codes = piece ? codes + 2 * at : NULL, .packed = codes + 2 * at + unit};
        enum status made = make_unit(work, number, piece, &buffers);
        if (made != STATUS_OK)
#pragma omp critical(quantise_failure)
            status_save(made, &failure);
    }
    mem_free(numbers);
    mem_free(codes);
    TRY(status);
    return status_restore(&failure);
}

/* Blocks [first, end) as they are stored. */
static enum status make_scales(struct quantiser *work, int64_t first, int64_t end) {
    int64_t per = work->unit / work->layout.block;
    return first < end ? make_units(work, first / per, (end - 1) / per + 1, NULL) : STATUS_OK;
}

static enum status read_piece(void *payload, const struct weight_piece *piece) {
    struct quantiser *work = payload;
    const struct weight_layout *layout = &work->layout;
    int64_t per = codes_per_byte(layout), begin, bytes = weight_piece_overlap(piece, 0, layout->codes_bytes, &begin);
    memset(piece->out, 0, (size_t)piece->bytes);
    if (bytes > 0) TRY(make_units(work, begin * per / work->unit, ((begin + bytes) * per - 1) / work->unit + 1, piece));
    int64_t after = layout->bytes - layout->scales_at;
    bytes = weight_piece_overlap(piece, layout->scales_at, after, &begin);
    if (bytes == 0) return STATUS_OK;
    if (layout->format == WEIGHT_NF4) {
        TRY(make_scales(work, 0, layout->scales));
        put_groups(work, piece);
        return STATUS_OK;
    }
    TRY(make_scales(work, begin / layout->scale_bytes, (begin + bytes - 1) / layout->scale_bytes + 1));
    weight_piece_put(piece, layout->scales_at, layout->scales * layout->scale_bytes, work->scales);
    return STATUS_OK;
}

enum status quantiser_open(const struct weight_code *code, const struct number_source *source, struct quantiser **out) {
    struct quantiser *work = mem_array(1, sizeof *work);
    if (!work) return STATUS_FAILED;
    *work = (struct quantiser){.layout = weight_code_layout(code), .source = *source};
    const struct weight_layout *layout = &work->layout;
    work->unit = layout->format == WEIGHT_INT8 ? layout->columns : QUANTISER_PIECE;
    work->units = (layout->rows * layout->columns + work->unit - 1) / work->unit;
    work->scale_bytes = layout->format == WEIGHT_MXFP4 ? 1 : (int64_t)sizeof(float);
    work->made = mem_array((size_t)work->units, 1);
    work->scales = mem_array((size_t)layout->scales, (size_t)work->scale_bytes);
    if (work->made && work->scales) {
        *out = work;
        return STATUS_OK;
    }
    quantiser_close(work);
    return STATUS_FAILED;
}

void quantiser_close(struct quantiser *quantiser) {
    if (!quantiser) return;
    mem_free(quantiser->made);
    mem_free(quantiser->scales);
    mem_free(quantiser);
}

struct weight_source quantiser_source(struct quantiser *quantiser) {
    return (struct weight_source){read_piece, quantiser};
}

enum status quantise_weight(const struct weight_code *code, const struct number_source *source, void *out) {
    struct quantiser *quantiser;
    TRY(quantiser_open(code, source, &quantiser));
    enum status status = read_piece(quantiser, &(struct weight_piece){0, quantiser->layout.bytes, out});
    quantiser_close(quantiser);
    return status;
}

struct tensor quantized_weight_whole(const struct tensor *tensor) {
    struct tensor whole = *tensor;
    if (!tensor->part) return whole;
    whole.part = NULL;
    whole.code = weight_part_whole(tensor);
    whole.code.values.dtype = tensor->code.values.dtype;
    whole.shape = shape_make(DTYPE_U8, 1, weight_code_layout(&whole.code).bytes, 1, 1);
    return whole;
}

enum status weight_target_fill(const struct weight_target *target, const struct weight_source *source) {
    int64_t element = dtype_bytes(target->dtype), first = target->first * element, all = target->elements * element;
    if (target->data) return source->read(source->payload, &(struct weight_piece){first, all, target->data});
    int64_t max = all < BYTE_STORE_PIECE ? all : BYTE_STORE_PIECE, end = first + all, bytes;
    AUTO_FREE unsigned char *buffer = mem_array((size_t)max, 1);
    if (!buffer) return STATUS_FAILED;
    for (int64_t at = first; at < end; at += bytes) {
        bytes = end - at < max ? end - at : max;
        TRY(source->read(source->payload, &(struct weight_piece){at, bytes, buffer}));
        TRY(target->store->write(target->store->payload, target->stored_as, at, bytes, buffer));
    }
    return STATUS_OK;
}

/* `whole` is a source of the weight that quantized_weight_whole describes. */
static enum status fill_own(const struct weight_target *target, const struct weight_source *whole) {
    struct weight_part_reader *reader;
    if (!target->tensor->part) return weight_target_fill(target, whole);
    TRY(weight_part_open(target->tensor, *whole, &reader));
    const struct weight_source part = weight_part_source(reader);
    enum status status = weight_target_fill(target, &part);
    weight_part_close(reader);
    return status;
}

enum status quantized_weight_quantise(const struct weight_target *target, const struct number_source *numbers) {
    const struct tensor whole = quantized_weight_whole(target->tensor);
    struct quantiser *quantiser;
    TRY(quantiser_open(&whole.code, numbers, &quantiser));
    const struct weight_source source = quantiser_source(quantiser);
    enum status status = fill_own(target, &source);
    quantiser_close(quantiser);
    return status;
}

/* A weight, and its files. */
struct stored_weight {
    const struct safetensors *set;
    struct tensor whole;
};

static enum status read_stored(void *payload, const struct weight_piece *piece) {
    const struct stored_weight *stored = payload;
    return stored_weight_read(stored->set, &stored->whole, piece);
}

enum status quantized_weight_read(const struct weight_target *target, const struct safetensors *set) {
    struct stored_weight stored = {set, quantized_weight_whole(target->tensor)};
    return fill_own(target, &(struct weight_source){read_stored, &stored});
}
