/* A recomputation schedule: the order of the forwards and backwards of a chain's blocks, some of them more than once,
 * and what each forward keeps. Its cost is found by walking it. */
#ifndef BALLAST_PLAN_RECOMPUTE_H
#define BALLAST_PLAN_RECOMPUTE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "plan/chain.h"

enum recompute_operation {
    FORWARD_NONE,       /* makes x_{i+1} and forgets x_i, unless x_i is part of what block i-1 saved */
    FORWARD_CHECKPOINT, /* makes x_{i+1} and keeps x_i until backward of block i */
    FORWARD_ALL,        /* makes what backward of block i needs, x_{i+1} in it, and keeps x_i too */
    BACKWARD            /* makes the gradient of x_i; forgets x_i, what block i saved and the gradient of x_{i+1} */
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

#endif
