/* A GEMM as data, for every backend: c = a b (+ bias) (+ addend), sums in fp32. */
#ifndef BALLAST_BACKEND_MATMUL_SPEC_H
#define BALLAST_BACKEND_MATMUL_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/tensor.h"

/* a is [m][k], b is [k][n], c is [m][n]; strides in elements, one of a's and one of b's is 1. */
struct matmul_spec {
    int64_t m, n, k;
    int64_t a_row, a_k;
    int64_t b_k, b_column;
    int64_t c_row;
    int64_t addend_row; /* like c; 0: there is no addend */
    enum dtype dtype;   /* of a, b and the bias */
    /* Of b, which then is a weight's sections (ir/weight_format.h): the b_k or the b_column that is not 1 is the
     * length of its rows. Its numbers are rounded to `dtype`. */
    enum weight_format b_format;
    int64_t b_block;      /* of weight_layout_of */
    enum dtype out_dtype; /* of c and the addend */
    bool bias;            /* [n] is added to each row */
};

/* bias and addend are NULL when the spec has none; the addend may be c. */
struct matmul_operands {
    const void *a, *b, *bias, *addend;
    void *c;
};

#endif
