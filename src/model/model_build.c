#include "model/model_build.h"

#include <string.h>

#include "model/plain_layers.h"

struct tensor *build_input(struct builder *builder, const char *name) {
    struct graph *graph = builder->graph;
    return graph_tensor(graph, TENSOR_INPUT, name,
                        shape_make(DTYPE_I32, 2, graph->micro_batch_sequences, graph->sequence_length, 1));
}

struct tensor *build_targets(struct builder *builder) {
    bool has_targets = builder->purpose != MODEL_LOGITS && builder->purpose != MODEL_DECODE;
    if (!builder->targets && has_targets) builder->targets = build_input(builder, "targets");
    return builder->targets;
}

struct tensor *build_segments(struct builder *builder) {
    return builder->purpose == MODEL_LOSS_SEGMENTED ? build_input(builder, "segments") : NULL;
}

static struct tensor *parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1) {
    return d1 == 0 ? graph_parameter(builder->graph, name, 1, d0, 1) : graph_parameter(builder->graph, name, 2, d0, d1);
}

struct tensor *build_parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1) {
    return parameter(builder, graph_format(builder->graph, "%s%s", builder->prefix, name), d0, d1);
}

const char *build_layer_name(struct builder *builder, const char *name) {
    return graph_format(builder->graph, "%s%s.%lld.%s", builder->prefix, builder->layers, (long long)builder->layer,
                        name);
}

struct tensor *build_layer_parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1, bool wanted) {
    return wanted ? parameter(builder, build_layer_name(builder, name), d0, d1) : NULL;
}

static struct tensor *quantized(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    const struct weight_code code = {builder->config->base_format, shape_make(DTYPE_F32, 2, rows, columns, 1),
                                     builder->config->base_block};
    return graph_quantized_parameter(builder->graph, name, &code);
}

static struct tensor *matrix(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    const struct model_config *config = builder->config;
    if (config->base_format == WEIGHT_PLAIN || config->family->expert_format != WEIGHT_PLAIN ||
        (name && plain_layers_have(config->plain_layers, name)))
        return parameter(builder, name, rows, columns);
    return quantized(builder, name, rows, columns);
}

struct tensor *build_matrix(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    return matrix(builder, graph_format(builder->graph, "%s%s", builder->prefix, name), rows, columns);
}

struct tensor *build_layer_matrix(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    return matrix(builder, build_layer_name(builder, name), rows, columns);
}

struct tensor *build_layer_quantized(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    return quantized(builder, build_layer_name(builder, name), rows, columns);
}

struct tensor *build_layer_linear(struct builder *builder, const char *name, struct tensor *x, int64_t in, int64_t out,
                                  bool has_bias, struct tensor *residual) {
    struct linear_sizes sizes = {.in = in, .out = out, .has_bias = has_bias};
    return build_layer_linear_of(builder, name, x, &sizes, residual);
}

struct tensor *build_layer_linear_of(struct builder *builder, const char *name, struct tensor *x,
                                     const struct linear_sizes *sizes, struct tensor *residual) {
    const char *full = graph_format(builder->graph, "%s.%lld.%s", builder->layers, (long long)builder->layer, name);
    return build_linear(builder, full, build_node_name(builder, name), x, sizes, residual);
}

struct tensor *build_layer_norm(struct builder *builder, const char *name, struct tensor *x) {
    struct graph *graph = builder->graph;
    int64_t hidden = builder->config->hidden;
    struct tensor *weight = build_layer_parameter(builder, graph_format(graph, "%s.weight", name), hidden, 0, true);
    struct tensor *bias = build_layer_parameter(builder, graph_format(graph, "%s.bias", name), hidden, 0, true);
    return ops_layer_norm(graph, build_node_name(builder, name), x, weight, bias, builder->config->norm_epsilon);
}

struct tensor *build_attention(struct builder *builder, struct tensor *q, struct tensor *k, struct tensor *v,
                               struct tensor *sinks, struct attention_attributes attributes) {
    return ops_attention(builder->graph, build_node_name(builder, "attention"), q, k, v, builder->segments, sinks,
                         attributes);
}

const char *build_node_name(struct builder *builder, const char *name) {
    return graph_format(builder->graph, "layer.%lld.%s", (long long)builder->layer, name);
}

void build_begin_layer(struct builder *builder) {
    graph_begin_block(builder->graph, graph_format(builder->graph, "layer %lld", (long long)builder->layer));
}

/* Of log-probabilities: the loss is theirs and the experts'. */
static struct tensor *balanced_head(struct builder *builder, struct tensor *x, struct tensor *weight,
                                    struct tensor *targets) {
    struct graph *graph = builder->graph;
    const struct model_config *config = builder->config;
    struct tensor *y = ops_head_log_probability(graph, "head", x, weight, targets, NULL,
                                                (struct head_attributes){.softcap = config->logits_softcap});
    struct balance_attributes attributes = {.coefficient = config->balance_coefficient, .layers = config->layers};
    return ops_balanced_loss(graph, "loss", y, targets, builder->load, attributes);
}

struct tensor *build_head(struct builder *builder, struct tensor *x, struct tensor *embedding) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    struct tensor *weight = embedding;
    if (!config->tied) weight = parameter(builder, "lm_head.weight", config->vocab_size, config->embedding_width);
    struct head_attributes attributes = {.softcap = config->logits_softcap};
    if (builder->purpose == MODEL_DECODE) x = ops_last_token(graph, "last", x);
    if (builder->purpose == MODEL_LOGITS || builder->purpose == MODEL_DECODE)
        return ops_head_logits(graph, "logits", x, weight, NULL, attributes);
    struct tensor *targets = build_targets(builder);
    if (builder->load) return balanced_head(builder, x, weight, targets);
    if (builder->purpose == MODEL_LOG_PROBABILITIES)
        return ops_head_log_probability(graph, "head", x, weight, targets, NULL, attributes);
    return ops_head_loss(graph, "head", x, weight, targets, NULL, attributes);
}

bool name_ends(const char *name, const char *end) {
    size_t length = strlen(name), wanted = strlen(end);
    return length >= wanted && strcmp(name + length - wanted, end) == 0;
}
