/* Gemma 3 (Gemma Team, arXiv 2503.19786), its text model: Gemma 2 without the cap of scores, with queries and keys
 * normalised by head, and rotary positions of their own in windowed layers, as transformers' Gemma3ForCausalLM computes
 * it. */
#include "base/json.h"
#include "model/model_gemma.h"

/* What transformers assumes where keys are missing, and what the authors' files leave out. */
enum { HEAD_DIM = 256, HEADS = 8, KV_HEADS = 4, VOCAB = 262208, CONTEXT = 131072, PATTERN = 6 };
static const double THETA = 1e6, LOCAL_THETA = 1e4;

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"Gemma3ForCausalLM\", \"Gemma3TextModel\"]"),
    KEY_OPTIONAL_SIZE("vocab_size", vocab_size, CONFIG_MOST_VOCAB),
    KEY_OPTIONAL_SIZE("max_position_embeddings", context, CONFIG_MOST_CONTEXT),
    KEY_SIZE("hidden_size", hidden, CONFIG_MOST_WIDTH),
    KEY_SIZE("intermediate_size", ffn, CONFIG_MOST_WIDTH),
    KEY_SIZE("num_hidden_layers", layers, CONFIG_MOST_LAYERS),
    KEY_OPTIONAL_SIZE("num_attention_heads", heads, CONFIG_MOST_HEADS),
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

static enum status read_config(const char *file, const json_t *object, struct model_config *out) {
    struct model_config config = {
        .family = &family_gemma3_text,
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
    TRY(json_read_int(file, object, "sliding_window_pattern", 1, (int64_t)CONFIG_MOST_CONTEXT, &pattern));
    TRY(config_read_listed_windows(file, object, &config, pattern));
    TRY(gemma_read_softcap(file, object, "final_logit_softcapping", &config.logits_softcap));
    config.local_rope.head_dim = config.head_dim;
    *out = config;
    return STATUS_OK;
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
    .models = "Gemma 3 (text)",
    .ffn = {4, 1, 1}, /* 10240 at a hidden size of 2560 */
    .keys = keys,
    GEMMA_FAMILY,
    .prefix = "model.",
    .set_defaults = set_defaults,
    .read_config = read_config,
    .layer = layer,
    .write_config = write_config,
};
