/* Routing of tokens to experts (Shazeer et al., arXiv 1701.06538): the experts of each token, the rows of experts in
 * order, and the sum of the experts' outputs. No token is dropped. */
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
    out[1] = with_dtype(out[0], DTYPE_I32);
    out[2] = shape_make(DTYPE_I32, 2, experts, 2, 1);
    out[3] = vector_of(DTYPE_I32, experts);
    return check_shape(node, 1, tokens_of(logits));
}

/* Adds the node that counts the slots of each expert in a step. */
static void count_slots(struct gradients *gradients, const struct node *node) {
    struct graph *graph = gradients_graph(gradients);
    struct shape experts = vector_of(DTYPE_F64, shape_columns(&node->in[0]->shape));
    struct tensor *into[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, graph_format(graph, "%s.slots", node->name), experts)};
    gradient_add_node(gradients, &op_count_slots, node, OPERANDS(node->out[3]), NULL, into);
}

static void differentiate_route(struct gradients *gradients, const struct node *node) {
    count_slots(gradients, node);
    struct tensor *logits = node->in[0], *dweights = gradient_of(gradients, node->out[0]);
    if (!dweights) return;
    gradient_add_rule(gradients, &op_route_grad, node,
                      OPERANDS(dweights, logits, node->out[0], node->out[1], node->out[2]), node->attributes,
                      OPERANDS(logits));
}

const struct op op_route = {
    .name = "route",
    .attribute_bytes = sizeof(struct route_attributes),
    .inputs = 2,
    .optional = 1,
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
    out[0] = *logits;
    TRY(check_shape(node, 0, weights));
    TRY(check_shape(node, 2, weights));
    TRY(check_shape(node, 3, with_dtype(weights, DTYPE_I32)));
    return check_shape(node, 4, shape_make(DTYPE_I32, 2, shape_columns(logits), 2, 1));
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
    if (!dy) return;
    gradient_add_rule(gradients, &op_dispatch_grad, node, OPERANDS(dy, node->in[1], gradient_partial(gradients, x)),
                      node->attributes, OPERANDS(x));
}

/* The experts' inner features, which ranks may have parts of: then each has a part of the rows' gradient. */
static bool loops_dispatch(const struct node *node, int way, struct op_loops *out) {
    op_loops_add(out, 'f', features_of(node))->padded = true;
    loops_add_outside_positions(out, node->in[0]);
    op_loops_operands(out, ".t.,.t.");
    out->apart = 1u << OP_INPUTS_MAX;
    return way == 0 && features_of(node) > 0;
}

const struct op op_dispatch = {
    .name = "dispatch",
    .attribute_bytes = sizeof(struct dispatch_attributes),
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
    TRY(check_shape(node, 0, rows_shape(node, out[0], &node->in[1]->shape)));
    return check_shape(node, 2, out[0]);
}

/* The fraction of rows sorted by expert that hold slots; the others pad tiles. */
static double touched_slots(const struct node *node, int operand) {
    int rows = node->op == &op_combine_grad ? 1 : 0, places = node->op == &op_dispatch_grad ? 1 : 2 + rows;
    if (operand != rows) return 1;
    return (double)shape_elements(&node->in[places]->shape) / (double)shape_rows(&node->in[rows]->shape);
}

const struct op op_dispatch_grad = {
    .name = "dispatch_grad",
    .touched = touched_slots,
    .attribute_bytes = sizeof(struct dispatch_attributes),
    .inputs = 3,
    .optional = 1,
    .outputs = 1,
    .infer = infer_dispatch_grad,
    .example = example_slots,
    .in_place_input = 1 + 2,
};

static enum status infer_combine(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    TRY(check_places(node, 2));
    const struct shape *places = &node->in[2]->shape;
    TRY(check_shape(node, 1, as_accumulator(*places)));
    out[0] = node->in[0]->shape;
    out[0].dims[1] = places->dims[1];
    TRY(check_shape(node, 0, rows_shape(node, out[0], places)));
    return check_shape(node, 3, out[0]);
}

static void differentiate_combine(struct gradients *gradients, const struct node *node) {
    struct tensor *rows = node->in[0], *weights = node->in[1], *residual = node->in[3];
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    if (residual) gradient_contribute(gradients, residual, dy);
    gradient_add_rule(gradients, &op_combine_grad, node, OPERANDS(dy, rows, weights, node->in[2]), node->attributes,
                      OPERANDS(rows, weights));
}

/* Parts of the experts' inner features have parts of the rows' sum, and so of the tokens' and of the weights'
 * gradients. */
static bool loops_combine(const struct node *node, int way, struct op_loops *out) {
    op_loops_add(out, 'f', features_of(node))->padded = true;
    loops_add_outside_positions(out, node->in[1]);
    op_loops_operands(out, ",.t.,.t.,.t.->.t.");
    out->added = 1u << 3;
    out->apart = 1u << 0;
    return way == 0 && features_of(node) > 0;
}

const struct op op_combine = {
    .name = "combine",
    .touched = touched_slots,
    .attribute_bytes = sizeof(struct dispatch_attributes),
    .inputs = 4,
    .optional = 1,
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
    TRY(check_shape(node, 1, out[0]));
    return check_shape(node, 2, out[1]);
}

const struct op op_combine_grad = {
    .name = "combine_grad",
    .touched = touched_slots,
    .attribute_bytes = sizeof(struct dispatch_attributes),
    .inputs = 4,
    .outputs = 2,
    .infer = infer_combine_grad,
    .example = example_slots,
};

static enum status infer_token_gate(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    TRY(check_shape(node, 1, with_columns(out[0], 1)));
    return check_shape(node, 2, out[0]);
}

static void differentiate_token_gate(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *gate = node->in[1], *residual = node->in[2];
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    if (residual) gradient_contribute(gradients, residual, dy);
    gradient_add_rule(gradients, &op_token_gate_grad, node, OPERANDS(dy, x, gate), NULL, OPERANDS(x, gate));
}

static bool loops_token_gate(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'c', shape_columns(&node->in[0]->shape));
    op_loops_operands(out, "stc,st.,stc->stc");
    return way == 0;
}

const struct op op_token_gate = {
    .name = "token_gate",
    .inputs = 3,
    .optional = 1,
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
    TRY(check_shape(node, 1, out[0]));
    return check_shape(node, 2, out[1]);
}

const struct op op_token_gate_grad = {
    .name = "token_gate_grad",
    .inputs = 3,
    .outputs = 2,
    .infer = infer_token_gate_grad,
};

struct tensor *ops_token_gate(struct graph *graph, const char *name, struct tensor *x, struct tensor *gate,
                              struct tensor *residual) {
    return ops_apply(graph, &op_token_gate, name, OPERANDS(x, gate, residual), NULL);
}

struct routing ops_route(struct graph *graph, const char *name, struct tensor *logits, struct tensor *targets,
                         struct route_attributes attributes) {
    struct tensor *in[OP_INPUTS_MAX] = {logits, targets};
    struct node *node = logits ? graph_add(graph, &op_route, name, in, &attributes, NULL) : NULL;
    if (!node) return (struct routing){.weights = NULL};
    return (struct routing){node->out[0], node->out[1], node->out[2], node->out[3]};
}

struct tensor *ops_dispatch(struct graph *graph, const char *name, struct tensor *x, struct routing routing,
                            struct dispatch_attributes attributes) {
    return ops_apply(graph, &op_dispatch, name, OPERANDS(x, routing.places), &attributes);
}

struct tensor *ops_combine(struct graph *graph, const char *name, struct tensor *rows, struct routing routing,
                           struct tensor *residual, struct dispatch_attributes attributes) {
    return ops_apply(graph, &op_combine, name, OPERANDS(rows, routing.weights, routing.places, residual), &attributes);
}

/* Use of experts: counts of their slots, and the load-balancing loss (Fedus et al., arXiv 2101.03961, equations 4 to
 * 6). It is computed as by transformers' load_balancing_loss_func: over all tokens of a micro-batch that its attention
 * mask keeps, and all layers together. Each layer adds its load to a running sum. */

/* Rows of a load: how many slots each expert has, and the sum of the probabilities that tokens give it. */
static struct shape load_of(int64_t experts) { return shape_make(DTYPE_F32, 2, LOAD_ROWS, experts, 1); }

static enum status infer_expert_load(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    int64_t experts = shape_columns(&node->in[0]->shape);
    TRY(check_activation(node, 0));
    TRY(check_shape(node, 1, vector_of(DTYPE_I32, experts)));
    TRY(check_shape(node, 2, tokens_of(&node->in[0]->shape)));
    out[0] = load_of(experts);
    return check_shape(node, 3, out[0]);
}

static void differentiate_expert_load(struct gradients *gradients, const struct node *node) {
    struct tensor *logits = node->in[0], *previous = node->in[3], *dload = gradient_of(gradients, node->out[0]);
    if (!dload) return;
    if (previous) gradient_contribute(gradients, previous, dload);
    gradient_add_rule(gradients, &op_expert_load_grad, node, OPERANDS(dload, logits, node->in[2]), NULL,
                      OPERANDS(logits));
}

const struct op op_expert_load = {
    .name = "expert_load",
    .inputs = 4,
    .optional = 1,
    .outputs = 1,
    .infer = infer_expert_load,
    .differentiate = differentiate_expert_load,
    .saved_inputs = 1u << 0 | 1u << 2,
};

static enum status infer_expert_load_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 1));
    out[0] = node->in[1]->shape;
    TRY(check_shape(node, 2, tokens_of(&out[0])));
    return check_shape(node, 0, load_of(shape_columns(&out[0])));
}

const struct op op_expert_load_grad = {
    .name = "expert_load_grad",
    .inputs = 3,
    .outputs = 1,
    .infer = infer_expert_load_grad,
};

static enum status infer_balanced_loss(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_log_probabilities(node));
    out[0] = vector_of(DTYPE_F64, 1);
    return check_shape(node, 2, load_of(shape_columns(&node->in[2]->shape)));
}

static enum status infer_balanced_loss_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(infer_balanced_loss(node, out));
    out[1] = node->in[0]->shape;
    if (NODE_ATTRIBUTES(node, balance_grad_attributes)->dload) out[2] = node->in[2]->shape;
    return STATUS_OK;
}

/* Without experts that train, or anything before them, there is no gradient of the load. */
static void differentiate_balanced_loss(struct gradients *gradients, const struct node *node) {
    struct tensor *load = gradient_if_wanted(gradients, node->in[2]);
    struct balance_grad_attributes attributes = {.balance = *NODE_ATTRIBUTES(node, balance_attributes), .dload = load};
    gradient_add_rule(gradients, &op_balanced_loss_grad, node, node->in, &attributes,
                      OPERANDS(node->out[0], node->in[0], load));
}

const struct op op_balanced_loss = {
    .name = "balanced_loss",
    .attribute_bytes = sizeof(struct balance_attributes),
    .inputs = 3,
    .outputs = 1,
    .infer = infer_balanced_loss,
    .cost_key = op_key_nothing,
    .differentiate_loss = differentiate_balanced_loss,
    .saved_inputs = 0x7,
    .updates = 1u << 0,
};

const struct op op_balanced_loss_grad = {
    .name = "balanced_loss_grad",
    .attribute_bytes = sizeof(struct balance_grad_attributes),
    .inputs = 3,
    .outputs = 3,
    .infer = infer_balanced_loss_grad,
    .cost_key = op_key_nothing,
    .updates = 1u << 0,
    .reads_scalars = true,
};

static enum status infer_count_slots(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    int64_t experts = shape_elements(&node->in[0]->shape);
    out[0] = vector_of(DTYPE_F64, experts);
    return check_shape(node, 0, vector_of(DTYPE_I32, experts));
}

const struct op op_count_slots = {
    .name = "count_slots",
    .inputs = 1,
    .outputs = 1,
    .infer = infer_count_slots,
    .updates = 1u << 0,
};

struct tensor *ops_expert_load(struct graph *graph, const char *name, struct tensor *logits, struct routing routing,
                               struct tensor *targets, struct tensor *previous) {
    return ops_apply(graph, &op_expert_load, name, OPERANDS(logits, routing.slots, targets, previous), NULL);
}

struct tensor *ops_balanced_loss(struct graph *graph, const char *name, struct tensor *y, struct tensor *targets,
                                 struct tensor *load, struct balance_attributes attributes) {
    return ops_apply_loss(graph, &op_balanced_loss, name, OPERANDS(y, targets, load), &attributes, 1);
}
