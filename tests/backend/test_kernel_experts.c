/* A layer of experts, forward and backward, against plain loops in double: with equal logits, experts that receive
 * no token or all of them, and tokens that use all experts. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernel.h"
#include "base/mem.h"
#include "base/random.h"
#include "ir/differentiate.h"
#include "support/plain_case.h"
#include "support/unit.h"

enum { SEQUENCES = 2, LENGTH = 37, LENGTH_MAX = 550, COLUMNS = 22, INNER = 19, EXPERTS_MAX = 5 };
enum { TOKENS_MAX = SEQUENCES * LENGTH_MAX };

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
    int64_t length; /* of a sequence */
};

static const struct routing_case cases[] = {
    {"spread", spread_logit, 5, 2, false, LENGTH},          {"spread, normalised", spread_logit, 5, 3, true, LENGTH},
    {"all equal", equal_logit, 4, 2, true, LENGTH},         {"all to one", third_logit, 4, 1, false, LENGTH},
    {"pairs of equals", paired_logit, 4, 3, false, LENGTH}, {"all experts", spread_logit, 3, 3, true, LENGTH},
    {"one expert", equal_logit, 1, 1, false, LENGTH},       {"several pieces", third_logit, 3, 1, false, LENGTH_MAX},
};

static int64_t tokens_of(const struct routing_case *routing) { return SEQUENCES * routing->length; }

struct layer {
    const struct routing_case *routing;
    struct graph *graph;
    struct tensor *logits, *x, *y;
    struct routing routed;
    struct expert_weights weights[EXPERTS_MAX];
};

static struct tensor *activation(struct graph *graph, const char *name, int64_t columns) {
    return graph_tensor(graph, TENSOR_ACTIVATION, name,
                        shape_make(graph->dtype, 3, SEQUENCES, graph->sequence_length, columns));
}

static struct tensor *weight(struct graph *graph, const char *part, int64_t expert, int64_t out, int64_t in) {
    return graph_parameter(graph, graph_format(graph, "%s.%lld", part, (long long)expert), 2, out, in);
}

static struct tensor *add_experts(struct layer *layer, struct tensor *rows) {
    struct tensor *result = NULL;
    for (int64_t e = 0; e < layer->routing->experts; e++) {
        struct expert_attributes attributes = {.expert = e,
                                               .experts = layer->routing->experts,
                                               .slots = tokens_of(layer->routing) * layer->routing->chosen,
                                               .function = ACTIVATION_SILU};
        layer->weights[e] = (struct expert_weights){weight(layer->graph, "gate", e, INNER, COLUMNS),
                                                    weight(layer->graph, "up", e, INNER, COLUMNS),
                                                    weight(layer->graph, "down", e, COLUMNS, INNER)};
        result = ops_expert_mlp(layer->graph, "expert", rows, layer->routed, &layer->weights[e], result, attributes);
    }
    return result;
}

static struct layer build(const struct routing_case *routing, enum dtype dtype) {
    struct layer layer = {.routing = routing, .graph = graph_create(dtype, SEQUENCES, routing->length)};
    assert_non_null(layer.graph);
    graph_begin_block(layer.graph, "layer");
    layer.x = activation(layer.graph, "x", COLUMNS);
    layer.logits = activation(layer.graph, "router", routing->experts);
    struct dispatch_attributes all = {.experts = routing->experts};
    layer.routed = ops_route(layer.graph, "route", layer.logits, NULL,
                             (struct route_attributes){routing->chosen, routing->normalised});
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
    double y[TOKENS_MAX * COLUMNS], dx[TOKENS_MAX * COLUMNS], dlogits[TOKENS_MAX * EXPERTS_MAX];
    double dgate[EXPERTS_MAX][INNER * COLUMNS], dup[EXPERTS_MAX][INNER * COLUMNS], ddown[EXPERTS_MAX][COLUMNS * INNER];
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
    bool taken[EXPERTS_MAX] = {false};
    double p[EXPERTS_MAX], dp[EXPERTS_MAX] = {0}, sum = 0, chosen_sum = 0, mean = 0;
    int64_t chosen[EXPERTS_MAX];
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
    struct plain_weights weights[EXPERTS_MAX] = {{0}};
    double *logits = read(instance, layer->logits), *x = read(instance, layer->x);
    double *dy = read(instance, gradient_tensor(layer, layer->y));
    for (int64_t e = 0; e < layer->routing->experts; e++)
        weights[e] =
            (struct plain_weights){read(instance, layer->weights[e].gate), read(instance, layer->weights[e].up),
                                   read(instance, layer->weights[e].down)};
    for (int64_t t = 0; t < tokens_of(layer->routing); t++)
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
    double max = layer->graph->dtype == DTYPE_F32 ? 2e-6 : 2e-2;
    for (int64_t i = 0; i < shape_elements(&tensor->shape); i++) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    mem_free(found);
    if (!(sqrt(difference) <= max * sqrt(norm)))
        fail_msg("%s in %s: %s is off by %.2e, more than %.0e", layer->routing->name, dtype_name(layer->graph->dtype),
                 tensor->name, sqrt(difference / norm), max);
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
    if (overrun) fail_msg("%s: bytes next to %s have changed", routing->name, overrun);
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

static void check_pieces(int64_t tile, int64_t max, bool any) {
    struct expert_pieces pieces = expert_pieces_of(tile, max, any);
    for (int64_t rows = 1; rows <= max; rows += rows < 200 ? 1 : 61) {
        int64_t step = tile < PIECE_ROWS_STEP ? tile : PIECE_ROWS_STEP, covered = 0, count = 0;
        for (int size = 0; covered < rows; count++) {
            int64_t piece = expert_pieces_first(&pieces, rows - covered, &size);
            assert_true(piece > 0 && piece <= pieces.max && piece % step == 0);
            covered += piece;
        }
        assert_int_equal(covered, (rows + step - 1) / step * step);
        if (any) assert_int_equal(count, (rows + PIECE_ROWS_MAX - 1) / PIECE_ROWS_MAX);
    }
}

/* Pieces end with the step that the last slot is in. Those of any size are as few as can be. */
static void pieces_hold_all_rows(void **state) {
    (void)state;
    for (int64_t tile = 1; tile <= 64; tile *= 4)
        for (int64_t max = tile; max < 5000; max *= 7) {
            check_pieces(tile, max / tile * tile, true);
            check_pieces(tile, max / tile * tile, false);
        }
}

/* A row of gpt-oss's expert: what it gives, and with the gradient of that the gradients of its row and weights. */
struct plain_glu {
    const struct expert_glu_attributes *attributes;
    int64_t columns, width;
    double *gate_up, *down, *gate_up_bias, *down_bias;     /* weights */
    double *dgate_up, *ddown, *dgate_up_bias, *ddown_bias; /* sums; NULL: forward alone */
};

/* Of weights [out, in], or [in, out]. */
static int64_t weight_at(const struct plain_glu *glu, int64_t out, int64_t in, int64_t outs, int64_t ins) {
    return glu->attributes->weights_are_kn ? in * outs + out : out * ins + in;
}

static double clamped(double x, double min, double max) { return x < min ? min : x > max ? max : x; }

static void plain_glu_row(const struct plain_glu *glu, const double *x, const double *dy, double *y, double *dx) {
    int64_t c = glu->columns, f = glu->width;
    double limit = glu->attributes->limit, alpha = glu->attributes->alpha;
    for (int64_t o = 0; o < c && y; o++)
        y[o] = glu->down_bias[o];
    for (int64_t i = 0; i < f; i++) {
        double z[2] = {glu->gate_up_bias[2 * i], glu->gate_up_bias[2 * i + 1]}, dactive = 0;
        for (int64_t k = 0; k < c; k++)
            for (int h = 0; h < 2; h++)
                z[h] += glu->gate_up[weight_at(glu, 2 * i + h, k, 2 * f, c)] * x[k];
        double gate = clamped(z[0], -HUGE_VAL, limit), up = clamped(z[1], -limit, limit), s = sigmoid(alpha * gate);
        for (int64_t o = 0; o < c; o++) {
            int64_t at = weight_at(glu, o, i, c, f);
            if (y) y[o] += glu->down[at] * (up + 1) * gate * s;
            if (dy) dactive += glu->down[at] * dy[o], glu->ddown[at] += dy[o] * (up + 1) * gate * s;
        }
        if (!dy) continue;
        double dz[2] = {z[0] > limit ? 0 : dactive * (up + 1) * (s + alpha * gate * s * (1 - s)),
                        fabs(z[1]) > limit ? 0 : dactive * gate * s};
        for (int h = 0; h < 2; h++) {
            glu->dgate_up_bias[2 * i + h] += dz[h];
            for (int64_t k = 0; k < c; k++) {
                int64_t at = weight_at(glu, 2 * i + h, k, 2 * f, c);
                glu->dgate_up[at] += dz[h] * x[k];
                dx[k] += dz[h] * glu->gate_up[at];
            }
        }
    }
    for (int64_t o = 0; o < c && dy; o++)
        glu->ddown_bias[o] += dy[o];
}

static double *read_named(const struct op_instance *instance, const char *name) {
    const struct tensor *tensor = op_case_tensor(instance->graph, name);
    return tensor ? read(instance, tensor) : NULL;
}

/* In the rows that the kernel went through: those of the expert's slots, and of its last piece. The case's limit is one
 * that many numbers pass. */
static void check_glu(const char *name, enum dtype dtype) {
    struct op_case own = *plain_case_find(name);
    struct op_instance instance;
    if (op_instance_create(op_case_build(&own, dtype, &own.sizes), &instance) != STATUS_OK)
        fail_msg("%s: %s", name, status_message());
    const struct node *node = instance.node;
    bool gradient = node->op == &op_expert_glu_grad;
    struct expert_glu_grad_attributes *attributes = (struct expert_glu_grad_attributes *)(uintptr_t)node->attributes;
    /* Both operators' attributes begin with it. In bf16 the gradient jumps where rounding passes the limit. */
    attributes->glu.limit = gradient && dtype == DTYPE_BF16 ? 6 : 0.4;
    op_instance_fill(&instance, 7);
    double *before[4] = {NULL}, *out[OP_OUTPUTS_MAX] = {NULL};
    for (int i = 0; i < 4 && gradient; i++)
        before[i] = read(&instance, node->out[1 + i]);
    op_instance_run_all(&instance);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (node->out[i]) out[i] = read(&instance, node->out[i]);
    struct plain_glu glu = {.attributes = &attributes->glu, .columns = own.sizes.columns, .width = own.sizes.inner};
    glu.gate_up = read_named(&instance, "gate_up"), glu.down = read_named(&instance, "down");
    glu.gate_up_bias = read_named(&instance, "gate_up_bias"), glu.down_bias = read_named(&instance, "down_bias");
    glu.dgate_up = before[0], glu.ddown = before[1], glu.dgate_up_bias = before[2], glu.ddown_bias = before[3];
    double *x = read_named(&instance, "x"), *dy = gradient ? read_named(&instance, "dy") : NULL;
    double *ranges = read(&instance, node->in[gradient ? 2 : 1]), max = dtype == DTYPE_F32 ? 3e-6 : 2e-2;
    int64_t c = glu.columns, begin = (int64_t)ranges[2], end = (int64_t)ranges[3];
    int64_t tile = routing_tile(attributes->glu.expert.slots, attributes->glu.expert.experts);
    int64_t step = tile < 16 ? tile : 16, covered = (end - begin + step - 1) / step * step;
    double *expected = mem_array((size_t)(covered * c), sizeof *expected);
    assert_non_null(expected);
    for (int64_t r = 0; r < covered; r++) {
        int64_t at = (begin + r) * c;
        plain_glu_row(&glu, x + at, dy ? dy + at : NULL, dy ? NULL : expected + r * c, expected + r * c);
    }
    assert_true(covered > 0);
    plain_case_expect(name, out[0] + begin * c, expected, covered * c, max);
    for (int i = 0; i < 4 && gradient; i++)
        plain_case_expect(node->out[1 + i]->name, out[1 + i], before[i], shape_elements(&node->out[1 + i]->shape), max);
    double *all[] = {glu.gate_up, glu.down, glu.gate_up_bias, glu.down_bias, x, dy, ranges, expected};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    for (int i = 0; i < 4; i++)
        mem_free(before[i]);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        mem_free(out[i]);
    op_instance_free(&instance);
}

static void a_clamped_expert_is_that_of_plain_c(void **state) {
    (void)state;
    static const char *const names[] = {"expert_glu", "expert_glu.previous", "expert_glu_grad",
                                        "expert_glu_grad.tiles"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_glu(names[i], DTYPE_F32);
        check_glu(names[i], DTYPE_BF16);
    }
}

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) unit_skip_all("%s", why);
    backend_cpu.set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_of_experts_is_that_of_plain_c),
        cmocka_unit_test(rows_hold_any_spread_of_slots),
        cmocka_unit_test(pieces_hold_all_rows),
        cmocka_unit_test(a_clamped_expert_is_that_of_plain_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
