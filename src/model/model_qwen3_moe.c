/* Qwen3-MoE (Yang et al., arXiv 2505.09388): Qwen3 with experts in place of the MLP, as transformers'
 * Qwen3MoeForCausalLM computes it. */
#include "base/json.h"
#include "model/model_experts.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"Qwen3MoeForCausalLM\", \"Qwen3MoeModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEY_BOOL("attention_bias", attention_bias),
    EXPERT_KEYS("num_experts"),
    KEY_ELSEWHERE("num_local_experts"),
    EXPERT_KEYS_QWEN,
    {0},
};

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    experts_set_defaults(config);
    config->normalise_experts = true;
    config->rope.theta = 1e6;
}

/* Release 5 of transformers writes the number of experts by another name, and reads both. */
static enum status read_experts(const char *file, const json_t *object, struct model_config *config) {
    int64_t experts = 0, local = 0;
    TRY(json_read_int(file, object, "num_experts", 1, ROUTING_EXPERTS_MAX, &experts));
    TRY(json_read_int(file, object, "num_local_experts", 1, ROUTING_EXPERTS_MAX, &local));
    if (experts > 0 && local > 0 && experts != local)
        return status_set(STATUS_BAD_INPUT, "%s: num_experts: differs from num_local_experts (%lld)", file,
                          (long long)local);
    config->experts = local > 0 ? local : 128;
    return STATUS_OK;
}

/* What transformers assumes where keys are missing. */
static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {.family = &family_qwen3_moe,
                                  .experts_per_token = 8,
                                  .expert_ffn = 768,
                                  .balance_coefficient = EXPERTS_BALANCE_COEFFICIENT};
    decoder_set_defaults(&config);
    TRY(read_experts(file, object, &config));
    TRY(experts_read_config(file, object, &config));
    *out = config;
    return STATUS_OK;
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    const struct model_config *config = builder->config;
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, config->hidden);
    struct decoder_heads heads = decoder_project(builder, normed, config->attention_bias);
    heads.q = decoder_norm(builder, "self_attn.q_norm", heads.q, config->head_dim);
    heads.k = decoder_norm(builder, "self_attn.k_norm", heads.k, config->head_dim);
    x = decoder_attention(builder, heads, table, config->attention_bias, x);
    normed = decoder_norm(builder, "post_attention_layernorm", x, config->hidden);
    return experts_mlp(builder, &expert_names_mlp, normed, x);
}

const struct model_family family_qwen3_moe = {
    .name = "qwen3_moe",
    .models = "Qwen3 with experts (30B-A3B, 235B-A22B; text)",
    .ffn = {3, 8, 1}, /* of an expert: 768 at a hidden size of 2048 */
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = experts_write_config,
};
