/* Shapes, dtypes, and where the bytes of a view are. */
#include "ir/tensor.h"

#include "base/base.h"
#include "base/half.h"

static const struct {
    int64_t bytes;
    const char *name;
} dtypes[] = {
#define DTYPE_ROW(name, bytes, text) [DTYPE_##name] = {bytes, text},
    DTYPE_LIST(DTYPE_ROW)};

int64_t dtype_bytes(enum dtype dtype) { return dtypes[dtype].bytes; }
const char *dtype_name(enum dtype dtype) { return dtypes[dtype].name; }

enum dtype dtype_find(const char *name) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0) return (enum dtype)i;
    return DTYPE_NONE;
}

struct shape shape_make(enum dtype dtype, int rank, int64_t d0, int64_t d1, int64_t d2) {
    struct shape shape = {.dtype = dtype, .rank = rank, .dims = {1, 1, 1, 1}};
    const int64_t dims[3] = {d0, d1, d2};
    for (int i = 0; i < rank; i++)
        shape.dims[i] = dims[i];
    return shape;
}

int64_t shape_elements(const struct shape *shape) {
    int64_t elements = 1;
    for (int i = 0; i < shape->rank; i++)
        elements *= shape->dims[i];
    return elements;
}

int64_t shape_bytes(const struct shape *shape) { return shape_elements(shape) * dtype_bytes(shape->dtype); }

bool shape_equal(const struct shape *a, const struct shape *b) {
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

int64_t shape_columns(const struct shape *shape) { return shape->rank == 0 ? 1 : shape->dims[shape->rank - 1]; }

int64_t shape_rows(const struct shape *shape) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < shape->rank; i++)
        rows *= shape->dims[i];
    return rows;
}

char *shape_print(const struct shape *shape, char text[96]) {
    int used = snprintf(text, SHAPE_TEXT, "%s [", dtype_name(shape->dtype));
    for (int i = 0; i < shape->rank; i++)
        used += snprintf(text + used, (size_t)(SHAPE_TEXT - used), "%s%lld", i ? ", " : "", (long long)shape->dims[i]);
    snprintf(text + used, (size_t)(SHAPE_TEXT - used), "]");
    return text;
}

int64_t tensor_row_stride(const struct tensor *tensor) {
    return shape_columns(tensor->base ? &tensor->base->shape : &tensor->shape);
}

int64_t tensor_storage_offset(const struct tensor *tensor) {
    int64_t element = tensor->base_row * tensor_row_stride(tensor) + tensor->base_column;
    return element * dtype_bytes(tensor->shape.dtype);
}

/* The number of a part's `length` places in a segment of one dimension that are inside the whole tensor. */
static int64_t places_used(const struct tensor_cut *cut, int64_t segment, int64_t length) {
    int64_t left = segment - cut->part * length;
    return left < 0 ? 0 : left < length ? left : length;
}

/* Finds the place in a tensor of shape `own`, which is one cut of another tensor whose dimension has `all` places. */
static int64_t find_in_cut(const struct shape *own, const struct tensor_cut *cut, int64_t all, int64_t at,
                           int64_t *run) {
    int64_t inner = 1, size = own->dims[cut->dimension];
    for (int i = cut->dimension + 1; i < own->rank; i++)
        inner *= own->dims[i];
    int64_t outer = at / (size * inner), within = at / inner % size, before = 0;
    struct tensor_segments segments = cut->segments;
    if (segments.count == 0) segments = (struct tensor_segments){1, {all}};
    int s = 0;
    for (; s < segments.count - 1 && within >= segments.size[s] / cut->parts; s++) {
        within -= segments.size[s] / cut->parts;
        before += segments.size[s];
    }
    int64_t length = (segments.size[s] + cut->parts - 1) / cut->parts, offset = at % inner;
    int64_t used = places_used(cut, segments.size[s], length);
    *run = ((within < used ? used : length) - within) * inner - offset;
    if (within >= used) return TENSOR_NOWHERE;
    return (outer * all + before + cut->part * length + within) * inner + offset;
}

int64_t tensor_part_find(const struct tensor *tensor, int64_t at, int64_t *run) {
    const struct tensor_part *part = tensor->part;
    struct shape shape = tensor->shape;
    *run = shape_elements(&shape) - at;
    for (int c = 0; part && c < part->count && at != TENSOR_NOWHERE; c++) {
        const struct tensor_cut *cut = &part->cuts[c];
        int64_t all = part->whole.dims[cut->dimension], length;
        at = find_in_cut(&shape, cut, all, at, &length);
        shape.dims[cut->dimension] = all;
        *run = length < *run ? length : *run;
    }
    return at;
}

/* The search for the first value that is not finite. */

/* Values that are not finite have an exponent of ones. The loops have no early exit, so that compilers vectorise them;
 * blocks bound how far they read beyond the first such value. */
enum { BLOCK = 1 << 14 };

WIDE_VECTORS static bool any_f32(const float *values, int64_t count) {
    uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < count; i++)
        found |= (float_bits(values[i]) & 0x7f800000u) == 0x7f800000u;
    return found;
}

WIDE_VECTORS static bool any_bf16(const uint16_t *values, int64_t count) {
    uint16_t found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < count; i++)
        found = (uint16_t)(found | ((values[i] & 0x7f80u) == 0x7f80u));
    return found;
}

WIDE_VECTORS static bool any_f64(const double *values, int64_t count) {
    const uint64_t ones = (uint64_t)0x7ff << 52;
    uint64_t found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & ones) == ones;
    }
    return found;
}

static bool any_nonfinite(enum dtype dtype, const void *values, int64_t first, int64_t count) {
    switch (dtype) {
    case DTYPE_F32: return any_f32((const float *)values + first, count);
    case DTYPE_BF16: return any_bf16((const uint16_t *)values + first, count);
    case DTYPE_F64: return any_f64((const double *)values + first, count);
    case DTYPE_I32:
    case DTYPE_I8:
    case DTYPE_U8:
    case DTYPE_U16:
    case DTYPE_NONE: break;
    }
    return false;
}

int64_t values_find_nonfinite(enum dtype dtype, const void *values, int64_t count) {
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t end = at + BLOCK < count ? at + BLOCK : count;
        if (!any_nonfinite(dtype, values, at, end - at)) continue;
        while (!any_nonfinite(dtype, values, at, 1))
            at++;
        return at;
    }
    return -1;
}
