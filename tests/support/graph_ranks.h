/* Executes the graphs of a group's ranks in one process: each node on all ranks, then the next. Communication
 * between ranks happens here. */
#pragma once

#include "ir/graph.h"

enum { GRAPH_RANKS_MAX = 8 };

struct graph_ranks {
    int ranks;
    struct graph *graphs[GRAPH_RANKS_MAX]; /* owned; of equal nodes */
    void **data[GRAPH_RANKS_MAX];          /* by tensor id: the first element; zeros at first */
};

/* The graphs are set. Ends the test without memory. */
void graph_ranks_open(struct graph_ranks *ranks);
void graph_ranks_close(struct graph_ranks *ranks);
/* Sets parameters by their names and places in the whole tensor, and inputs alike on all ranks, with ids below `limit`.
 */
void graph_ranks_fill(struct graph_ranks *ranks, uint64_t seed, int limit);
/* Executes all nodes of phases up to `last`, with these values of the step. */
void graph_ranks_run(struct graph_ranks *ranks, enum phase last, const double *scalars);
/* An fp32 tensor of one rank, element by element of its own. */
const float *graph_ranks_values(const struct graph_ranks *ranks, int rank, const struct tensor *tensor);
