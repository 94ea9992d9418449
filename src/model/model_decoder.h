/* What Llama and the families after it have in common: RMSNorm before attention and MLP, rotary positions, grouped
 * queries, a gated MLP. A family's file puts its layer together from these parts. */
#ifndef BALLAST_MODEL_MODEL_DECODER_H
#define BALLAST_MODEL_MODEL_DECODER_H

#include "model/model_build.h"
#include "model/model_config.h"

/* Keys that all of them have; the activation's key is the family's. */
#define DECODER_KEYS DECODER_KEYS_BUT_ACTIVATION, KEY_ACTIVATION("hidden_act", activation)
#define DECODER_KEYS_BUT_ACTIVATION                                                                                    \
    KEY_SIZE("vocab_size", vocab_size, CONFIG_VOCAB_MAX),                                                              \
        KEY_SIZE("max_position_embeddings", context, CONFIG_CONTEXT_MAX),                                              \
        KEY_SIZE("hidden_size", hidden, CONFIG_WIDTH_MAX), KEY_SIZE("intermediate_size", ffn, CONFIG_WIDTH_MAX),       \
        KEY_SIZE("num_hidden_layers", layers, CONFIG_LAYERS_MAX),                                                      \
        KEY_SIZE("num_attention_heads", heads, CONFIG_HEADS_MAX), DECODER_KEYS_OPTIONAL
/* Those among them that may be missing. */
#define DECODER_KEYS_OPTIONAL                                                                                          \
    KEY_OPTIONAL_SIZE("head_dim", head_dim, CONFIG_HEADS_MAX), KEY_DOUBLE("rms_norm_eps", norm_epsilon, 1e-30, 1),     \
        KEY_DOUBLE("initializer_range", initial_range, 0, 100), KEY_BOOL("tie_word_embeddings", tied),                 \
        KEY_DROPOUT("attention_dropout"), KEY_ELSEWHERE("rope_parameters"), KEY_ELSEWHERE("rope_theta"),               \
        KEY_ELSEWHERE("rope_scaling")
/* Where the key is missing, transformers assumes the number of heads (optional), or that of the authors' first model,
 * which a reader cannot be meant to guess (required). */
#define DECODER_KEY_KV_HEADS_OPTIONAL KEY_OPTIONAL_SIZE("num_key_value_heads", kv_heads, CONFIG_HEADS_MAX)
#define DECODER_KEY_KV_HEADS_REQUIRED KEY_SIZE("num_key_value_heads", kv_heads, CONFIG_HEADS_MAX)

/* What transformers assumes where keys are missing. */
void decoder_set_defaults(struct model_config *config);
/* Reads all keys of the family, and rope; windows are the family's. */
enum status decoder_read_config(const char *file, const json_t *object, struct model_config *config);
/* The same without rope. */
enum status decoder_read_sizes(const char *file, const json_t *object, struct model_config *config);
/* All of that again, for a new model; NULL when out of memory. A family with no keys besides these has it as
 * write_config. */
json_t *decoder_write_config(const struct model_config *config);
/* Normal with initial_range; norm weights 1, biases 0. */
double decoder_initial_deviation(const struct model_config *config, const struct tensor *parameter);
extern const char decoder_initial[];

/* RMSNorm of x by the present layer's NAME.weight [size]: over all features, or by head when size is head_dim. */
struct tensor *decoder_norm(struct builder *builder, const char *name, struct tensor *x, int64_t size);

/* Queries [S,T,heads*head_dim], keys and values [S,T,kv_heads*head_dim], before rotation; sinks [heads], or NULL. */
struct decoder_heads {
    struct tensor *q, *k, *v, *sinks;
};
/* By q_proj, k_proj and v_proj. */
struct decoder_heads decoder_project(struct builder *builder, struct tensor *normed, bool has_bias);
/* Rotates queries and keys by `table` (NULL: not at all, in layers without positions), attends within the layer's
 * window, and adds the output's projection to x (NULL: to nothing). */
struct tensor *decoder_attention(struct builder *builder, struct decoder_heads heads, struct tensor *table,
                                 bool has_bias, struct tensor *x);
/* x (NULL: nothing) + down_proj(f(gate_proj(normed)) * up_proj(normed)) */
struct tensor *decoder_mlp(struct builder *builder, struct tensor *normed, bool has_bias, struct tensor *x);
/* The same of x's norm by post_attention_layernorm, as most families have it. */
struct tensor *decoder_normed_mlp(struct builder *builder, struct tensor *x, bool has_bias);
/* x + part, for families that change what is added. */
struct tensor *decoder_add(struct builder *builder, const char *name, struct tensor *x, struct tensor *part);

/* Embedding, layers (by the family's `layer`), norm and head. Windowed layers have a table of their own where
 * config->local_rope says so. */
struct tensor *decoder_build(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                             struct graph *graph);

/* What these families share of struct model_family. */
extern const char *const decoder_buffers[];
#define DECODER_FAMILY                                                                                                 \
    .initial = decoder_initial, .prefix = "model.", .embedding = "embed_tokens.weight", .buffers = decoder_buffers,    \
    .build = decoder_build, .initial_deviation = decoder_initial_deviation

#endif
