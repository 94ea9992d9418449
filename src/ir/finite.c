/* The search for the first value that is not finite. */
#include "ir/finite.h"

#include <stdbool.h>
#include <string.h>

#include "base/half.h"
#include "base/wide_vectors.h"

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
