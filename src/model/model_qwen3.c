/* Qwen3 (Yang et al., arXiv 2505.09388): Llama whose queries and keys are normalised by head, as transformers'
 * Qwen3ForCausalLM computes it. */
#include "model/model_decoder.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"Qwen3ForCausalLM\", \"Qwen3Model\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEYS_LAYER_WINDOWS,
    KEY_BOOL("attention_bias", attention_bias),
    {0},
};

enum { HEAD_DIM = 128 }; /* what transformers assumes where the key is missing, whatever the hidden size */

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->rope.theta = 1e6;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {.family = &family_qwen3, .head_dim = HEAD_DIM};
    decoder_set_defaults(&config);
    TRY(decoder_read_config(file, object, &config));
    TRY(config_read_layer_windows(file, object, &config));
    *out = config;
    return STATUS_OK;
}

static json_t *write_config(const struct model_config *config) {
    return config_write_layer_windows(config, decoder_write_config(config));
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    const struct model_config *config = builder->config;
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, config->hidden);
    struct decoder_heads heads = decoder_project(builder, normed, config->attention_bias);
    heads.q = decoder_norm(builder, "self_attn.q_norm", heads.q, config->head_dim);
    heads.k = decoder_norm(builder, "self_attn.k_norm", heads.k, config->head_dim);
    x = decoder_attention(builder, heads, table, config->attention_bias, x);
    return decoder_normed_mlp(builder, x, false);
}

const struct model_family family_qwen3 = {
    .name = "qwen3",
    .models = "Qwen3 (dense, text)",
    .ffn = {3, 1, 1}, /* as in the models of 0.6B, 1.7B and 8B */
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = write_config,
};
