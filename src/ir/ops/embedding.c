/* The embedding: the table's rows of the given ids; and the sum of their gradients. */
#include <math.h>

#include "ir/ops/check.h"

static enum status infer_embedding(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *tokens = &node->in[0]->shape, *table = &node->in[1]->shape;
    if (tokens->dtype != DTYPE_I32 || tokens->rank != 2)
        return status_set(STATUS_BAD_INPUT, "tokens must be int32 [S, T]");
    if (table->rank != 2) return status_set(STATUS_BAD_INPUT, "the table must be [V, C]");
    const struct embedding_attributes *attributes = NODE_ATTRIBUTES(node, embedding_attributes);
    int64_t first_row = attributes->first_row;
    if (attributes->tokens == 0 && (first_row < 0 || first_row >= table->dims[0]))
        return status_set(STATUS_BAD_INPUT, "the table has no row %lld", (long long)first_row);
    out[0] = shape_make(table->dtype, 3, tokens->dims[0], tokens->dims[1], table->dims[1]);
    return STATUS_OK;
}

int64_t embedding_tokens(const struct embedding_attributes *attributes, int64_t rows) {
    return attributes->tokens > 0 ? attributes->tokens : rows - attributes->first_row;
}

static void differentiate_embedding(struct gradients *gradients, const struct node *node) {
    struct tensor *table = node->in[1];
    if (!gradient_wanted(gradients, table)) return;
    struct tensor *in[OP_INPUTS_MAX] = {node->in[0], gradient_of(gradients, node->out[0])};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_joined_target(gradients, table)};
    const struct embedding_attributes *own = NODE_ATTRIBUTES(node, embedding_attributes);
    struct embedding_grad_attributes attributes = {.rows = table->shape.dims[0],
                                                   .first_row = own->first_row,
                                                   .tokens = own->tokens,
                                                   .joined = into[0] && into[0]->producer};
    gradient_add_node(gradients, &op_embedding_grad, node, in, &attributes, into);
    gradient_deliver(gradients, table, into[0]);
}

/* The tokens and rows of the table, of an embedding or of its gradient. */
static struct embedding_attributes lookup_of(const struct node *node, int64_t *rows) {
    if (node->op == &op_embedding) {
        *rows = node->in[1]->shape.dims[0];
        return *NODE_ATTRIBUTES(node, embedding_attributes);
    }
    const struct embedding_grad_attributes *attributes = NODE_ATTRIBUTES(node, embedding_grad_attributes);
    *rows = attributes->rows;
    return (struct embedding_attributes){attributes->first_row, attributes->tokens};
}

static double example_embedding(const struct node *node, const struct tensor *tensor, int64_t index) {
    int64_t rows;
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    const struct embedding_attributes of = lookup_of(node, &rows);
    return op_example_id(tensor, index, embedding_tokens(&of, rows));
}

/* The expected fraction of the table's rows that `example`'s random ids hit; ids may repeat. */
static double touched_embedding(const struct node *node, int operand) {
    if (operand != (node->op == &op_embedding ? 1 : OP_INPUTS_MAX)) return 1;
    int64_t rows;
    const struct embedding_attributes of = lookup_of(node, &rows);
    int64_t tokens = embedding_tokens(&of, rows), begin = of.first_row, end = begin + tokens;
    if (begin < 0) begin = 0;
    if (end > rows) end = rows;
    double drawn = -expm1(-(double)shape_elements(&node->in[0]->shape) / (double)tokens);
    return drawn * (double)(end - begin) / (double)rows;
}

/* By rows of the table too: a part has zeros for tokens that others look up. */
static bool loops_embedding(const struct node *node, int way, struct op_loops *out) {
    if (NODE_ATTRIBUTES(node, embedding_attributes)->tokens > 0) return false; /* it is a part already */
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'v', node->in[1]->shape.dims[0])->padded = true;
    op_loops_add(out, 'c', shape_columns(&node->in[1]->shape));
    op_loops_operands(out, "st,vc->stc");
    return way == 0;
}

static void take_part_embedding(void *attributes, char letter, const struct index_part *part) {
    struct embedding_attributes *own = attributes;
    if (letter != 'v') return;
    own->tokens = part->size - own->first_row;
    own->first_row -= index_part_first(part);
}

const struct op op_embedding = {
    .name = "embedding",
    .attribute_bytes = sizeof(struct embedding_attributes),
    .inputs = 2,
    .outputs = 1,
    .infer = infer_embedding,
    .work = OP_WORK_LOOKUP,
    .touched = touched_embedding,
    .cost_key = op_key_nothing,
    .example = example_embedding,
    .differentiate = differentiate_embedding,
    .loops = loops_embedding,
    .take_part = take_part_embedding,
    .saved_inputs = 1u << 0,
};

static enum status infer_embedding_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 1));
    int64_t rows = NODE_ATTRIBUTES(node, embedding_grad_attributes)->rows;
    out[0] = shape_make(DTYPE_F32, 2, rows, shape_columns(&node->in[1]->shape), 1);
    return STATUS_OK;
}

static void set_table_rows(void *attributes, int64_t rows) {
    ((struct embedding_grad_attributes *)attributes)->rows = rows;
}

const struct op op_embedding_grad = {
    .name = "embedding_grad",
    .attribute_bytes = sizeof(struct embedding_grad_attributes),
    .inputs = 2,
    .outputs = 1,
    .infer = infer_embedding_grad,
    .work = OP_WORK_LOOKUP_GRAD,
    .touched = touched_embedding,
    .cost_key = op_key_nothing,
    .example = example_embedding,
    .set_table_rows = set_table_rows,
    .updates = 1u << 0,
};

struct tensor *ops_embedding(struct graph *graph, const char *name, struct tensor *tokens, struct tensor *table) {
    return ops_embedding_from(graph, name, tokens, table, 0);
}

struct tensor *ops_embedding_from(struct graph *graph, const char *name, struct tensor *tokens, struct tensor *table,
                                  int64_t first_row) {
    struct embedding_attributes attributes = {.first_row = first_row};
    return ops_apply(graph, &op_embedding, name, OPERANDS(tokens, table), &attributes);
}
