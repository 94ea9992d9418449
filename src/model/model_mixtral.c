/* Mixtral (Jiang et al., arXiv 2401.04088): Mistral with experts in place of the MLP, as transformers'
 * MixtralForCausalLM computes it. */
#include "model/model_experts.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"MixtralForCausalLM\", \"MixtralModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEYS_WINDOW,
    EXPERT_KEYS("num_local_experts"),
    KEY_FIXED("router_jitter_noise", "0.0"),
    {0},
};

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    experts_set_defaults(config);
    config->norm_epsilon = 1e-5;
    config->rope.theta = 1e6;
}

/* What transformers assumes where keys are missing. */
static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {.family = &family_mixtral,
                                  .experts = 8,
                                  .experts_per_token = 2,
                                  .normalise_experts = true,
                                  .balance_coefficient = EXPERTS_BALANCE_COEFFICIENT};
    decoder_set_defaults(&config);
    config.norm_epsilon = 1e-5;
    config.rope.theta = 1e6;
    TRY(experts_read_config(file, object, &config));
    TRY(config_read_window(file, object, &config));
    *out = config;
    return STATUS_OK;
}

static json_t *write_config(const struct model_config *config) {
    return config_write_window(config, decoder_write_config(config));
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    static const struct expert_names names = {
        .router = "block_sparse_moe.gate",
        .experts = "block_sparse_moe.experts",
        .gate = "w1",
        .up = "w3",
        .down = "w2",
        .fused_router = "mlp.gate",
    };
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, builder->config->hidden);
    x = decoder_attention(builder, decoder_project(builder, normed, false), table, false, x);
    normed = decoder_norm(builder, "post_attention_layernorm", x, builder->config->hidden);
    return experts_mlp(builder, &names, normed, x);
}

const struct model_family family_mixtral = {
    .name = "mixtral",
    .models = "Mixtral 8x7B and 8x22B",
    .ffn = {7, 2, 256}, /* 14336 at a hidden size of 4096 */
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = write_config,
};
