/* Kernels against PyTorch in fp64 (tests/reference/op_cases.py): outputs and gradients of each case, within 1e-5 in
 * fp32 and 1e-2 in bf16, relative to the norm of the tensor. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "model/safetensors.h"
#include "support/op_instance.h"
#include "support/unit.h"

/* A case as read from the files, and the instance that is made of it. */
struct fixture {
    const char *name, *kind;
    const json_t *attributes;
    const struct safetensors *tensors;
    struct op_instance instance;
};

static const struct safetensors_tensor *stored(const struct fixture *fixture, const char *kind, const char *name) {
    char text[128];
    snprintf(text, sizeof text, "%s.%s.%s", fixture->name, kind, name);
    return safetensors_find(fixture->tensors, text);
}

static double attribute(const struct fixture *fixture, const char *name) {
    return json_number_value(json_object_get(fixture->attributes, name));
}

/* The file's activations are [B, T, C] or [rows, C]; here they are [1, rows, C] except where sequences matter. */
static struct tensor *activation(struct graph *graph, const char *name, int64_t columns) {
    return graph_tensor(graph, TENSOR_ACTIVATION, name,
                        shape_make(graph->dtype, 3, graph->micro_batch_sequences, graph->sequence_length, columns));
}

static struct tensor *input(struct graph *graph, const struct fixture *fixture, const char *name) {
    const struct safetensors_tensor *tensor = stored(fixture, "in", name);
    if (!tensor) return NULL;
    bool is_parameter = strcmp(name, "weight") == 0 || strcmp(name, "bias") == 0;
    if (tensor->dtype == SAFETENSORS_I32)
        return graph_tensor(graph, TENSOR_INPUT, name,
                            shape_make(DTYPE_I32, 2, graph->micro_batch_sequences, graph->sequence_length, 1));
    if (is_parameter)
        return graph_parameter(graph, name, tensor->rank, tensor->dims[0], tensor->rank > 1 ? tensor->dims[1] : 1);
    return activation(graph, name, tensor->dims[tensor->rank - 1]);
}

static struct tensor *gradient(struct graph *graph, const struct tensor *of) {
    struct shape shape = of->shape;
    if (of->kind == TENSOR_PARAMETER) shape.dtype = DTYPE_F32;
    enum tensor_kind kind = of->kind == TENSOR_PARAMETER ? TENSOR_GRADIENT : TENSOR_ACTIVATION;
    return graph_tensor(graph, kind, graph_format(graph, "d.%s", of->name), shape);
}

/* dy for the forward node's first output, named "y". */
static struct tensor *output_gradient(struct graph *graph, struct tensor *y) {
    y->name = "y";
    return activation(graph, "dy", shape_columns(&y->shape));
}

static void add(struct graph *graph, const struct op *op, const void *attributes, struct tensor *const *in,
                struct tensor *const *out) {
    if (!graph_add(graph, op, op->name, in, attributes, out)) fail_msg("%s: %s", op->name, status_message());
}

static void build_norm(struct graph *graph, const struct fixture *fixture) {
    double epsilon = attribute(fixture, "eps");
    struct tensor *x = input(graph, fixture, "x"), *weight = input(graph, fixture, "weight");
    bool layer = strcmp(fixture->kind, "layernorm") == 0;
    struct norm_attributes norm = {.epsilon = epsilon, .one_plus = strcmp(fixture->kind, "rmsnorm_one_plus") == 0};
    struct tensor *bias = layer ? input(graph, fixture, "bias") : NULL;
    struct tensor *y =
        layer ? ops_layer_norm(graph, "norm", x, weight, bias, epsilon) : ops_rms_norm(graph, "norm", x, weight, norm);
    const struct node *forward = y->producer;
    struct norm_grad_attributes attributes = {.dx = true, .dweight = true, .dbias = layer, .one_plus = norm.one_plus};
    struct tensor *in[OP_INPUTS_MAX] = {output_gradient(graph, y), x, weight, forward->out[1], forward->out[2]};
    struct tensor *out[OP_OUTPUTS_MAX] = {gradient(graph, x), gradient(graph, weight),
                                          layer ? gradient(graph, bias) : NULL};
    add(graph, layer ? &op_layer_norm_grad : &op_rms_norm_grad, &attributes, in, out);
}

static double rope_number(const json_t *rope, const char *name) {
    return json_number_value(json_object_get(rope, name));
}

static void read_factors(const json_t *rope, struct rope_table_attributes *attributes) {
    const json_t *list = json_object_get(rope, "long_factor");
    attributes->is_long = true;
    attributes->original_context = 80; /* rope_partial of op_cases.py, */
    attributes->factor = 320.0 / 80;   /* whose context is four times that */
    attributes->factors = (int64_t)json_array_size(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        attributes->long_factor[i] = (float)json_number_value(json_array_get(list, i));
}

static struct rope_table_attributes table_attributes(const struct fixture *fixture) {
    const json_t *rope = json_object_get(fixture->attributes, "rope");
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    double partial = rope_number(rope, "partial_rotary_factor");
    struct rope_table_attributes attributes = {
        .head_dim = (int64_t)(attribute(fixture, "head_dim") * (partial > 0 ? partial : 1)),
        .theta = rope_number(rope, "rope_theta"),
        .factor = rope_number(rope, "factor"),
        .low_freq_factor = rope_number(rope, "low_freq_factor"),
        .high_freq_factor = rope_number(rope, "high_freq_factor"),
        .original_context = rope_number(rope, "original_max_position_embeddings"),
        .attention_factor = rope_number(rope, "attention_factor"),
        .beta_fast = rope_number(rope, "beta_fast"),
        .beta_slow = rope_number(rope, "beta_slow"),
        .mscale = rope_number(rope, "mscale"),
        .mscale_all_dim = rope_number(rope, "mscale_all_dim"),
        .untruncated = json_is_false(json_object_get(rope, "truncate")),
    };
    if (strcmp(type, "linear") == 0) attributes.scaling = ROPE_SCALING_LINEAR;
    if (strcmp(type, "llama3") == 0) attributes.scaling = ROPE_SCALING_LLAMA3;
    if (strcmp(type, "yarn") == 0) attributes.scaling = ROPE_SCALING_YARN;
    if (strcmp(type, "longrope") == 0) attributes.scaling = ROPE_SCALING_LONGROPE;
    if (attributes.scaling == ROPE_SCALING_LONGROPE) read_factors(rope, &attributes);
    return attributes;
}

static void build_rope(struct graph *graph, const struct fixture *fixture) {
    struct tensor *x = input(graph, fixture, "x");
    struct tensor *table =
        ops_rope_table(graph, "table", input(graph, fixture, "positions"), table_attributes(fixture));
    struct rope_attributes attributes = {
        .heads = (int64_t)attribute(fixture, "heads"), .head_dim = (int64_t)attribute(fixture, "head_dim"), .sign = -1};
    struct tensor *y = ops_rope(graph, "rope", x, table, attributes.heads, attributes.head_dim);
    struct tensor *in[OP_INPUTS_MAX] = {output_gradient(graph, y), table};
    struct tensor *out[OP_OUTPUTS_MAX] = {gradient(graph, x)};
    add(graph, &op_rope, &attributes, in, out);
}

static void build_attention(struct graph *graph, const struct fixture *fixture) {
    struct attention_attributes attributes = {
        .heads = (int64_t)attribute(fixture, "heads"),
        .kv_heads = (int64_t)attribute(fixture, "kv_heads"),
        .head_dim = (int64_t)attribute(fixture, "head_dim"),
        .scale = attribute(fixture, "scale"),
        .window = (int64_t)json_integer_value(json_object_get(fixture->attributes, "window")),
        .softcap = json_number_value(json_object_get(fixture->attributes, "softcap")),
    };
    struct tensor *q = input(graph, fixture, "q"), *k = input(graph, fixture, "k"), *v = input(graph, fixture, "v");
    struct tensor *segments = input(graph, fixture, "segments");
    struct tensor *y = ops_attention(graph, "attention", q, k, v, segments, NULL, attributes);
    struct tensor *in[OP_INPUTS_MAX] = {output_gradient(graph, y), q, k, v, y, y->producer->out[1], segments};
    struct tensor *out[OP_OUTPUTS_MAX] = {gradient(graph, q), gradient(graph, k), gradient(graph, v)};
    add(graph, &op_attention_grad, &attributes, in, out);
}

static void build_activation(struct graph *graph, const struct fixture *fixture) {
    struct activation_attributes attributes = {0};
    for (int i = 0; i < ACTIVATION_COUNT; i++)
        if (strcmp(activation_name((enum activation)i), fixture->kind) == 0) attributes.function = (enum activation)i;
    struct tensor *x = input(graph, fixture, "x");
    struct tensor *y = ops_activation(graph, "activation", x, attributes.function);
    struct tensor *in[OP_INPUTS_MAX] = {output_gradient(graph, y), x};
    struct tensor *out[OP_OUTPUTS_MAX] = {gradient(graph, x)};
    add(graph, &op_activation_grad, &attributes, in, out);
}

static void build_swiglu(struct graph *graph, const struct fixture *fixture) {
    struct activation_attributes attributes = {.function = ACTIVATION_SILU};
    struct tensor *gate = input(graph, fixture, "gate"), *up = input(graph, fixture, "up");
    struct tensor *y = ops_gated_activation(graph, "swiglu", gate, up, ACTIVATION_SILU);
    struct tensor *in[OP_INPUTS_MAX] = {output_gradient(graph, y), gate, up};
    struct tensor *out[OP_OUTPUTS_MAX] = {gradient(graph, gate), gradient(graph, up)};
    add(graph, &op_gated_activation_grad, &attributes, in, out);
}

static void build_embedding(struct graph *graph, const struct fixture *fixture) {
    struct tensor *ids = input(graph, fixture, "ids"), *weight = input(graph, fixture, "weight");
    struct tensor *y = ops_embedding(graph, "embedding", ids, weight);
    struct embedding_grad_attributes attributes = {.rows = weight->shape.dims[0]};
    struct tensor *in[OP_INPUTS_MAX] = {ids, output_gradient(graph, y)};
    struct tensor *out[OP_OUTPUTS_MAX] = {gradient(graph, weight)};
    add(graph, &op_embedding_grad, &attributes, in, out);
}

static void build_linear(struct graph *graph, const struct fixture *fixture) {
    struct linear_attributes attributes = {.weight_is_kn = strcmp(fixture->kind, "conv1d") == 0};
    struct tensor *x = input(graph, fixture, "x"), *weight = input(graph, fixture, "weight");
    struct tensor *bias = input(graph, fixture, "bias");
    struct tensor *y = ops_linear(graph, "linear", x, weight, bias, NULL, attributes);
    struct tensor *dy = output_gradient(graph, y);
    struct linear_dw_attributes dw = {.weight_is_kn = attributes.weight_is_kn, .has_bias = bias != NULL};
    add(graph, &op_linear_dw, &dw, (struct tensor *[OP_INPUTS_MAX]){x, dy},
        (struct tensor *[OP_OUTPUTS_MAX]){gradient(graph, weight), bias ? gradient(graph, bias) : NULL});
    add(graph, &op_linear_dx, &attributes, (struct tensor *[OP_INPUTS_MAX]){dy, weight},
        (struct tensor *[OP_OUTPUTS_MAX]){gradient(graph, x)});
}

static void build_loss(struct graph *graph, const struct fixture *fixture) {
    struct tensor *x = input(graph, fixture, "x"), *weight = input(graph, fixture, "weight");
    struct head_loss_grad_attributes attributes = {
        .dx = true,
        .dweight = true,
        .softcap = json_number_value(json_object_get(fixture->attributes, "softcap")),
    };
    struct tensor *in[OP_INPUTS_MAX] = {x, weight, input(graph, fixture, "labels")};
    struct tensor *loss = graph_tensor(graph, TENSOR_RESULT, "loss", shape_make(DTYPE_F64, 1, 1, 1, 1));
    struct tensor *out[OP_OUTPUTS_MAX] = {loss, gradient(graph, x), gradient(graph, weight)};
    add(graph, &op_head_loss_grad, &attributes, in, out);
}

static struct tensor *add_load(struct graph *graph, const struct fixture *fixture, struct tensor *logits,
                               struct tensor *targets, struct tensor *previous) {
    struct route_attributes route = {.chosen = (int64_t)attribute(fixture, "chosen")};
    return ops_expert_load(graph, "load", logits, ops_route(graph, "route", logits, targets, route), targets, previous);
}

static void add_load_gradient(struct graph *graph, struct tensor *dload, struct tensor *logits,
                              struct tensor *targets) {
    add(graph, &op_expert_load_grad, NULL, (struct tensor *[OP_INPUTS_MAX]){dload, logits, targets},
        (struct tensor *[OP_OUTPUTS_MAX]){gradient(graph, logits)});
}

static void build_load_balancing(struct graph *graph, const struct fixture *fixture) {
    struct tensor *x = input(graph, fixture, "x"), *x2 = input(graph, fixture, "x2");
    struct tensor *targets = input(graph, fixture, "targets");
    struct tensor *load = add_load(graph, fixture, x2, targets, add_load(graph, fixture, x, targets, NULL));
    struct shape shape = shape_make(DTYPE_F32, 3, graph->micro_batch_sequences, graph->sequence_length, 1);
    struct tensor *y = graph_tensor(graph, TENSOR_ACTIVATION, "log_probability", shape);
    struct balance_grad_attributes attributes = {
        .balance = {.coefficient = attribute(fixture, "coefficient"), .layers = 2}, .dload = true};
    struct tensor *dload = graph_tensor(graph, TENSOR_ACTIVATION, "dload", load->shape);
    struct tensor *loss = graph_tensor(graph, TENSOR_RESULT, "loss", shape_make(DTYPE_F64, 1, 1, 1, 1));
    add(graph, &op_balanced_loss_grad, &attributes, (struct tensor *[OP_INPUTS_MAX]){y, targets, load},
        (struct tensor *[OP_OUTPUTS_MAX]){loss, gradient(graph, y), dload});
    add_load_gradient(graph, dload, x, targets);
    add_load_gradient(graph, dload, x2, targets);
}

static const struct {
    const char *kind;
    void (*build)(struct graph *graph, const struct fixture *fixture);
} builders[] = {{"rmsnorm", build_norm},
                {"rmsnorm_one_plus", build_norm},
                {"layernorm", build_norm},
                {"rope", build_rope},
                {"rope_partial", build_rope},
                {"attention", build_attention},
                {"swiglu", build_swiglu},
                {"embedding", build_embedding},
                {"linear", build_linear},
                {"conv1d", build_linear},
                {"linear_cross_entropy", build_loss},
                {"load_balancing", build_load_balancing},
#define ACTIVATION_BUILDER(name, text, ...) {text, build_activation},
                ACTIVATION_LIST(ACTIVATION_BUILDER)
#undef ACTIVATION_BUILDER
};

static void build(struct graph *graph, const struct fixture *fixture) {
    graph_begin_block(graph, "case");
    for (unsigned i = 0; i < sizeof builders / sizeof *builders; i++)
        if (strcmp(builders[i].kind, fixture->kind) == 0) {
            builders[i].build(graph, fixture);
            return;
        }
    fail_msg("%s: no test for the operator %s", fixture->name, fixture->kind);
}

/* The file has a case for each builder, and so for each activation function. */
static void require_all_kinds(json_t *cases) {
    for (unsigned i = 0; i < sizeof builders / sizeof *builders; i++) {
        const char *name;
        json_t *about;
        bool found = false;
        json_object_foreach(cases, name, about) {
            const char *kind = json_string_value(json_object_get(about, "operator"));
            found |= kind && strcmp(kind, builders[i].kind) == 0;
        }
        if (!found) fail_msg("no case of %s (tests/reference/op_cases.py)", builders[i].kind);
    }
}

/* Sequences and their length, from any input of the case that tells: the first of these names. */
static struct graph *graph_of(const struct fixture *fixture, enum dtype dtype) {
    const char *const names[] = {"x", "q", "gate", "ids"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const struct safetensors_tensor *tensor = stored(fixture, "in", names[i]);
        if (!tensor) continue;
        bool by_tokens = tensor->rank == 3 || tensor->dtype == SAFETENSORS_I32;
        return by_tokens ? graph_create(dtype, tensor->dims[0], tensor->dims[1])
                         : graph_create(dtype, 1, tensor->dims[0]);
    }
    fail_msg("%s has no inputs", fixture->name);
    return NULL;
}

static double *numbers(const struct fixture *fixture, const struct safetensors_tensor *tensor) {
    double *values = mem_array(tensor->elements, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < tensor->elements; i++) {
        int32_t integer;
        float narrow;
        if (tensor->dtype == SAFETENSORS_I32) {
            assert_int_equal(safetensors_convert(fixture->tensors, tensor, i, 1, DTYPE_I32, &integer), STATUS_OK);
            values[i] = integer;
        } else if (tensor->dtype == SAFETENSORS_F32) {
            assert_int_equal(safetensors_convert(fixture->tensors, tensor, i, 1, DTYPE_F32, &narrow), STATUS_OK);
            values[i] = (double)narrow;
        } else {
            assert_int_equal(safetensors_convert(fixture->tensors, tensor, i, 1, DTYPE_F64, &values[i]), STATUS_OK);
        }
    }
    return values;
}

static void put(struct fixture *fixture, const struct tensor *to, const struct safetensors_tensor *from) {
    assert_int_equal(shape_elements(&to->shape), from->elements);
    double *values = numbers(fixture, from);
    op_instance_write(&fixture->instance, to, values);
    mem_free(values);
}

/* Inputs by name, "dy" from the output's gradient, accumulators and the loss zero. */
static void put_all(struct fixture *fixture) {
    const struct safetensors_tensor *dloss = stored(fixture, "dout", "loss");
    double *scale = dloss ? numbers(fixture, dloss) : NULL;
    if (scale) fixture->instance.scalars[SCALAR_LOSS_SCALE] = scale[0];
    mem_free(scale);
    for (size_t i = 0; i < fixture->instance.graph->tensors.count; i++) {
        const struct tensor *tensor = fixture->instance.graph->tensors.items[i];
        bool is_dy = strcmp(tensor->name, "dy") == 0;
        const struct safetensors_tensor *from =
            is_dy ? stored(fixture, "dout", "y") : stored(fixture, "in", tensor->name);
        if (from) put(fixture, tensor, from);
        if (tensor->kind == TENSOR_GRADIENT || tensor->kind == TENSOR_RESULT)
            memset(fixture->instance.data[i], 0, (size_t)shape_bytes(&tensor->shape));
    }
}

static double relative_error(const double *found, const double *expected, size_t count) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

/* Compares every tensor of the graph that the file holds as an output or a gradient; returns how many. */
static int compare(const struct fixture *fixture, double tolerance) {
    int compared = 0;
    for (size_t i = 0; i < fixture->instance.graph->tensors.count; i++) {
        const struct tensor *tensor = fixture->instance.graph->tensors.items[i];
        bool is_gradient = strncmp(tensor->name, "d.", 2) == 0;
        const struct safetensors_tensor *expected =
            is_gradient ? stored(fixture, "din", tensor->name + 2) : stored(fixture, "out", tensor->name);
        if (!expected) continue;
        double *values = numbers(fixture, expected), *found = op_instance_read(&fixture->instance, tensor);
        double error = relative_error(found, values, expected->elements);
        if (!(error < tolerance))
            fail_msg("%s in %s: %s is off by %.2e, more than %.0e", fixture->name,
                     dtype_name(fixture->instance.graph->dtype), tensor->name, error, tolerance);
        mem_free(values);
        mem_free(found);
        compared++;
    }
    return compared;
}

static int results_of(const struct fixture *fixture) {
    int count = 0;
    for (size_t i = 0; i < fixture->tensors->tensors.count; i++) {
        const char *name = fixture->tensors->tensors.items[i].name;
        size_t length = strlen(fixture->name);
        if (strncmp(name, fixture->name, length) != 0) continue;
        count += strncmp(name + length, ".out.", 5) == 0 || strncmp(name + length, ".din.", 5) == 0;
    }
    return count;
}

static void check(struct fixture *fixture, enum dtype dtype, double tolerance) {
    struct graph *graph = graph_of(fixture, dtype);
    build(graph, fixture);
    if (op_instance_create(graph, &fixture->instance) != STATUS_OK) fail_msg("%s: %s", fixture->name, status_message());
    put_all(fixture);
    op_instance_run_all(&fixture->instance);
    assert_int_equal(compare(fixture, tolerance), results_of(fixture));
    op_instance_free(&fixture->instance);
}

/* Cases where rounding the inputs to bf16 alone moves the result by more than the bound: large scores and logits, and a
 * mean far from zero. */
static bool is_ill_conditioned(const char *name) { return strstr(name, "_steep") || strstr(name, "_offset"); }

static void check_all(enum dtype dtype, double tolerance) {
    struct safetensors *tensors;
    json_t *cases = NULL;
    if (safetensors_open(BALLAST_FIXTURES "/ops/ops.safetensors", &tensors) != STATUS_OK ||
        json_read_object(BALLAST_FIXTURES "/ops/ops.json", 1 << 20, &cases) != STATUS_OK)
        fail_msg("%s", status_message());
    require_all_kinds(cases);
    const char *name;
    json_t *about;
    int count = 0;
    json_object_foreach(cases, name, about) {
        if (!unit_part(name) || (dtype == DTYPE_BF16 && is_ill_conditioned(name))) continue;
        struct fixture fixture = {.name = name, .tensors = tensors};
        fixture.kind = json_string_value(json_object_get(about, "operator"));
        fixture.attributes = json_object_get(about, "attributes");
        check(&fixture, dtype, tolerance);
        count++;
    }
    assert_true(count >= 20 || getenv("BALLAST_TEST_PART"));
    json_decref(cases);
    safetensors_close(tensors);
}

static void fp32_kernels_are_as_pytorch(void **state) {
    (void)state;
    check_all(DTYPE_F32, 1e-5);
}

static void bf16_kernels_are_as_pytorch(void **state) {
    (void)state;
    check_all(DTYPE_BF16, 1e-2);
}

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) unit_skip_all("%s", why);
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp32_kernels_are_as_pytorch),
                                       cmocka_unit_test(bf16_kernels_are_as_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
