/* Gemma 2 (Gemma Team, arXiv 2408.00118): windows in every other layer, soft caps of scores and logits, as
 * transformers' Gemma2ForCausalLM computes it. */
#include "model/model_gemma.h"

static const char scores_softcap[] = "attn_logit_softcapping";

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"Gemma2ForCausalLM\", \"Gemma2Model\"]"),
    DECODER_KEYS_BUT_ACTIVATION,
    DECODER_KEY_KV_HEADS_REQUIRED,
    GEMMA_KEYS,
    KEY_ELSEWHERE(scores_softcap),
    KEY_IGNORED("sliding_window_size"), /* in the authors' files, next to sliding_window */
    {0},
};

enum { HEAD_DIM = 256, PATTERN = 2 }; /* what transformers assumes, whatever the hidden size */

static void set_softcaps(struct model_config *config) {
    config->attention_softcap = 50;
    config->logits_softcap = 30;
}

static void set_defaults(struct model_config *config) {
    gemma_set_defaults(config);
    set_softcaps(config);
    for (int64_t layer = 0; layer < MODEL_LAYERS_MAX; layer++)
        config->windowed[layer] = (layer + 1) % PATTERN != 0;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {.family = &family_gemma2, .head_dim = HEAD_DIM, .query_scalar = HEAD_DIM};
    gemma_set_defaults(&config);
    set_softcaps(&config);
    TRY(decoder_read_config(file, object, &config));
    TRY(config_read_listed_windows(file, object, &config, PATTERN));
    TRY(gemma_read_softcap(file, object, scores_softcap, &config.attention_softcap));
    TRY(gemma_read_softcap(file, object, "final_logit_softcapping", &config.logits_softcap));
    *out = config;
    return STATUS_OK;
}

static json_t *write_config(const struct model_config *config) {
    json_t *object = gemma_write_config(config);
    if (object && json_object_set_new(object, scores_softcap, gemma_softcap_value(config->attention_softcap)) == 0)
        return object;
    json_decref(object);
    return NULL;
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    return gemma_layer(builder, x, table, false);
}

const struct model_family family_gemma2 = {
    .name = "gemma2",
    .models = "Gemma 2",
    .ffn = {4, 1, 1}, /* 9216 at a hidden size of 2304 */
    .keys = keys,
    GEMMA_FAMILY,
    .prefix = "model.",
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = write_config,
};
