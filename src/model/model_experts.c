#include "model/model_experts.h"

#include "base/json.h"

void experts_set_defaults(struct model_config *config) {
    config->experts = 8;
    config->experts_per_token = 2;
    config->balance_coefficient = EXPERTS_BALANCE_COEFFICIENT;
}

enum status experts_check_config(const char *file, const struct model_config *config) {
    if (config->experts_per_token <= config->experts) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: num_experts_per_tok: %lld, but there are %lld experts", file,
                      (long long)config->experts_per_token, (long long)config->experts);
}

enum status experts_read_config(const char *file, const json_t *object, struct model_config *config) {
    TRY(decoder_read_config(file, object, config));
    TRY(experts_check_config(file, config));
    bool listed;
    TRY(config_read_layer_types(file, object, config, &listed));
    for (int64_t layer = 0; layer < config->layers; layer++)
        if (config->windowed[layer])
            return status_set(STATUS_BAD_INPUT, "%s: layer_types: must be full_attention in all layers", file);
    return STATUS_OK;
}

json_t *experts_write_config(const struct model_config *config) {
    struct model_config written = *config;
    if (written.expert_ffn == 0) written.expert_ffn = config_ffn(config);
    return decoder_write_config(&written);
}

const struct expert_names expert_names_mlp = {
    .router = "mlp.gate",
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

/* transformers 5 has the experts of a layer in two tensors: gate_up_proj [E,2F,C], of which each expert's gate comes
 * first, and down_proj [E,C,F]. save_pretrained(save_original_format=False) writes these. */
static void fuse(struct builder *builder, const char *name, int64_t expert, int64_t place, int64_t cuts,
                 struct tensor *weight) {
    const struct tensor_stack stack = {.name = build_layer_name(builder, name),
                                       .index = expert * cuts + place,
                                       .count = builder->config->experts * cuts,
                                       .cuts = cuts};
    graph_fuse(builder->graph, weight, stack);
}

static struct tensor *weight_of(struct builder *builder, const struct expert_names *names, int64_t expert,
                                const char *part, int64_t out, int64_t in) {
    const char *name = graph_format(builder->graph, "%s.%lld.%s.weight", names->experts, (long long)expert, part);
    return build_layer_matrix(builder, name, out, in);
}

static struct expert_weights weights_of(struct builder *builder, const struct expert_names *names, int64_t expert,
                                        int64_t ffn) {
    int64_t hidden = builder->config->hidden;
    const struct expert_weights weights = {.gate = weight_of(builder, names, expert, names->gate, ffn, hidden),
                                           .up = weight_of(builder, names, expert, names->up, ffn, hidden),
                                           .down = weight_of(builder, names, expert, names->down, hidden, ffn)};
    fuse(builder, "mlp.experts.gate_up_proj", expert, 0, 2, weights.gate);
    fuse(builder, "mlp.experts.gate_up_proj", expert, 1, 2, weights.up);
    fuse(builder, "mlp.experts.down_proj", expert, 0, 1, weights.down);
    return weights;
}

struct routing experts_route(struct builder *builder, const struct expert_names *names, struct tensor *normed) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    struct tensor *weight = build_layer_parameter(builder, graph_format(graph, "%s.weight", names->router),
                                                  config->experts, config->hidden, true);
    if (names->fused_router) {
        const char *name = build_layer_name(builder, graph_format(graph, "%s.weight", names->fused_router));
        graph_fuse(graph, weight, (struct tensor_stack){.name = name});
    }
    struct tensor *bias = build_layer_parameter(builder, graph_format(graph, "%s.bias", names->router), config->experts,
                                                0, names->router_bias);
    struct tensor *logits = ops_linear(graph, build_node_name(builder, names->router), normed, weight, bias, NULL,
                                       (struct linear_attributes){.weight_is_kn = false});
    struct tensor *targets = build_targets(builder);
    struct routing routing = ops_route(graph, build_node_name(builder, "mlp.route"), logits, targets,
                                       (struct route_attributes){config->experts_per_token, config->normalise_experts});
    bool loss = builder->purpose == MODEL_LOSS || builder->purpose == MODEL_LOSS_SEGMENTED;
    if (loss && config->balances_experts && config->balance_coefficient > 0)
        builder->load =
            ops_expert_load(graph, build_node_name(builder, "mlp.load"), logits, routing, targets, builder->load);
    return routing;
}

struct tensor *experts_mlp(struct builder *builder, const struct expert_names *names, struct tensor *normed,
                           struct tensor *residual) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    int64_t ffn = config->expert_ffn > 0 ? config->expert_ffn : config->ffn;
    struct routing routing = experts_route(builder, names, normed);
    struct dispatch_attributes all = {.experts = config->experts, .features = ffn};
    struct tensor *rows = ops_dispatch(graph, build_node_name(builder, "mlp.dispatch"), normed, routing, all);
    struct tensor *result = NULL;
    struct expert_attributes attributes = {
        .experts = config->experts,
        .slots = graph->micro_batch_sequences * graph->sequence_length * config->experts_per_token,
        .function = config->activation,
    };
    for (; attributes.expert < config->experts; attributes.expert++) {
        const struct expert_weights weights = weights_of(builder, names, attributes.expert, ffn);
        const char *name = graph_format(graph, "mlp.experts.%lld", (long long)attributes.expert);
        result = ops_expert_mlp(graph, build_node_name(builder, name), rows, routing, &weights, result, attributes);
    }
    return ops_combine(graph, build_node_name(builder, "mlp.combine"), result, routing, residual, all);
}
