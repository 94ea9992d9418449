/* A node's operands as a measurement sees them: which share bytes, which are cold, which output is in place; and the
 * text by which a measurement is kept. */
#pragma once

#include "base/base.h"
#include "ir/graph.h"

enum { OPERAND_COUNT = OP_INPUTS_MAX + OP_OUTPUTS_MAX };

/* A tensor with bytes of its own, used by one or several operands. */
struct operand_storage {
    const struct tensor *tensor;
    bool cold; /* no longer in the caches when the node begins: parameters, gradients, optimizer state, activations
                  of another phase */
};

struct operands {
    const struct node *node;
    struct operand_storage storages[OPERAND_COUNT];
    int storage_count;
    int storage[OPERAND_COUNT]; /* of each operand (inputs by index, then outputs); -1: there is none */
};

/* Output 0 is in place (node_in_place_input) where no later node reads the input, as in programs without recomputation.
 */
void operands_find(const struct graph *graph, const struct node *node, struct operands *out);
/* By tensor id: whether nodes of a later phase than the one that makes it read its bytes. The caller frees with
 * mem_free; NULL without memory. */
bool *operands_kept(const struct graph *graph);
/* Bits of the storages that are in no cache when a step that goes through more bytes than these hold comes to the node:
 * the cold ones, and the memory of outputs that are kept for another phase, which was last in use as long ago. Memory
 * of shorter lives is taken again soon. */
uint32_t operands_out_of_caches(const struct operands *operands, const bool *kept);

/* NULL for an operand that is left out. */
const struct tensor *operand_tensor(const struct node *node, int operand);

/* Changes when the same text would stand for another measurement. */
enum { OPERATOR_KEY_VERSION = 3 };
/* Two nodes have the same text when they cost the same: the same operator, attributes, shapes, dtypes and row strides,
 * with the same operands sharing bytes and the same operands cold. For example
 * "linear kn=1 0w:fp32[1,1024,768] 1c:fp32[768,2304] … > 4w:fp32[1,1024,2304]": the number of the storage, w for warm
 * or c for cold; a view ends with "/" and the elements of its base's rows. In `memory`; NULL when there is none. */
const char *operator_key(const struct operands *operands, struct scratch *memory);
