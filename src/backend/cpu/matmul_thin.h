/* GEMMs of which one side is short: a weight's gradient of LoRA's, those of a few tokens. The short operand is
 * packed once, in words (simd/simd_words.c). Tasks of a fixed number of columns go along the long side, and read the
 * other operand where it is if it can be read so, else pack a chunk of it at a time. The sums of an element are made by
 * one task, in chunks of k that depend on the GEMM's spec and the instruction set alone. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_THIN_H
#define BALLAST_BACKEND_CPU_MATMUL_THIN_H

#include "backend/cpu/matmul.h"

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

#endif
