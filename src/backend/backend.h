/* A backend: kernels for the operators, and the moves that programs make, behind one table of functions. */
#ifndef BALLAST_BACKEND_BACKEND_H
#define BALLAST_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/graph.h"

/* What a kernel is called with. Pointers are to first elements; shapes and row strides are the node's
 * (tensor_row_stride, for views). Absent optional operands are NULL. Outputs that the operator `updates` hold their old
 * values; all others hold garbage and are written in full. When out[0] is the buffer of the operator's in_place_input,
 * the two pointers are equal. */
struct kernel_call {
    void *in[OP_INPUTS_MAX];
    void *out[OP_OUTPUTS_MAX];
    void *workspace;       /* workspace_bytes, 64-byte aligned, contents undefined */
    const double *scalars; /* SCALAR_COUNT values, by enum scalar of ops.h */
    void *stream;          /* CUDA: the cudaStream_t that takes the work; elsewhere NULL */
};

/* A kernel made ready for one node: everything that needs memory or compilation was done when it was created. It may
 * hold state of its own, so one stream runs it, one call at a time (program_verify checks it). */
struct kernel {
    void (*run)(const struct kernel *kernel, const struct kernel_call *call);
    void (*release)(struct kernel *kernel); /* frees the kernel itself too */
    const struct node *node;
    int64_t workspace_bytes;
};

struct backend {
    const char *name;
    /* Whether it can be used at all: BAD_INPUT for a wrong setting, FAILED for a machine that it does not know. */
    enum status (*check)(void);
    /* Instruction set in use ("avx512", "avx2", "generic"): part of the recipe, since results depend on it. */
    const char *(*isa)(void);
    /* Sets the number of compute threads of the calling thread's kernels and starts them; kernels are created and run
     * with one number. */
    void (*set_threads)(int threads);
    bool (*supports)(const struct op *op, enum dtype dtype);
    /* The kernel of one node; the caller calls kernel->release. Kernels of equal nodes may share their compiled part.
     */
    enum status (*kernel_create)(const struct node *node, struct kernel **out);
    /* bytes of zeros; used for accumulators */
    void (*zero)(void *to, int64_t bytes);
};

extern const struct backend backend_cpu;

#endif
