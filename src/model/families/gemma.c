/* Shared parts of Gemma 2 and 3: norms by 1 + w before and after attention and MLP, scaled embeddings, soft caps. The
 * embedding is multiplied by the square root of the width, and scores have their own scale. */
#include <math.h>

#include "base/half.h"
#include "base/json.h"
#include "model/families/builder.h"

/* Keys of both families, in addition to the sizes. */
#define GEMMA_KEYS                                                                                                     \
    KEY_ACTIVATION("hidden_activation", activation), KEYS_LISTED_WINDOWS, KEY_BOOL("attention_bias", attention_bias),  \
        KEY_OPTIONAL_SIZE("query_pre_attn_scalar", query_scalar, CONFIG_WIDTH_MAX),                                    \
        KEY_ELSEWHERE("final_logit_softcapping"), KEY_FIXED("use_bidirectional_attention", "false"),                   \
        KEYS_IGNORED("hidden_act", "cache_implementation") /* transformers reads only hidden_activation */
#define GEMMA_FAMILY                                                                                                   \
    .initial = gemma_initial, .embedding = "embed_tokens.weight", .buffers = decoder_buffers, .build = gemma_build,    \
    .layer = gemma_layer, .windows = CONFIG_WINDOWS_LISTED, .initial_deviation = decoder_initial_deviation

static const char logits_softcap[] = "final_logit_softcapping";

/* Defaults of a new model. The scores' scalar is the head size (gemma_write_config). */
static void gemma_set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->activation = ACTIVATION_GELU_TANH;
    config->norm_one_plus = true;
    config->tied = true;
    config->window = 4096;
}

/* If the key is missing, *out does not change; null: 0. */
static enum status gemma_read_softcap(const char *file, const json_t *object, const char *key, double *out) {
    if (json_is_null(json_object_get(object, key))) *out = 0;
    return json_read_double(file, object, key, 1e-3, 1e9, out);
}

static json_t *gemma_softcap_value(double softcap) { return softcap > 0 ? json_real(softcap) : json_null(); }

static json_t *gemma_write_config(const struct model_config *config) {
    return config_put(decoder_write_config(config), logits_softcap, gemma_softcap_value(config->logits_softcap));
}

/* x + norm(attention(norm(x))), then the same with the MLP. */
static struct tensor *gemma_layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    int64_t hidden = builder->config->hidden;
    struct tensor *part = decoder_norm(builder, "input_layernorm", x, hidden);
    part = decoder_attention(builder, decoder_project(builder, part), table, NULL);
    x = decoder_add(builder, "attention.add", x, decoder_norm(builder, "post_attention_layernorm", part, hidden));
    part = decoder_norm(builder, "pre_feedforward_layernorm", x, hidden);
    part = decoder_mlp(builder, part, NULL);
    return decoder_add(builder, "mlp.add", x, decoder_norm(builder, "post_feedforward_layernorm", part, hidden));
}

/* decoder_build with the embedding's factor, which is rounded to the weights' dtype, as in transformers. */
static struct tensor *gemma_build(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                                  struct graph *graph) {
    struct model_config scaled = *config;
    float root = (float)sqrt((double)config->hidden);
    scaled.embedding_multiplier = (double)(graph->dtype == DTYPE_BF16 ? bf16_to_float(bf16_from_float(root)) : root);
    return decoder_build(&scaled, prefix, purpose, graph);
}

static const char gemma_initial[] =
    "normal with deviation 0.02 (`initializer_range`); biases 0, norm weights 0 (norms multiply by 1 + weight)";

/* Gemma 2 (Gemma Team, arXiv 2408.00118): windows in every other layer, soft caps of scores and logits, as in
 * transformers' Gemma2ForCausalLM. */

static const char scores_softcap[] = "attn_logit_softcapping";

static const struct config_key gemma2_keys[] = {
    KEY_ARCHITECTURES("[\"Gemma2ForCausalLM\", \"Gemma2Model\"]"),
    DECODER_KEYS_BUT_ACTIVATION,
    DECODER_KEY_KV_HEADS_REQUIRED,
    GEMMA_KEYS,
    KEY_ELSEWHERE(scores_softcap),
    KEYS_IGNORED("sliding_window_size"), /* in the authors' files, next to sliding_window */
    {0},
};

enum { GEMMA2_HEAD_DIM = 256, GEMMA2_PATTERN = 2 }; /* transformers' defaults, whatever the hidden size */

static void gemma2_set_defaults(struct model_config *config) {
    gemma_set_defaults(config);
    config->attention_softcap = 50;
    config->logits_softcap = 30;
    for (int64_t layer = 0; layer < MODEL_LAYERS_MAX; layer++)
        config->windowed[layer] = (layer + 1) % GEMMA2_PATTERN != 0;
}

static void gemma2_set_assumed(struct model_config *config) {
    gemma2_set_defaults(config);
    config->head_dim = GEMMA2_HEAD_DIM;
    config->query_scalar = GEMMA2_HEAD_DIM;
}

static enum status gemma2_read_config(const char *file, const json_t *object, struct model_config *config) {
    TRY(decoder_read_config(file, object, config));
    TRY(gemma_read_softcap(file, object, scores_softcap, &config->attention_softcap));
    return gemma_read_softcap(file, object, logits_softcap, &config->logits_softcap);
}

static json_t *gemma2_write_config(const struct model_config *config) {
    return config_put(gemma_write_config(config), scores_softcap, gemma_softcap_value(config->attention_softcap));
}

const struct model_family family_gemma2 = {
    .name = "gemma2",
    .models = "Gemma 2",
    .ffn = {4, 1, 1}, /* 9216 at a hidden size of 2304 */
    .keys = gemma2_keys,
    GEMMA_FAMILY,
    .prefix = "model.",
    .set_defaults = gemma2_set_defaults,
    .set_assumed = gemma2_set_assumed,
    .window_pattern = GEMMA2_PATTERN,
    .read_config = gemma2_read_config,
    .write_config = gemma2_write_config,
};

/* Gemma 3 (Gemma Team, arXiv 2503.19786), its text model: Gemma 2 without the cap of scores, with queries and keys
 * normalized per head, and with separate rotary positions in windowed layers, as in transformers' Gemma3ForCausalLM.
 * Also the same next to a vision tower, as in Gemma3ForConditionalGeneration. */

/* transformers' defaults for missing keys, which the authors' files omit. */
enum { GEMMA3_HEAD_DIM = 256, HEADS = 8, KV_HEADS = 4, VOCAB = 262208, CONTEXT = 131072, GEMMA3_PATTERN = 6 };
static const double THETA = 1e6, LOCAL_THETA = 1e4;

static const struct config_key gemma3_keys[] = {
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
    KEYS_IGNORED("_sliding_window_pattern"),
    {0},
};

static void gemma3_set_defaults(struct model_config *config) {
    gemma_set_defaults(config);
    config->rope.theta = THETA;
    config->local_rope.theta = LOCAL_THETA;
    config->window = 1024;
    for (int64_t layer = 0; layer < MODEL_LAYERS_MAX; layer++)
        config->windowed[layer] = (layer + 1) % GEMMA3_PATTERN != 0;
}

static void gemma3_set_assumed(struct model_config *config) {
    gemma3_set_defaults(config);
    config->window = 4096;
    config->vocab_size = VOCAB;
    config->context = CONTEXT;
    config->heads = HEADS;
    config->kv_heads = KV_HEADS;
    config->head_dim = GEMMA3_HEAD_DIM;
    config->query_scalar = GEMMA3_HEAD_DIM;
}

static enum status gemma3_read_config(const char *file, const json_t *object, struct model_config *config) {
    int64_t pattern = GEMMA3_PATTERN;
    TRY(decoder_read_sizes(file, object, config));
    TRY(config_read_rope_by_type(file, object, &config->rope, &config->local_rope));
    TRY(json_read_int(file, object, "sliding_window_pattern", 1, (int64_t)CONFIG_CONTEXT_MAX, &pattern));
    TRY(config_read_windows(file, object, CONFIG_WINDOWS_LISTED, pattern, config));
    TRY(gemma_read_softcap(file, object, logits_softcap, &config->logits_softcap));
    TRY(config_complete_rope(file, config, &config->rope));
    return config_complete_rope(file, config, &config->local_rope);
}

static json_t *gemma3_write_config(const struct model_config *config) {
    return config_put(gemma_write_config(config), "rope_local_base_freq", json_real(config->local_rope.theta));
}

const struct model_family family_gemma3_text = {
    .name = "gemma3_text",
    .models = "Gemma 3 (text). Models of type `gemma3` (from 4B up), which have a vision tower too, are read too: "
              "their text model trains, the rest is written as it was read",
    .ffn = {4, 1, 1}, /* 10240 at a hidden size of 2560 */
    .keys = gemma3_keys,
    GEMMA_FAMILY,
    .prefix = "model.",
    .set_defaults = gemma3_set_defaults,
    .set_assumed = gemma3_set_assumed,
    .read_config = gemma3_read_config,
    .heads_norm = HEADS_NORMED,
    .write_config = gemma3_write_config,
};

/* Keys of the wrapper's config in addition to the text model's. */
static const struct config_key wrapper_keys[] = {
    KEY_ARCHITECTURES("[\"Gemma3ForConditionalGeneration\"]"),
    KEY_ELSEWHERE("text_config"),
    KEY_FIXED("tie_word_embeddings", "true"),
    /* except the first, these concern images, which the text model does not see */
    KEYS_IGNORED("initializer_range", "vision_config", "mm_tokens_per_image", "image_token_index", "boi_token_index",
                 "eoi_token_index"),
    {0},
};

static enum status read_wrapped(const char *file, const json_t *object, struct model_config *config) {
    TRY(gemma3_read_config(file, object, config));
    if (!config->tied) return status_set(STATUS_BAD_INPUT, "%s: tie_word_embeddings: only true is supported", file);
    if (config->logits_softcap == 0) return STATUS_OK;
    /* transformers' class for the wrapper does not read it */
    return status_set(STATUS_BAD_INPUT, "%s: final_logit_softcapping: only null is supported", file);
}

static enum status read_wrapper(const char *file, const json_t *object, struct model_config *config) {
    struct model_config wrapper = {.family = &family_gemma3};
    const json_t *text = json_object_get(object, "text_config");
    TRY(json_require(file, object, "text_config"));
    TRY(config_read_keys(file, object, wrapper_keys, &wrapper));
    if (!json_is_object(text)) return status_set(STATUS_BAD_INPUT, "%s: text_config: must be an object", file);
    AUTO_FREE char *place = mem_format("%s: text_config", file);
    if (!place) return STATUS_FAILED;
    return read_wrapped(place, text, config);
}

static const char *const carried[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                      "model.multi_modal_projector.", NULL};

const struct model_family family_gemma3 = {
    .name = "gemma3",
    .models = "Gemma 3 with vision",
    .keys = gemma3_keys,
    GEMMA_FAMILY,
    .prefix = "model.language_model.",
    .stored_prefix = "language_model.model.",
    .carried = carried,
    .set_assumed = gemma3_set_assumed,
    .read_config = read_wrapper,
    .heads_norm = HEADS_NORMED,
};
