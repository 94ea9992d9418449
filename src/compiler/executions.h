/* Executions: which node is executed for which micro-batch, in which order. Scheduling decides this first and buffers
 * after.
 *
 * A wave follows the steps of the activation schedule. Each step (forward or backward of one block, or a forward
 * directly followed by its backward) is a group: its nodes are executed for one micro-batch after the other, so that
 * weights are fetched once for all micro-batches and micro-batches share a block's temporaries. Every accumulator
 * receives its micro-batches in order, whatever the wave.
 *
 * A step is a list of shares (plan/lane_shares.h), each in waves of its own. The last wave of a share adds up the uses
 * of tied parameters and then says, block by block, where sums over lanes and ranks stand: what follows a reduction
 * stands `delay` groups after it, so that compute overlaps. */
#pragma once

#include "compiler/pipeline.h"
#include "compiler/program.h"
#include "plan/activations.h"
#include "plan/chunks.h"

enum execution_kind {
    EXECUTION_NODE,
    EXECUTION_SUMS,    /* the share's sums up to its reduction, of the gradients that `block` completes */
    EXECUTION_TOTALS,  /* those after it */
    EXECUTION_NORMS,   /* all-gather of their sums of squares, where gradients are cut (plan/ranks.h) */
    EXECUTION_UPDATED, /* all-gather of the updated parameters of `chunk`, where something is cut */
    /* Of a pipeline: */
    EXECUTION_SEND,    /* a value goes to another stage, */
    EXECUTION_RECEIVE, /* or comes from one */
    EXECUTION_RESULTS  /* each stage gets what the others have of results */
};

struct execution {
    enum execution_kind kind;
    int32_t block, chunk;
    const struct pipeline_value *value; /* that is sent or received */
    const struct node *node;            /* NULL for all but nodes */
    int64_t slot;                       /* micro-batch of the wave, from 0 */
    int32_t group;                      /* counted through the program */
    bool takes_over; /* output 0 takes over the buffer of the in-place input, which nobody reads later */
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

/* What listing the executions of every section needs. */
struct execution_source {
    const struct graph *graph;
    const struct policy *policy;
    const struct chunk_list *chunks;
    struct activation_steps activations;
    int32_t blocks;           /* with forward or backward nodes; the update's own block is not counted */
    struct stage_spans spans; /* of the pipeline; of nodes, only those of this rank's stage are listed */
    int stage;
    struct pipeline pipeline;   /* what crosses stages; of one stage nothing */
    int32_t *opening;           /* by block: where the schedule has its first forward */
    struct node_groups waves;   /* by phase * blocks + block */
    struct node_groups tied;    /* PHASE_FINISH: sums of a parameter's uses, by the block that completes them */
    struct node_groups finish;  /* the rest of PHASE_FINISH, by the block that completes the gradient */
    struct node_groups updates; /* PHASE_UPDATE, by 1 + the chunk whose parameter is updated; 0: of none */
    int32_t *forward_groups, *backward_groups; /* by block: of its first forward and its backward in that wave; -1 */
    int32_t group;                             /* the next group's number */
    /* By tensor id: the block whose backward completes a gradient, the first use's for a tied parameter, and with
     * `sums` all others of the same part of a chunk; -1 for all else, the other uses' accumulators among them. */
    int32_t *completed_by;
    bool sums;                 /* shares are added: the step has several, or several ranks */
    bool cuts, cuts_gradients; /* the policy's partition */
    bool early;                /* updates follow their gradients (executions_update_early) */
    int32_t *ready;            /* by chunk: the block whose backward completes the last of its gradients; -1: none */
    int32_t delay;      /* groups between a reduction and what reads its result, set by the caller; 0: there is none */
    int32_t *summed_in; /* by block: the group of its latest EXECUTION_SUMS */
    int32_t next_late;  /* the block whose totals and finish come next, -1: none */
    int32_t next_deferred; /* the chunk whose deferred update comes next */
};

/* What a wave is within its step. */
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
 * recomputing a block makes only what its backward reads. */
enum status executions_of_wave(struct execution_source *source, const struct wave_part *wave,
                               struct execution_list *out);
/* The same of all waves of a share in the order of the pipeline: `waves` of them, of which other ranks have the first
 * ones where the share has micro-batches for fewer. `share` has the micro-batches; the section has a slot for each, one
 * more for each wave of other ranks, and a wave `wave_micro_batches` of them, the last one maybe fewer. */
enum status executions_of_pipeline(struct execution_source *source, const struct wave_part *share,
                                   int64_t wave_micro_batches, int32_t waves, struct execution_list *out);
/* Appends the update that is neither deferred nor early: the clip factor, then a group for each chunk. */
enum status executions_of_update(struct execution_source *source, struct execution_list *out);
