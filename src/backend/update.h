/* An update rule's numbers in a step (ir/ops/ops.h), rounded alike on every backend: its bits are the same on all of
 * them.
 *
 * STOCHASTIC ROUNDING. An fp32 number becomes one of the two bf16 numbers next to it: 16 random bits are added to the
 * 16 that bf16 lacks, and these are cut off. NaN stays NaN. The random bits of element e of a parameter's tensor are in
 * word e % 4 of the block random_block(seed, stream, step, number << 32 | e / 4) of base/random.h: of the stream
 * RANDOM_ROUND_STATE the lower half of the word for the first moment and the upper half for the second, of
 * RANDOM_ROUND_WEIGHT the lower half for a weight without a master. `number` is that of the parameter among those that
 * are trained, `step` counts from 1; a tensor has less than 2^34 elements.
 *
 * NOTHING. Where the clip factor is NaN masters, moments and weights without a master stay. A weight that is its
 * master, rounded, is written even then: nobody has to fetch it for an update.
 *
 * MUON. An update of runs changes the moment and writes the direction; the weight is changed when the direction is
 * orthogonal, which takes all of it.
 *
 * MOMENTS IN 8 BITS. A block of UPDATE_SCALE_BLOCK elements is unpacked to fp32, updated as moments in fp32 are, and
 * packed again (moment_map below). The weight is changed by the moments before they are packed. */
#pragma once

#include "base/base.h"
#include "ir/ops/ops.h"

struct kernel_call;

struct update_step {
    float decay; /* the weight is multiplied by it: 1 - lr * weight_decay; SGD: weight_decay */
    float clip;  /* the gradient is multiplied by it */
    float beta1, beta2;
    float blend1, blend2; /* 1 - beta1, 1 - beta2, rounded from double */
    float step;           /* lr, AdamW: times the first moment's correction; Muon: times the matrix's factor */
    float root;           /* AdamW: correction of the root */
    float epsilon;
    uint64_t seed; /* of stochastic rounding */
    uint32_t number, count;
};

/* A run of a parameter. */
struct update_run {
    const float *gradient;
    void *weight; /* fp32; bf16, rounded stochastically, where `bf16_weight`; NULL next to halves */
    void *moments[UPDATE_MOMENTS_MAX]; /* fp32; bf16, rounded stochastically, where `bf16_moments`; codes where there
                                          are scales; NULL: no such moment */
    float *scales[UPDATE_MOMENTS_MAX]; /* NULL, or those of the moments' blocks, which begin with the run */
    float *direction;                  /* Muon: what the matrix is made orthogonal from, which an update of this run
                                          writes in place of the weight; NULL: of other rules */
    uint16_t *rounded;                 /* NULL, or a copy of the weight, rounded to nearest even */
    uint16_t *upper, *lower;           /* NULL, or halves of the weight (base/half.h) */
    int64_t first;                     /* number of its first element within the tensor: a multiple of 64 */
    bool bf16_weight, bf16_moments;
};

/* All but the clip factor, which the step computes. A device with the call's scalars in its own memory computes the
 * same there, operation by operation (optimizer.cu). */
struct update_step update_step_of(const struct node *node, const struct kernel_call *call);
/* Muon's factor of the learning rate: an update then has the root of mean squares that AdamW's have, since singular
 * values of 1 make it 1 / sqrt(columns) of a matrix that has no fewer rows. */
double update_step_factor(const struct shape *matrix);
/* The run of a call, with the pointers of its operands. */
struct update_run update_run_of(const struct node *node, const struct kernel_call *call);
/* The same from its element `begin` on, where a block of moments begins. */
struct update_run update_run_from(const struct update_run *run, int64_t begin);

/* Moments in 8 bits: what codes stand for, and which one a number becomes (Dettmers et al., arXiv 2110.02861).
 *
 * A code stands for a number of a map between -1 and 1, or 0 and 1, times its block's scale: the largest magnitude of
 * the block. The maps are bitsandbytes' dynamic ones, ascending: 0, 1, and in each of seven powers of ten twice as many
 * numbers, equally far apart, as in the one below. The signed map has the same numbers with both signs, but for -1.
 * A number becomes the code of the nearest: by its magnitude's level, and within it by its place, both in fp32
 * operations that are exactly rounded, so that all processors find the same. NaN becomes 0. */

enum { MOMENT_CODES = 256, MOMENT_LEVELS = 9 };

/* Magnitudes above `above`, and not above the next level's, have the codes code + trunc(x * slope + offset), at most
 * `last`. The first level is 0, the last 1, the others are the powers of ten. */
struct moment_level {
    float above, slope, offset;
    int32_t code, last;
};

struct moment_map {
    const float *numbers;                      /* by code */
    int32_t zero;                              /* the code of 0: the number of negative ones */
    struct moment_level levels[MOMENT_LEVELS]; /* of magnitudes, counted from 0's code */
};
extern const struct moment_map moment_map_signed, moment_map_unsigned;

/* That of a rule's moment: second moments of AdamW are not negative. */
static inline const struct moment_map *moment_map_of(enum update_rule rule, int moment) {
    return rule == UPDATE_ADAMW && moment == 1 ? &moment_map_unsigned : &moment_map_signed;
}

/* The levels of a map that has `first` numbers in the lowest power of ten, which CUDA's kernels have as a constant of
 * their own. In the power of ten that ends at e there are n numbers e * (0.1 + 0.9 * (k + 1/2) / n). */
#define MOMENT_POWER(first, n, e, below)                                                                               \
    {                                                                                                                  \
        (float)(((e) * (0.1 + 0.45 / (n)) + (below)) / 2), (float)((n) / (0.9 * (e))), (float)(-(n) / 9.0),            \
            (n) - (first) + 1, 2 * (n) - (first)                                                                       \
    }

/* The largest number of n in that which ends at e. */
#define MOMENT_LARGEST(n, e) ((e) * (1 - 0.45 / (n)))
#define MOMENT_LEVELS_OF(first)                                                                                        \
    {                                                                                                                  \
        {-1.0f, 0.0f, 0.0f, 0, 0}, MOMENT_POWER(first, (first), 1e-6, 0),                                              \
            MOMENT_POWER(first, 2 * (first), 1e-5, MOMENT_LARGEST((first), 1e-6)),                                     \
            MOMENT_POWER(first, 4 * (first), 1e-4, MOMENT_LARGEST(2 * (first), 1e-5)),                                 \
            MOMENT_POWER(first, 8 * (first), 1e-3, MOMENT_LARGEST(4 * (first), 1e-4)),                                 \
            MOMENT_POWER(first, 16 * (first), 1e-2, MOMENT_LARGEST(8 * (first), 1e-3)),                                \
            MOMENT_POWER(first, 32 * (first), 1e-1, MOMENT_LARGEST(16 * (first), 1e-2)),                               \
            MOMENT_POWER(first, 64 * (first), 1.0, MOMENT_LARGEST(32 * (first), 1e-1)), {                              \
            (float)((1 + MOMENT_LARGEST(64 * (first), 1.0)) / 2), 0.0f, 0.0f, 127 * (first) + 1, 127 * (first) + 1     \
        }                                                                                                              \
    }
