#include "profile/size_curve.h"

/* Sizes where the call's own cost dominates, that fit in the caches, and that come from memory. */
const int64_t curve_elements[CURVE_POINTS] = {1 << 10, 1 << 16, 1 << 22};

bool curve_fits(const struct node *node) {
    return node->phase >= PHASE_FINISH && !node->op->flops && node->in[0] && node->in[0]->kind == TENSOR_GRADIENT;
}

int64_t curve_size(const struct node *node) { return shape_elements(&node->in[0]->shape); }

static bool belongs_to_parameter(const struct tensor *tensor) {
    return tensor->kind == TENSOR_GRADIENT || tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

/* Results are no columns of something; the clip factor keeps its size. */
static void make_tensor(const struct tensor *of, int64_t elements, struct tensor *out) {
    *out = *of;
    out->base = NULL;
    out->base_column = 0;
    if (belongs_to_parameter(of)) out->shape = shape_make(of->shape.dtype, 1, elements, 0, 0);
}

/* What the operator makes of the gradient. */
static void resize_results(struct node *node) {
    struct shape shapes[OP_OUTPUTS_MAX] = {{0}};
    BUG_IF(node->op->infer(node, shapes) != STATUS_OK, "%s of another size: %s", node->op->name, status_message());
    for (int i = 0; i < node->op->outputs; i++)
        if (node->out[i] && node->out[i]->kind == TENSOR_RESULT) node->out[i]->shape = shapes[i];
}

void curve_node_make(const struct operands *operands, int64_t elements, struct curve_node *out) {
    out->node = *operands->node;
    out->operands = *operands;
    out->operands.node = &out->node;
    for (int i = 0; i < OPERAND_COUNT; i++) {
        const struct tensor *of = operand_tensor(operands->node, i);
        if (!of) continue;
        int storage = operands->storage[i];
        make_tensor(of, elements, &out->tensors[storage]);
        out->operands.storages[storage].tensor = &out->tensors[storage];
        if (i < OP_INPUTS_MAX)
            out->node.in[i] = &out->tensors[storage];
        else
            out->node.out[i - OP_INPUTS_MAX] = &out->tensors[storage];
    }
    resize_results(&out->node);
}

double curve_seconds(const double seconds[CURVE_POINTS], int64_t elements) {
    const int last = CURVE_POINTS - 1;
    if (elements <= curve_elements[0]) return seconds[0];
    if (elements >= curve_elements[last]) return seconds[last] * (double)elements / (double)curve_elements[last];
    int i = 0;
    while (elements > curve_elements[i + 1])
        i++;
    double part = (double)(elements - curve_elements[i]) / (double)(curve_elements[i + 1] - curve_elements[i]);
    return seconds[i] + part * (seconds[i + 1] - seconds[i]);
}
