/* OLMo 2 (Walsh et al., arXiv 2501.00656): Llama whose norms follow attention and MLP, and whose queries and keys are
 * normalised over all heads, as transformers' Olmo2ForCausalLM computes it. */
#include "model/model_decoder.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"Olmo2ForCausalLM\", \"Olmo2Model\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_OPTIONAL,
    KEY_BOOL("attention_bias", attention_bias),
    {0},
};

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->rope.theta = 5e5;
}

/* What transformers assumes where keys are missing. */
static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {.family = &family_olmo2};
    decoder_set_defaults(&config);
    config.norm_epsilon = 1e-5;
    TRY(decoder_read_config(file, object, &config));
    *out = config;
    return STATUS_OK;
}

static struct tensor *attention(struct builder *builder, struct tensor *x, struct tensor *table) {
    const struct model_config *config = builder->config;
    struct decoder_heads heads = decoder_project(builder, x, config->attention_bias);
    heads.q = decoder_norm(builder, "self_attn.q_norm", heads.q, config->heads * config->head_dim);
    heads.k = decoder_norm(builder, "self_attn.k_norm", heads.k, config->kv_heads * config->head_dim);
    return decoder_attention(builder, heads, table, config->attention_bias, NULL);
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    int64_t hidden = builder->config->hidden;
    struct tensor *part = attention(builder, x, table);
    x = decoder_add(builder, "attention.add", x, decoder_norm(builder, "post_attention_layernorm", part, hidden));
    part = decoder_mlp(builder, x, false, NULL);
    return decoder_add(builder, "mlp.add", x, decoder_norm(builder, "post_feedforward_layernorm", part, hidden));
}

const struct model_family family_olmo2 = {
    .name = "olmo2",
    .models = "OLMo 2",
    .ffn = {8, 3, 256}, /* 11008 at a hidden size of 4096 */
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = decoder_write_config,
};
