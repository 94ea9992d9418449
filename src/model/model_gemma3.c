/* Gemma 3 (Gemma Team, arXiv 2503.19786), its text model: Gemma 2 without the cap of scores, with queries and keys
 * normalised by head, and rotary positions of their own in windowed layers, as transformers' Gemma3ForCausalLM computes
 * it; and the same next to a vision tower, as Gemma3ForConditionalGeneration has it. */
#include "base/json.h"
#include "model/model_gemma.h"

/* What transformers assumes where keys are missing, and what the authors' files leave out. */
enum { HEAD_DIM = 256, HEADS = 8, KV_HEADS = 4, VOCAB = 262208, CONTEXT = 131072, PATTERN = 6 };
static const double THETA = 1e6, LOCAL_THETA = 1e4;

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"Gemma3ForCausalLM\", \"Gemma3TextModel\"]"),
    KEY_OPTIONAL_SIZE("vocab_size", vocab_size, CONFIG_VOCAB_MAX),
    KEY_OPTIONAL_SIZE("max_position_embeddings", context, CONFIG_CONTEXT_MAX),
    KEY_SIZE("hidden_size", hidden, CONFIG_WIDTH_MAX),
    KEY_SIZE("intermediate_size", ffn, CONFIG_WIDTH_MAX),
    KEY_SIZE("num_hidden_layers", layers, CONFIG_LAYERS_MAX),
    KEY_OPTIONAL_SIZE("num_attention_heads", heads, CONFIG_HEADS_MAX),
    DECODER_KEY_KV_HEADS_OPTIONAL,
    DECODER_KEYS_OPTIONAL,
    KEYS_LOCAL_ROPE,
    GEMMA_KEYS,
    KEY_ELSEWHERE("sliding_window_pattern"),
    KEY_FIXED("attn_logit_softcapping", "null"), /* transformers' class does not read it */
    KEY_IGNORED("_sliding_window_pattern"),
    {0},
};

static void set_common(struct model_config *config) {
    gemma_set_defaults(config);
    config->rope.theta = THETA;
    config->local_rope.theta = LOCAL_THETA;
}

static void set_defaults(struct model_config *config) {
    set_common(config);
    config->window = 1024;
    for (int64_t layer = 0; layer < MODEL_LAYERS_MAX; layer++)
        config->windowed[layer] = (layer + 1) % PATTERN != 0;
}

static enum status read_text(const char *file, const json_t *object, const struct model_family *family,
                             struct model_config *out) {
    struct model_config config = {
        .family = family,
        .vocab_size = VOCAB,
        .context = CONTEXT,
        .heads = HEADS,
        .kv_heads = KV_HEADS,
        .head_dim = HEAD_DIM,
        .query_scalar = HEAD_DIM,
    };
    int64_t pattern = PATTERN;
    set_common(&config);
    TRY(decoder_read_sizes(file, object, &config));
    TRY(config_read_rope_by_type(file, object, &config.rope, &config.local_rope));
    TRY(json_read_int(file, object, "sliding_window_pattern", 1, (int64_t)CONFIG_CONTEXT_MAX, &pattern));
    TRY(config_read_listed_windows(file, object, &config, pattern));
    TRY(gemma_read_softcap(file, object, "final_logit_softcapping", &config.logits_softcap));
    TRY(config_complete_rope(file, &config, &config.rope));
    TRY(config_complete_rope(file, &config, &config.local_rope));
    *out = config;
    return STATUS_OK;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    return read_text(file, object, &family_gemma3_text, out);
}

static json_t *write_config(const struct model_config *config) {
    json_t *object = gemma_write_config(config);
    if (object && json_object_set_new(object, "rope_local_base_freq", json_real(config->local_rope.theta)) == 0)
        return object;
    json_decref(object);
    return NULL;
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    return gemma_layer(builder, x, table, true);
}

const struct model_family family_gemma3_text = {
    .name = "gemma3_text",
    .models = "Gemma 3 (text). Models of type `gemma3` (from 4B up), which have a vision tower too, are read too: "
              "their text model trains, the rest is written as it was read",
    .ffn = {4, 1, 1}, /* 10240 at a hidden size of 2560 */
    .keys = keys,
    GEMMA_FAMILY,
    .prefix = "model.",
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = write_config,
};

/* What the wrapper's config has besides the text model's. */
static const struct config_key wrapper_keys[] = {
    KEY_ARCHITECTURES("[\"Gemma3ForConditionalGeneration\"]"),
    KEY_ELSEWHERE("text_config"),
    KEY_FIXED("tie_word_embeddings", "true"),
    KEY_IGNORED("initializer_range"),
    /* of images, which the text model does not see */
    KEY_IGNORED("vision_config"),
    KEY_IGNORED("mm_tokens_per_image"),
    KEY_IGNORED("image_token_index"),
    KEY_IGNORED("boi_token_index"),
    KEY_IGNORED("eoi_token_index"),
    {0},
};

static enum status read_wrapped(const char *file, const json_t *object, struct model_config *out) {
    TRY(read_text(file, object, &family_gemma3, out));
    if (!out->tied) return status_set(STATUS_BAD_INPUT, "%s: tie_word_embeddings: only true is supported", file);
    if (out->logits_softcap == 0) return STATUS_OK;
    /* transformers' class for the wrapper does not read it */
    return status_set(STATUS_BAD_INPUT, "%s: final_logit_softcapping: only null is supported", file);
}

static enum status read_wrapper(const char *file, const json_t *object, struct model_config *out) {
    struct model_config wrapper = {.family = &family_gemma3};
    const json_t *text = json_object_get(object, "text_config");
    TRY(json_require(file, object, "text_config"));
    TRY(config_read_keys(file, object, wrapper_keys, &wrapper));
    if (!json_is_object(text)) return status_set(STATUS_BAD_INPUT, "%s: text_config: must be an object", file);
    char *place = mem_format("%s: text_config", file);
    if (!place) return STATUS_FAILED;
    enum status status = read_wrapped(place, text, out);
    mem_free(place);
    return status;
}

static const char *const carried[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                      "model.multi_modal_projector.", NULL};

const struct model_family family_gemma3 = {
    .name = "gemma3",
    .models = "Gemma 3 with vision",
    .keys = keys,
    GEMMA_FAMILY,
    .prefix = "model.language_model.",
    .stored_prefix = "language_model.model.",
    .carried = carried,
    .read_config = read_wrapper,
    .layer = layer,
};
