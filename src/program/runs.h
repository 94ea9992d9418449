/* Runs: which node runs for which grain, in which order. The first thing that scheduling decides; buffers come after.
 *
 * A pass is a walk through the stages of the activation schedule. Each stage (forward or backward of one block, or a
 * forward with its backward at once after it) is a group: its nodes run for one grain after the other, so that weights
 * are used for all grains while they are at hand and a block's temporaries are shared by the grains. Every accumulator
 * so receives its grains in order, whatever the pass. */
#ifndef BALLAST_PROGRAM_RUNS_H
#define BALLAST_PROGRAM_RUNS_H

#include "plan/activations.h"
#include "plan/chunks.h"
#include "program/program.h"

struct run {
    const struct node *node;
    int64_t slot;    /* grain of the pass */
    int32_t group;   /* counted through the program */
    bool takes_over; /* output 0 lies where the in-place input did: nobody reads that any more */
    bool repeated;   /* the block's forward ran before in this pass: what it makes is read soon */
    bool deferred;   /* updates a chunk with the gradients of the step before */
};

struct run_list {
    VEC(struct run) list;
};

/* Nodes by a number, each group in the graph's order. */
struct node_groups {
    const struct node **nodes;
    int32_t *first; /* by number: where its nodes begin; one more at the end */
};

/* What is asked again for each section. */
struct run_source {
    const struct graph *graph;
    const struct policy *policy;
    const struct chunk_list *chunks;
    struct stage_list stages;
    int32_t blocks;             /* that passes run; the update's own is not one */
    struct node_groups passes;  /* by phase * blocks + block */
    struct node_groups finish;  /* PHASE_FINISH, by the last block whose backward adds to the gradient */
    struct node_groups updates; /* PHASE_UPDATE, by 1 + the chunk whose parameter is updated; 0: of none */
    int32_t forwards;           /* blocks whose forward has run in the present pass */
    int32_t group;              /* next one to be counted */
};

/* BAD_INPUT when the schedule does not fit the graph. The caller frees, also after a failure. */
enum status run_source_create(const struct graph *graph, const struct policy *policy, const struct chunk_list *chunks,
                              struct run_source *out);
void run_source_free(struct run_source *source);

/* Appends the runs of one pass over `slots` grains. The first pass of a step has the deferred updates of the step
 * before, each a few groups before its chunk is used; the last one has PHASE_FINISH, each gradient after its last use.
 * Runs whose results nobody reads are left out: recomputing a block stops short of what its backward does not ask for.
 */
enum status runs_of_pass(struct run_source *source, int64_t slots, bool first, bool last, struct run_list *out);
/* Appends the update that is not deferred: the clip factor, then a group for each chunk. */
enum status runs_of_update(struct run_source *source, struct run_list *out);

#endif
