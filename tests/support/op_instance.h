/* A graph of a few nodes made ready to run on the CPU backend: buffers between canaries, values, kernels. Free of the
 * test library, for the benchmark's sake. */
#ifndef BALLAST_TESTS_OP_INSTANCE_H
#define BALLAST_TESTS_OP_INSTANCE_H

#include "backend/backend.h"
#include "support/op_cases.h"

enum { OP_INSTANCE_NODES = 4 };

struct op_instance {
    struct graph *graph;
    struct node *node; /* the last: the one that the case is about */
    int nodes;
    struct kernel *kernels[OP_INSTANCE_NODES];
    struct kernel_call calls[OP_INSTANCE_NODES];
    void **data;       /* by tensor id; views point into their base */
    void **workspaces; /* by node */
    double *scalars;   /* SCALAR_COUNT */
};

/* Takes the graph over, also on failure. Buffers hold the poison 0xff, which is NaN in each floating-point dtype. */
enum status op_instance_create(struct graph *graph, struct op_instance *out);
void op_instance_free(struct op_instance *instance);

/* Fills what no node overwrites with values that depend on the seed alone. */
void op_instance_fill(struct op_instance *instance, uint64_t seed);
/* Poisons the node's workspace and the outputs that it does not update, then runs it. */
void op_instance_run(struct op_instance *instance, int node);
/* Runs all nodes in order. */
void op_instance_run_all(struct op_instance *instance);
/* The name of a buffer around which bytes have changed (beside a view: columns that are not its own), or NULL. */
const char *op_instance_overrun(const struct op_instance *instance);

/* Values of a tensor, contiguous, as doubles; free with mem_free. And back, rounded to its dtype. */
double *op_instance_read(const struct op_instance *instance, const struct tensor *tensor);
void op_instance_write(struct op_instance *instance, const struct tensor *tensor, const double *values);

#endif
