/* What is true of an operator without hardware. The table of all operators is `op_table` in ops/ops.h; kernels are
 * looked up by name in each backend. */
#ifndef BALLAST_GRAPH_OP_H
#define BALLAST_GRAPH_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/tensor.h"

enum { OP_INPUTS_MAX = 8, OP_OUTPUTS_MAX = 5 };

struct node;
struct gradients;

struct op_cost {
    double flops; /* multiplications and additions each count 1 */
    double bytes; /* each operand read or written once */
};

struct op {
    const char *name;
    size_t attribute_bytes;
    int inputs_least, inputs; /* how many inputs are required (the first ones), and how many there can be */
    int outputs;
    /* Shapes of the outputs from those of the inputs; BAD_INPUT with a message when the inputs do not fit. */
    enum status (*infer)(const struct node *node, struct shape out[OP_OUTPUTS_MAX]);
    /* NULL: no FLOPs worth counting; bytes are counted from the operands in any case. */
    double (*flops)(const struct node *node);
    /* Adds the nodes that compute the gradients of the inputs that want one (graph/differentiate.h). NULL: no gradient.
     */
    void (*differentiate)(struct gradients *gradients, const struct node *node);
    uint32_t saved_inputs,
        saved_outputs; /* bits: operands that the gradient's nodes read; checked by differentiation */
    uint32_t updates;  /* bits: outputs that are added to or changed in place, not overwritten */
    /* A loss: adds the node that makes the loss and all its gradients at once, in place of this one, since the loss's
     * own gradient is known to be 1. NULL for all others. */
    void (*differentiate_loss)(struct gradients *gradients, const struct node *node);
    bool reads_scalars; /* kernels read values of the step (kernel_call.scalars) */
    int in_place_input; /* 1 + index of the input whose buffer output 0 may take over, bytes being equal; 0: none */
};

void op_cost(const struct node *node, struct op_cost *out);

#endif
