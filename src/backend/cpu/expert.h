/* How an expert's rows, whose number is known only when its kernel is called, are cut into pieces. So the pieces depend
 * on the number of rows alone. The last one may end with rows of the tile that hold no slot; most of these are left
 * out.
 *
 * GEMMs that need nothing made ready (matmul.h) take pieces of any size: equal ones, as few as can be, since each
 * piece reads an expert's weights and adds to its gradients once more. Other GEMMs are made ready for a few sizes,
 * of which pieces take the largest first. */
#pragma once

#include "backend/cpu/matmul/matmul.h"
#include "base/base.h"

/* Rows of a piece at most, where it may have any number. Whole pieces of fixed sizes: a tile, and STEP times as many
 * rows each. Of the last tile of a piece, ROWS_STEP rows are left out at a time. */
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

/* The GEMMs of an expert's kernel with the rows of its pieces (struct expert_pieces). */
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
