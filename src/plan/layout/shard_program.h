/* The integer program (intra_op.h) of a model's forward graph on a mesh.
 *
 * A node's choices are its strategies. An edge's costs are those of the conversions from the producer's layout to the
 * consumer's. Identical blocks are tied node by node, so that they share one set of choices. Elementwise operators of
 * one activation are tied to its producer. Work and memory come from the symbolic profile (ir/symbolic_profile.h).
 * Activations and their gradients are live as in a step, cut as their producers leave them. Gathered operands are live
 * while their node works. Parameters, gradients and optimizer state are always live. A view of some columns is cut as
 * the whole is: packed projections are cut in each part. A parameter that several nodes read is converted from the
 * first one's layout. */
#pragma once

#include "plan/layout/intra_op.h"
#include "plan/layout/strategy.h"

struct shard_question {
    const struct graph *graph; /* forward only */
    struct device_mesh mesh;
    struct device_rates rates;
    double state_bytes_per_byte; /* of a parameter: itself, its gradient and optimizer state, for each of its bytes */
    int64_t memory_limit;        /* bytes of a device; INTRA_OP_NO_LIMIT: none */
    /* Only what ranks execute (plan/layout/strategy.h): such strategies, and a parameter's uses all alike. */
    bool executable;
};

/* A tensor that is converted along an edge of the program. */
struct shard_edge {
    const struct conversions *conversions;
    int from_operand, to_operand;
};
struct shard_program {
    const struct graph *graph;
    struct symbolic_profile profile; /* of its training step */
    struct intra_op_program program; /* nodes: the graph's, which have costs; and with memory one for the parameters
                                        of each, one for what it gathers, one for each value of the profile */
    /* The same moments with every block recomputed: other blocks only contribute values that leave them. No schedule
     * needs less than the largest moment. */
    const struct intra_op_moment *checkpointed;
    double unit_s;                 /* seconds of one unit of its costs */
    struct strategies *strategies; /* [graph's nodes] empty where a node is tied to one of another block */
    struct shard_edge *edges;      /* [edges of the program] */
    int *block_like;               /* [graph's nodes] the same node of the first block that is the same; or itself */
    int **strategy_of;             /* [graph's nodes] by choice, where a node follows its producer; else NULL */
    struct conversion_cache conversions;
    struct scratch scratch;
};
/* The largest graph: a node takes a row for its parameters, one for what it gathers, and two for each output. */
enum { SHARD_PROGRAM_NODES_MAX = INTRA_OP_NODES_MAX / (3 + 2 * OP_OUTPUTS_MAX) };

/* Free with shard_program_free, also after a failure. */
enum status shard_program_make(const struct shard_question *question, struct shard_program *out);
void shard_program_free(struct shard_program *program);

/* Converts the solution's choices into those of a rank's graph (plan/layout/shard_choice.h). The program contains only
 * strategies that ranks execute. The caller frees `out` (shard_choices_free), also after a failure. */
struct shard_choices;
enum status shard_program_choices(const struct shard_program *program, const int *choice, struct shard_choices *out);

/* The other way round, into `choice` [nodes of the program]: false where some node has no strategy that is so chosen.
 */
bool shard_program_find_choice(const struct shard_program *program, const struct shard_choices *choices, int *choice);

/* The strategy of a node by the solution's choice for it. */
const struct strategy *shard_program_strategy(const struct shard_program *program, int node, int choice);

/* The cheapest conversion between the choices at the edge's ends. */
struct step_price shard_program_edge_price(const struct shard_program *program, int edge, const int *choice);
