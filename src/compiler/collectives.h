/* Operations between ranks in programs: what each is, and what it takes of a rank. */
#pragma once

#include "compiler/program.h"
#include "plan/chunks.h"

/* What this rank has of an operation's data, in bytes from the data's first. */
struct comm_range collectives_own_block(const struct program *program, const struct program_collective *operation);

/* The sum of `bytes` over all ranks, of a round's shares. */
enum status collectives_all_reduce(struct program *program, const struct recipe *recipe, int64_t round, int64_t bytes,
                                   struct program_collective *out);
/* The same of a chunk's gradients, of which each rank gets its piece (plan/chunks.h). */
enum status collectives_reduce_scatter(struct program *program, const struct recipe *recipe, int64_t round,
                                       const struct shard_cut *cut, struct program_collective *out);
/* The shard of width `coarse` from its shards of width `fine`; `block_bytes`: what SHARD_BLOCK elements have. 0 bytes:
 * the shard has none. */
enum status collectives_all_gather(struct program *program, const struct shard_cut *cut, int coarse, int fine,
                                   int64_t block_bytes, struct program_collective *out);

/* `bytes` of the rank at position `root` of the group. */
static inline struct program_collective collectives_broadcast(struct comm_group group, int root, int64_t bytes,
                                                              const struct tensor *tensor, int64_t micro_batch) {
    return (struct program_collective){.kind = COMM_BROADCAST,
                                       .group = group,
                                       .bytes = bytes,
                                       .root = root,
                                       .tensor = tensor,
                                       .micro_batch = micro_batch};
}

/* What an operator of the graph is (op.collective), on its tensor group, of so many bytes of data. BAD_INPUT where the
 * plan's tensor group has not the operator's number of ranks. */
enum status collectives_of_node(const struct program *program, const struct node *node, int64_t bytes,
                                struct program_collective *out);

/* The operations of a graph's forward and backward, in program->collectives, as its program will have them: to price
 * them before there is one. program->place, lanes and flat are set. */
enum status collectives_of_graph(struct program *program, const struct graph *graph);

/* NO_FIT where a rank's programs have more than COMM_OPERATIONS_MAX, with the hint how they become fewer. */
#define COLLECTIVES_FEWER                                                                                              \
    "sums are made once a round and gathers once a wave: a greater --round, or a larger --micro-batch"
enum status collectives_check_count(size_t count);
/* Makes the instruction, which has all operands but the workspace, execute the operation: appends it to
 * program->collectives, and adds the buffer of its staging. program->place, lanes and flat are set. NO_FIT for one too
 * many. */
enum status collectives_add(struct program *program, const struct program_collective *operation,
                            struct instruction *instruction);

/* The operation's specification, without addresses: `mine` only says whether there is one. `tree`: where the order of
 * its sums is put; the caller frees it with lane_tree_free when the operation or schedule is made, also after a
 * failure. */
enum status collectives_spec(const struct program *program, int32_t collective, struct lane_tree *tree,
                             struct comm_spec *out);

/* What this rank moves in a step, all operations together. */
struct comm_traffic collectives_traffic(const struct program *program);
