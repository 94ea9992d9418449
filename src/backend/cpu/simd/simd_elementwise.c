/* Sums and multiples of rows. */
#include "backend/cpu/simd/simd.h"

INLINE void add_row(bool bf16, int64_t n, const void *a, const void *b, void *out) {
    for (int64_t i = 0; i < n; i += LANES)
        store(out, i, n - i, bf16, load(a, i, n - i, bf16) + load(b, i, n - i, bf16));
}

void SIMD_NAME(simd_add)(enum dtype dtype, int64_t n, const void *a, const void *b, void *out) {
    if (dtype == DTYPE_BF16)
        add_row(true, n, a, b, out);
    else
        add_row(false, n, a, b, out);
}

INLINE void accumulate_row(bool bf16, int64_t n, const void *x, float *sum) {
    for (int64_t i = 0; i < n; i += LANES)
        store(sum, i, n - i, false, load(sum, i, n - i, false) + load(x, i, n - i, bf16));
}

void SIMD_NAME(simd_accumulate)(enum dtype dtype, int64_t n, const void *x, float *sum) {
    if (dtype == DTYPE_BF16)
        accumulate_row(true, n, x, sum);
    else
        accumulate_row(false, n, x, sum);
}

INLINE void scale_row(int64_t n, bool from_bf16, const void *a, float factor, bool to_bf16, void *out) {
    for (int64_t i = 0; i < n; i += LANES)
        store(out, i, n - i, to_bf16, load(a, i, n - i, from_bf16) * factor);
}

void SIMD_NAME(simd_scale)(int64_t n, enum dtype from, const void *a, float factor, enum dtype to, void *out) {
    if (from == DTYPE_BF16 && to == DTYPE_BF16)
        scale_row(n, true, a, factor, true, out);
    else if (from == DTYPE_BF16)
        scale_row(n, true, a, factor, false, out);
    else if (to == DTYPE_BF16)
        scale_row(n, false, a, factor, true, out);
    else
        scale_row(n, false, a, factor, false, out);
}
