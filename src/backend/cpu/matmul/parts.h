/* Shared by the three implementations of GEMMs (thin.c, blocks.c, packed.c), among which matmul.c chooses: dividing
 * sizes, turning a part of the sums into c, and unpacking a quantized b. */
#pragma once

#include "backend/cpu/simd/kernels.h"
#include "backend/kernel_parts.h"

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
/* Prefetches that part of c, so that matmul_finish does not wait. */
void matmul_fetch(const struct matmul_spec *spec, const struct matmul_operands *operands,
                  const struct matmul_part *part);
/* That part of c, and its bias and addend. */
struct gemm_result matmul_result(const struct matmul_spec *spec, const struct matmul_operands *operands,
                                 const struct matmul_part *part);
/* c = sums (+ bias) (+ addend) in that part. The sums are fp32 with sums_row between rows. */
void matmul_finish(const struct matmul_spec *spec, const struct matmul_operands *operands,
                   const struct matmul_part *part, const float *sums, int64_t sums_row);

/* Unpacks a quantized b (ir/weight_format.h), a tile at a time, for the packing of a GEMM. A tile is steps [k, k +
 * steps) of columns [column, column + columns) of b. */
struct matmul_tile {
    int64_t k, steps, column, columns;
};
/* Each number is code times scale in fp32, rounded to the GEMM's dtype; `out` holds them in `to`, which is that or
 * fp32: [columns][steps] where b_k is 1, else [steps][columns]. */
void matmul_unpack(const struct matmul_spec *spec, const void *b, const struct matmul_tile *tile, enum dtype to,
                   void *out);

/* GEMMs with one short side: gradients of LoRA weights, GEMMs of a few tokens. The short operand is packed once, in
 * words (simd/words.c). Tasks of a fixed number of columns go along the long side. They read the other operand in place
 * if possible; otherwise they pack a chunk of it at a time. One task makes the sums of an element, in chunks of k that
 * depend only on the GEMM's spec and the instruction set. */

/* How a task reads b: chunks that it packs; rows or columns of the matrix. */
enum thin_b { THIN_B_PACKED, THIN_B_ROWS, THIN_B_COLUMNS };

struct thin_matmul {
    struct matmul_spec spec; /* of c's transpose where `transposed`: it has few rows */
    bool transposed;
    enum thin_b b;
    int threads;
    int64_t words;          /* of k, with zeros up to a multiple of 16 */
    int64_t chunk_words;    /* of k that are summed at a time */
    int64_t columns, pitch; /* of a task, and floats from one row of them to the next */
};

/* Whether GEMMs of that spec are skinny. */
bool thin_matmul_fits(const struct matmul_spec *spec);
void thin_matmul_init(const struct matmul_spec *spec, int threads, struct thin_matmul *out);
int64_t thin_matmul_workspace_bytes(const struct thin_matmul *matmul);
void thin_matmul_run(const struct thin_matmul *matmul, const struct matmul_operands *operands, void *workspace);

/* GEMMs of bf16 by oneDNN's blocks (onednn.h), in chunks. All threads first pack a chunk's parts of a
 * and b where oneDNN needs that; then each task computes a few blocks of c. With few rows a task packs its part of b
 * itself. How c and the sums are cut into blocks depends on the GEMM's spec alone, and a block is computed by one
 * thread, so the bits are the same on any number of threads. */

struct onednn_block;
struct blocks_matmul {
    struct matmul_spec spec;
    int threads;
    bool pack_a, pack_b;                      /* else oneDNN reads them where they are */
    bool pack_b_alone;                        /* a task packs its own part of b */
    int64_t rows, columns, depth;             /* of a chunk: of c, and along k */
    int64_t block_rows, block_columns, panel; /* columns of a panel; a block has several where k is small */
    int64_t scratch_bytes;                    /* oneDNN's, of a thread */
    struct onednn_block *blocks[2][2][2];     /* by whether rows, columns and steps are the last ones, and fewer */
};

/* The spec's dtype is bf16. *usable is false when oneDNN has no fast kernel for some block. */
enum status blocks_matmul_create(const struct matmul_spec *spec, struct blocks_matmul *out, bool *usable);
int64_t blocks_matmul_workspace_bytes(const struct blocks_matmul *matmul);
void blocks_matmul_run(const struct blocks_matmul *matmul, const struct matmul_operands *operands, void *workspace);
void blocks_matmul_release(struct blocks_matmul *matmul);

/* GEMMs by the kernels of simd/, in chunks: in fp32, to which bf16 is converted, or by the processor's tiles
 * in bf16. All threads first pack a chunk's part of b; then each task packs rows of a, step by step, and computes a
 * block of c. An element of c is summed over k in order, whatever the chunks, blocks and threads. */

/* Kernels by vectors or by tiles. Operands are packed in words of 32 bits: a step in fp32, a pair of steps in bf16. */
struct packed_kernel {
    int64_t rows, columns;              /* of panels */
    int64_t word_steps, words_multiple; /* packed steps are filled up with zeros */
    int64_t step, block_rows;           /* at most, of a panel, of a task */
    int64_t chunk_words;                /* of b */
};

struct packed_matmul {
    struct matmul_spec spec; /* of c's transpose where `turned` */
    bool turned;
    bool few_rows; /* what a chunk's b is packed from is read once, and used little */
    struct packed_kernel kernel;
    int64_t rows, columns, depth;      /* of a chunk: of c, and along k */
    int64_t step;                      /* k of a panel */
    int64_t block_rows, block_columns; /* of a task */
    int threads;
};

/* Whether the processor has tiles for it. */
bool packed_matmul_has_tiles(const struct matmul_spec *spec);
void packed_matmul_init(const struct matmul_spec *spec, int threads, struct packed_matmul *out);
int64_t packed_matmul_workspace_bytes(const struct packed_matmul *matmul);
void packed_matmul_run(const struct packed_matmul *matmul, const struct matmul_operands *operands, void *workspace);
