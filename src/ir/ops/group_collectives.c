/* Collectives of a group: chains of nodes, their operators, and the calls that graphs are made with. */
#include "ir/ops/check.h"

/* ---- chains ----
 *
 * An operation works on parts that lie one after the other, [parts, …], and sums are of fp32. So a call of ops.h is a
 * short chain of nodes: what converts, the operation, what converts back. A conversion that changes nothing takes over
 * its input's bytes. Between the nodes of a chain a gradient has the dtype that it has at the chain's ends: what
 * travels of it is as small as that of the values. */

static struct tensor *chain_add(struct graph *graph, const struct op *op, const char *name, struct tensor *x,
                                const void *attributes) {
    return ops_apply(graph, op, name, OPERANDS(x), attributes);
}

/* In backward, in `into` unless that is NULL. */
static struct tensor *chain_add_backward(struct gradients *gradients, const struct op *op, const struct node *of,
                                         struct tensor *x, const void *attributes, struct tensor *into) {
    struct tensor *out[OP_OUTPUTS_MAX] = {into};
    struct node *node = x ? gradient_add_node(gradients, op, of, OPERANDS(x), attributes, out) : NULL;
    return node ? node->out[0] : NULL;
}

/* ---- shapes of parts ---- */

/* [parts, …] of a part's shape […]. */
static struct shape parts_stacked(const struct shape *part, int64_t parts) {
    struct shape shape = {.dtype = part->dtype, .rank = part->rank + 1, .dims = {parts}};
    for (int i = 0; i < part->rank; i++)
        shape.dims[i + 1] = part->dims[i];
    return shape;
}

/* The whole of a part, and a part of the whole, whose parts are along a dimension. */
static struct shape parts_joined(struct shape part, const struct parts_order *order) {
    part.dims[order->dimension] *= order->parts;
    return part;
}

static struct shape parts_part_of(struct shape whole, const struct parts_order *order) {
    whole.dims[order->dimension] /= order->parts;
    return whole;
}

/* Of a part. */
static int64_t count_runs(const struct parts_order *order) { return order->zigzag ? 2 : 1; }

/* BAD_INPUT naming input 0 where the whole has no such parts of equal size. */
static enum status parts_check(const struct node *node, const struct shape *whole, const struct parts_order *order) {
    char text[SHAPE_TEXT];
    bool there = order->dimension >= 0 && order->dimension < whole->rank && whole->rank < TENSOR_RANK_MAX;
    int64_t runs = order->parts * count_runs(order);
    if (runs >= 1 && there && whole->dims[order->dimension] % runs == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "input 0 (%s) is %s: it has no %lld equal parts along dimension %d",
                      node->in[0]->name, shape_print(whole, text), (long long)runs, order->dimension);
}

/* Whether such parts lie one after the other in memory. */
static bool parts_are_stacked(const struct shape *whole, const struct parts_order *order) {
    for (int i = 0; i < order->dimension; i++)
        if (whole->dims[i] > 1) return false;
    return !order->zigzag;
}

struct parts_order parts_order_of(const struct group_part *group, int dimension) {
    enum { POSITIONS = 1 };
    return (struct parts_order){dimension, group->parts, group->zigzag && dimension == POSITIONS};
}

int64_t parts_pieces_of_row(const struct shape *whole, const struct parts_order *order) {
    return order->dimension == whole->rank - 1 ? count_runs(order) : 1;
}

/* The part's run `which`, as a number of the whole's runs. */
static int64_t find_run(const struct parts_order *order, int64_t part, int64_t which) {
    return which == 0 ? part : 2 * order->parts - 1 - part;
}

struct parts_place parts_find(const struct shape *whole, const struct parts_order *order, int64_t part, int64_t piece) {
    int last = whole->rank - 1;
    int64_t runs = count_runs(order), all = order->parts * runs, inner = 1;
    int64_t length = whole->dims[order->dimension] / all;
    if (order->dimension == last)
        return (struct parts_place){piece / runs, find_run(order, part, piece % runs) * length};
    for (int i = order->dimension + 1; i < last; i++)
        inner *= whole->dims[i];
    int64_t run = length * inner, outer = piece / (run * runs), which = piece / run % runs;
    return (struct parts_place){(outer * all + find_run(order, part, which)) * run + piece % run, 0};
}

/* ---- conversions ---- */

/* Only numbers that are computed with have other dtypes. */
static enum status check_dtypes(const struct node *node, enum dtype to) {
    enum dtype from = node->in[0]->shape.dtype;
    bool floats = (from == DTYPE_F32 || from == DTYPE_BF16) && (to == DTYPE_F32 || to == DTYPE_BF16);
    if (from == to || floats) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "input 0 (%s) is %s, which does not become %s", node->in[0]->name,
                      dtype_name(from), dtype_name(to));
}

static enum status infer_convert(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *x = &node->in[0]->shape, *to = &NODE_ATTRIBUTES(node, convert_attributes)->to;
    bool same_rows = shape_columns(x) == shape_columns(to);
    if (shape_elements(x) != shape_elements(to) || (node->in[0]->base && !same_rows))
        return status_set(STATUS_BAD_INPUT, "input 0 (%s) has not the elements of its result", node->in[0]->name);
    out[0] = *to;
    return check_dtypes(node, to->dtype);
}

struct tensor *ops_convert(struct graph *graph, const char *name, struct tensor *x, struct shape to) {
    return ops_apply(graph, &op_convert, name, OPERANDS(x), &(struct convert_attributes){to});
}

static struct tensor *chain_convert_backward(struct gradients *gradients, const struct node *of, struct tensor *x,
                                             struct shape to, struct tensor *into) {
    return chain_add_backward(gradients, &op_convert, of, x, &(struct convert_attributes){to}, into);
}

/* The gradient of x is `op` applied to dy, in dy's dtype. If x has another dtype, it is within a chain and has no other
 * use. */
static void chain_deliver(struct gradients *gradients, const struct node *node, const struct op *op, struct tensor *dy,
                          const void *attributes) {
    struct tensor *x = node->in[0];
    if (x->shape.dtype != dy->shape.dtype) {
        gradient_contribute(gradients, x, chain_add_backward(gradients, op, node, dy, attributes, NULL));
        return;
    }
    struct tensor *dx = gradient_target(gradients, x);
    chain_add_backward(gradients, op, node, dy, attributes, dx);
    gradient_deliver_sum(gradients, node, x, dx);
}

/* The same where dy has the elements of the gradient in their order. */
static void chain_deliver_converted(struct gradients *gradients, const struct node *node, struct tensor *dy) {
    struct tensor *x = node->in[0];
    struct convert_attributes attributes = {with_dtype(x->shape, dy->shape.dtype)};
    bool shared = !x->base && !gradient_partial(gradients, x) && shape_equal(&attributes.to, &dy->shape);
    if (shared)
        gradient_contribute(gradients, x, dy);
    else
        chain_deliver(gradients, node, &op_convert, dy, &attributes);
}

/* The elements of the gradient are those of dy in their order: of a sum too, since everybody's result is everybody's,
 * and the gradient of each part that of the sum. */
static void differentiate_alike(struct gradients *gradients, const struct node *node) {
    if (gradient_wanted(gradients, node->in[0]))
        chain_deliver_converted(gradients, node, gradient_of(gradients, node->out[0]));
}

const struct op op_convert = {
    .name = "convert",
    .attribute_bytes = sizeof(struct convert_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_convert,
    .cost_key = op_key_nothing,
    .differentiate = differentiate_alike,
    .in_place_input = 1 + 0,
};

static const struct parts_attributes *parts_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, parts_attributes);
}

static enum status infer_to_parts(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct parts_attributes *attributes = parts_of(node);
    const struct shape *x = &node->in[0]->shape;
    TRY(parts_check(node, x, &attributes->order));
    struct shape part = parts_part_of(with_dtype(*x, attributes->to), &attributes->order);
    out[0] = parts_stacked(&part, attributes->order.parts);
    return check_dtypes(node, attributes->to);
}

static enum status infer_from_parts(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct parts_attributes *attributes = parts_of(node);
    struct shape part = parts_one_of(&node->in[0]->shape);
    if (node->in[0]->shape.rank < 2 || node->in[0]->shape.dims[0] != attributes->order.parts)
        return status_set(STATUS_BAD_INPUT, "input 0 (%s) has not %lld parts", node->in[0]->name,
                          (long long)attributes->order.parts);
    out[0] = with_dtype(parts_joined(part, &attributes->order), attributes->to);
    TRY(parts_check(node, &out[0], &attributes->order));
    return check_dtypes(node, attributes->to);
}

/* For `cost_key` of an operator that has such parts. */
static void parts_key(const struct parts_order *order, struct op_key *key) {
    op_key_add(key, " dimension=%d parts=%lld%s", order->dimension, (long long)order->parts,
               order->zigzag ? " zigzag" : "");
}

static void key_parts(const struct node *node, struct op_key *key) { parts_key(&parts_of(node)->order, key); }

static void differentiate_parts(struct gradients *gradients, const struct node *node) {
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    struct parts_attributes attributes = *parts_of(node);
    const struct op *back = node->op == &op_to_parts ? &op_from_parts : &op_to_parts;
    attributes.to = dy->shape.dtype;
    if (gradient_wanted(gradients, node->in[0])) chain_deliver(gradients, node, back, dy, &attributes);
}

const struct op op_to_parts = {
    .name = "to_parts",
    .attribute_bytes = sizeof(struct parts_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_to_parts,
    .cost_key = key_parts,
    .differentiate = differentiate_parts,
};

const struct op op_from_parts = {
    .name = "from_parts",
    .attribute_bytes = sizeof(struct parts_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_from_parts,
    .cost_key = key_parts,
    .differentiate = differentiate_parts,
};

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

static enum status infer_reduce_scatter(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_stack(node));
    out[0] = parts_one_of(&node->in[0]->shape);
    return check_sum(node);
}

/* By a collective of the same attributes. */
static void differentiate_back(struct gradients *gradients, const struct node *node) {
    const struct op *back = node->op == &op_reduce_scatter ? &op_all_gather : &op_all_to_all;
    struct tensor *x = node->in[0], *dy = gradient_of(gradients, node->out[0]);
    if (gradient_wanted(gradients, x))
        gradient_contribute(gradients, x, chain_add_backward(gradients, back, node, dy, node->attributes, NULL));
}

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

/* This rank's part of a gradient that all ranks have, or of the sum of the ranks' gradients. */
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

static enum status infer_all_to_all(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = node->in[0]->shape;
    return check_stack(node);
}

#define COLLECTIVE_OP(op_name, KIND, ...)                                                                              \
    const struct op op_##op_name = {.name = #op_name,                                                                  \
                                    .attribute_bytes = sizeof(struct collective_attributes),                           \
                                    .inputs = 1,                                                                       \
                                    .outputs = 1,                                                                      \
                                    .infer = infer_##op_name,                                                          \
                                    .collective = OP_COLLECTIVE_##KIND,                                                \
                                    __VA_ARGS__};
COLLECTIVE_OP(all_reduce, ALL_REDUCE, .differentiate = differentiate_alike, .in_place_input = 1 + 0)
COLLECTIVE_OP(reduce_scatter, REDUCE_SCATTER, .differentiate = differentiate_back)
COLLECTIVE_OP(all_gather, ALL_GATHER, .differentiate = differentiate_all_gather)
COLLECTIVE_OP(all_to_all, ALL_TO_ALL, .differentiate = differentiate_back)

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
    return x && x->base ? ops_convert(graph, inner_name(graph, name, "columns"), x, x->shape) : x;
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
    struct shape part = parts_part_of(with_dtype(x->shape, to), &order);
    return ops_convert(graph, inner, x, parts_stacked(&part, order.parts));
}

static struct tensor *join_parts(struct graph *graph, const char *name, struct tensor *stack,
                                 struct parts_order order) {
    if (!stack) return NULL;
    struct shape part = parts_one_of(&stack->shape);
    const struct parts_attributes attributes = {order, part.dtype};
    if (!parts_are_stacked(&part, &order)) return chain_add(graph, &op_from_parts, name, stack, &attributes);
    return ops_convert(graph, name, stack, parts_joined(part, &order));
}

struct tensor *ops_copy_in(struct graph *graph, const char *name, struct tensor *x, struct group_part part) {
    const struct collective_attributes attributes = {.part = part};
    return part.parts == 1 ? x : chain_add(graph, &op_copy_in, name, x, &attributes);
}

struct tensor *ops_reduce_out(struct graph *graph, const char *name, struct tensor *x, struct group_part part) {
    if (!x || part.parts == 1) return x;
    const struct collective_attributes attributes = sum_attributes(part, x->shape.dtype);
    struct tensor *sum = ops_convert(graph, inner_name(graph, name, "own"), x, as_accumulator(x->shape));
    sum = chain_add(graph, &op_all_reduce, inner_name(graph, name, "sum"), sum, &attributes);
    return ops_convert(graph, name, sum, x->shape);
}

struct tensor *ops_gather(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                          int dimension, bool partial) {
    if (!x || part.parts == 1) return x;
    BUG_IF(dimension < 0 || dimension >= x->shape.rank, "%s: %s has no dimension %d", name, x->name, dimension);
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
    return sum ? ops_convert(graph, name, sum, with_dtype(sum->shape, x->shape.dtype)) : NULL;
}

struct tensor *ops_cut(struct graph *graph, const char *name, struct tensor *x, struct group_part part, int dimension) {
    const struct cut_attributes attributes = {.dimension = dimension, .part = part};
    return part.parts == 1 ? x : chain_add(graph, &op_cut, name, x, &attributes);
}

struct tensor *ops_all_to_all(struct graph *graph, const char *name, struct tensor *x, struct group_part part, int from,
                              int to) {
    if (!x || part.parts == 1) return x;
    BUG_IF(from < 0 || from >= x->shape.rank, "%s: %s has no dimension %d", name, x->name, from);
    const struct collective_attributes attributes = {.part = part};
    struct tensor *stack = stack_parts(graph, name, x, parts_order_of(&part, to), x->shape.dtype);
    stack = chain_add(graph, &op_all_to_all, inner_name(graph, name, "all_to_all"), stack, &attributes);
    return join_parts(graph, name, stack, parts_order_of(&part, from));
}
