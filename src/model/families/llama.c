/* Llama (Touvron et al., arXiv 2302.13971; grouped queries: 2307.09288; llama3 rope: 2407.21783), as transformers'
 * LlamaForCausalLM computes it. */
#include "model/families/builder.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"LlamaForCausalLM\", \"LlamaModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_OPTIONAL,
    KEY_BOOL("attention_bias", attention_bias),
    KEY_BOOL("mlp_bias", mlp_bias),
    KEY_FIXED("pretraining_tp", "1"),
    KEY_FIXED("rope_interleaved", "false"),
    KEYS_IGNORED("is_llama_config", "max_sequence_length"), /* in some models' files; repeats the context */
    {0},
};

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->norm_epsilon = 1e-5;
}

const struct model_family family_llama = {
    .name = "llama",
    .models = "Llama 1, 2 and 3.x, TinyLlama, SmolLM and SmolLM2, and models of that form with biases",
    .ffn = {8, 3, 256}, /* two thirds of 4 x hidden, as in the authors' code */
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
};
