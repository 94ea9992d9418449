/* The CPU backend, and what its kernels share.
 *
 * Files, in the order to read them:
 *     cpu_kernel: the list of kernels, and kernels that go row by row;
 *     backend_cpu: the backend's table;
 *     cpu_isa: which of the vector kernels (simd/) this processor uses;
 *     parallel: loops over threads;
 *     kernel_elementwise, kernel_group_collectives, kernel_activation, kernel_norm, kernel_rope, kernel_embedding,
 *         kernel_linear, kernel_head, kernel_head_slices, kernel_attention, kernel_attention_grad,
 *         kernel_attention_sinks, kernel_attention_part, kernel_attention_cache, kernel_select_heads,
 *         kernel_preference, kernel_optimizer, kernel_muon, kernel_routing, kernel_balance, kernel_expert,
 * kernel_expert_glu: the kernels of the operators that src/ir/ops defines in files of these names; expert_pieces: runs
 * of an expert's rows; expert_products: their GEMMs; matmul, matmul_parts, matmul_unpack: GEMMs, of weights in fewer
 * bits too, by one of matmul_thin: the vector kernels for words, where one side is short; matmul_blocks, matmul_onednn,
 * onednn_memory: oneDNN, block by block; matmul_packed: the vector kernels. */
#ifndef BALLAST_BACKEND_CPU_CPU_KERNEL_H
#define BALLAST_BACKEND_CPU_CPU_KERNEL_H

#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/parallel.h"
#include "backend/kernel_parts.h"
#include "base/mem.h"
#include "ir/ops/ops.h"

/* The operators that the CPU implements: all. A backend that lacks some lists those that it has, as X(name), families
 * of ir/ops/list.h or single operators. The kernels of NAME are made by cpu_NAME_create, in kernel_FILE.c for the
 * operators of ops/FILE.c. */
#define CPU_OP_LIST OP_LIST

#define KERNEL_DECLARE(name) kernel_maker cpu_##name##_create;
CPU_OP_LIST(KERNEL_DECLARE)
#undef KERNEL_DECLARE

/* A kernel that computes each row by itself: `rows` computes rows [begin, end) of out[0]. */
typedef void kernel_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end);
enum status cpu_rows_create(const struct node *node, kernel_rows *rows, struct kernel **out);
/* For such kernels: columns and dtype of out[0], and rows of operands; NULL for an operand that is left out. */
static inline int64_t columns_of(const struct node *node) { return shape_columns(&node->out[0]->shape); }
static inline enum dtype dtype_of(const struct node *node) { return node->out[0]->shape.dtype; }
static inline void *in_row(const struct node *node, const struct kernel_call *call, int input, int64_t row) {
    return operand_row(node->in[input], call->in[input], row);
}
static inline void *out_row(const struct node *node, const struct kernel_call *call, int output, int64_t row) {
    return operand_row(node->out[output], call->out[output], row);
}

/* Sums over rows in blocks of SUM_ROWS: block i has its own row of `partials` [blocks][columns] (fp32); the blocks are
 * then added to `out` in order. */
enum { SUM_ROWS = 64 };
int64_t sum_blocks(int64_t rows);
void sum_combine(int64_t blocks, int64_t columns, const float *partials, float *out);
/* out (fp32) += the sum of all rows, in order; row_stride in elements. */
void sum_columns(enum dtype dtype, int64_t rows, int64_t columns, const void *data, int64_t row_stride, float *out);

/* A step that changes nothing: what is made of a master is written all the same (update_step.h). */
void cpu_update_nothing(int64_t elements, const struct update_run *run);

/* The sum of products of two rows: in fp32, over lanes that are added up in order. */
float dot_rows(enum dtype dtype, int64_t columns, const void *a, const void *b);

#endif
