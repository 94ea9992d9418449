/* Instances of activations: each micro-batch in flight has its own, and a recomputed block makes new ones. This says
 * which instance a tensor stands for at a place in the list of executions; the caller numbers them. The scheduler gives
 * each a buffer, the search measures how long each lives. */
#ifndef BALLAST_COMPILER_INSTANCES_H
#define BALLAST_COMPILER_INSTANCES_H

#include "compiler/executions.h"

struct instances {
    const struct graph *graph;
    int64_t slots;         /* micro-batches in flight */
    int32_t *current;      /* by slot and storage id: the instance's number; -1: there is none */
    enum tier *home_tiers; /* by block: where what its first forward makes waits for its backward */
};

/* None yet. The caller frees, also after a failure. */
enum status instances_create(const struct graph *graph, const struct activation_steps *steps, int64_t slots,
                             struct instances *out);
void instances_free(struct instances *instances);

/* A section begins without any. */
void instances_clear(struct instances *instances);
/* The group of the first of these executions begins: it makes new instances of all its outputs. */
void instances_begin_group(struct instances *instances, const struct execution *executions, size_t count);
/* The present instance of a tensor that owns its bytes. */
static inline int32_t *instances_at(const struct instances *instances, int64_t slot, const struct tensor *storage) {
    return &instances->current[slot * (int64_t)instances->graph->tensors.count + storage->id];
}
/* The same for output i of an execution: -1 when the caller has to make an instance now, the input's number when the
 * output is in place. NULL when the output is no activation. */
int32_t *instances_of_output(const struct instances *instances, const struct execution *execution, int i);
/* The tier where a new instance is between uses. */
enum tier instances_home_tier(const struct instances *instances, const struct execution *execution,
                              const struct tensor *tensor);

#endif
