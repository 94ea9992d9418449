/* Llama (Touvron et al., arXiv 2302.13971; grouped queries: 2307.09288; llama3 rope: 2407.21783), as transformers'
 * LlamaForCausalLM computes it. */
#include <math.h>

#include "model/model_build.h"
#include "model/model_config.h"
#include "model/model_families.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"LlamaForCausalLM\", \"LlamaModel\"]"),
    KEY_SIZE("vocab_size", vocab_size, CONFIG_MOST_VOCAB),
    KEY_SIZE("max_position_embeddings", context, CONFIG_MOST_CONTEXT),
    KEY_SIZE("hidden_size", hidden, CONFIG_MOST_WIDTH),
    KEY_SIZE("intermediate_size", ffn, CONFIG_MOST_WIDTH),
    KEY_SIZE("num_hidden_layers", layers, CONFIG_MOST_LAYERS),
    KEY_SIZE("num_attention_heads", heads, CONFIG_MOST_HEADS),
    KEY_OPTIONAL_SIZE("num_key_value_heads", kv_heads, CONFIG_MOST_HEADS),
    KEY_OPTIONAL_SIZE("head_dim", head_dim, CONFIG_MOST_HEADS),
    KEY_ACTIVATION("hidden_act", activation),
    KEY_DOUBLE("rms_norm_eps", norm_epsilon, 0, 1),
    KEY_DOUBLE("initializer_range", initial_range, 0, 100),
    KEY_BOOL("tie_word_embeddings", tied),
    KEY_BOOL("attention_bias", attention_bias),
    KEY_BOOL("mlp_bias", mlp_bias),
    KEY_DROPOUT("attention_dropout"),
    KEY_ELSEWHERE("rope_parameters"),
    KEY_ELSEWHERE("rope_theta"),
    KEY_ELSEWHERE("rope_scaling"),
    KEY_FIXED("pretraining_tp", "1"),
    KEY_FIXED("rope_interleaved", "false"),
    KEY_IGNORED("is_llama_config"), /* a mark in some models' files */
    {0},
};

static void set_defaults(struct model_config *config) {
    config->activation = ACTIVATION_SILU;
    config->norm_epsilon = 1e-5;
    config->initial_range = 0.02;
    config->scale_attention = true;
    config->rope.theta = 10000;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {.family = &family_llama};
    set_defaults(&config);
    config.norm_epsilon = 1e-6; /* what transformers assumes where the key is missing */
    TRY(config_read_keys(file, object, keys, &config));
    TRY(config_complete(file, keys, &config));
    TRY(config_read_rope(file, object, &config.rope));
    if (config.head_dim % 2 != 0)
        return status_set(STATUS_BAD_INPUT, "%s: head_dim: %lld is odd; rotary embeddings turn pairs", file,
                          (long long)config.head_dim);
    config.rope.head_dim = config.head_dim;
    *out = config;
    return STATUS_OK;
}

/* Two thirds of 4 x hidden, up to a multiple of 256, as in the authors' code. */
static int64_t default_ffn(int64_t hidden) {
    if (hidden > (int64_t)CONFIG_MOST_WIDTH) return hidden; /* refused later; must not overflow here */
    return (8 * hidden / 3 + 255) / 256 * 256;
}

static json_t *write_config(const struct model_config *config) {
    struct model_config written = *config;
    if (written.ffn == 0) written.ffn = default_ffn(written.hidden);
    if (written.kv_heads == 0) written.kv_heads = written.heads;
    if (written.head_dim == 0 && written.heads > 0) written.head_dim = written.hidden / written.heads;
    json_t *object = config_write_keys(&written, keys);
    if (object && !config_write_rope(&written.rope, object)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* y = W x [+ bias] [+ residual] with the layer's `name`, whose weight is [out, in]. */
static struct tensor *linear(struct builder *builder, const char *name, struct tensor *x, int64_t in, int64_t out,
                             bool has_bias, struct tensor *residual) {
    struct graph *graph = builder->graph;
    struct tensor *weight =
        build_layer_parameter(builder, "layers", graph_format(graph, "%s.weight", name), out, in, true);
    struct tensor *bias =
        build_layer_parameter(builder, "layers", graph_format(graph, "%s.bias", name), out, 0, has_bias);
    return ops_linear(graph, build_node_name(builder, name), x, weight, bias, residual, (struct linear_attributes){0});
}

static struct tensor *rms_norm(struct builder *builder, const char *name, struct tensor *x) {
    struct tensor *weight = build_layer_parameter(builder, "layers", graph_format(builder->graph, "%s.weight", name),
                                                  builder->config->hidden, 0, true);
    return ops_rms_norm(builder->graph, build_node_name(builder, name), x, weight, builder->config->norm_epsilon);
}

static struct tensor *attention(struct builder *builder, struct tensor *x, struct tensor *table) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    int64_t width = config->heads * config->head_dim, kv_width = config->kv_heads * config->head_dim;
    bool bias = config->attention_bias;
    struct tensor *normed = rms_norm(builder, "input_layernorm", x);
    struct tensor *q = linear(builder, "self_attn.q_proj", normed, config->hidden, width, bias, NULL);
    struct tensor *k = linear(builder, "self_attn.k_proj", normed, config->hidden, kv_width, bias, NULL);
    struct tensor *v = linear(builder, "self_attn.v_proj", normed, config->hidden, kv_width, bias, NULL);
    q = ops_rope(graph, build_node_name(builder, "rope.q"), q, table, config->heads, config->head_dim);
    k = ops_rope(graph, build_node_name(builder, "rope.k"), k, table, config->kv_heads, config->head_dim);
    struct attention_attributes attributes = {
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .scale = 1 / sqrt((double)config->head_dim),
    };
    struct tensor *mixed =
        ops_attention(graph, build_node_name(builder, "attention"), q, k, v, builder->segments, attributes);
    return linear(builder, "self_attn.o_proj", mixed, width, config->hidden, bias, x);
}

static struct tensor *mlp(struct builder *builder, struct tensor *x) {
    const struct model_config *config = builder->config;
    int64_t hidden = config->hidden, ffn = config->ffn;
    struct tensor *normed = rms_norm(builder, "post_attention_layernorm", x);
    struct tensor *gate = linear(builder, "mlp.gate_proj", normed, hidden, ffn, config->mlp_bias, NULL);
    struct tensor *up = linear(builder, "mlp.up_proj", normed, hidden, ffn, config->mlp_bias, NULL);
    struct tensor *active =
        ops_gated_activation(builder->graph, build_node_name(builder, "mlp.act"), gate, up, config->activation);
    return linear(builder, "mlp.down_proj", active, ffn, hidden, config->mlp_bias, x);
}

static struct tensor *build(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                            struct graph *graph) {
    struct builder builder = {.graph = graph, .config = config, .prefix = prefix, .purpose = purpose};
    graph_begin_block(graph, "embedding");
    struct tensor *tokens = build_input(&builder, "tokens"), *positions = build_input(&builder, "positions");
    builder.segments = build_segments(&builder);
    struct tensor *table = ops_rope_table(graph, "rope", positions, config->rope);
    struct tensor *embedding = build_parameter(&builder, "embed_tokens.weight", config->vocab_size, config->hidden);
    struct tensor *x = ops_embedding(graph, "embedding", tokens, embedding);
    for (int64_t layer = 0; layer < config->layers; layer++) {
        builder.layer = layer;
        build_begin_layer(&builder);
        x = mlp(&builder, attention(&builder, x, table));
    }
    graph_begin_block(graph, "head");
    struct tensor *weight = build_parameter(&builder, "norm.weight", config->hidden, 0);
    return build_head(&builder, ops_rms_norm(graph, "norm", x, weight, config->norm_epsilon), embedding);
}

static double initial_deviation(const struct model_config *config, const struct tensor *parameter) {
    if (name_ends(parameter->name, ".bias")) return 0;
    return parameter->shape.rank == 1 ? -1 : config->initial_range;
}

static const char *const buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq", NULL};

const struct model_family family_llama = {
    .name = "llama",
    .prefix = "model.",
    .embedding = "embed_tokens.weight",
    .buffers = buffers,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .build = build,
    .write_config = write_config,
    .initial_deviation = initial_deviation,
};
