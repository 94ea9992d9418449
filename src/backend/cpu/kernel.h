/* The CPU backend, and helpers that its kernels share.
 *
 * Files, in the order to read them:
 *     kernel: the operators, the processor's vector kernels (simd/), row-by-row kernels, and the backend's table;
 *     parallel: loops over threads;
 *     elementwise, norm, embedding, linear, head, head_slices, attention, attention_part, preference, routing, expert,
 *     group_collectives, optimizer: kernels of the operators that src/ir/ops defines in files of these names.
 * Embedding includes the kernels of rope. attention_part has the tasks of attention if ranks or tiles have a part of
 * the queries. head_slices has the head's loss in slices of the vocabulary. GEMMs are in matmul/. */
#pragma once

#include "backend/cpu/parallel.h"
#include "backend/cpu/simd/kernels.h"
#include "backend/kernel_parts.h"
#include "base/base.h"
#include "ir/ops/ops.h"

/* Selects the CPU backend's instruction set: the widest that the processor has and this build contains. The environment
 * variable BALLAST_MAX_ISA ("avx512" or "avx2") limits it, and oneDNN's as well. The choice is made once, at first
 * use. */

/* STATUS_FAILED when the processor has none of them, BAD_INPUT when BALLAST_MAX_ISA is not a name. */
enum status cpu_isa_check(void);
/* The table in use. Only after cpu_isa_check succeeded. */
const struct simd_kernels *cpu_simd(void);
/* Whether its GEMMs of bf16 may use the processor's instruction for pairs: where oneDNN's do. */
bool cpu_has_bf16_dots(void);
/* Whether they may use its tiles (AMX), by the same rule; oneDNN has then asked the system for them. */
bool cpu_has_bf16_tiles(void);
/* The name of the set in use and of oneDNN's extensions, such as "avx512+amx": results depend on both. "none" if
 * cpu_isa_check fails. */
const char *cpu_isa_name(void);

/* The CPU implements all operators. A backend that lacks some lists its own as X(name): lists of ir/ops/list.h or
 * single operators. cpu_NAME_create makes the kernels of NAME, in FILE.c for the operators of ops/FILE.c. */
#define CPU_OP_LIST OP_LIST

#define KERNEL_DECLARE(name) kernel_maker cpu_##name##_create;
CPU_OP_LIST(KERNEL_DECLARE)
#undef KERNEL_DECLARE

/* Defines cpu_NAME_create of an operator by a maker that several share, or for kernels that are `run` and no more. */
#define CPU_KERNEL_MAKER(name, maker)                                                                                  \
    enum status cpu_##name##_create(const struct node *node, struct kernel **out) { return maker(node, out); }
#define CPU_KERNEL(name, run)                                                                                          \
    enum status cpu_##name##_create(const struct node *node, struct kernel **out) {                                    \
        return kernel_plain(node, run, 0, out);                                                                        \
    }

/* A kernel that computes each row by itself: `rows` computes rows [begin, end) of out[0]. */
typedef void kernel_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end);
enum status cpu_rows_create(const struct node *node, kernel_rows *rows, struct kernel **out);
#define CPU_ROWS_KERNEL(name, rows)                                                                                    \
    enum status cpu_##name##_create(const struct node *node, struct kernel **out) {                                    \
        return cpu_rows_create(node, rows, out);                                                                       \
    }
/* A node's operands in a call: the context of loops over threads. */
struct node_call {
    const struct node *node;
    const struct kernel_call *call;
};
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

/* The sum of products of two rows: in fp32, over lanes that are added up in order. */
float dot_rows(enum dtype dtype, int64_t columns, const void *a, const void *b);

/* Cuts an expert's rows into pieces (expert.c). The number of rows is known only when the kernel is called, and the
 * pieces depend on it alone. The last one may end with rows of the tile that hold no slot; most of these are left out.
 *
 * GEMMs that need no preparation (matmul.h) take pieces of any size. The pieces are equal and as few as possible, since
 * each one reads the expert's weights and adds to its gradients again. Other GEMMs are prepared for a few sizes, and
 * pieces use the largest first. */

/* Maximum rows of a piece of any size. Pieces of fixed sizes are a tile, and STEP times as many rows each. The last
 * tile of a piece omits rows in multiples of ROWS_STEP. */
enum {
    PIECE_ROWS_MAX = 1024,
    PIECE_WHOLE_SIZES = 3,
    PIECE_WHOLE_STEP = 4,
    PIECE_ROWS_STEP = 16,
    PIECE_TILE_STEPS = 4,
    PIECE_SIZES = PIECE_WHOLE_SIZES * PIECE_TILE_STEPS
};

struct expert_pieces {
    bool any; /* number of rows that is a multiple of `step`, up to `max` */
    int64_t step, max;
    int64_t tile, whole[PIECE_WHOLE_SIZES], rows[PIECE_SIZES]; /* of fixed sizes: the largest last */
    int wholes, sizes;                                         /* 0: any */
};
/* The pieces for tiles of `tile` rows, if an expert gets at most `max` rows. */
struct expert_pieces expert_pieces_of(int64_t tile, int64_t max, bool any);
/* The rows of the piece that so many rows (over 0) begin with; *size: which of the fixed sizes it is. */
int64_t expert_pieces_first(const struct expert_pieces *pieces, int64_t rows, int *size);
