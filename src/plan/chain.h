/* A training step as a chain of blocks, for the solvers that choose which activations to keep.
 *
 * Block i reads x_i and makes x_{i+1}; its backward reads the gradient of x_{i+1}, x_i and what block i saved, and
 * makes the gradient of x_i. A gradient is as large as its value. The last block is the one that ends in the loss: its
 * output has size 0, and its backward needs no gradient from outside. Sizes are in bytes or in slots, as the solver
 * that is called says. */
#ifndef BALLAST_PLAN_CHAIN_H
#define BALLAST_PLAN_CHAIN_H

#include <stdint.h>

#include "base/status.h"

enum { CHAIN_BLOCKS_MAX = 1024 };
#define CHAIN_SIZE_MAX ((int64_t)1 << 46) /* of one value: no sum over a chain then leaves 63 bits */
#define CHAIN_TIME_MAX 1e30               /* of one block: no sum of a schedule's times then leaves a double */

struct chain_block {
    double forward_time, backward_time; /* in any one unit */
    int64_t output;                     /* x_{i+1} */
    int64_t saved;                      /* all that backward needs besides x_i; holds x_{i+1} */
    int64_t forward_temporary;          /* needed only during forward */
    int64_t backward_temporary;         /* needed only during backward; without the gradient of x_i */
};

struct chain {
    int64_t input; /* x_0 */
    int count;
    struct chain_block *blocks; /* [count] */
};

/* `blocks` zeroed; free with chain_free. BAD_INPUT when `count` is outside 1 to CHAIN_BLOCKS_MAX. */
enum status chain_create(int count, struct chain *out);
void chain_free(struct chain *chain);

/* x_i, for i from 0 to count. */
static inline int64_t chain_value(const struct chain *chain, int i) {
    return i == 0 ? chain->input : chain->blocks[i - 1].output;
}

/* BAD_INPUT naming block and field when a size or a time is negative or above its limit. */
enum status chain_check(const struct chain *chain);

/* The chain with its bytes in slots of `budget_bytes` / `slots`, rounded up: what fits in the slots fits in the bytes.
 * 500 slots are customary (Beaumont et al., "Optimal checkpointing for heterogeneous chains", arXiv 1911.13214).
 * BAD_INPUT as chain_check, or when a number is not positive. Free `out` with chain_free. */
enum status chain_discretise(const struct chain *chain, int64_t budget_bytes, int64_t slots, struct chain *out);

#endif
