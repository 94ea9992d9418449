/* What the files of scheduling share: schedule.c (sections, and messages between pipeline stages), schedule_nodes.c
 * (kernels and their operands), schedule_sums.c (sums of lanes and ranks, collectives of shards). */
#pragma once

#include "compiler/buffers.h"
#include "compiler/collectives.h"

/* The state of scheduling: which buffer holds which tensor at present. */
struct scheduler {
    struct program *program;
    const struct graph *graph;
    const struct plan *plan;
    const struct workspace_table *workspace;
    struct chunk_list chunks;
    struct execution_source source;
    int64_t slots; /* micro-batches in flight */
    struct lane_shares shares;
    struct lane_shares max; /* of the first data rank, which has the most lanes, each with the most micro-batches */
    const struct lane_share *share; /* the present one */
    bool unrolled;                  /* every wave has a section of its own */
    struct step_buffers buffers;
    struct instances activations; /* numbered by their buffers */
    int64_t *zeroed;              /* by buffer id of step buffers: 1 + the latest share that zeroed it */
};

static inline int64_t scheduler_share_number(const struct scheduler *scheduler) {
    return scheduler->share - scheduler->shares.list.items;
}

/* The level of gradients' buffers for a level of the present share's sums. Where gradients are cut, the sum of all
 * rounds is apart, and each round's is at level 0. */
static inline int scheduler_level(const struct scheduler *scheduler, int level) {
    return level - (step_buffers_cut_gradients(&scheduler->buffers) && scheduler->share->round > 0);
}

struct instruction scheduler_instruction(const struct scheduler *scheduler, enum opcode opcode,
                                         const struct execution *execution);
/* A buffer of zeros. */
enum status schedule_zero(struct scheduler *scheduler, const struct execution *execution, int32_t buffer,
                          enum tier tier);

/* The same before the first use of sums of gradients in the present share. */
enum status schedule_zero_sums(struct scheduler *scheduler, const struct execution *execution, int32_t buffer);
/* The same before the first use of a result in a step. */
enum status schedule_zero_once(struct scheduler *scheduler, const struct execution *execution,
                               const struct tensor *result);

/* A node's kernel, with zeros before where it adds. Where the node is executed on runs of elements, those that this
 * rank has of its shard: none, no kernel. */
enum status schedule_node(struct scheduler *scheduler, const struct section *section,
                          const struct execution *execution);

/* Sums of lanes and ranks, and collectives of shards. */
enum status schedule_sums(struct scheduler *scheduler, const struct execution *execution);

/* An instruction where the CPU reads and writes the data of a collective. */
struct instruction scheduler_collective(const struct scheduler *scheduler, enum opcode opcode,
                                        const struct execution *execution);
