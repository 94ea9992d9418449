/* Shared by the files of scheduling: schedule.c (sections, and messages between pipeline stages), schedule_nodes.c
 * (kernels and their operands), schedule_sums.c (sums of lanes and ranks, collectives of shards). */
#pragma once

#include "compiler/executions.h"

/* Packs: tensors of a chunk side by side, whole ones or the slices that a shard has of them. */

/* A tensor and its pack. A pack holds tensors of one chunk, and of one block if parts have blocks; `apart` marks a tied
 * parameter's other uses. If they are cut, several roles (state) follow each other. */
struct packed {
    struct chunk_part part;
    bool apart;
    int role;
    int id;        /* of the tensor */
    int64_t order; /* its place in the pack */
};

/* Buffers that do not hold activations: parameters, state, inputs, gradients and results, with the levels of partial
 * sums.
 *
 * Gradients of one chunk and block are a pack. A pack has one buffer for each level of sums (plan/lane_shares.h); in
 * each of them the gradients that are summed over lanes and ranks come first, and behind them the accumulators of a
 * tied parameter's other uses, which are added to its first use lane by lane.
 *
 * PARTITION (plan/ranks.h). With a partition, forward and backward use whole parameters and whole gradients. The end of
 * the step and the update use a rank's shards of parameters, of optimizer states, and of gradient sums if gradients are
 * cut. Each whole parameter that is cut has a placeholder buffer, which stands for the copy gathered at each use
 * (move.c). Whole gradients have a buffer for each round, which dies with its reduction. */

struct gradient_pack_place {
    int32_t completed_by; /* the block whose backward completes the gradients; -1: they are not summed */
    int32_t chunk;
    int64_t summed_bytes; /* the front of the pack */
};

/* A tensor's location at the end of the step and in the update. */
struct tensor_place {
    int32_t buffer; /* -1: there is none */
    struct tensor_run run;
};

/* A chunk's buffers besides its gradients' levels; -1: none. */
struct chunk_buffers {
    struct shard_cut cut;
    int32_t parameters; /* persistent: all, or this rank's shard */
    int32_t whole;      /* parameters that are gathered */
    int32_t sums;       /* this rank's shard of the gradients' sums, where they are cut */
    int32_t norms;      /* sums of squares by blocks */
};

struct step_buffers {
    struct scratch memory;
    struct program *program;
    const struct graph *graph;
    const struct plan *plan;
    const struct chunk_list *chunks;
    const int32_t *completed_by;     /* by tensor id (executions.h) */
    bool sums;                       /* shares are added: of one share's gradients nothing stands apart */
    bool early;                      /* updates follow their gradients */
    const struct pipeline *pipeline; /* buffers cover only this rank's stage; NULL: all blocks */
    int stage;
    int levels;
    int64_t rounds;                /* that have gradients' levels of their own: 1, or all where gradients are cut */
    int64_t micro_batches, shares; /* the rank's: of inputs, and of sums of losses */
    int32_t *buffers; /* by tensor id: as forward and backward have it, of the first round at level 0; -1 */
    int64_t *offsets; /* by tensor id: where in it */
    int32_t *packs;   /* by tensor id: its gradient pack; -1 */
    struct tensor_place *update_places;        /* by tensor id */
    struct chunk_buffers *of;                  /* by chunk */
    VEC(struct gradient_pack_place) gradients; /* packs, chunk by chunk and then block by block */
    VEC(int32_t) level_buffers;                /* by (pack * rounds + round) * levels + level */
};

/* Adds the buffers to the program. All but the arrays is set by the caller, who frees them, also after a failure. */
enum status step_buffers_create(struct step_buffers *buffers);
void step_buffers_free(struct step_buffers *buffers);

/* Adds a buffer that is not placed and is no copy; *out is its number. */
enum status program_add_buffer(struct program *program, struct buffer buffer, int32_t *out);
/* Adds one for `count` tensors. */
enum status program_add_tensor_buffer(struct program *program, const struct tensor *tensor, int64_t count,
                                      enum tier tier, int32_t *out);

/* Whether each rank has shards, and how many of each kind there are. */
static inline bool step_buffers_cut(const struct step_buffers *buffers) {
    return partition_cuts(&buffers->plan->policy.partition);
}

static inline bool step_buffers_cut_gradients(const struct step_buffers *buffers) {
    return partition_width(buffers->plan->policy.partition.gradients) > 1;
}

static inline bool step_buffers_cut_parameters(const struct step_buffers *buffers) {
    return partition_width(buffers->plan->policy.partition.parameters) > 1;
}

static inline int32_t step_buffers_pack(const struct step_buffers *buffers, int32_t pack, int64_t round, int level) {
    int64_t own = buffers->rounds > 1 ? round : 0;
    return buffers->level_buffers.items[(pack * buffers->rounds + own) * buffers->levels + level];
}

/* The buffer of a tensor that owns its bytes, as forward and backward have it; of a gradient, at a level. */
static inline int32_t step_buffers_of(const struct step_buffers *buffers, const struct tensor *tensor, int64_t round,
                                      int level) {
    int32_t pack = buffers->packs[tensor->id];
    return pack < 0 ? buffers->buffers[tensor->id] : step_buffers_pack(buffers, pack, round, level);
}

/* Whether each share has a sum of its own of it, as of its loss: a result that forward or backward add to. */
bool step_buffers_sums_by_share(const struct node *node, const struct tensor *tensor);

/* ---- scheduling ---- */

/* The state of scheduling: which buffer holds which tensor at present. */
struct scheduler {
    struct program *program;
    const struct graph *graph;
    const struct plan *plan;
    const struct workspace_table *workspace;
    struct chunk_list chunks;
    struct execution_source source;
    struct execution_list executions; /* of the present section */
    int64_t slots;                    /* micro-batches in flight */
    struct lane_shares shares;
    struct lane_shares max; /* of the first data rank, which has the most lanes, each with the most micro-batches */
    const struct lane_share *share; /* the present one */
    bool unrolled;                  /* every wave has a section of its own */
    struct step_buffers buffers;
    struct instances activations; /* numbered by their buffers */
    int64_t *zeroed;              /* by buffer id of step buffers: 1 + the latest share that zeroed it */
};

/* The present one. */
static inline const struct section *scheduler_section(const struct scheduler *scheduler) {
    return &scheduler->program->sections.items[scheduler->program->sections.count - 1];
}

static inline int64_t scheduler_share_number(const struct scheduler *scheduler) {
    return scheduler->share - scheduler->shares.list.items;
}

/* The level of the gradients' buffers for a level of the present share's sums. If gradients are cut, the sum of all
 * rounds is separate, and each round's sum is at level 0. */
static inline int scheduler_level(const struct scheduler *scheduler, int level) {
    return level - (step_buffers_cut_gradients(&scheduler->buffers) && scheduler->share->round > 0);
}

struct instruction scheduler_instruction(const struct scheduler *scheduler, enum opcode opcode,
                                         const struct execution *execution);
/* A buffer of zeros. */
enum status schedule_zero(struct scheduler *scheduler, const struct execution *execution, int32_t buffer,
                          enum tier tier);

/* The same before its first use in a step, or `of_share` in the present share: results, and sums of gradients. */
enum status schedule_zero_first(struct scheduler *scheduler, const struct execution *execution, int32_t buffer,
                                bool of_share);

/* Schedules a node's kernel, and zeros before it if it adds. A node that is executed on runs of elements covers this
 * rank's elements of its shard; without any there is no kernel. */
enum status schedule_node(struct scheduler *scheduler, const struct execution *execution);

/* Sums of lanes and ranks, and collectives of shards. */
enum status schedule_sums(struct scheduler *scheduler, const struct execution *execution);

/* An instruction where the CPU reads and writes the data of a collective, which may be the execution's node. */
struct instruction scheduler_collective(const struct scheduler *scheduler, enum opcode opcode,
                                        const struct execution *execution);
