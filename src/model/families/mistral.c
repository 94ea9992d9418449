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

enum { WINDOW = 4096 }; /* of the authors' first model; transformers' default if the key is missing */

static void mistral_set_assumed(struct model_config *config) {
    decoder_set_defaults(config);
    config->window = WINDOW;
}

static void mistral_set_defaults(struct model_config *config) {
    mistral_set_assumed(config);
    config->norm_epsilon = 1e-5;
}

const struct model_family family_mistral = {
    .name = "mistral",
    .models = "Mistral 7B in all versions, Mistral NeMo, and models of that form",
    .ffn = {7, 2, 256}, /* 14336 at a hidden size of 4096 */
    .keys = mistral_keys,
    DECODER_FAMILY,
    .set_defaults = mistral_set_defaults,
    .set_assumed = mistral_set_assumed,
    .windows = CONFIG_WINDOWS_ALL,
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

static void mixtral_set_assumed(struct model_config *config) {
    mixtral_set_defaults(config);
    config->normalise_experts = true;
}

static const struct expert_names mixtral_experts = {
    .router = "block_sparse_moe.gate",
    .experts = "block_sparse_moe.experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
    .fused_router = "mlp.gate",
};

const struct model_family family_mixtral = {
    .name = "mixtral",
    .models = "Mixtral 8x7B and 8x22B",
    .ffn = {7, 2, 256}, /* 14336 at a hidden size of 4096 */
    .keys = mixtral_keys,
    DECODER_FAMILY,
    .set_defaults = mixtral_set_defaults,
    .set_assumed = mixtral_set_assumed,
    .experts = &mixtral_experts,
    .windows = CONFIG_WINDOWS_ALL,
};
