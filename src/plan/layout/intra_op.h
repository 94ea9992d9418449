/* The integer program that chooses a strategy for each node of a graph (Alpa, OSDI'22, section 4; Colossal-Auto, arXiv
 * 2302.02599): one choice a node, costs of nodes and of pairs of choices along edges, and memory at points in time.
 *
 *     min  sum_v cost_v[s_v] + sum_(u,v) cost_uv[s_u][s_v]    such that at every moment sum_v memory_v[s_v] <= limit
 *
 * Tied nodes share one choice: a trivial operator with its producer, and the same node of repeated blocks. Costs are
 * integers of any unit, so the minimum is exact. Among equally cheap solutions, the lexicographically first one in the
 * order of the nodes wins. So a program has one solution on every machine. If the search reaches its node limit, the
 * result is the best one found, which is also the same on every machine. */
#pragma once

#include "base/base.h"

/* The cost of a forbidden pair of choices. */
#define INTRA_OP_FORBIDDEN INT64_MAX
/* Sum of the largest cost of every node and edge; make the unit larger where there is more. */
#define INTRA_OP_COST_MAX ((int64_t)1 << 50)
#define INTRA_OP_NO_LIMIT INT64_MAX
enum { INTRA_OP_NODES_MAX = 1 << 16, INTRA_OP_CHOICES_MAX = 1 << 12 };

struct intra_op_node {
    int choices; /* at least 1 */
    int same_as; /* the node whose choice it takes, which has as many; its own index where it has one of its own */
    const int64_t *cost;   /* [choices] at least 0 */
    const int64_t *memory; /* [choices] bytes while it is live, at least 0 */
};
struct intra_op_edge {
    int from, to;
    const int64_t *cost; /* [choices of from][choices of to] at least 0, or INTRA_OP_FORBIDDEN */
};
/* Nodes whose memory is live together. */
struct intra_op_moment {
    int count;
    const int *nodes; /* one that is listed twice counts twice */
};
struct intra_op_program {
    int node_count, edge_count, moment_count;
    const struct intra_op_node *nodes;
    const struct intra_op_edge *edges;
    const struct intra_op_moment *moments;
    int64_t memory_limit; /* at every moment; INTRA_OP_NO_LIMIT: none */
};

struct intra_op_solution {
    int *choice;        /* [nodes] */
    int64_t cost, peak; /* peak: most memory of any moment */
    int64_t bound;      /* no choices that fit cost less: `cost` where `exact` */
    bool exact;         /* none is cheaper; else the limit of nodes was met before that was proven */
    bool first;         /* and of the cheapest it is the first; else the limit was met before that was */
    bool given_up;      /* none was found, and it is not proven that there are none */
    int64_t nodes_searched;
};

/* `program` is valid. `node_limit` bounds the partial choices of the search; CBC then comes in only where it found
 * none, for a few nodes; 0: as many as are usual, and CBC where the search proves nothing. NO_FIT where no choices fit
 * the memory limit or all meet a forbidden pair; FAILED, with out->given_up, where the limit was met before any was
 * found. Free `out` with intra_op_solution_free. */
enum status intra_op_solve(const struct intra_op_program *program, int64_t node_limit, struct intra_op_solution *out);
void intra_op_solution_free(struct intra_op_solution *solution);

/* Computes the cost and the peak memory of these choices. The cost is INTRA_OP_FORBIDDEN if a pair of them is
 * forbidden. */
void intra_op_evaluate(const struct intra_op_program *program, const int *choice, int64_t *cost, int64_t *peak);
