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
 * packed again (backend/moment_map.h). The weight is changed by the moments before they are packed. */
#ifndef BALLAST_BACKEND_UPDATE_STEP_H
#define BALLAST_BACKEND_UPDATE_STEP_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
