/* Cases of routing and of experts. */
#include "support/op_case_build.h"

/* Experts of the cases of routing, and how many of them a token takes. */
static int64_t experts_of(const struct op_sizes *sizes) { return sizes->heads; }
static int64_t chosen_of(const struct op_sizes *sizes) { return sizes->heads / 4 + 1; }

void build_route(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct route_attributes attributes = {.chosen = chosen_of(sizes), .normalised = has(op_case, CASE_ONE_PLUS)};
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "logits", experts_of(sizes)),
                                        IF_WANTED(!has(op_case, CASE_NO_TARGETS), integers(graph, "targets"))};
    add(graph, &op_route, "route", &attributes, in, NULL);
    if (op_case->op != &op_route_grad) return;
    const struct node *forward = graph->nodes.count > 0 ? graph->nodes.items[0] : NULL;
    if (!forward) return;
    struct tensor *back[OP_INPUTS_MAX] = {row_values(graph, "dy", attributes.chosen), in[0], forward->out[0],
                                          forward->out[1], forward->out[2]};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.logits", experts_of(sizes))};
    add(graph, &op_route_grad, "route.grad", &attributes, back, out);
}

static struct tensor *expert_rows(struct graph *graph, const char *name, const struct op_sizes *sizes) {
    int64_t slots = sizes->sequences * sizes->length * chosen_of(sizes);
    int64_t rows = routing_rows(sizes->sequences, slots, experts_of(sizes));
    return graph_tensor(graph, TENSOR_ACTIVATION, name,
                        shape_make(graph->dtype, 3, sizes->sequences, rows, sizes->columns));
}

/* The routing that the node before a case's own gives; NULL where it could not be added. */
static const struct node *add_route(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct op_case forward = *op_case;
    forward.op = &op_route;
    forward.flags &= ~(unsigned)CASE_VIEWS;
    build_route(graph, &forward, sizes);
    return graph->nodes.count > 0 ? graph->nodes.items[0] : NULL;
}

void build_dispatch(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    struct dispatch_attributes attributes = {.experts = experts_of(sizes)};
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", sizes->columns), route->out[1]};
    add(graph, &op_dispatch, "dispatch", &attributes, in, NULL);
    if (op_case->op != &op_dispatch_grad) return;
    struct tensor *back[OP_INPUTS_MAX] = {
        expert_rows(graph, "dy", sizes), route->out[1],
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "addend", sizes->columns))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.x", sizes->columns)};
    add(graph, &op_dispatch_grad, "dispatch.grad", &attributes, back, out);
}

void build_combine(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    struct dispatch_attributes attributes = {.experts = experts_of(sizes)};
    struct tensor *in[OP_INPUTS_MAX] = {
        expert_rows(graph, "x", sizes), row_values(graph, "weights", chosen_of(sizes)), route->out[1],
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "residual", sizes->columns))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_combine, "combine", &attributes, in, out);
    if (op_case->op != &op_combine_grad) return;
    struct tensor *back[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", sizes->columns), in[0], in[1], in[2]};
    struct tensor *into[OP_OUTPUTS_MAX] = {expert_rows(graph, "d.x", sizes),
                                           row_values(graph, "d.weights", chosen_of(sizes))};
    add(graph, &op_combine_grad, "combine.grad", &attributes, back, into);
}

void build_token_gate(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {
        activation(graph, op_case, "x", sizes->columns), activation(graph, op_case, "gate", 1),
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "residual", sizes->columns))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_token_gate, "token_gate", NULL, in, out);
    if (op_case->op != &op_token_gate_grad) return;
    struct tensor *back[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", sizes->columns), in[0], in[1]};
    struct tensor *into[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.x", sizes->columns),
                                           activation(graph, op_case, "d.gate", 1)};
    add(graph, &op_token_gate_grad, "token_gate.grad", NULL, back, into);
}

static struct tensor *load_of(struct graph *graph, const char *name, const struct op_sizes *sizes) {
    return graph_tensor(graph, TENSOR_ACTIVATION, name, shape_make(DTYPE_F32, 2, LOAD_ROWS, experts_of(sizes), 1));
}

/* Tokens go where other logits send them, so that differences of these change no slot. */
void build_expert_load(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    bool previous = has(op_case, CASE_ADDEND);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", experts_of(sizes)), route->out[3], route->in[1],
                                        IF_WANTED(previous, load_of(graph, "previous", sizes))};
    add(graph, &op_expert_load, "load", NULL, in, NULL);
    if (op_case->op != &op_expert_load_grad) return;
    struct tensor *back[OP_INPUTS_MAX] = {load_of(graph, "dy", sizes), in[0], in[2]};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.x", experts_of(sizes))};
    add(graph, &op_expert_load_grad, "load.grad", NULL, back, out);
}

void build_balanced_loss(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct balance_grad_attributes attributes = {.balance = {.coefficient = 0.3, .layers = 2},
                                                       .dload = !has(op_case, CASE_FROZEN)};
    struct tensor *in[OP_INPUTS_MAX] = {row_values(graph, "y", 1), integers(graph, "targets"),
                                        load_of(graph, "load", sizes)};
    struct tensor *loss[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "loss", shape_make(DTYPE_F64, 1, 1, 1, 1))};
    add(graph, &op_balanced_loss, "loss", &attributes.balance, in, loss);
    if (op_case->op == &op_balanced_loss) return;
    struct tensor *made[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "loss.again", shape_make(DTYPE_F64, 1, 1, 1, 1)),
        row_values(graph, "d.y", 1), IF_WANTED(attributes.dload, load_of(graph, "d.load", sizes))};
    add(graph, &op_balanced_loss_grad, "loss.grad", &attributes, in, made);
}

void build_count_slots(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    struct tensor *in[OP_INPUTS_MAX] = {route->out[3]};
    struct tensor *slots[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "slots", shape_make(DTYPE_F64, 1, experts_of(sizes), 1, 1))};
    add(graph, &op_count_slots, "slots", NULL, in, slots);
}

/* The second expert of a routing: its operator, that of its gradient, and its weights with the names of theirs. */
struct expert_case {
    const struct op *forward, *backward;
    const void *attributes, *grad_attributes;
    struct expert_weight {
        const char *name, *gradient;
        int rank;
        int64_t d0, d1;
    } weights[4];
    int count;
    bool trains, dx;
};

/* With CASE_ADDEND others' rows are there before. The gradient reads x, the routing and the first three weights. */
static void add_expert(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes,
                       const struct node *route, const struct expert_case *expert) {
    bool previous = has(op_case, CASE_ADDEND), forward = op_case->op == expert->forward;
    struct tensor *in[OP_INPUTS_MAX] = {expert_rows(graph, "x", sizes), route->out[2]};
    for (int w = 0; w < expert->count; w++) {
        const struct expert_weight *weight = &expert->weights[w];
        in[2 + w] = graph_parameter(graph, weight->name, weight->rank, weight->d0, weight->d1);
    }
    in[2 + expert->count] = IF_WANTED(previous && forward, expert_rows(graph, "previous", sizes));
    add(graph, expert->forward, "expert", expert->attributes, in, NULL);
    if (forward) return;
    struct tensor *back[OP_INPUTS_MAX] = {expert_rows(graph, "dy", sizes),
                                          in[0],
                                          in[1],
                                          in[2],
                                          in[3],
                                          in[4],
                                          IF_WANTED(previous, expert_rows(graph, "previous", sizes))};
    struct tensor *out[OP_OUTPUTS_MAX] = {IF_WANTED(expert->dx, expert_rows(graph, previous ? "dx" : "d.x", sizes))};
    for (int w = 0; w < expert->count; w++) {
        const struct expert_weight *weight = &expert->weights[w];
        out[1 + w] =
            IF_WANTED(expert->trains, accumulator(graph, weight->gradient, weight->rank, weight->d0, weight->d1));
    }
    add(graph, expert->backward, "expert.grad", expert->grad_attributes, back, out);
}

void build_expert(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    bool trains = !has(op_case, CASE_FROZEN), dx = !has(op_case, CASE_NO_DX);
    int64_t c = sizes->columns, f = sizes->inner;
    struct expert_grad_attributes attributes = {
        .expert = {.expert = 1,
                   .experts = experts_of(sizes),
                   .slots = sizes->sequences * sizes->length * chosen_of(sizes),
                   .function = op_case->function},
        .dx = dx,
        .dweight = {trains, trains, trains},
    };
    const struct expert_case expert = {
        .forward = &op_expert_mlp,
        .backward = &op_expert_mlp_grad,
        .attributes = &attributes.expert,
        .grad_attributes = &attributes,
        .weights = {{"gate", "d.gate", 2, f, c}, {"up", "d.up", 2, f, c}, {"down", "d.down", 2, c, f}},
        .count = 3,
        .trains = trains,
        .dx = dx};
    add_expert(graph, op_case, sizes, route, &expert);
}

/* Clamps hold for some numbers. */
static struct expert_glu_attributes glu_of(const struct op_case *op_case, const struct op_sizes *sizes) {
    return (struct expert_glu_attributes){.expert = {.expert = 1,
                                                     .experts = experts_of(sizes),
                                                     .slots = sizes->sequences * sizes->length * chosen_of(sizes)},
                                          .alpha = 1.5,
                                          .limit =
                                              op_case->op == &op_expert_glu ? 0.4 : 6, /* differences meet no kink */
                                          .weights_are_kn = has(op_case, CASE_KN)};
}

void build_expert_glu(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    bool trains = !has(op_case, CASE_FROZEN), dx = !has(op_case, CASE_NO_DX), kn = has(op_case, CASE_KN);
    int64_t c = sizes->columns, f = sizes->inner;
    struct expert_glu_grad_attributes attributes = {
        .glu = glu_of(op_case, sizes), .dx = dx, .dweight = {trains, trains, trains, trains}};
    const struct expert_case expert = {.forward = &op_expert_glu,
                                       .backward = &op_expert_glu_grad,
                                       .attributes = &attributes.glu,
                                       .grad_attributes = &attributes,
                                       .weights = {{"gate_up", "d.gate_up", 2, kn ? c : 2 * f, kn ? 2 * f : c},
                                                   {"down", "d.down", 2, kn ? f : c, kn ? c : f},
                                                   {"gate_up_bias", "d.gate_up_bias", 1, 2 * f, 1},
                                                   {"down_bias", "d.down_bias", 1, c, 1}},
                                       .count = 4,
                                       .trains = trains,
                                       .dx = dx};
    add_expert(graph, op_case, sizes, route, &expert);
}
