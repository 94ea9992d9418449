/* Qwen1.5-MoE and Qwen2-MoE (Yang et al., arXiv 2407.10671): Qwen2 with experts in place of the MLP, and one next to
 * them that all tokens take by a gate of its own, as transformers' Qwen2MoeForCausalLM computes it. */
#include "model/model_experts.h"

enum { SHARED_FFN = 5632 };

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"Qwen2MoeForCausalLM\", \"Qwen2MoeModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEY_BOOL("qkv_bias", attention_bias),
    EXPERT_KEYS("num_experts"),
    EXPERT_KEYS_QWEN,
    KEY_OPTIONAL_SIZE("shared_expert_intermediate_size", shared_ffn, CONFIG_WIDTH_MAX),
    {0},
};

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    experts_set_defaults(config);
    config->attention_bias = true;
    config->rope.theta = 1e6;
}

/* What transformers assumes where keys are missing. */
static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {.family = &family_qwen2_moe,
                                  .experts = 60,
                                  .experts_per_token = 4,
                                  .expert_ffn = 1408,
                                  .shared_ffn = SHARED_FFN,
                                  .balance_coefficient = EXPERTS_BALANCE_COEFFICIENT,
                                  .attention_bias = true};
    decoder_set_defaults(&config);
    TRY(experts_read_config(file, object, &config));
    *out = config;
    return STATUS_OK;
}

/* A new one's shared expert is as wide as those that a token takes together. */
static json_t *write_config(const struct model_config *config) {
    struct model_config written = *config;
    if (written.expert_ffn == 0) written.expert_ffn = config_ffn(config);
    if (written.shared_ffn == 0) written.shared_ffn = written.expert_ffn * written.experts_per_token;
    return decoder_write_config(&written);
}

/* residual + sigmoid(shared_expert_gate(normed)) * shared_expert(normed) */
static struct tensor *shared_expert(struct builder *builder, struct tensor *normed, struct tensor *residual) {
    const struct model_config *config = builder->config;
    int64_t hidden = config->hidden, ffn = config->shared_ffn;
    struct tensor *gate = build_layer_linear(builder, "mlp.shared_expert.gate_proj", normed, hidden, ffn, false, NULL);
    struct tensor *up = build_layer_linear(builder, "mlp.shared_expert.up_proj", normed, hidden, ffn, false, NULL);
    struct tensor *active = ops_gated_activation(builder->graph, build_node_name(builder, "mlp.shared_expert.act"),
                                                 gate, up, config->activation);
    struct tensor *y = build_layer_linear(builder, "mlp.shared_expert.down_proj", active, ffn, hidden, false, NULL);
    gate = build_layer_linear(builder, "mlp.shared_expert_gate", normed, hidden, 1, false, NULL);
    return ops_token_gate(builder->graph, build_node_name(builder, "mlp.shared_expert.add"), y, gate, residual);
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    const struct model_config *config = builder->config;
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, config->hidden);
    x = decoder_attention(builder, decoder_project(builder, normed, config->attention_bias), table, false, x);
    normed = decoder_norm(builder, "post_attention_layernorm", x, config->hidden);
    return shared_expert(builder, normed, experts_mlp(builder, &expert_names_mlp, normed, x));
}

const struct model_family family_qwen2_moe = {
    .name = "qwen2_moe",
    .models = "Qwen1.5-MoE and Qwen2 with experts (57B-A14B)",
    .ffn = {11, 16, 1}, /* of an expert: 1408 at a hidden size of 2048 */
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = write_config,
};
