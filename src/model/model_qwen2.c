/* Qwen2 and Qwen2.5 (Yang et al., arXiv 2407.10671 and 2412.15115): Llama with biases on queries, keys and values, as
 * transformers' Qwen2ForCausalLM computes it. */
#include "model/model_decoder.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"Qwen2ForCausalLM\", \"Qwen2Model\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEYS_LAYER_WINDOWS,
    KEY_FIXED("use_mrope", "false"), /* positions in images */
    {0},
};

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->attention_bias = true;
    config->rope.theta = 1e6;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {.family = &family_qwen2, .attention_bias = true};
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
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, builder->config->hidden);
    x = decoder_attention(builder, decoder_project(builder, normed, true), table, false, x);
    return decoder_normed_mlp(builder, x, false);
}

const struct model_family family_qwen2 = {
    .name = "qwen2",
    .models = "Qwen2 and Qwen2.5 (dense, text), and models of that form",
    .ffn = {16, 3, 128}, /* 4864 at a hidden size of 896; near those of the larger models */
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = write_config,
};
