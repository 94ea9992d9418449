/* Executions: the order in which nodes are executed for micro-batches. Scheduling decides this first and buffers
 * afterwards.
 *
 * A wave follows the steps of the activation schedule. Each step (forward or backward of one block, or a forward
 * directly followed by its backward) is a group: its nodes are executed for one micro-batch after the other, so that
 * weights are fetched once for all micro-batches and micro-batches share a block's temporaries. Every accumulator
 * receives its micro-batches in order, whatever the wave.
 *
 * A step is a list of shares (plan/lane_shares.h), each in waves of its own. The last wave of a share adds up the uses
 * of tied parameters. Then it places the sums over lanes and ranks, block by block. Nodes that depend on a reduction
 * stand `delay` groups after it, so that compute overlaps it. */
#pragma once

#include "compiler/program.h"
#include "plan/activations.h"
#include "plan/layout/pipeline.h"

/* Pipelines: messages between stages, and each stage's order of work.
 *
 * A pipeline schedules waves. Each rank has the nodes of its stage's blocks; an activation or its gradient that another
 * stage reads is a message, one for each micro-batch. All ranks derive the same list of events from graph and policy:
 * spans' forwards and backwards as 1F1B (or its interleaved form) has them, by a clock on which a forward takes 1 and a
 * backward 2, and messages when their sender is done. A rank takes its own events, in that order. This cannot deadlock:
 * the events that an event waits for stand before it in the one list. */

/* A tensor with its own bytes that one stage makes in the forward or backward of a span and another stage reads. It is
 * an activation (one message a micro-batch), a parameter that both use (after its update), or the other stage's sum of
 * the parameter's gradient (once a share, to the stage that updates it). */
struct pipeline_value {
    struct tensor *tensor;
    int32_t span; /* that makes it */
    bool backward;
    int to; /* stage */
};

struct pipeline_event {
    int32_t value; /* index of the value that is sent; -1: a span's forward or backward */
    int32_t span;
    int32_t wave;
    bool backward;
    int64_t time; /* when it begins, on the clock above */
    bool begins;  /* a message that goes as its span's step begins, and not when that has ended */
};

struct pipeline {
    const struct stage_spans *spans; /* borrowed */
    bool trains;                     /* there are backwards */
    VEC(struct pipeline_value) values;
    VEC(struct pipeline_event) events; /* of the waves that pipeline_order_waves was asked for */
};

/* Finds the values that cross stages when these nodes are executed; each value goes to a stage once. BAD_INPUT if a cut
 * lies within a tensor that several spans write. The caller frees with pipeline_free, also after a failure. */
enum status pipeline_create(const struct stage_spans *spans, const struct node *const *nodes, size_t count,
                            struct pipeline *out);
/* Whether a stage has a parameter, gradient, state, sum of squares or cache. */
bool pipeline_holds(const struct pipeline *pipeline, const struct tensor *tensor, int stage);

/* The events of this many waves. */
enum status pipeline_order_waves(struct pipeline *pipeline, int32_t waves);
void pipeline_free(struct pipeline *pipeline);

/* When a span's forward or backward ends. */
int64_t pipeline_step_end(const struct pipeline_event *event);
/* Whether a stage computes it, sends or receives it. */
bool pipeline_concerns(const struct pipeline *pipeline, const struct pipeline_event *event, int stage);

/* ---- executions ---- */

enum execution_kind {
    EXECUTION_NODE,
    EXECUTION_SUMS,    /* the share's sums up to its reduction, of the gradients that `block` completes */
    EXECUTION_TOTALS,  /* those after it */
    EXECUTION_NORMS,   /* all-gather of their sums of squares, where gradients are cut (plan/ranks.h) */
    EXECUTION_UPDATED, /* all-gather of the updated parameters of `chunk`, where something is cut */
    /* Of a pipeline: */
    EXECUTION_SEND,    /* a value goes to another stage, */
    EXECUTION_RECEIVE, /* or comes from one */
    EXECUTION_RESULTS  /* each stage gets the other stages' results */
};

struct execution {
    enum execution_kind kind;
    int32_t block, chunk;
    const struct pipeline_value *value; /* that is sent or received */
    const struct node *node;            /* NULL for all but nodes */
    int64_t slot;                       /* micro-batch of the wave, from 0 */
    int32_t group;                      /* counted through the program */
    bool takes_over; /* output 0 overwrites the buffer of the in-place input, which has no later reader */
    bool repeated;   /* recomputation: the block's forward was executed before in this wave */
    bool deferred;   /* updates a chunk with the previous step's gradients */
    bool aside;      /* updates a chunk that moves during other blocks: on the updates' stream, on the policy's tier */
    bool elsewhere;  /* other ranks do it; here parameters that it reads are gathered for them (move.c) */
};

struct execution_list {
    VEC(struct execution) list;
};

/* Nodes grouped by a number; each group is in the graph's order. */
struct node_groups {
    const struct node **nodes;
    int32_t *first; /* by number: where its nodes begin; one more at the end */
};

/* Inputs for listing the executions of every section. */
struct execution_source {
    struct scratch memory;
    const struct graph *graph;
    const struct policy *policy;
    const struct chunk_list *chunks;
    struct activation_steps activations;
    int32_t blocks;           /* with forward or backward nodes; the update's own block is not counted */
    struct stage_spans spans; /* of the pipeline; of nodes, only those of this rank's stage are listed */
    int stage;
    struct pipeline pipeline;   /* values that cross stages; empty with one stage */
    int32_t *opening;           /* by block: where the schedule has its first forward */
    struct node_groups waves;   /* by phase * blocks + block */
    struct node_groups tied;    /* PHASE_FINISH: sums of a parameter's uses, by the block that completes them */
    struct node_groups finish;  /* the rest of PHASE_FINISH, by the block that completes the gradient */
    struct node_groups updates; /* PHASE_UPDATE, by 1 + the chunk whose parameter is updated; 0: of none */
    int32_t *forward_groups, *backward_groups; /* by block: of its first forward and its backward in that wave; -1 */
    int32_t group;                             /* the next group's number */
    /* By tensor id: the block whose backward completes a gradient. A tied parameter has its first use's block; with
     * `sums`, so have all others of the same part of a chunk. -1 for all other tensors, including the other uses'
     * accumulators. */
    int32_t *completed_by;
    bool sums;                 /* shares are added: the step has several, or several ranks */
    bool cuts, cuts_gradients; /* the policy's partition */
    bool early;                /* updates follow their gradients (executions_update_early) */
    int32_t *ready;            /* by chunk: the block whose backward completes the last of its gradients; -1: none */
    int32_t delay;         /* groups between a reduction and the readers of its result, set by the caller; 0: there is
                            * none */
    int32_t *summed_in;    /* by block: the group of its latest EXECUTION_SUMS */
    int32_t next_late;     /* the block whose totals and finish come next, -1: none */
    int32_t next_deferred; /* the chunk whose deferred update comes next */
};

/* A wave's place within its step. */
struct wave_part {
    int64_t first_slot, slots; /* micro-batches; 0: other ranks have some */
    bool opens_step, closes_share, closes_step;
};

/* Whether each chunk is updated within backward, as soon as its gradients are complete: where no update reads what is
 * made of all gradients (a clip factor), and the update's parameters go to no other rank. Gradients are then gone when
 * backward is, and no update is left to the next step. */
bool executions_update_early(const struct graph *graph, const struct partition *partition, int stages);
/* Whether a chunk's update is left to the next step. */
static inline bool execution_defers_update(const struct execution_source *source, int64_t chunk) {
    return !source->early && policy_defers_update(source->policy, chunk);
}

/* Whether a node adds up the uses of a tied parameter. */
bool execution_adds_uses(const struct node *node);

/* Of all blocks. BAD_INPUT when the schedule does not fit the graph. The caller frees, also after a failure. */
enum status execution_source_create(const struct graph *graph, const struct policy *policy,
                                    const struct chunk_list *chunks, bool sums, struct execution_source *out);
/* The same of one stage of a pipeline of `stages`. BAD_INPUT when the policy's spans do not fit the graph, too. */
enum status execution_source_create_stage(const struct graph *graph, const struct policy *policy,
                                          const struct chunk_list *chunks, bool sums, int stages, int stage,
                                          struct execution_source *out);
void execution_source_free(struct execution_source *source);

/* Appends the executions of one wave. A step's first wave contains the previous step's deferred updates, each a few
 * groups before its chunk is used; a share's last wave contains its sums; the step's last wave contains PHASE_FINISH,
 * each gradient after its last use and its sums, and early updates. Executions whose results nobody reads are left out:
 * recomputing a block makes only values that its backward reads. */
enum status executions_of_wave(struct execution_source *source, const struct wave_part *wave,
                               struct execution_list *out);
/* Appends the executions of all waves of a share in the order of the pipeline. There are `waves` of them; other ranks
 * have the first ones if the share has micro-batches for fewer. `share` has the micro-batches. The section has a slot
 * for each micro-batch and one for each wave of other ranks. A wave has `wave_micro_batches`; the last one may have
 * fewer. */
enum status executions_of_pipeline(struct execution_source *source, const struct wave_part *share,
                                   int64_t wave_micro_batches, int32_t waves, struct execution_list *out);
/* Appends the update that is neither deferred nor early: the clip factor, then a group for each chunk. */
enum status executions_of_update(struct execution_source *source, struct execution_list *out);

/* ---- instances ---- */

/* Instances of activations: each micro-batch in flight has its own, and a recomputed block makes new ones. This says
 * which instance a tensor stands for at a place in the list of executions; the caller numbers them. The scheduler gives
 * each a buffer, the search measures how long each lives. */

struct instances {
    const struct graph *graph;
    int64_t slots;         /* micro-batches in flight */
    int32_t *current;      /* by slot and storage id: the instance's number; -1: there is none */
    enum tier *home_tiers; /* by block: the tier on which its first forward's outputs wait for its backward */
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
