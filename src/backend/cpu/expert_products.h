/* The GEMMs of an expert's kernel with the rows of its pieces (expert_pieces.h). */
#ifndef BALLAST_BACKEND_CPU_EXPERT_PRODUCTS_H
#define BALLAST_BACKEND_CPU_EXPERT_PRODUCTS_H

#include "backend/cpu/expert_pieces.h"
#include "backend/cpu/matmul.h"

enum { EXPERT_PRODUCTS_MAX = 8 };

/* The spec of a GEMM for a piece of so many rows; `context`: the kernel's node. */
typedef struct matmul_spec expert_spec(int product, const void *context, int64_t rows);

struct expert_products {
    struct expert_pieces pieces;
    expert_spec *spec;
    const void *context;
    int count, threads;
    int64_t workspace_bytes;                                /* the most that one of them needs */
    struct matmul *ready[EXPERT_PRODUCTS_MAX][PIECE_SIZES]; /* NULL: pieces are of any size */
};
/* Fills `out`, whose spec, context and count are set, for tiles of so many rows and an expert of `max` rows at most.
 * Made for the number of threads that the caller has set. */
enum status expert_products_create(struct expert_products *out, int64_t tile, int64_t max);
void expert_products_release(struct expert_products *products);
/* Of a piece of so many rows, which expert_pieces_first gave together with its size. */
void expert_products_run(const struct expert_products *products, int product, int64_t rows, int size,
                         const struct matmul_operands *operands, void *workspace);

#endif
