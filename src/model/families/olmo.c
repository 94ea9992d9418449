/* OLMo 2 (Walsh et al., arXiv 2501.00656): Llama whose norms follow attention and MLP, and whose queries and keys are
 * normalised over all heads, as transformers' Olmo2ForCausalLM computes it. */
#include "model/families/builder.h"

static const struct config_key olmo2_keys[] = {
    KEY_ARCHITECTURES("[\"Olmo2ForCausalLM\", \"Olmo2Model\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_OPTIONAL,
    KEY_BOOL("attention_bias", attention_bias),
    {0},
};

static void olmo2_set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->rope.theta = 5e5;
}

static void olmo_set_assumed(struct model_config *config) {
    decoder_set_defaults(config);
    config->norm_epsilon = 1e-5;
}

static struct tensor *olmo2_layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    int64_t hidden = builder->config->hidden;
    struct decoder_heads heads = decoder_project(builder, x);
    struct tensor *part = decoder_attention(builder, heads, table, NULL);
    x = decoder_add(builder, "attention.add", x, decoder_norm(builder, "post_attention_layernorm", part, hidden));
    part = decoder_mlp(builder, x, NULL);
    return decoder_add(builder, "mlp.add", x, decoder_norm(builder, "post_feedforward_layernorm", part, hidden));
}

const struct model_family family_olmo2 = {
    .name = "olmo2",
    .models = "OLMo 2",
    .ffn = {8, 3, 256}, /* 11008 at a hidden size of 4096 */
    .keys = olmo2_keys,
    DECODER_FAMILY,
    .set_defaults = olmo2_set_defaults,
    .set_assumed = olmo_set_assumed,
    .heads_norm = HEADS_NORMED_TOGETHER,
    .layer = olmo2_layer,
};

/* OLMoE (Muennighoff et al., arXiv 2409.02060): Llama with experts in place of the MLP, whose queries and keys are
 * normalised over all heads, as transformers' OlmoeForCausalLM computes it. */

#define BALANCE_COEFFICIENT 0.01

static const struct config_key olmoe_keys[] = {
    KEY_ARCHITECTURES("[\"OlmoeForCausalLM\", \"OlmoeModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_OPTIONAL,
    KEY_BOOL("attention_bias", attention_bias),
    EXPERT_KEYS("num_experts"),
    EXPERT_KEY_NORMALISED,
    KEY_FIXED("clip_qkv", "null"),
    {0},
};

static void olmoe_set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    experts_set_defaults(config);
    config->balance_coefficient = BALANCE_COEFFICIENT;
    config->norm_epsilon = 1e-5;
}

static void olmoe_set_assumed(struct model_config *config) {
    olmo_set_assumed(config);
    config->experts = 64;
    config->experts_per_token = 8;
    config->balance_coefficient = BALANCE_COEFFICIENT;
}

static enum status olmoe_read_config(const char *file, const json_t *object, struct model_config *config) {
    TRY(decoder_read_config(file, object, config));
    if (config->heads * config->head_dim != config->hidden)
        return status_set(STATUS_BAD_INPUT, "%s: head_dim: must be hidden_size / num_attention_heads", file);
    return STATUS_OK;
}

const struct model_family family_olmoe = {
    .name = "olmoe",
    .models = "OLMoE",
    .ffn = {1, 1, 1}, /* 2048 at a hidden size of 2048 */
    .keys = olmoe_keys,
    DECODER_FAMILY_BUT_CONFIG,
    .set_defaults = olmoe_set_defaults,
    .set_assumed = olmoe_set_assumed,
    .read_config = olmoe_read_config,
    .heads_norm = HEADS_NORMED_TOGETHER,
    .experts = &expert_names_mlp,
    .write_config = decoder_write_config,
};
