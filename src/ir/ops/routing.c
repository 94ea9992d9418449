/* Routing of tokens to experts (Shazeer et al., arXiv 1701.06538): which experts a token goes to, the rows of experts
 * in order, and the sum of what experts make of them. No token is dropped. */
#include "ir/ops/check.h"

/* Rows of the largest tile, and of those for fewer tokens. */
enum { TILE_MAX = 64, TILE_STEP = 4 };

int64_t routing_tile(int64_t slots, int64_t experts) {
    int64_t tile = TILE_MAX;
    while (tile > 1 && slots < tile * experts)
        tile /= TILE_STEP;
    return tile;
}

int64_t routing_rows(int64_t sequences, int64_t slots, int64_t experts) {
    int64_t tile = routing_tile(slots, experts), partial = slots < experts ? slots : experts;
    int64_t rows = (slots + partial * (tile - 1)) / tile * tile;
    return (rows + sequences - 1) / sequences;
}

static enum status infer_route(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct shape *logits = &node->in[0]->shape;
    int64_t experts = shape_columns(logits), chosen = NODE_ATTRIBUTES(node, route_attributes)->chosen;
    if (experts > ROUTING_EXPERTS_MAX)
        return status_set(STATUS_BAD_INPUT, "%lld experts, of at most %d", (long long)experts, ROUTING_EXPERTS_MAX);
    if (chosen < 1 || chosen > experts)
        return status_set(STATUS_BAD_INPUT, "a token goes to %lld of %lld experts", (long long)chosen,
                          (long long)experts);
    out[0] = as_accumulator(with_columns(*logits, chosen));
    out[1] = out[0];
    out[1].dtype = DTYPE_I32;
    out[2] = shape_make(DTYPE_I32, 2, experts, 2, 1);
    out[3] = vector_of(DTYPE_I32, experts);
    const struct shape targets = shape_make(DTYPE_I32, 2, logits->dims[0], logits->dims[1], 1);
    return check_optional(node, 1, &targets);
}

/* Adds the node that counts the slots of each expert in a step. */
static void count_slots(struct gradients *gradients, const struct node *node) {
    struct graph *graph = gradients_graph(gradients);
    struct tensor *in[OP_INPUTS_MAX] = {node->out[3]};
    struct tensor *into[OP_OUTPUTS_MAX] = {graph_tensor(graph, TENSOR_RESULT,
                                                        graph_format(graph, "%s.slots", node->name),
                                                        vector_of(DTYPE_F64, shape_columns(&node->in[0]->shape)))};
    gradient_add_node(gradients, &op_count_slots, node, in, NULL, into);
}

static void differentiate_route(struct gradients *gradients, const struct node *node) {
    count_slots(gradients, node);
    struct tensor *logits = node->in[0], *dweights = gradient_of(gradients, node->out[0]);
    if (!dweights || !gradient_wanted(gradients, logits)) return;
    struct tensor *in[OP_INPUTS_MAX] = {dweights, logits, node->out[0], node->out[1], node->out[2]};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, logits)};
    gradient_add_node(gradients, &op_route_grad, node, in, node->attributes, into);
    gradient_deliver_sum(gradients, node, logits, into[0]);
}

const struct op op_route = {
    .name = "route",
    .attribute_bytes = sizeof(struct route_attributes),
    .min_inputs = 1,
    .inputs = 2,
    .outputs = 4,
    .infer = infer_route,
    .differentiate = differentiate_route,
    .saved_inputs = 1u << 0,
    .saved_outputs = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
};

double example_range(int64_t slots, int64_t experts, int64_t index) {
    int64_t tile = routing_tile(slots, experts), each = (slots + experts - 1) / experts, expert = index / 2;
    int64_t stride = (each + tile - 1) / tile * tile, before = expert * each < slots ? expert * each : slots;
    int64_t max = (slots + tile - 1) / tile * tile, start = expert * stride < max ? expert * stride : max;
    int64_t count = slots - before < each ? slots - before : each;
    return (double)(index % 2 == 0 ? start : start + count);
}

static enum status infer_route_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 1));
    const struct shape *logits = &node->in[1]->shape;
    struct shape weights = as_accumulator(with_columns(*logits, NODE_ATTRIBUTES(node, route_attributes)->chosen));
    struct shape places = weights, ranges = shape_make(DTYPE_I32, 2, shape_columns(logits), 2, 1);
    places.dtype = DTYPE_I32;
    TRY(check_shape(node, 0, &weights));
    TRY(check_shape(node, 2, &weights));
    TRY(check_shape(node, 3, &places));
    TRY(check_shape(node, 4, &ranges));
    out[0] = *logits;
    return STATUS_OK;
}

static double example_route_grad(const struct node *node, const struct tensor *tensor, int64_t index) {
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    if (tensor->shape.rank == 3) return (double)index; /* places */
    return example_range(shape_elements(&node->in[3]->shape), shape_columns(&node->in[1]->shape), index);
}

/* Normalised weights need only themselves for the gradient, not the logits. */
static double touched_route_grad(const struct node *node, int operand) {
    return operand == 1 && NODE_ATTRIBUTES(node, route_attributes)->normalised ? 0 : 1;
}

const struct op op_route_grad = {
    .name = "route_grad",
    .touched = touched_route_grad,
    .attribute_bytes = sizeof(struct route_attributes),
    .min_inputs = 5,
    .inputs = 5,
    .outputs = 1,
    .infer = infer_route_grad,
    .example = example_route_grad,
};

/* [S,T,k] int32. */
static enum status check_places(const struct node *node, int input) {
    const struct shape *places = &node->in[input]->shape;
    if (places->rank == 3 && places->dtype == DTYPE_I32) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "input %d (%s) must be places [S, T, k]", input, node->in[input]->name);
}

static int64_t experts_of(const struct node *node) { return NODE_ATTRIBUTES(node, dispatch_attributes)->experts; }
static int64_t features_of(const struct node *node) { return NODE_ATTRIBUTES(node, dispatch_attributes)->features; }

/* The shape of the experts' rows for activations of this shape. */
static struct shape rows_shape(const struct node *node, struct shape activation, const struct shape *places) {
    activation.dims[1] = routing_rows(activation.dims[0], shape_elements(places), experts_of(node));
    return activation;
}

static enum status infer_dispatch(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    TRY(check_places(node, 1));
    out[0] = rows_shape(node, node->in[0]->shape, &node->in[1]->shape);
    return STATUS_OK;
}

static double example_slots(const struct node *node, const struct tensor *tensor, int64_t index) {
    return tensor->shape.dtype == DTYPE_I32 ? (double)index : op_example_default(node, tensor, index);
}

static void differentiate_dispatch(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *dy = gradient_of(gradients, node->out[0]);
    if (!dy || !gradient_wanted(gradients, x)) return;
    struct tensor *in[OP_INPUTS_MAX] = {dy, node->in[1], gradient_partial(gradients, x)};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, x)};
    gradient_add_node(gradients, &op_dispatch_grad, node, in, node->attributes, into);
    gradient_deliver(gradients, x, into[0]);
}

/* The experts' inner features, which ranks may have parts of: then each has a part of the rows' gradient. */
static bool loops_dispatch(const struct node *node, int way, struct op_loops *out) {
    op_loops_add(out, 'f', features_of(node))->padded = true;
    loops_add_outside_positions(out, node->in[0]);
    op_loops_operand(out, 0, ".t.");
    op_loops_operand(out, 1, ".t.");
    out->apart = 1u << OP_INPUTS_MAX;
    return way == 0 && features_of(node) > 0;
}

const struct op op_dispatch = {
    .name = "dispatch",
    .attribute_bytes = sizeof(struct dispatch_attributes),
    .min_inputs = 2,
    .inputs = 2,
    .outputs = 1,
    .infer = infer_dispatch,
    .example = example_slots,
    .differentiate = differentiate_dispatch,
    .loops = loops_dispatch,
    .saved_inputs = 1u << 1,
};

static enum status infer_dispatch_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    TRY(check_places(node, 1));
    out[0] = node->in[0]->shape;
    out[0].dims[1] = node->in[1]->shape.dims[1];
    struct shape rows = rows_shape(node, out[0], &node->in[1]->shape);
    TRY(check_shape(node, 0, &rows));
    return check_optional(node, 2, &out[0]);
}

/* The fraction of rows sorted by expert that hold slots; the others pad tiles. */
static double touched_slots(const struct tensor *rows, const struct tensor *places) {
    return (double)shape_elements(&places->shape) / (double)shape_rows(&rows->shape);
}

static double touched_dispatch_grad(const struct node *node, int operand) {
    return operand == 0 ? touched_slots(node->in[0], node->in[1]) : 1;
}

const struct op op_dispatch_grad = {
    .name = "dispatch_grad",
    .touched = touched_dispatch_grad,
    .attribute_bytes = sizeof(struct dispatch_attributes),
    .min_inputs = 2,
    .inputs = 3,
    .outputs = 1,
    .infer = infer_dispatch_grad,
    .example = example_slots,
    .in_place_input = 1 + 2,
};

static enum status infer_combine(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    TRY(check_places(node, 2));
    const struct shape *places = &node->in[2]->shape;
    struct shape weights = as_accumulator(*places);
    TRY(check_shape(node, 1, &weights));
    out[0] = node->in[0]->shape;
    out[0].dims[1] = places->dims[1];
    struct shape rows = rows_shape(node, out[0], places);
    TRY(check_shape(node, 0, &rows));
    return check_optional(node, 3, &out[0]);
}

static void differentiate_combine(struct gradients *gradients, const struct node *node) {
    struct tensor *rows = node->in[0], *weights = node->in[1], *residual = node->in[3];
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    if (residual) gradient_contribute(gradients, residual, dy);
    bool rows_too = gradient_wanted(gradients, rows), weights_too = gradient_wanted(gradients, weights);
    if (!rows_too && !weights_too) return;
    struct tensor *in[OP_INPUTS_MAX] = {dy, rows, weights, node->in[2]};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, rows), gradient_target(gradients, weights)};
    gradient_add_node(gradients, &op_combine_grad, node, in, node->attributes, into);
    gradient_deliver(gradients, rows, into[0]);
    gradient_deliver(gradients, weights, into[1]);
}

/* Of the experts' inner features each part has a part of the rows' sum, and so of the tokens' and of the weights'
 * gradients. */
static bool loops_combine(const struct node *node, int way, struct op_loops *out) {
    op_loops_add(out, 'f', features_of(node))->padded = true;
    loops_add_outside_positions(out, node->in[1]);
    op_loops_operand(out, 1, ".t.");
    op_loops_operand(out, 2, ".t.");
    op_loops_operand(out, 3, ".t.");
    op_loops_operand(out, OP_INPUTS_MAX, ".t.");
    out->added = 1u << 3;
    out->apart = 1u << 0;
    return way == 0 && features_of(node) > 0;
}

static double touched_combine(const struct node *node, int operand) {
    return operand == 0 ? touched_slots(node->in[0], node->in[2]) : 1;
}

const struct op op_combine = {
    .name = "combine",
    .touched = touched_combine,
    .attribute_bytes = sizeof(struct dispatch_attributes),
    .min_inputs = 3,
    .inputs = 4,
    .outputs = 1,
    .infer = infer_combine,
    .example = example_slots,
    .differentiate = differentiate_combine,
    .loops = loops_combine,
    .saved_inputs = 1u << 0 | 1u << 1 | 1u << 2,
    .in_place_input = 1 + 3,
};

static enum status infer_combine_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    TRY(check_places(node, 3));
    out[0] = rows_shape(node, node->in[0]->shape, &node->in[3]->shape);
    out[1] = as_accumulator(node->in[3]->shape);
    TRY(check_shape(node, 1, &out[0]));
    return check_shape(node, 2, &out[1]);
}

static double touched_combine_grad(const struct node *node, int operand) {
    return operand == 1 ? touched_slots(node->in[1], node->in[3]) : 1;
}

const struct op op_combine_grad = {
    .name = "combine_grad",
    .touched = touched_combine_grad,
    .attribute_bytes = sizeof(struct dispatch_attributes),
    .min_inputs = 4,
    .inputs = 4,
    .outputs = 2,
    .infer = infer_combine_grad,
    .example = example_slots,
};

static enum status infer_token_gate(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    struct shape gate = with_columns(out[0], 1);
    TRY(check_shape(node, 1, &gate));
    return check_optional(node, 2, &out[0]);
}

static void differentiate_token_gate(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *gate = node->in[1], *residual = node->in[2];
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    if (residual) gradient_contribute(gradients, residual, dy);
    if (!gradient_wanted(gradients, x) && !gradient_wanted(gradients, gate)) return;
    struct tensor *in[OP_INPUTS_MAX] = {dy, x, gate};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, x), gradient_target(gradients, gate)};
    gradient_add_node(gradients, &op_token_gate_grad, node, in, NULL, into);
    gradient_deliver_sum(gradients, node, x, into[0]);
    gradient_deliver_sum(gradients, node, gate, into[1]);
}

static bool loops_token_gate(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'c', shape_columns(&node->in[0]->shape));
    op_loops_operand(out, 0, "stc");
    op_loops_operand(out, 1, "st.");
    op_loops_operand(out, 2, "stc");
    op_loops_operand(out, OP_INPUTS_MAX, "stc");
    return way == 0;
}

const struct op op_token_gate = {
    .name = "token_gate",
    .min_inputs = 2,
    .inputs = 3,
    .outputs = 1,
    .infer = infer_token_gate,
    .differentiate = differentiate_token_gate,
    .loops = loops_token_gate,
    .saved_inputs = 1u << 0 | 1u << 1,
    .in_place_input = 1 + 2,
};

static enum status infer_token_gate_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    out[1] = with_columns(out[0], 1);
    TRY(check_shape(node, 1, &out[0]));
    return check_shape(node, 2, &out[1]);
}

const struct op op_token_gate_grad = {
    .name = "token_gate_grad",
    .min_inputs = 3,
    .inputs = 3,
    .outputs = 2,
    .infer = infer_token_gate_grad,
};

struct tensor *ops_token_gate(struct graph *graph, const char *name, struct tensor *x, struct tensor *gate,
                              struct tensor *residual) {
    if (!x || !gate) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x, gate, residual};
    struct node *node = graph_add(graph, &op_token_gate, name, in, NULL, NULL);
    return node ? node->out[0] : NULL;
}

struct routing ops_route(struct graph *graph, const char *name, struct tensor *logits, struct tensor *targets,
                         struct route_attributes attributes) {
    struct tensor *in[OP_INPUTS_MAX] = {logits, targets};
    struct node *node = logits ? graph_add(graph, &op_route, name, in, &attributes, NULL) : NULL;
    return node ? (struct routing){node->out[0], node->out[1], node->out[2], node->out[3]} : (struct routing){NULL};
}

struct tensor *ops_dispatch(struct graph *graph, const char *name, struct tensor *x, struct routing routing,
                            struct dispatch_attributes attributes) {
    if (!x || !routing.places) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x, routing.places};
    struct node *node = graph_add(graph, &op_dispatch, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}

struct tensor *ops_combine(struct graph *graph, const char *name, struct tensor *rows, struct routing routing,
                           struct tensor *residual, struct dispatch_attributes attributes) {
    if (!rows || !routing.places) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {rows, routing.weights, routing.places, residual};
    struct node *node = graph_add(graph, &op_combine, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}
