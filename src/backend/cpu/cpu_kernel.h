/* What the kernels of the CPU backend share. */
#ifndef BALLAST_BACKEND_CPU_CPU_KERNEL_H
#define BALLAST_BACKEND_CPU_CPU_KERNEL_H

#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/parallel.h"
#include "backend/kernel_parts.h"
#include "base/mem.h"
#include "ops/ops.h"

/* Each operator has a function that makes its kernel; backend_cpu.c calls them by the operator's name. */
#define KERNEL_DECLARE(name) enum status cpu_##name##_create(const struct node *node, struct kernel **out);
OP_LIST(KERNEL_DECLARE)
#undef KERNEL_DECLARE

/* A kernel that treats rows apart from each other: `rows` does rows [begin, end) of out[0]. */
typedef void kernel_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end);
enum status cpu_rows_create(const struct node *node, kernel_rows *rows, struct kernel **out);

/* Sums over rows in blocks of SUM_ROWS: block i has its own row of `partials` [blocks][columns] (fp32); the blocks are
 * then added to `out` in order. */
enum { SUM_ROWS = 64 };
int64_t sum_blocks(int64_t rows);
void sum_combine(int64_t blocks, int64_t columns, const float *partials, float *out);
/* out (fp32) += the sum of all rows, in order; row_stride in elements. */
void sum_columns(enum dtype dtype, int64_t rows, int64_t columns, const void *data, int64_t row_stride, float *out);

#endif
