/* An operator that Ballast lacks, for tests/ops/test_add_operator.c. It is added from outside in the same way as from
 * inside: token_shift.c defines it (like a file of src/ir/ops), and kernel_token_shift.c has its kernels (like a file
 * of src/backend/cpu).
 *
 * x [S,T,C] -> y [S,T,C]: y[t] = x[t] + mix * x[t-1], and y[0] = x[0], as recurrent models blend each token with the
 * previous one. Tokens depend on each other, so it has a cache for decoding. */
#pragma once

#include "backend/backend.h"
#include "ir/graph.h"

struct token_shift_attributes {
    double mix;
};
struct token_shift_cache_attributes {
    struct token_shift_attributes shift;
    int64_t texts, positions;
};
extern const struct op op_token_shift;
/* dy -> dx: dx[t] = dy[t] + mix * dy[t+1] */
extern const struct op op_token_shift_grad;
/* x, rows [S,T] int32 -> y, cache += [N,P,C]: first the tokens of x go to their rows; those without one have y = 0. */
extern const struct op op_token_shift_cache;

struct tensor *ops_token_shift(struct graph *graph, const char *name, struct tensor *x, double mix);

/* The CPU backend with kernels of these operators too. */
struct backend token_shift_backend(void);
