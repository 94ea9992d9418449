/* gpt-oss (OpenAI, arXiv 2508.10925), as in transformers' GptOssForCausalLM: experts with clamped gates in place of the
 * MLP, a sink in each head of attention, windows in every second layer. Files have the experts of a layer as one
 * tensor, in bf16 or in MXFP4. Here each expert's part of it is a parameter (ir/tensor.h, stack). */

#include "base/json.h"
#include "model/families/builder.h"

/* transformers' defaults for missing keys. */
enum { HEAD_DIM = 64, KV_HEADS = 8, EXPERTS = 128, EXPERTS_OF_TOKEN = 4, WINDOW = 128, PATTERN = 2 };
static const double THETA = 150000, ALPHA = 1.702, LIMIT = 7, EPSILON = 1e-5;

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"GptOssForCausalLM\", \"GptOssModel\"]"),
    DECODER_KEYS_BUT_ACTIVATION,
    DECODER_KEY_KV_HEADS_OPTIONAL,
    KEY_BOOL("attention_bias", attention_bias),
    EXPERT_KEYS("num_local_experts"),
    KEYS_LISTED_WINDOWS,
    KEY_DOUBLE("swiglu_alpha", glu_alpha, 1e-6, 1e6),
    KEY_DOUBLE("swiglu_limit", glu_limit, 1e-6, 1e6),
    KEY_FIXED("hidden_act", "\"silu\""),
    /* for the authors' own code; also in rope_scaling, and as num_experts_per_tok */
    KEYS_IGNORED("initial_context_length", "experts_per_token"),
    {0},
};

static void set_common(struct model_config *config) {
    decoder_set_defaults(config);
    config->norm_epsilon = EPSILON;
    config->attention_bias = true;
    config->normalise_experts = true; /* a softmax over the chosen experts' logits is the softmax over all,
                                       * normalized */
    config->balance_coefficient = EXPERTS_BALANCE_COEFFICIENT;
    config->window = WINDOW;
    config->glu_alpha = ALPHA;
    config->glu_limit = LIMIT;
    config->rope.theta = THETA;
}

/* Defaults for a config without rotary settings. */
static void set_rope(struct rope_table_attributes *rope) {
    rope->scaling = ROPE_SCALING_YARN;
    rope->factor = 32;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    rope->original_context = 4096;
    rope->untruncated = true;
}

static void set_defaults(struct model_config *config) {
    experts_set_defaults(config);
    set_common(config);
    for (int64_t layer = 0; layer < MODEL_LAYERS_MAX; layer++)
        config->windowed[layer] = (layer + 1) % PATTERN != 0;
    set_rope(&config->rope);
}

static void set_assumed(struct model_config *config) {
    set_common(config);
    config->kv_heads = KV_HEADS;
    config->head_dim = HEAD_DIM;
    config->experts = EXPERTS;
    config->experts_per_token = EXPERTS_OF_TOKEN;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *config) {
    TRY(decoder_read_sizes(file, object, config));
    if (!json_present(object, "rope_parameters") && !json_present(object, "rope_scaling")) set_rope(&config->rope);
    return decoder_read_positions(file, object, config);
}

/* A config without scaling is read as YaRN's. */
static json_t *write_config(const struct model_config *config) {
    json_t *object = decoder_write_config(config);
    if (config->rope.scaling != ROPE_SCALING_NONE) return object;
    return config_put(object, "rope_scaling", json_pack("{s:s}", "rope_type", "default"));
}

/* Sinks and the router's bias are initialized like matrices. */
static double initial_deviation(const struct model_config *config, const struct tensor *parameter) {
    const char *name = parameter->name;
    if (name_ends(name, ".sinks") || name_ends(name, ".router.bias")) return config->initial_range;
    if (name_ends(name, "_bias")) return 0;
    return decoder_initial_deviation(config, parameter);
}

/* The current expert's part of the layer's tensor NAME; `d1` 0: a vector. */
static struct tensor *part_of(struct builder *builder, int64_t expert, const char *name, int64_t d0, int64_t d1) {
    struct graph *graph = builder->graph;
    const char *own = graph_format(graph, "mlp.experts.%lld.%s", (long long)expert, name);
    bool is_quantized = d1 > 0 && builder->config->base_format != WEIGHT_PLAIN;
    struct tensor *tensor =
        is_quantized ? build_layer_quantized(builder, own, d1, d0) : build_layer_parameter(builder, own, d0, d1, true);
    graph_stack(graph, tensor, build_layer_name(builder, graph_format(graph, "mlp.experts.%s", name)), expert,
                builder->config->experts);
    return tensor;
}

static struct tensor *add_experts(struct builder *builder, struct tensor *normed, struct tensor *residual) {
    static const struct expert_names names = {.router = "mlp.router", .router_bias = true};
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    int64_t hidden = config->hidden, ffn = config->ffn;
    struct routing routing = experts_route(builder, &names, normed);
    struct dispatch_attributes all = {.experts = config->experts, .features = ffn};
    struct tensor *rows = ops_dispatch(graph, build_node_name(builder, "mlp.dispatch"), normed, routing, all);
    struct tensor *result = NULL;
    struct expert_glu_attributes attributes = {
        .expert = {.experts = config->experts,
                   .slots = graph->micro_batch_sequences * graph->sequence_length * config->experts_per_token},
        .alpha = config->glu_alpha,
        .limit = config->glu_limit,
        .weights_are_kn = config->base_format == WEIGHT_PLAIN};
    for (int64_t e = 0; e < config->experts; e++) {
        attributes.expert.expert = e;
        const struct expert_glu_weights weights = {
            .gate_up = part_of(builder, e, "gate_up_proj", hidden, 2 * ffn),
            .down = part_of(builder, e, "down_proj", ffn, hidden),
            .gate_up_bias = part_of(builder, e, "gate_up_proj_bias", 2 * ffn, 0),
            .down_bias = part_of(builder, e, "down_proj_bias", hidden, 0),
        };
        const char *name = graph_format(graph, "mlp.experts.%lld", (long long)e);
        result = ops_expert_glu(graph, build_node_name(builder, name), rows, routing, &weights, result, attributes);
    }
    return ops_combine(graph, build_node_name(builder, "mlp.combine"), result, routing, residual, all);
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    const struct model_config *config = builder->config;
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, config->hidden);
    struct decoder_heads heads = decoder_project(builder, normed);
    heads.sinks = build_layer_parameter(builder, "self_attn.sinks", config->heads, 0, true);
    x = decoder_attention(builder, heads, table, x);
    normed = decoder_norm(builder, "post_attention_layernorm", x, config->hidden);
    return add_experts(builder, normed, x);
}

const struct model_family family_gpt_oss = {
    .name = "gpt_oss",
    .models = "gpt-oss. Its files' experts in MXFP4 are read as the base of adapters",
    .ffn = {1, 1, 1}, /* 2880 at a hidden size of 2880 */
    .keys = keys,
    .prefix = "model.",
    .embedding = "embed_tokens.weight",
    .buffers = decoder_buffers,
    .build = decoder_build,
    .initial = "normal with deviation 0.02 (`initializer_range`), sinks and the router's bias too; other biases 0, "
               "norm weights 1",
    .initial_deviation = initial_deviation,
    .expert_format = WEIGHT_MXFP4,
    .set_defaults = set_defaults,
    .set_assumed = set_assumed,
    .read_config = read_config,
    .windows = CONFIG_WINDOWS_LISTED,
    .window_pattern = PATTERN,
    .layer = layer,
    .write_config = write_config,
};
