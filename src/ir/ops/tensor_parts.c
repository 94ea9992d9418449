#include "ir/ops/tensor_parts.h"

/* ---- chains ---- */

struct tensor *chain_add(struct graph *graph, const struct op *op, const char *name, struct tensor *x,
                         const void *attributes) {
    struct tensor *in[OP_INPUTS_MAX] = {x};
    struct node *node = x ? graph_add(graph, op, name, in, attributes, NULL) : NULL;
    return node ? node->out[0] : NULL;
}

/* The same in backward. */
struct tensor *chain_add_backward(struct gradients *gradients, const struct op *op, const struct node *of,
                                  struct tensor *x, const void *attributes, struct tensor *into) {
    struct tensor *in[OP_INPUTS_MAX] = {x}, *out[OP_OUTPUTS_MAX] = {into};
    struct node *node = x ? gradient_add_node(gradients, op, of, in, attributes, out) : NULL;
    return node ? node->out[0] : NULL;
}

/* ---- shapes of parts ---- */

struct shape shape_with_dtype(struct shape shape, enum dtype dtype) {
    shape.dtype = dtype;
    return shape;
}

struct shape parts_stacked(const struct shape *part, int64_t parts) {
    struct shape shape = {.dtype = part->dtype, .rank = part->rank + 1, .dims = {parts}};
    for (int i = 0; i < part->rank; i++)
        shape.dims[i + 1] = part->dims[i];
    return shape;
}

struct shape parts_one_of(const struct shape *stack) {
    struct shape shape = {.dtype = stack->dtype, .rank = stack->rank - 1, .dims = {1, 1, 1, 1}};
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = stack->dims[i + 1];
    return shape;
}

struct shape parts_joined(struct shape part, const struct parts_order *order) {
    part.dims[order->dimension] *= order->parts;
    return part;
}

struct shape parts_part_of(struct shape whole, const struct parts_order *order) {
    whole.dims[order->dimension] /= order->parts;
    return whole;
}

/* Of a part. */
static int64_t count_runs(const struct parts_order *order) { return order->zigzag ? 2 : 1; }

enum status parts_check(const struct node *node, const struct shape *whole, const struct parts_order *order) {
    char text[SHAPE_TEXT];
    bool there = order->dimension >= 0 && order->dimension < whole->rank && whole->rank < TENSOR_RANK_MAX;
    int64_t runs = order->parts * count_runs(order);
    if (runs >= 1 && there && whole->dims[order->dimension] % runs == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "input 0 (%s) is %s: it has no %lld equal parts along dimension %d",
                      node->in[0]->name, shape_print(whole, text), (long long)runs, order->dimension);
}

bool parts_are_stacked(const struct shape *whole, const struct parts_order *order) {
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

/* Of the whole's runs, number `which` of the part. */
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

struct tensor *chain_convert(struct graph *graph, const char *name, struct tensor *x, struct shape to) {
    return chain_add(graph, &op_convert, name, x, &(struct convert_attributes){to});
}

struct tensor *chain_convert_backward(struct gradients *gradients, const struct node *of, struct tensor *x,
                                      struct shape to, struct tensor *into) {
    return chain_add_backward(gradients, &op_convert, of, x, &(struct convert_attributes){to}, into);
}

/* The gradient of x is what `op` makes of dy, in dy's dtype. Where x has another it is within a chain, and has no other
 * use. */
void chain_deliver(struct gradients *gradients, const struct node *node, const struct op *op, struct tensor *dy,
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
void chain_deliver_converted(struct gradients *gradients, const struct node *node, struct tensor *dy) {
    struct tensor *x = node->in[0];
    struct convert_attributes attributes = {shape_with_dtype(x->shape, dy->shape.dtype)};
    bool shared = !x->base && !gradient_partial(gradients, x) && shape_equal(&attributes.to, &dy->shape);
    if (shared)
        gradient_contribute(gradients, x, dy);
    else
        chain_deliver(gradients, node, &op_convert, dy, &attributes);
}

static void differentiate_convert(struct gradients *gradients, const struct node *node) {
    if (gradient_wanted(gradients, node->in[0]))
        chain_deliver_converted(gradients, node, gradient_of(gradients, node->out[0]));
}

const struct op op_convert = {
    .name = "convert",
    .attribute_bytes = sizeof(struct convert_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_convert,
    .cost_key = op_key_nothing,
    .differentiate = differentiate_convert,
    .in_place_input = 1 + 0,
};

static const struct parts_attributes *parts_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, parts_attributes);
}

static enum status infer_to_parts(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct parts_attributes *attributes = parts_of(node);
    const struct shape *x = &node->in[0]->shape;
    TRY(parts_check(node, x, &attributes->order));
    struct shape part = parts_part_of(shape_with_dtype(*x, attributes->to), &attributes->order);
    out[0] = parts_stacked(&part, attributes->order.parts);
    return check_dtypes(node, attributes->to);
}

static enum status infer_from_parts(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct parts_attributes *attributes = parts_of(node);
    struct shape part = parts_one_of(&node->in[0]->shape);
    if (node->in[0]->shape.rank < 2 || node->in[0]->shape.dims[0] != attributes->order.parts)
        return status_set(STATUS_BAD_INPUT, "input 0 (%s) has not %lld parts", node->in[0]->name,
                          (long long)attributes->order.parts);
    out[0] = shape_with_dtype(parts_joined(part, &attributes->order), attributes->to);
    TRY(parts_check(node, &out[0], &attributes->order));
    return check_dtypes(node, attributes->to);
}

void parts_key(const struct parts_order *order, struct op_key *key) {
    op_key_add(key, " dimension=%d parts=%lld%s", order->dimension, (long long)order->parts,
               order->zigzag ? " zigzag" : "");
}

static void key_parts(const struct node *node, struct op_key *key) { parts_key(&parts_of(node)->order, key); }

static void differentiate_parts(struct gradients *gradients, const struct node *node, const struct op *back) {
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    struct parts_attributes attributes = *parts_of(node);
    attributes.to = dy->shape.dtype;
    if (gradient_wanted(gradients, node->in[0])) chain_deliver(gradients, node, back, dy, &attributes);
}

static void differentiate_to_parts(struct gradients *gradients, const struct node *node) {
    differentiate_parts(gradients, node, &op_from_parts);
}

static void differentiate_from_parts(struct gradients *gradients, const struct node *node) {
    differentiate_parts(gradients, node, &op_to_parts);
}

const struct op op_to_parts = {
    .name = "to_parts",
    .attribute_bytes = sizeof(struct parts_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_to_parts,
    .cost_key = key_parts,
    .differentiate = differentiate_to_parts,
};

const struct op op_from_parts = {
    .name = "from_parts",
    .attribute_bytes = sizeof(struct parts_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_from_parts,
    .cost_key = key_parts,
    .differentiate = differentiate_from_parts,
};
