/* Muon's update of a matrix in what every backend's kernel has of it: its workspace and its GEMMs. The direction x
 * lies in the parameter's dtype; the square is x xt or, of a tall x, xt x. The fp32 direction lies where sums of
 * GEMMs will. */
#ifndef BALLAST_BACKEND_MUON_PARTS_H
#define BALLAST_BACKEND_MUON_PARTS_H

#include "backend/matmul_spec.h"
#include "ir/graph.h"

/* Of a matrix [rows][columns], `side` is the shorter of the two. Then places in the workspace: */
struct muon_sizes {
    int64_t rows, columns, side;
    enum dtype dtype;            /* of x and the square */
    int64_t x, sums;             /* [rows][columns], in fp32 the latter */
    int64_t square, square_sums; /* [side][side], in fp32 the latter */
    int64_t norms;               /* fp64: the squared norm, then sums of blocks of GRADIENT_NORM_BLOCK */
    int64_t end;                 /* of all these; what GEMMs need stands behind it */
};
struct muon_sizes muon_sizes_of(const struct node *node);

/* square = x xt or xt x; square square; square x or x square. */
struct matmul_spec muon_square_spec(const struct muon_sizes *sizes);
struct matmul_spec muon_squared_spec(const struct muon_sizes *sizes);
struct matmul_spec muon_product_spec(const struct muon_sizes *sizes);

#endif
