/* OLMoE (Muennighoff et al., arXiv 2409.02060): Llama with experts in place of the MLP, whose queries and keys are
 * normalised over all heads, as transformers' OlmoeForCausalLM computes it. */
#include "model/model_experts.h"

#define BALANCE_COEFFICIENT 0.01

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"OlmoeForCausalLM\", \"OlmoeModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_OPTIONAL,
    KEY_BOOL("attention_bias", attention_bias),
    EXPERT_KEYS("num_experts"),
    EXPERT_KEY_NORMALISED,
    KEY_FIXED("clip_qkv", "null"),
    {0},
};

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    experts_set_defaults(config);
    config->balance_coefficient = BALANCE_COEFFICIENT;
    config->norm_epsilon = 1e-5;
}

/* What transformers assumes where keys are missing. */
static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {
        .family = &family_olmoe, .experts = 64, .experts_per_token = 8, .balance_coefficient = BALANCE_COEFFICIENT};
    decoder_set_defaults(&config);
    config.norm_epsilon = 1e-5;
    TRY(experts_read_config(file, object, &config));
    if (config.heads * config.head_dim != config.hidden)
        return status_set(STATUS_BAD_INPUT, "%s: head_dim: must be hidden_size / num_attention_heads", file);
    *out = config;
    return STATUS_OK;
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    const struct model_config *config = builder->config;
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, config->hidden);
    struct decoder_heads heads = decoder_project(builder, normed, config->attention_bias);
    heads.q = decoder_norm(builder, "self_attn.q_norm", heads.q, config->heads * config->head_dim);
    heads.k = decoder_norm(builder, "self_attn.k_norm", heads.k, config->kv_heads * config->head_dim);
    x = decoder_attention(builder, heads, table, config->attention_bias, x);
    normed = decoder_norm(builder, "post_attention_layernorm", x, config->hidden);
    return experts_mlp(builder, &expert_names_mlp, normed, x);
}

const struct model_family family_olmoe = {
    .name = "olmoe",
    .models = "OLMoE",
    .ffn = {1, 1, 1}, /* 2048 at a hidden size of 2048 */
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = decoder_write_config,
};
