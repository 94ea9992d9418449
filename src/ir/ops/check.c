/* Rules of shapes that operators share. */
#include "ir/ops/check.h"

enum status check_shape(const struct node *node, int input, const struct shape *expected) {
    const struct shape *found = tensor_values(node->in[input]);
    if (shape_equal(found, expected)) return STATUS_OK;
    char a[SHAPE_TEXT], b[SHAPE_TEXT];
    return status_set(STATUS_BAD_INPUT, "input %d (%s) is %s, expected %s", input, node->in[input]->name,
                      shape_print(found, a), shape_print(expected, b));
}

enum status check_optional(const struct node *node, int input, const struct shape *expected) {
    return node->in[input] ? check_shape(node, input, expected) : STATUS_OK;
}

enum status check_activation(const struct node *node, int input) {
    const struct shape *found = &node->in[input]->shape;
    if (found->rank == 3 && (found->dtype == DTYPE_F32 || found->dtype == DTYPE_BF16)) return STATUS_OK;
    char text[SHAPE_TEXT];
    return status_set(STATUS_BAD_INPUT, "input %d (%s) is %s, expected activations [S, T, C]", input,
                      node->in[input]->name, shape_print(found, text));
}

struct shape with_columns(struct shape shape, int64_t columns) {
    shape.dims[shape.rank - 1] = columns;
    return shape;
}

struct shape as_accumulator(struct shape shape) {
    shape.dtype = DTYPE_F32;
    return shape;
}

struct shape vector_of(enum dtype dtype, int64_t count) {
    return shape_make(dtype, 1, count, 1, 1);
}

void loops_add_tokens(struct op_loops *loops, const struct tensor *tensor) {
    op_loops_add(loops, 's', tensor->shape.dims[0]);
    op_loops_add(loops, 't', tensor->shape.dims[1]);
}

void loops_add_outside_positions(struct op_loops *loops, const struct tensor *tensor) {
    op_loops_add(loops, 't', tensor->shape.dims[1])->outside = true;
}

bool loops_alike(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'c', shape_columns(&node->in[0]->shape));
    for (int i = 0; i < node->op->inputs; i++)
        op_loops_operand(out, i, "stc");
    for (int i = 0; i < node->op->outputs; i++)
        op_loops_operand(out, OP_INPUTS_MAX + i, "stc");
    return way == 0;
}
