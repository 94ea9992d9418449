/* Collectives of a group: operations, and the calls that graphs are made with. */
#include "ir/ops/tensor_parts.h"

static const struct collective_attributes *attributes_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, collective_attributes);
}

/* ---- operations of the group ---- */

/* The data of a collective is contiguous, in memory of its own. */
static enum status check_data(const struct node *node) {
    const struct tensor *x = node->in[0];
    if (x->kind == TENSOR_ACTIVATION && !x->base && attributes_of(node)->part.parts >= 1) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "input 0 (%s) is no whole activation, or the group has no ranks", x->name);
}

static enum status check_stack(const struct node *node) {
    char text[SHAPE_TEXT];
    const struct shape *x = &node->in[0]->shape;
    TRY(check_data(node));
    if (x->rank >= 2 && x->dims[0] == attributes_of(node)->part.parts) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "input 0 (%s) is %s, expected %lld parts", node->in[0]->name,
                      shape_print(x, text), (long long)attributes_of(node)->part.parts);
}

static enum status check_sum(const struct node *node) {
    if (node->in[0]->shape.dtype == DTYPE_F32) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "input 0 (%s) is not fp32, in which ranks add", node->in[0]->name);
}

static enum status infer_all_reduce(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = node->in[0]->shape;
    TRY(check_data(node));
    return check_sum(node);
}

/* Everybody's result is everybody's: the gradient of each part is that of the sum. */
static void differentiate_all_reduce(struct gradients *gradients, const struct node *node) {
    if (gradient_wanted(gradients, node->in[0]))
        chain_deliver_converted(gradients, node, gradient_of(gradients, node->out[0]));
}

const struct op op_all_reduce = {
    .name = "all_reduce",
    .attribute_bytes = sizeof(struct collective_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_all_reduce,
    .collective = OP_COLLECTIVE_ALL_REDUCE,
    .differentiate = differentiate_all_reduce,
    .in_place_input = 1 + 0,
};

static enum status infer_reduce_scatter(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_stack(node));
    out[0] = parts_one_of(&node->in[0]->shape);
    return check_sum(node);
}

static void differentiate_reduce_scatter(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *dy = gradient_of(gradients, node->out[0]);
    if (gradient_wanted(gradients, x))
        gradient_contribute(gradients, x,
                            chain_add_backward(gradients, &op_all_gather, node, dy, node->attributes, NULL));
}

const struct op op_reduce_scatter = {
    .name = "reduce_scatter",
    .attribute_bytes = sizeof(struct collective_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_reduce_scatter,
    .collective = OP_COLLECTIVE_REDUCE_SCATTER,
    .differentiate = differentiate_reduce_scatter,
};

static enum status infer_all_gather(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_data(node));
    if (node->in[0]->shape.rank == TENSOR_RANK_MAX)
        return status_set(STATUS_BAD_INPUT, "input 0 (%s) has too many dimensions", node->in[0]->name);
    out[0] = parts_stacked(&node->in[0]->shape, attributes_of(node)->part.parts);
    return STATUS_OK;
}

static struct collective_attributes sum_attributes(struct group_part part, enum dtype values) {
    return (struct collective_attributes){.part = part, .edges = values == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32};
}

/* This rank's part of the gradient that all ranks have, or of the sum of what each has. */
static void differentiate_all_gather(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *dy = gradient_of(gradients, node->out[0]);
    const struct group_part part = attributes_of(node)->part;
    if (!gradient_wanted(gradients, x)) return;
    struct tensor *dx = gradient_target(gradients, x);
    if (attributes_of(node)->partial) {
        const struct collective_attributes attributes = sum_attributes(part, dy->shape.dtype);
        struct tensor *sum = chain_convert_backward(gradients, node, dy, as_accumulator(dy->shape), NULL);
        sum = chain_add_backward(gradients, &op_reduce_scatter, node, sum, &attributes, NULL);
        chain_convert_backward(gradients, node, sum, x->shape, dx);
    } else {
        const struct cut_attributes attributes = {.part = part, .drops = true};
        chain_add_backward(gradients, &op_cut, node, dy, &attributes, dx);
    }
    gradient_deliver_sum(gradients, node, x, dx);
}

const struct op op_all_gather = {
    .name = "all_gather",
    .attribute_bytes = sizeof(struct collective_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_all_gather,
    .collective = OP_COLLECTIVE_ALL_GATHER,
    .differentiate = differentiate_all_gather,
};

static enum status infer_all_to_all(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = node->in[0]->shape;
    return check_stack(node);
}

static void differentiate_all_to_all(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *dy = gradient_of(gradients, node->out[0]);
    if (gradient_wanted(gradients, x))
        gradient_contribute(gradients, x,
                            chain_add_backward(gradients, &op_all_to_all, node, dy, node->attributes, NULL));
}

const struct op op_all_to_all = {
    .name = "all_to_all",
    .attribute_bytes = sizeof(struct collective_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_all_to_all,
    .collective = OP_COLLECTIVE_ALL_TO_ALL,
    .differentiate = differentiate_all_to_all,
};

/* ---- collectives of the gradient alone ---- */

static enum status infer_cut(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct cut_attributes *attributes = NODE_ATTRIBUTES(node, cut_attributes);
    const struct shape *x = &node->in[0]->shape;
    int64_t parts = attributes->part.parts;
    const struct parts_order order = parts_order_of(&attributes->part, attributes->dimension);
    bool one = attributes->dimension == 0 && x->rank >= 2 && x->dims[0] == parts;
    if (attributes->drops ? !one : attributes->part.position >= parts)
        return status_set(STATUS_BAD_INPUT, "input 0 (%s) has not %lld parts", node->in[0]->name, (long long)parts);
    if (!attributes->drops) TRY(parts_check(node, x, &order));
    out[0] = attributes->drops ? parts_one_of(x) : parts_part_of(*x, &order);
    return STATUS_OK;
}

static void differentiate_cut(struct gradients *gradients, const struct node *node) {
    const struct cut_attributes *attributes = NODE_ATTRIBUTES(node, cut_attributes);
    const struct collective_attributes gather = {.part = attributes->part};
    struct tensor *x = node->in[0], *dy = gradient_of(gradients, node->out[0]);
    if (!gradient_wanted(gradients, x)) return;
    struct tensor *all = chain_add_backward(gradients, &op_all_gather, node, dy, &gather, NULL);
    if (!all) return;
    const struct parts_attributes join = {parts_order_of(&attributes->part, attributes->dimension), all->shape.dtype};
    if (attributes->drops || parts_are_stacked(&x->shape, &join.order))
        chain_deliver_converted(gradients, node, all);
    else
        chain_deliver(gradients, node, &op_from_parts, all, &join);
}

static void key_cut(const struct node *node, struct op_key *key) {
    const struct cut_attributes *attributes = NODE_ATTRIBUTES(node, cut_attributes);
    const struct parts_order order = parts_order_of(&attributes->part, attributes->dimension);
    parts_key(&order, key);
}

static double touched_cut(const struct node *node, int operand) {
    return operand == 0 ? (double)shape_elements(&node->out[0]->shape) / (double)shape_elements(&node->in[0]->shape)
                        : 1;
}

const struct op op_cut = {
    .name = "cut",
    .touched = touched_cut,
    .attribute_bytes = sizeof(struct cut_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_cut,
    .cost_key = key_cut,
    .differentiate = differentiate_cut,
};

static enum status infer_copy_in(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = node->in[0]->shape;
    return node->in[0]->kind == TENSOR_ACTIVATION
               ? STATUS_OK
               : status_set(STATUS_BAD_INPUT, "input 0 (%s) is no activation", node->in[0]->name);
}

static void differentiate_copy_in(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *dy = gradient_of(gradients, node->out[0]);
    if (!gradient_wanted(gradients, x) || !dy) return;
    const struct collective_attributes attributes = sum_attributes(attributes_of(node)->part, dy->shape.dtype);
    struct tensor *sum = chain_convert_backward(gradients, node, dy, as_accumulator(dy->shape), NULL);
    sum = chain_add_backward(gradients, &op_all_reduce, node, sum, &attributes, NULL);
    struct tensor *dx = gradient_target(gradients, x);
    chain_convert_backward(gradients, node, sum, x->shape, dx);
    gradient_deliver_sum(gradients, node, x, dx);
}

const struct op op_copy_in = {
    .name = "copy_in",
    .attribute_bytes = sizeof(struct collective_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_copy_in,
    .cost_key = op_key_nothing,
    .differentiate = differentiate_copy_in,
    .in_place_input = 1 + 0,
};

/* ---- calls ---- */

static const char *inner_name(struct graph *graph, const char *name, const char *what) {
    return graph_format(graph, "%s.%s", name, what);
}

/* A tensor with bytes of its own. */
static struct tensor *whole(struct graph *graph, const char *name, struct tensor *x) {
    return x && x->base ? chain_convert(graph, inner_name(graph, name, "columns"), x, x->shape) : x;
}

/* [parts, …], in the dtype `to`, of a tensor that is nobody else's. */
static struct tensor *stack_parts(struct graph *graph, const char *name, struct tensor *x, struct parts_order order,
                                  enum dtype to) {
    const char *inner = inner_name(graph, name, "parts");
    const struct parts_attributes attributes = {order, to};
    int dimension = order.dimension;
    bool stacks = x && dimension >= 0 && dimension < x->shape.rank && parts_are_stacked(&x->shape, &order) &&
                  x->shape.dims[dimension] % order.parts == 0 && x->shape.rank < TENSOR_RANK_MAX && !x->base;
    if (!stacks) return chain_add(graph, &op_to_parts, inner, x, &attributes);
    struct shape part = parts_part_of(shape_with_dtype(x->shape, to), &order);
    return chain_convert(graph, inner, x, parts_stacked(&part, order.parts));
}

static struct tensor *join_parts(struct graph *graph, const char *name, struct tensor *stack,
                                 struct parts_order order) {
    if (!stack) return NULL;
    struct shape part = parts_one_of(&stack->shape);
    const struct parts_attributes attributes = {order, part.dtype};
    if (!parts_are_stacked(&part, &order)) return chain_add(graph, &op_from_parts, name, stack, &attributes);
    return chain_convert(graph, name, stack, parts_joined(part, &order));
}

struct tensor *ops_copy_in(struct graph *graph, const char *name, struct tensor *x, struct group_part part) {
    const struct collective_attributes attributes = {.part = part};
    return part.parts == 1 ? x : chain_add(graph, &op_copy_in, name, x, &attributes);
}

struct tensor *ops_reduce_out(struct graph *graph, const char *name, struct tensor *x, struct group_part part) {
    if (!x || part.parts == 1) return x;
    const struct collective_attributes attributes = sum_attributes(part, x->shape.dtype);
    struct tensor *sum = chain_convert(graph, inner_name(graph, name, "own"), x, as_accumulator(x->shape));
    sum = chain_add(graph, &op_all_reduce, inner_name(graph, name, "sum"), sum, &attributes);
    return chain_convert(graph, name, sum, x->shape);
}

static enum status check_dimension(const struct tensor *x, int dimension) {
    return dimension >= 0 && dimension < x->shape.rank
               ? STATUS_OK
               : status_set(STATUS_BAD_INPUT, "%s has no dimension %d", x->name, dimension);
}

struct tensor *ops_gather(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                          int dimension, bool partial) {
    if (!x || part.parts == 1) return x;
    BUG_IF(check_dimension(x, dimension) != STATUS_OK, "%s: %s", name, status_message());
    const struct collective_attributes attributes = {.part = part, .partial = partial};
    struct tensor *stack =
        chain_add(graph, &op_all_gather, inner_name(graph, name, "gathered"), whole(graph, name, x), &attributes);
    return join_parts(graph, name, stack, parts_order_of(&part, dimension));
}

struct tensor *ops_scatter(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                           int dimension) {
    if (!x || part.parts == 1) return x;
    const struct collective_attributes attributes = sum_attributes(part, x->shape.dtype);
    struct tensor *sum = stack_parts(graph, name, x, parts_order_of(&part, dimension), DTYPE_F32);
    sum = chain_add(graph, &op_reduce_scatter, inner_name(graph, name, "sum"), sum, &attributes);
    return sum ? chain_convert(graph, name, sum, shape_with_dtype(sum->shape, x->shape.dtype)) : NULL;
}

struct tensor *ops_cut(struct graph *graph, const char *name, struct tensor *x, struct group_part part, int dimension) {
    const struct cut_attributes attributes = {.dimension = dimension, .part = part};
    return part.parts == 1 ? x : chain_add(graph, &op_cut, name, x, &attributes);
}

struct tensor *ops_all_to_all(struct graph *graph, const char *name, struct tensor *x, struct group_part part, int from,
                              int to) {
    if (!x || part.parts == 1) return x;
    BUG_IF(check_dimension(x, from) != STATUS_OK, "%s: %s", name, status_message());
    const struct collective_attributes attributes = {.part = part};
    struct tensor *stack = stack_parts(graph, name, x, parts_order_of(&part, to), x->shape.dtype);
    stack = chain_add(graph, &op_all_to_all, inner_name(graph, name, "all_to_all"), stack, &attributes);
    return join_parts(graph, name, stack, parts_order_of(&part, from));
}
