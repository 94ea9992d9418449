/* Mistral (Jiang et al., arXiv 2310.06825): Llama with a sliding window, as transformers' MistralForCausalLM computes
 * it. */
#include "model/model_decoder.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"MistralForCausalLM\", \"MistralModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEYS_WINDOW,
    {0},
};

enum { WINDOW = 4096 }; /* of the authors' first model, and what transformers assumes where the key is missing */

static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->norm_epsilon = 1e-5;
    config->window = WINDOW;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {.family = &family_mistral, .window = WINDOW};
    decoder_set_defaults(&config);
    TRY(decoder_read_config(file, object, &config));
    TRY(config_read_window(file, object, &config));
    *out = config;
    return STATUS_OK;
}

static json_t *write_config(const struct model_config *config) {
    return config_write_window(config, decoder_write_config(config));
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, builder->config->hidden);
    x = decoder_attention(builder, decoder_project(builder, normed, false), table, false, x);
    return decoder_normed_mlp(builder, x, false);
}

const struct model_family family_mistral = {
    .name = "mistral",
    .models = "Mistral 7B in all versions, Mistral NeMo, and models of that form",
    .ffn = {7, 2, 256}, /* 14336 at a hidden size of 4096 */
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = write_config,
};
