/* A recomputation schedule: the order of the forwards and backwards of a chain's blocks, some of them repeated, and the
 * tensors that each forward keeps. recompute_simulate finds its cost. */
#pragma once

#include "base/base.h"

struct value_profile;

/* ---- a step as a chain ----
 *
 * A training step as a chain of blocks, for the solvers that choose which activations to keep.
 *
 * Block i reads x_i and makes x_{i+1}; its backward reads the gradient of x_{i+1}, x_i and what block i saved, and
 * makes the gradient of x_i. A gradient is as large as its value. The last block is the one that ends in the loss: its
 * output has size 0, and its backward needs no gradient from outside. Sizes are in bytes or in slots, as the solver
 * that is called says. */

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

/* Adds a value of a training step (ir/symbolic_profile.h) of `bytes` bytes to its block's outputs and saved values. */
void chain_add_value(struct chain *chain, const struct value_profile *value, int64_t bytes);

/* BAD_INPUT naming block and field when a size or a time is negative or above its limit. */
enum status chain_check(const struct chain *chain);

/* The chain with its bytes in slots of `budget_bytes` / `slots`, rounded up: what fits in the slots fits in the bytes.
 * 500 slots are customary (Beaumont et al., "Optimal checkpointing for heterogeneous chains", arXiv 1911.13214).
 * BAD_INPUT as chain_check, or when a number is not positive. Free `out` with chain_free. */
enum status chain_discretise(const struct chain *chain, int64_t budget_bytes, int64_t slots, struct chain *out);

enum recompute_operation {
    FORWARD_NONE,       /* makes x_{i+1} and frees x_i, unless block i-1 saved x_i */
    FORWARD_CHECKPOINT, /* makes x_{i+1} and keeps x_i until backward of block i */
    FORWARD_ALL,        /* makes the saved set of block i, x_{i+1} in it, and keeps x_i too */
    BACKWARD            /* makes the gradient of x_i; frees x_i, the saved set of block i and the gradient of x_{i+1} */
};

struct recompute_step {
    enum recompute_operation operation;
    int block;
};

struct recompute_schedule {
    struct recompute_step *items;
    size_t count, capacity; /* a VEC: vec_push, vec_free */
};

struct recompute_cost {
    double time;  /* of all steps, one after the other */
    int64_t peak; /* most memory held at any time, x_0 and the last gradient included; in the chain's unit */
};

/* Walks the schedule: at the start x_0 is there, and the gradient of the last output has its place. BAD_INPUT naming
 * the step when it uses what is not there, makes what is there already, or when the schedule ends before backward of
 * block 0. */
enum status recompute_simulate(const struct chain *chain, const struct recompute_schedule *schedule,
                               struct recompute_cost *out);

/* Chooses the activations of a chain to keep and to recompute, exactly.
 *
 * Implements Rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: "Optimal checkpointing for heterogeneous chains:
 * how to train deep neural networks with limited memory", arXiv 1911.13214). It finds the fastest memory-persistent
 * schedule: one that keeps a checkpoint or a saved set until the backward that reads it. C(i,l,m) is the least time
 * from x_i and the gradient of x_{l+1} to the gradient of x_i, in m slots besides x_i:
 *
 *     C(i,i,m) = f_i + b_i    where m >= max(x_{i+1} + s_i + ftmp_i, x_i + x_{i+1} + s_i + btmp_i)
 *
 *     C(i,l,m) = min of
 *       - f_i + … + f_{j-1} + C(j,l,m-x_j) + C(i,j-1,m)   over i < j <= l      (x_j is a checkpoint)
 *             where m >= max(x_{l+1} + x_{i+1} + ftmp_i, x_{l+1} + x_j + x_{j+1} + ftmp_j over i < j < l)
 *       - C(i,i,m) + C(i+1,l,m-s_i)   where m >= x_{l+1} + s_i + ftmp_i        (block i keeps all)
 *
 * s_i is the size of block i's saved set. The condition of the last line is ours. C(i,i,m) makes block i's forward fit
 * next to the gradient of x_{i+1}, but the gradient that is live then is that of x_{l+1}. The condition never binds in
 * a chain whose gradients do not grow towards its end. In other chains, schedules could exceed the budget without
 * it. */

/* The fastest schedule in `slots`, x_0 included, and what it costs; the peak is at most `slots`. Sizes of the chain are
 * in slots. Takes time O(blocks^3 slots) and memory O(blocks^2 slots). NO_FIT when there is no schedule; BAD_INPUT as
 * chain_check, or when the table would take more than ROTOR_TABLE_BYTES_MAX. The caller frees `out` with vec_free. */
enum status rotor_solve(const struct chain *chain, int64_t slots, struct recompute_schedule *out,
                        struct recompute_cost *cost);

/* The fastest schedules for several numbers of slots, ascending, read off one table. If a number has none, its schedule
 * and cost are empty. The caller frees each of `out` with vec_free, also after a failure. */
enum status rotor_solve_each(const struct chain *chain, const int64_t *slots, int count, struct recompute_schedule *out,
                             struct recompute_cost *costs);
