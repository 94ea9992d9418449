/* A layer of experts, forward and backward, against plain loops in double: of logits that are equal, of experts that
 * get no token or all of them, and of tokens that take all experts. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <math.h>

#include "base/mem.h"
#include "base/random.h"
#include "graph/differentiate.h"
#include "support/op_instance.h"
#include "support/unit.h"

enum { SEQUENCES = 2, LENGTH = 37, TOKENS = SEQUENCES * LENGTH, COLUMNS = 22, INNER = 19, EXPERTS_MOST = 5 };

/* Logits of a token. */
typedef double logit_of(int64_t token, int64_t expert);

static double spread_logit(int64_t token, int64_t expert) {
    return 4 * random_uniform(5, RANDOM_TEST, (uint32_t)expert, (uint64_t)token);
}
static double equal_logit(int64_t token, int64_t expert) { return (void)token, (void)expert, 0.5; }
/* The third before all others. */
static double third_logit(int64_t token, int64_t expert) { return expert == 2 ? 3 : -0.01 * (double)(token * expert); }
/* Two and two alike: 1, 3 before 0, 2 for odd tokens, and the other way round. */
static double paired_logit(int64_t token, int64_t expert) { return (token + expert) % 2 ? 1 : 0.25; }

struct routing_case {
    const char *name;
    logit_of *logit;
    int64_t experts, chosen;
    bool normalised;
};

static const struct routing_case cases[] = {
    {"spread", spread_logit, 5, 2, false},          {"spread, normalised", spread_logit, 5, 3, true},
    {"all equal", equal_logit, 4, 2, true},         {"all to one", third_logit, 4, 1, false},
    {"pairs of equals", paired_logit, 4, 3, false}, {"all experts", spread_logit, 3, 3, true},
    {"one expert", equal_logit, 1, 1, false},
};

struct layer {
    const struct routing_case *routing;
    struct graph *graph;
    struct tensor *logits, *x, *y;
    struct routing routed;
    struct expert_weights weights[EXPERTS_MOST];
};

static struct tensor *activation(struct graph *graph, const char *name, int64_t columns) {
    return graph_tensor(graph, TENSOR_ACTIVATION, name, shape_make(graph->dtype, 3, SEQUENCES, LENGTH, columns));
}

static struct tensor *weight(struct graph *graph, const char *part, int64_t expert, int64_t out, int64_t in) {
    return graph_parameter(graph, graph_format(graph, "%s.%lld", part, (long long)expert), 2, out, in);
}

static struct tensor *add_experts(struct layer *layer, struct tensor *rows) {
    struct tensor *result = NULL;
    for (int64_t e = 0; e < layer->routing->experts; e++) {
        struct expert_attributes attributes = {.expert = e,
                                               .experts = layer->routing->experts,
                                               .slots = TOKENS * layer->routing->chosen,
                                               .function = ACTIVATION_SILU};
        layer->weights[e] = (struct expert_weights){weight(layer->graph, "gate", e, INNER, COLUMNS),
                                                    weight(layer->graph, "up", e, INNER, COLUMNS),
                                                    weight(layer->graph, "down", e, COLUMNS, INNER)};
        result = ops_expert_mlp(layer->graph, "expert", rows, layer->routed, &layer->weights[e], result, attributes);
    }
    return result;
}

static struct layer build(const struct routing_case *routing, enum dtype dtype) {
    struct layer layer = {.routing = routing, .graph = graph_create(dtype, SEQUENCES, LENGTH)};
    assert_non_null(layer.graph);
    graph_begin_block(layer.graph, "layer");
    layer.x = activation(layer.graph, "x", COLUMNS);
    layer.logits = activation(layer.graph, "router", routing->experts);
    struct dispatch_attributes all = {.experts = routing->experts};
    layer.routed =
        ops_route(layer.graph, "route", layer.logits, (struct route_attributes){routing->chosen, routing->normalised});
    struct tensor *rows = ops_dispatch(layer.graph, "dispatch", layer.x, layer.routed, all);
    layer.y = ops_combine(layer.graph, "combine", add_experts(&layer, rows), layer.routed, NULL, all);
    if (graph_status(layer.graph) != STATUS_OK || graph_differentiate_part(layer.graph) != STATUS_OK)
        fail_msg("%s: %s", routing->name, status_message());
    return layer;
}

/* The gradient of an activation, or of a parameter. */
static struct tensor *gradient_tensor(const struct layer *layer, const struct tensor *of) {
    struct tensor *found = NULL;
    for (size_t i = 0; i < layer->graph->tensors.count; i++) {
        struct tensor *tensor = layer->graph->tensors.items[i];
        if (tensor->value == of || (tensor->kind == TENSOR_GRADIENT && tensor->parameter == of)) found = tensor;
    }
    assert_non_null(found);
    return found;
}

static double *read(const struct op_instance *instance, const struct tensor *tensor) {
    double *values = op_instance_read(instance, tensor);
    assert_non_null(values);
    return values;
}

static void write_all(struct op_instance *instance, const struct tensor *tensor, logit_of *value) {
    int64_t columns = shape_columns(&tensor->shape), count = shape_elements(&tensor->shape);
    double *values = mem_array((size_t)count, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; value && i < count; i++)
        values[i] = value(i / columns, i % columns);
    op_instance_write(instance, tensor, values);
    mem_free(values);
}

/* What plain loops make. */
struct plain {
    double y[TOKENS * COLUMNS], dx[TOKENS * COLUMNS], dlogits[TOKENS * EXPERTS_MOST];
    double dgate[EXPERTS_MOST][INNER * COLUMNS], dup[EXPERTS_MOST][INNER * COLUMNS],
        ddown[EXPERTS_MOST][COLUMNS * INNER];
};

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

struct plain_weights {
    double *gate, *up, *down;
};

/* An expert's result for a token, and with its gradient `dout` what is added to the others. */
static void plain_expert(const struct plain_weights *weights, const double *x, double *out, const double *dout,
                         double *dx, double *dgate, double *dup, double *ddown) {
    double gate[INNER] = {0}, up[INNER] = {0};
    for (int i = 0; i < INNER; i++)
        for (int c = 0; c < COLUMNS; c++) {
            gate[i] += weights->gate[i * COLUMNS + c] * x[c];
            up[i] += weights->up[i * COLUMNS + c] * x[c];
        }
    for (int c = 0; c < COLUMNS && out; c++)
        for (int i = 0; i < INNER; i++)
            out[c] += weights->down[c * INNER + i] * gate[i] * sigmoid(gate[i]) * up[i];
    for (int i = 0; i < INNER && dout; i++) {
        double s = sigmoid(gate[i]), active = gate[i] * s, dactive = 0;
        for (int c = 0; c < COLUMNS; c++) {
            dactive += weights->down[c * INNER + i] * dout[c];
            ddown[c * INNER + i] += dout[c] * active * up[i];
        }
        double dg = dactive * up[i] * (s + active * (1 - s)), du = dactive * active;
        for (int c = 0; c < COLUMNS; c++) {
            dx[c] += dg * weights->gate[i * COLUMNS + c] + du * weights->up[i * COLUMNS + c];
            dgate[i * COLUMNS + c] += dg * x[c];
            dup[i * COLUMNS + c] += du * x[c];
        }
    }
}

/* The largest that is not taken yet, of equal ones the first. */
static int64_t next_expert(const double *logits, int64_t experts, const bool *taken) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; e++)
        if (!taken[e] && (best < 0 || logits[e] > logits[best])) best = e;
    return best;
}

static void plain_token(const struct routing_case *routing, const struct plain_weights *weights, const double *logits,
                        const double *x, const double *dy, int64_t token, struct plain *out) {
    bool taken[EXPERTS_MOST] = {false};
    double p[EXPERTS_MOST], dp[EXPERTS_MOST] = {0}, sum = 0, chosen_sum = 0, mean = 0;
    int64_t chosen[EXPERTS_MOST];
    for (int64_t e = 0; e < routing->experts; e++)
        sum += p[e] = exp(logits[e]);
    for (int64_t i = 0; i < routing->chosen; i++) {
        chosen[i] = next_expert(logits, routing->experts, taken);
        taken[chosen[i]] = true;
        chosen_sum += p[chosen[i]];
    }
    double all = routing->normalised ? chosen_sum : sum;
    for (int64_t i = 0; i < routing->chosen; i++) {
        int64_t e = chosen[i];
        double y[COLUMNS] = {0}, dout[COLUMNS], w = p[e] / all;
        plain_expert(&weights[e], x, y, NULL, NULL, NULL, NULL, NULL);
        for (int c = 0; c < COLUMNS; c++) {
            out->y[token * COLUMNS + c] += w * y[c];
            dp[e] += dy[c] * y[c];
            dout[c] = w * dy[c];
        }
        mean += w * dp[e];
        plain_expert(&weights[e], x, NULL, dout, out->dx + token * COLUMNS, out->dgate[e], out->dup[e], out->ddown[e]);
    }
    for (int64_t e = 0; e < routing->experts; e++)
        if (taken[e] || !routing->normalised) out->dlogits[token * routing->experts + e] = p[e] / all * (dp[e] - mean);
}

static struct plain *plain_of(const struct layer *layer, const struct op_instance *instance) {
    struct plain *out = mem_array(1, sizeof *out);
    assert_non_null(out);
    struct plain_weights weights[EXPERTS_MOST] = {{0}};
    double *logits = read(instance, layer->logits), *x = read(instance, layer->x);
    double *dy = read(instance, gradient_tensor(layer, layer->y));
    for (int64_t e = 0; e < layer->routing->experts; e++)
        weights[e] =
            (struct plain_weights){read(instance, layer->weights[e].gate), read(instance, layer->weights[e].up),
                                   read(instance, layer->weights[e].down)};
    for (int64_t t = 0; t < TOKENS; t++)
        plain_token(layer->routing, weights, logits + t * layer->routing->experts, x + t * COLUMNS, dy + t * COLUMNS, t,
                    out);
    for (int64_t e = 0; e < layer->routing->experts; e++)
        mem_free(weights[e].gate), mem_free(weights[e].up), mem_free(weights[e].down);
    mem_free(logits), mem_free(x), mem_free(dy);
    return out;
}

static void expect_close(const struct layer *layer, const struct op_instance *instance, const struct tensor *tensor,
                         const double *expected) {
    double *found = read(instance, tensor), difference = 0, norm = 1e-12;
    double most = layer->graph->dtype == DTYPE_F32 ? 2e-6 : 2e-2;
    for (int64_t i = 0; i < shape_elements(&tensor->shape); i++) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    mem_free(found);
    if (!(sqrt(difference) <= most * sqrt(norm)))
        fail_msg("%s in %s: %s is off by %.2e, more than %.0e", layer->routing->name, dtype_name(layer->graph->dtype),
                 tensor->name, sqrt(difference / norm), most);
}

static void check(const struct routing_case *routing, enum dtype dtype) {
    struct layer layer = build(routing, dtype);
    struct op_instance instance;
    if (op_instance_create(layer.graph, &instance) != STATUS_OK) fail_msg("%s: %s", routing->name, status_message());
    op_instance_fill(&instance, 7);
    write_all(&instance, layer.logits, routing->logit);
    for (size_t i = 0; i < layer.graph->tensors.count; i++)
        if (layer.graph->tensors.items[i]->kind == TENSOR_GRADIENT)
            write_all(&instance, layer.graph->tensors.items[i], NULL);
    op_instance_run_all(&instance);
    struct plain *plain = plain_of(&layer, &instance);
    expect_close(&layer, &instance, layer.y, plain->y);
    expect_close(&layer, &instance, gradient_tensor(&layer, layer.x), plain->dx);
    expect_close(&layer, &instance, gradient_tensor(&layer, layer.logits), plain->dlogits);
    for (int64_t e = 0; e < routing->experts; e++) {
        expect_close(&layer, &instance, gradient_tensor(&layer, layer.weights[e].gate), plain->dgate[e]);
        expect_close(&layer, &instance, gradient_tensor(&layer, layer.weights[e].up), plain->dup[e]);
        expect_close(&layer, &instance, gradient_tensor(&layer, layer.weights[e].down), plain->ddown[e]);
    }
    const char *overrun = op_instance_overrun(&instance);
    if (overrun) fail_msg("%s: bytes beside %s have changed", routing->name, overrun);
    mem_free(plain);
    op_instance_free(&instance);
}

static void a_layer_of_experts_is_that_of_plain_c(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check(&cases[i], DTYPE_F32);
        check(&cases[i], DTYPE_BF16);
    }
}

/* Every slot has a row of its own, those of an expert in the order of tokens, and no expert more rows than the buffer
 * has, however the slots are spread. */
static void rows_hold_any_spread_of_slots(void **state) {
    (void)state;
    for (int64_t slots = 1; slots < 700; slots += slots < 40 ? 1 : 37)
        for (int64_t experts = 1; experts < 140; experts += experts < 9 ? 1 : 43) {
            int64_t tile = routing_tile(slots, experts), rows = routing_rows(1, slots, experts);
            int64_t parts = slots < experts ? slots : experts;
            /* The worst: all but one expert with a tile of which one row is used. */
            int64_t worst = (parts - 1) * tile + (slots - parts + 1 + tile - 1) / tile * tile;
            assert_true(rows >= worst && rows >= slots && rows % tile == 0);
            assert_true(rows <= slots + parts * tile);
        }
}

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) unit_skip_all("%s", why);
    backend_cpu.set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_of_experts_is_that_of_plain_c),
        cmocka_unit_test(rows_hold_any_spread_of_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
