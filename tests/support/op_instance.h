/* Prepares a graph of a few nodes to run: buffers between canaries, values, kernels. Does not depend on the test
 * library, so that benchmarks can use it.
 *
 * The graph runs on the CPU, or on the first CUDA device if BALLAST_TEST_BACKEND is "cuda". Each buffer then has a
 * copy in the device's memory, canaries included, which is written before each node and read back after it, so that
 * tests need no other change. */
#pragma once

#include "backend/backend.h"
#include "support/op_cases.h"

enum { OP_INSTANCE_NODES = 48 };
/* The exit status by which a program tells ctest that it was skipped. */
enum { TEST_SKIPPED = 77 };

struct op_instance {
    struct graph *graph;
    struct node *node; /* the last: the one that the case is about */
    int nodes;
    struct kernel *kernels[OP_INSTANCE_NODES];
    struct kernel_call calls[OP_INSTANCE_NODES];
    void **data;       /* by tensor id; views point into their base */
    void **twins;      /* the same on the device; NULL on the CPU */
    void **workspaces; /* by node */
    double *scalars;   /* SCALAR_COUNT, which kernels read at their twin on a device: */
    double *scalars_twin;
};

/* Whether BALLAST_TEST_BACKEND names a backend that can run here; if not, `why` says so, for a test to skip itself. */
bool op_instance_can_run(const char **why);
/* Whether it runs on CUDA. */
bool op_instance_on_cuda(void);
/* Whether that backend has kernels of an operator. */
bool op_instance_has_kernel(const struct op *op);
/* The kernel that the instances' backend makes of a node. */
enum status op_instance_kernel(const struct node *node, struct kernel **out);

/* Takes the graph over, also on failure. Buffers hold the poison 0xff, which is NaN in each floating-point dtype. */
enum status op_instance_create(struct graph *graph, struct op_instance *out);
void op_instance_free(struct op_instance *instance);

/* Fills what no node overwrites with values that depend on the seed alone. */
void op_instance_fill(struct op_instance *instance, uint64_t seed);
/* Poisons the node's workspace and the outputs that it does not update, then runs it. */
void op_instance_run(struct op_instance *instance, int node);
/* The same with output 0 in the buffer of that input, both being whole buffers. */
void op_instance_run_in_place(struct op_instance *instance, int node, int input);
/* The same in runs of elements that begin at `cuts` (0, then multiples of GRADIENT_NORM_BLOCK), for an operator
 * `by_elements`: a call each, or all by run_together where `together`, which the kernel must have. */
void op_instance_run_cut(struct op_instance *instance, int node, const int64_t *cuts, int count, bool together);
/* Whether its kernel has run_together. */
bool op_instance_runs_together(const struct op_instance *instance, int node);
/* Runs all nodes in order. */
void op_instance_run_all(struct op_instance *instance);
/* The name of a buffer around which bytes have changed (next to a view: columns that are not its own), or NULL. */
const char *op_instance_overrun(const struct op_instance *instance);

/* Values of a tensor, contiguous, as doubles; free with mem_free. And back, rounded to its dtype. */
double *op_instance_read(const struct op_instance *instance, const struct tensor *tensor);
void op_instance_write(struct op_instance *instance, const struct tensor *tensor, const double *values);
