#include "ir/ops/check.h"

enum status check_shape(const struct node *node, int input, struct shape expected) {
    if (!node->in[input]) return STATUS_OK;
    const struct shape *found = tensor_values(node->in[input]);
    if (shape_equal(found, &expected)) return STATUS_OK;
    char a[SHAPE_TEXT], b[SHAPE_TEXT];
    return status_set(STATUS_BAD_INPUT, "input %d (%s) is %s, expected %s", input, node->in[input]->name,
                      shape_print(found, a), shape_print(&expected, b));
}

enum status check_activation(const struct node *node, int input) {
    const struct shape *found = &node->in[input]->shape;
    if (found->rank == 3 && (found->dtype == DTYPE_F32 || found->dtype == DTYPE_BF16)) return STATUS_OK;
    char text[SHAPE_TEXT];
    return status_set(STATUS_BAD_INPUT, "input %d (%s) is %s, expected activations [S, T, C]", input,
                      node->in[input]->name, shape_print(found, text));
}

enum status check_log_probabilities(const struct node *node) {
    const struct shape *y = &node->in[0]->shape;
    if (y->dtype == DTYPE_F32 && y->rank == 3 && y->dims[2] == 1) return check_shape(node, 1, tokens_of(y));
    return status_set(STATUS_BAD_INPUT, "input 0 (%s) holds no log-probabilities [S, T, 1]", node->in[0]->name);
}

struct shape with_columns(struct shape shape, int64_t columns) {
    shape.dims[shape.rank - 1] = columns;
    return shape;
}

struct shape with_dtype(struct shape shape, enum dtype dtype) {
    shape.dtype = dtype;
    return shape;
}

struct shape as_accumulator(struct shape shape) {
    return with_dtype(shape, DTYPE_F32);
}

struct shape vector_of(enum dtype dtype, int64_t count) {
    return shape_make(dtype, 1, count, 1, 1);
}

struct shape tokens_of(const struct shape *activation) {
    return shape_make(DTYPE_I32, 2, activation->dims[0], activation->dims[1], 1);
}

struct shape parts_one_of(const struct shape *stack) {
    struct shape shape = {.dtype = stack->dtype, .rank = stack->rank - 1, .dims = {1, 1, 1, 1}};
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = stack->dims[i + 1];
    return shape;
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
    op_loops_operands(out, node->op->inputs == 1 ? "stc->stc" : "stc,stc->stc");
    return way == 0;
}

struct tensor *gradient_if_wanted(const struct gradients *gradients, struct tensor *tensor) {
    return gradient_wanted(gradients, tensor) ? tensor : NULL;
}

void gradient_deliver_sum(struct gradients *gradients, const struct node *of, struct tensor *tensor,
                          struct tensor *gradient) {
    struct tensor *partial = gradient_partial(gradients, tensor);
    if (partial && gradient) {
        struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, tensor)};
        gradient_add_node(gradients, &op_add, of, OPERANDS(gradient, partial), NULL, into);
        gradient = into[0];
    }
    gradient_deliver(gradients, tensor, gradient);
}

/* Whether the node adds the tensor: addends are optional inputs. A required input may be the same tensor, where a
 * residual shares its gradient. */
static bool adds(const struct op *op, struct tensor *const *in, const struct tensor *tensor) {
    for (int i = op->inputs - op->optional; i < op->inputs && tensor; i++)
        if (in[i] == tensor) return true;
    return false;
}

void gradient_add_rule(struct gradients *gradients, const struct op *op, const struct node *node,
                       struct tensor *const *in, const void *attributes, struct tensor *const *of) {
    struct tensor *into[OP_OUTPUTS_MAX] = {NULL};
    bool wanted = false;
    for (int i = 0; i < op->outputs; i++)
        wanted |= of[i] && (of[i]->kind == TENSOR_RESULT || gradient_wanted(gradients, of[i]));
    if (!wanted) return;
    for (int i = 0; i < op->outputs; i++)
        if (of[i]) into[i] = of[i]->kind == TENSOR_RESULT ? of[i] : gradient_target(gradients, of[i]);
    gradient_add_node(gradients, op, node, in, attributes, into);
    for (int i = 0; i < op->outputs; i++) {
        if (!of[i] || of[i]->kind == TENSOR_RESULT) continue;
        if (adds(op, in, gradient_partial(gradients, of[i])))
            gradient_deliver(gradients, of[i], into[i]);
        else
            gradient_deliver_sum(gradients, node, of[i], into[i]);
    }
}

static struct node *apply(struct graph *graph, const struct op *op, const char *name, struct tensor *const *in,
                          const void *attributes, struct tensor *const *into) {
    for (int i = 0; i < op->inputs - op->optional; i++)
        if (!in[i]) return NULL;
    return graph_add(graph, op, name, in, attributes, into);
}

struct tensor *ops_apply(struct graph *graph, const struct op *op, const char *name, struct tensor *const *in,
                         const void *attributes) {
    struct node *node = apply(graph, op, name, in, attributes, NULL);
    return node ? node->out[0] : NULL;
}

struct tensor *ops_apply_loss(struct graph *graph, const struct op *op, const char *name, struct tensor *const *in,
                              const void *attributes, int64_t figures) {
    struct shape shape = vector_of(DTYPE_F64, figures);
    struct tensor *into[OP_OUTPUTS_MAX] = {graph_tensor(graph, TENSOR_RESULT, "loss", shape)};
    struct node *node = apply(graph, op, name, in, attributes, into);
    return node ? node->out[0] : NULL;
}
