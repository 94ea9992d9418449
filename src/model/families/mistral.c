/* Mistral (Jiang et al., arXiv 2310.06825): Llama with a sliding window, as transformers' MistralForCausalLM computes
 * it. */
#include "model/families/builder.h"

static const struct config_key mistral_keys[] = {
    KEY_ARCHITECTURES("[\"MistralForCausalLM\", \"MistralModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEYS_WINDOW,
    {0},
};

enum { WINDOW = 4096 }; /* of the authors' first model, and what transformers assumes where the key is missing */

static void mistral_set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->norm_epsilon = 1e-5;
    config->window = WINDOW;
}

static enum status mistral_read_config(const char *file, const json_t *object, struct model_config *config) {
    config->window = WINDOW;
    decoder_set_defaults(config);
    TRY(decoder_read_config(file, object, config));
    return config_read_window(file, object, config);
}

static json_t *write_config(const struct model_config *config) {
    return config_write_window(config, decoder_write_config(config));
}

static struct tensor *mistral_layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, builder->config->hidden);
    x = decoder_attention(builder, decoder_project(builder, normed, false), table, false, x);
    return decoder_normed_mlp(builder, x, false);
}

const struct model_family family_mistral = {
    .name = "mistral",
    .models = "Mistral 7B in all versions, Mistral NeMo, and models of that form",
    .ffn = {7, 2, 256}, /* 14336 at a hidden size of 4096 */
    .keys = mistral_keys,
    DECODER_FAMILY,
    .set_defaults = mistral_set_defaults,
    .read_config = mistral_read_config,
    .layer = mistral_layer,
    .write_config = write_config,
};

/* Mixtral (Jiang et al., arXiv 2401.04088): Mistral with experts in place of the MLP, as transformers'
 * MixtralForCausalLM computes it. */

static const struct config_key mixtral_keys[] = {
    KEY_ARCHITECTURES("[\"MixtralForCausalLM\", \"MixtralModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEYS_WINDOW,
    EXPERT_KEYS("num_local_experts"),
    KEY_FIXED("router_jitter_noise", "0.0"),
    {0},
};

static void mixtral_set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    experts_set_defaults(config);
    config->norm_epsilon = 1e-5;
    config->rope.theta = 1e6;
}

/* What transformers assumes where keys are missing. */
static enum status mixtral_read_config(const char *file, const json_t *object, struct model_config *config) {
    config->experts = 8;
    config->experts_per_token = 2;
    config->normalise_experts = true;
    config->balance_coefficient = EXPERTS_BALANCE_COEFFICIENT;
    decoder_set_defaults(config);
    config->norm_epsilon = 1e-5;
    config->rope.theta = 1e6;
    TRY(experts_read_config(file, object, config));
    return config_read_window(file, object, config);
}

static struct tensor *mixtral_layer(struct builder *builder, struct tensor *x, struct tensor *table) {
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
    .keys = mixtral_keys,
    DECODER_FAMILY,
    .set_defaults = mixtral_set_defaults,
    .read_config = mixtral_read_config,
    .layer = mixtral_layer,
    .write_config = write_config,
};
