/* The GEMMs that linear layers and their gradients are (ir/ops/linear.c), for every backend. */
#ifndef BALLAST_BACKEND_LINEAR_PRODUCTS_H
#define BALLAST_BACKEND_LINEAR_PRODUCTS_H

#include "backend/backend.h"
#include "backend/matmul_spec.h"

struct linear_product {
    struct matmul_spec spec;
    const struct tensor *a, *b, *addend, *c; /* of the node; addend NULL: there is none */
};

/* y = x w (+ bias) (+ addend); the weight is [k][n] or [n][k]. */
struct linear_product linear_product(const struct node *node);
struct matmul_operands linear_operands(const struct kernel_call *call);

/* dx = dy w^t (+ addend). */
struct linear_product linear_dx_product(const struct node *node);
struct matmul_operands linear_dx_operands(const struct kernel_call *call);

/* dw += the weight's rows times its columns, over the tokens: x and dy, or dy and x. */
struct linear_product linear_dw_product(const struct node *node);
struct matmul_operands linear_dw_operands(const struct node *node, const struct kernel_call *call);

#endif
