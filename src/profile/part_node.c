#include "profile/part_node.h"

#include <math.h>

#include "ir/ops/ops.h"

enum { TOKENS_STEP = 64, PART_TOKENS = 256, VOCAB_MIN = 1024, HEAD_PARTS = 3 };
/* The most of a lookup's table that is measured: a table of this size is already out of the caches. */
static const int64_t TABLE_BYTES_MAX = (int64_t)256 << 20;

/* The shape [S, T, …] that the node works on. */
static const struct shape *micro_batch_of(const struct node *node) { return &node->in[0]->shape; }
static int64_t tokens_of(const struct node *node) {
    return micro_batch_of(node)->dims[0] * micro_batch_of(node)->dims[1];
}

static double flops_of(const struct node *node) {
    struct op_cost cost;
    op_cost(node, &cost);
    return cost.flops;
}

static int64_t round_down(int64_t count, int64_t step) { return count < step ? step : count / step * step; }

static struct parts two_parts(int64_t tokens) {
    return (struct parts){.count = 2, .part = {{.tokens = tokens / 2}, {.tokens = tokens}}};
}

/* As many tokens as keep the part below `large_flops`, but enough for GEMMs to reach their rate; a node with less
 * than twice as many is measured whole. */
static struct parts product_parts(const struct node *node, double large_flops) {
    int64_t tokens = round_down((int64_t)((double)tokens_of(node) * large_flops / flops_of(node)), 2 * TOKENS_STEP);
    if (tokens < PART_TOKENS) tokens = PART_TOKENS;
    return 2 * tokens <= tokens_of(node) ? two_parts(tokens) : (struct parts){0};
}

/* Attention's work follows the square of the tokens. Of a part of the queries it is measured whole. */
static struct parts attention_parts(const struct node *node, double large_flops) {
    if (((const struct attention_attributes *)node->attributes)->queries.parts > 1) return (struct parts){0};
    int64_t length = micro_batch_of(node)->dims[1];
    double flops = flops_of(node) / (double)micro_batch_of(node)->dims[0];
    double part = flops > large_flops / 2 ? sqrt(large_flops / 2 / flops) : 1;
    int64_t tokens = round_down((int64_t)(part * (double)length), 2 * TOKENS_STEP);
    return tokens <= length ? two_parts(tokens) : (struct parts){0};
}

/* Its time is in proportion, so that a smaller part tells it as well; its memory follows the part's rows. */
static struct parts head_parts(const struct node *node, double large_flops) {
    int64_t vocab = node->in[1]->shape.dims[0], tokens = tokens_of(node) < PART_TOKENS ? 0 : PART_TOKENS;
    double flops = flops_of(node) * (tokens > 0 ? (double)tokens / (double)tokens_of(node) : 1);
    int64_t part = round_down((int64_t)((double)vocab * fmin(large_flops / HEAD_PARTS / flops, 1)), VOCAB_MIN);
    return (struct parts){.count = 1, .part = {{.tokens = tokens, .vocab = part < vocab ? part : 0}}};
}

static struct parts table_parts(const struct tensor *table) {
    int64_t row = shape_columns(&table->shape) * dtype_bytes(table->shape.dtype), rows = TABLE_BYTES_MAX / row + 1;
    if (shape_bytes(&table->shape) <= TABLE_BYTES_MAX) return (struct parts){0};
    return (struct parts){.count = 1, .part = {{.vocab = rows}}};
}

/* The parts of an operator that is too large to be measured whole. */
static struct parts large_parts(const struct node *node, double large_flops) {
    switch (node->op->work) {
    case OP_WORK_PRODUCT: return product_parts(node, large_flops);
    case OP_WORK_ATTENTION:
    case OP_WORK_ATTENTION_GRAD: return attention_parts(node, large_flops);
    case OP_WORK_LOSS:
    case OP_WORK_LOSS_GRAD: return head_parts(node, large_flops);
    default: return (struct parts){0};
    }
}

struct parts parts_of(const struct node *node, double large_flops) {
    if (large_flops <= 0) return (struct parts){0};
    if (node->op->work == OP_WORK_LOOKUP) return table_parts(node->in[1]);
    if (node->op->work == OP_WORK_LOOKUP_GRAD) return table_parts(node->out[0]);
    return flops_of(node) > large_flops ? large_parts(node, large_flops) : (struct parts){0};
}

static void cut_shape(const struct node *node, const struct part *part, int operand, struct tensor *tensor) {
    bool weight = tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_GRADIENT;
    if (weight && part->vocab > 0) tensor->shape.dims[0] = part->vocab;
    if (weight || tensor->kind == TENSOR_RESULT || part->tokens == 0) return;
    tensor->shape.dims[0] = 1;
    tensor->shape.dims[node->op->positions_last >> operand & 1 ? 2 : 1] = part->tokens;
}

static void cut_operand(const struct operands *operands, const struct part *part, int operand, struct part_node *out) {
    const struct tensor *of = operand_tensor(operands->node, operand);
    int storage = operands->storage[operand];
    struct tensor *tensor = &out->tensors[operand];
    *tensor = *of;
    cut_shape(operands->node, part, operand, tensor);
    if (of->base) {
        out->bases[storage] = *of->base;
        cut_shape(operands->node, part, operand, &out->bases[storage]);
        tensor->base = &out->bases[storage];
    }
    if (of->base || operands->storages[storage].tensor == of)
        out->operands.storages[storage].tensor = tensor_storage(tensor);
    if (operand < OP_INPUTS_MAX)
        out->node.in[operand] = tensor;
    else
        out->node.out[operand - OP_INPUTS_MAX] = tensor;
}

static void set_table_rows(int64_t rows, struct part_node *out) {
    memcpy(out->attributes, out->node.attributes, out->node.op->attribute_bytes);
    out->node.op->set_table_rows(out->attributes, rows);
    out->node.attributes = out->attributes;
}

void part_node_make(const struct operands *operands, const struct part *part, struct part_node *out) {
    out->node = *operands->node;
    out->operands = *operands;
    out->operands.node = &out->node;
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (operand_tensor(operands->node, i)) cut_operand(operands, part, i, out);
    if (operands->node->op->set_table_rows && part->vocab > 0) set_table_rows(part->vocab, out);
}

double parts_seconds(const struct operands *operands, const struct parts *parts, const double seconds[PARTS_MAX]) {
    double whole = flops_of(operands->node), flops[PARTS_MAX];
    for (int i = 0; i < parts->count; i++) {
        struct part_node node;
        part_node_make(operands, &parts->part[i], &node);
        flops[i] = flops_of(&node.node);
    }
    if (parts->count == 1) return whole > 0 ? seconds[0] * whole / flops[0] : seconds[0];
    double slope = (seconds[1] - seconds[0]) / (flops[1] - flops[0]);
    /* The line is limited by the larger part's time below, and by its time in proportion to the work above. */
    return fmin(fmax(seconds[1] + slope * (whole - flops[1]), seconds[1]), seconds[1] * whole / flops[1]);
}
