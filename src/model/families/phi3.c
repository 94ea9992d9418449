/* Phi-3 (Abdin et al., arXiv 2404.14219): Llama with one projection for queries, keys and values and one for gate and
 * up, as transformers' Phi3ForCausalLM computes it. */
#include "base/json.h"
#include "model/families/builder.h"

static const char original_context[] = "original_max_position_embeddings";

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"Phi3ForCausalLM\", \"Phi3Model\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_OPTIONAL,
    KEYS_WINDOW,
    KEY_DROPOUT("resid_pdrop"),
    KEY_DROPOUT("embd_pdrop"),
    KEY_FIXED("attention_bias", "false"),
    KEY_FIXED("lm_head_bias", "false"),
    KEY_FIXED("mlp_bias", "false"),
    KEY_ELSEWHERE("partial_rotary_factor"),
    KEY_ELSEWHERE(original_context),
    KEY_FIXED("full_attn_mod", "1"),
    KEY_FIXED("interpolate_factor", "1"),
    KEYS_IGNORED("auto_map"), /* path of the authors' own code */
    {0},
};

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->norm_epsilon = 1e-5; /* transformers' default if the key is missing */
    config->rope.partial = 1;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *config) {
    int64_t context = 4096;
    TRY(decoder_read_sizes(file, object, config));
    TRY(config_read_partial_rope(file, object, &config->rope));
    TRY(config_read_rope(file, object, &config->rope));
    /* The key next to rope_scaling counts, not the one in it. */
    TRY(json_read_int(file, object, original_context, 2, (int64_t)CONFIG_CONTEXT_MAX, &context));
    if (config->rope.scaling == ROPE_SCALING_LONGROPE) config->rope.original_context = (double)context;
    TRY(config_complete_rope(file, config, &config->rope));
    TRY(config_read_windows(file, object, CONFIG_WINDOWS_ALL, 0, config));
    if (config->rope.scaling != ROPE_SCALING_NONE && config->rope.scaling != ROPE_SCALING_LONGROPE)
        return status_set(STATUS_BAD_INPUT,
                          "%s: rope_type: only default and longrope are supported for models of type phi3", file);
    return STATUS_OK;
}

static json_t *write_config(const struct model_config *config) {
    json_t *object = decoder_write_config(config);
    json_int_t context = (json_int_t)config->rope.original_context;
    return context == 0 ? object : config_put(object, original_context, json_integer(context));
}

static struct decoder_heads project(struct builder *builder, struct tensor *normed) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    int64_t width = config->heads * config->head_dim, kv_width = config->kv_heads * config->head_dim;
    struct tensor *qkv =
        build_layer_linear(builder, "self_attn.qkv_proj", normed, config->hidden, width + 2 * kv_width, false, NULL);
    return (struct decoder_heads){
        .q = graph_view(graph, qkv, 0, width),
        .k = graph_view(graph, qkv, width, kv_width),
        .v = graph_view(graph, qkv, width + kv_width, kv_width),
    };
}

static struct tensor *mlp(struct builder *builder, struct tensor *x) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    int64_t hidden = config->hidden, ffn = config->ffn;
    struct tensor *normed = decoder_norm(builder, "post_attention_layernorm", x, hidden);
    struct tensor *both = build_layer_linear(builder, "mlp.gate_up_proj", normed, hidden, 2 * ffn, false, NULL);
    struct tensor *active =
        ops_gated_activation(graph, build_node_name(builder, "mlp.act"), graph_view(graph, both, 0, ffn),
                             graph_view(graph, both, ffn, ffn), config->activation);
    return build_layer_linear(builder, "mlp.down_proj", active, ffn, hidden, false, x);
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, builder->config->hidden);
    return mlp(builder, decoder_attention(builder, project(builder, normed), table, x));
}

const struct model_family family_phi3 = {
    .name = "phi3",
    .models = "Phi-3, Phi-3.5 and Phi-4, mini and larger (dense, text). A program takes the long factors of longrope "
              "where its sequences, or its caches, are longer than `original_max_position_embeddings`",
    .ffn = {8, 3, 256}, /* 8192 at a hidden size of 3072 */
    .keys = keys,
    DECODER_FAMILY_BUT_CONFIG,
    .set_defaults = set_defaults,
    .set_assumed = set_defaults,
    .read_config = read_config,
    .windows = CONFIG_WINDOWS_ALL,
    .layer = layer,
    .write_config = write_config,
};
