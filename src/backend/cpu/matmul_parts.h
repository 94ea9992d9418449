/* What the ways to multiply matrices share: how sizes are divided, and how a part of the sums becomes c. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_PARTS_H
#define BALLAST_BACKEND_CPU_MATMUL_PARTS_H

#include "backend/cpu/simd/kernels.h"
#include "backend/matmul_spec.h"

static inline int64_t smaller(int64_t value, int64_t max) { return value < max ? value : max; }
static inline int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
static inline int64_t rounded_up(int64_t value, int64_t multiple) { return divided_up(value, multiple) * multiple; }
/* Divides `all` into equal parts of at most `max`, and rounds their size up to a multiple. */
static inline int64_t equal_part(int64_t all, int64_t max, int64_t multiple) {
    return rounded_up(divided_up(all, divided_up(all, max)), multiple);
}

static inline const void *element_at(const void *data, enum dtype dtype, int64_t index) {
    return (const char *)data + index * dtype_bytes(dtype);
}

/* The GEMM of c's transpose: b's as a, and a's as b. The result is c's still. */
static inline struct matmul_spec matmul_turned(const struct matmul_spec *spec) {
    struct matmul_spec other = *spec;
    other.m = spec->n, other.n = spec->m;
    other.a_row = spec->b_column, other.a_k = spec->b_k;
    other.b_k = spec->a_k, other.b_column = spec->a_row;
    return other;
}

/* A part of c. */
struct matmul_part {
    int64_t row, rows, column, columns;
};
/* Asks for that part of c to be brought near, for matmul_finish not to wait. */
void matmul_fetch(const struct matmul_spec *spec, const struct matmul_operands *operands,
                  const struct matmul_part *part);
/* That part of c, and its bias and addend. */
struct gemm_result matmul_result(const struct matmul_spec *spec, const struct matmul_operands *operands,
                                 const struct matmul_part *part);
/* c = sums (+ bias) (+ addend) in that part. The sums are fp32 with sums_row between rows. */
void matmul_finish(const struct matmul_spec *spec, const struct matmul_operands *operands,
                   const struct matmul_part *part, const float *sums, int64_t sums_row);

#endif
