#include "model/model_build.h"

#include <string.h>

struct tensor *build_input(struct builder *builder, const char *name) {
    struct graph *graph = builder->graph;
    return graph_tensor(graph, TENSOR_INPUT, name,
                        shape_make(DTYPE_I32, 2, graph->grain_sequences, graph->sequence_length, 1));
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

struct tensor *build_layer_parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1, bool wanted) {
    if (!wanted) return NULL;
    return parameter(
        builder,
        graph_format(builder->graph, "%s%s.%lld.%s", builder->prefix, builder->layers, (long long)builder->layer, name),
        d0, d1);
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
                               struct attention_attributes attributes) {
    return ops_attention(builder->graph, build_node_name(builder, "attention"), q, k, v, builder->segments, attributes);
}

const char *build_node_name(struct builder *builder, const char *name) {
    return graph_format(builder->graph, "layer.%lld.%s", (long long)builder->layer, name);
}

void build_begin_layer(struct builder *builder) {
    graph_begin_block(builder->graph, graph_format(builder->graph, "layer %lld", (long long)builder->layer));
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
    return ops_head_loss(graph, "head", x, weight, build_input(builder, "targets"), NULL, attributes);
}

bool name_ends(const char *name, const char *end) {
    size_t length = strlen(name), wanted = strlen(end);
    return length >= wanted && strcmp(name + length - wanted, end) == 0;
}
