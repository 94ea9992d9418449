/* Muon: the update of a whole matrix, and which parameters are such. */
#include "ir/ops/check.h"

/* Of five steps on x [k, l], k <= l: x xt, g g, and their product with x. */
static double muon_flops(const struct node *node) {
    double rows = (double)node->in[0]->shape.dims[0], columns = (double)node->in[0]->shape.dims[1];
    double k = rows < columns ? rows : columns, l = rows < columns ? columns : rows;
    return MUON_STEPS * (4 * k * k * l + 2 * k * k * k);
}

static enum status infer_muon(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    char text[SHAPE_TEXT];
    if (node->in[0]->shape.rank != 2)
        return status_set(STATUS_BAD_INPUT, "input 0 is %s, not a matrix", shape_print(&node->in[0]->shape, text));
    return infer_update(node, out);
}

const struct op op_muon = {
    .name = "muon",
    .attribute_bytes = sizeof(struct update_attributes),
    .min_inputs = 1,
    .inputs = 2,
    .outputs = 4,
    .infer = infer_muon,
    .work = OP_WORK_MATRIX_UPDATE,
    .flops = muon_flops,
    .cost_key = op_key_nothing,
    .updates = 0xf,
    .overwrites = update_overwrites,
    .reads_scalars = true,
    .by_parameter = true,
};

static bool is_table(const struct node *node) {
    switch (node->op->work) {
    case OP_WORK_LOOKUP:
    case OP_WORK_LOGITS:
    case OP_WORK_LOSS: return true;
    default: return false;
    }
}

void ops_mark_whole_updates(struct graph *graph, enum update_rule rule) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        bool matrix = tensor->kind == TENSOR_PARAMETER && tensor->trainable && tensor->shape.rank == 2;
        tensor->updated_whole = matrix && rule == UPDATE_MUON;
    }
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && is_table(node); i++)
            if (node->in[i]) node->in[i]->updated_whole = false;
    }
}
