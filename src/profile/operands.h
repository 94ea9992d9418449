/* What a node's operands are to a measurement: which share bytes, which are cold, which are written in place. */
#ifndef BALLAST_PROFILE_OPERANDS_H
#define BALLAST_PROFILE_OPERANDS_H

#include "graph/graph.h"

enum { OPERAND_COUNT = OP_INPUTS_MAX + OP_OUTPUTS_MAX };

/* A tensor with bytes of its own, that one or several operands use. */
struct operand_storage {
    const struct tensor *tensor;
    bool cold; /* much else went through the caches since it was last used: parameters, gradients, optimizer state,
                  and what another phase made */
};

struct operands {
    const struct node *node;
    struct operand_storage storages[OPERAND_COUNT];
    int storage_count;
    int storage[OPERAND_COUNT]; /* of each operand (inputs by index, then outputs); -1: there is none */
};

/* Output 0 takes over the bytes of the operator's in_place_input where nothing after the node reads these, as in the
 * programs of a policy without recomputing. */
void operands_find(const struct graph *graph, const struct node *node, struct operands *out);
/* NULL for an operand that is left out. */
const struct tensor *operand_tensor(const struct node *node, int operand);

#endif
