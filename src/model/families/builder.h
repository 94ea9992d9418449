/* Shared parts of the families' graph builders: parameters and linear layers, Llama's form, mixtures of experts.
 *
 * Files, in the order to read them:
 * - builder: this file
 * - llama: the plain form
 * - mistral, granite, olmo, phi3, qwen, smollm3, gemma, gpt_oss: each with its own paper
 * - gpt2 and opt, which build the whole graph themselves */
#pragma once

#include "ir/ops/ops.h"
#include "model/config.h"
#include "model/model.h"

struct builder {
    struct graph *graph;
    const struct model_config *config;
    const char *prefix; /* of parameter names */
    const char *layers; /* of layer parameter names, after the prefix: "h", "layers" */
    enum model_purpose purpose;
    /* For build_attention; may be NULL. */
    struct tensor *segments;
    struct tensor *targets; /* set by build_targets; otherwise NULL */
    int64_t layer;          /* being built; part of the names of its nodes and parameters */
    struct tensor *load;    /* expert load of the layers so far, if their balance is part of the loss; otherwise NULL */
};

/* An int32 input [S,T]. */
struct tensor *build_input(struct builder *builder, const char *name);
/* The input "segments" if the purpose has it, else NULL. */
struct tensor *build_segments(struct builder *builder);
/* A parameter of the model, named PREFIX NAME. Its rank is 1 if d1 is 0. */
struct tensor *build_parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1);
/* A parameter of the current layer, named PREFIX LAYERS.LAYER.NAME; NULL unless `wanted`. */
struct tensor *build_layer_parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1, bool wanted);
/* A matrix of a linear layer or an expert, named PREFIX NAME, in the config's base_format. */
struct tensor *build_matrix(struct builder *builder, const char *name, int64_t rows, int64_t columns);
/* A frozen matrix of the current layer in the config's base_format, which is not plain. */
struct tensor *build_layer_quantized(struct builder *builder, const char *name, int64_t rows, int64_t columns);
/* PREFIX LAYERS.LAYER.NAME */
const char *build_layer_name(struct builder *builder, const char *name);
struct linear_sizes {
    int64_t in, out;
    bool has_bias;
    bool weight_is_kn; /* the weight is [in,out], as in transformers' Conv1D */
};
/* y = W x [+ bias] [+ residual] with the model's NAME.weight and NAME.bias, plus the adapter's part if config->adapter
 * has one. Builds all linear layers except the head. */
struct tensor *build_linear(struct builder *builder, const char *name, const char *node_name, struct tensor *x,
                            const struct linear_sizes *sizes, struct tensor *residual);
/* The same for a linear layer of the current layer. */
struct tensor *build_layer_linear_of(struct builder *builder, const char *name, struct tensor *x,
                                     const struct linear_sizes *sizes, struct tensor *residual);
/* y = W x [+ bias] [+ residual] with the current layer's NAME.weight [out,in] and NAME.bias. */
struct tensor *build_layer_linear(struct builder *builder, const char *name, struct tensor *x, int64_t in, int64_t out,
                                  bool has_bias, struct tensor *residual);
/* Layer norm with the current layer's NAME.weight and NAME.bias. */
struct tensor *build_layer_norm(struct builder *builder, const char *name, struct tensor *x);
/* Attention of the current layer (`sinks` may be NULL): over the sequence, over segments if the purpose has them, or
 * over caches. */
struct tensor *build_attention(struct builder *builder, struct tensor *q, struct tensor *k, struct tensor *v,
                               struct tensor *sinks, struct attention_attributes attributes);
/* "layer.LAYER.NAME" for a node. */
const char *build_node_name(struct builder *builder, const char *name);
/* Starts the block "layer LAYER". */
void build_begin_layer(struct builder *builder);
/* The loss or the logits of x [S,T,embedding_width]. The head's weight is `embedding` [V,embedding_width] if the config
 * ties them, else the parameter "lm_head.weight", without the prefix. */
struct tensor *build_head(struct builder *builder, struct tensor *x, struct tensor *embedding);

/* Whether a name ends with `end`. */
bool name_ends(const char *name, const char *end);

/* Parts that Llama and the families after it share: RMSNorm before attention and MLP, rotary positions, grouped
 * queries, a gated MLP. A family's file assembles its layer from them. */

/* Keys of all of them; the activation's key depends on the family. */
#define DECODER_KEYS DECODER_KEYS_BUT_ACTIVATION, KEY_ACTIVATION("hidden_act", activation)
#define DECODER_KEYS_BUT_ACTIVATION                                                                                    \
    KEY_SIZE("vocab_size", vocab_size, CONFIG_VOCAB_MAX),                                                              \
        KEY_SIZE("max_position_embeddings", context, CONFIG_CONTEXT_MAX),                                              \
        KEY_SIZE("hidden_size", hidden, CONFIG_WIDTH_MAX), KEY_SIZE("intermediate_size", ffn, CONFIG_WIDTH_MAX),       \
        KEY_SIZE("num_hidden_layers", layers, CONFIG_LAYERS_MAX),                                                      \
        KEY_SIZE("num_attention_heads", heads, CONFIG_HEADS_MAX), DECODER_KEYS_OPTIONAL
/* The optional ones among them. */
#define DECODER_KEYS_OPTIONAL                                                                                          \
    KEY_OPTIONAL_SIZE("head_dim", head_dim, CONFIG_HEADS_MAX), KEY_DOUBLE("rms_norm_eps", norm_epsilon, 1e-30, 1),     \
        KEY_DOUBLE("initializer_range", initial_range, 0, 100), KEY_BOOL("tie_word_embeddings", tied),                 \
        KEY_DROPOUT("attention_dropout"), KEY_ELSEWHERE("rope_parameters"), KEY_ELSEWHERE("rope_theta"),               \
        KEY_ELSEWHERE("rope_scaling")
/* If the key is missing, transformers assumes the number of heads (optional), or that of the authors' first model,
 * which readers cannot guess (required). */
#define DECODER_KEY_KV_HEADS_OPTIONAL KEY_OPTIONAL_SIZE("num_key_value_heads", kv_heads, CONFIG_HEADS_MAX)
#define DECODER_KEY_KV_HEADS_REQUIRED KEY_SIZE("num_key_value_heads", kv_heads, CONFIG_HEADS_MAX)

/* Sets transformers' defaults for missing keys. */
void decoder_set_defaults(struct model_config *config);
/* Reads all keys of the family, over its defaults for missing keys, and the positions. */
enum status decoder_read_config(const char *file, const json_t *object, struct model_config *config);
/* The first part of that: sizes. */
enum status decoder_read_sizes(const char *file, const json_t *object, struct model_config *config);
/* The second part: rotary positions and the family's windows. */
enum status decoder_read_positions(const char *file, const json_t *object, struct model_config *config);
/* Writes all of these keys for a new model, whose missing sizes follow from others. NULL if out of memory. */
json_t *decoder_write_config(const struct model_config *config);
/* Normal with initial_range; norm weights 1, biases 0. */
double decoder_initial_deviation(const struct model_config *config, const struct tensor *parameter);
/* Also for GPT-2 and OPT: projections into the residual stream start smaller, by the square root of their number. */
double plain_initial_deviation(const struct model_config *config, const struct tensor *parameter);
extern const char decoder_initial[];

/* RMSNorm of x with the current layer's NAME.weight [size]: over all features, or per head if size is head_dim. */
struct tensor *decoder_norm(struct builder *builder, const char *name, struct tensor *x, int64_t size);

/* Queries [S,T,heads*head_dim], keys and values [S,T,kv_heads*head_dim], before rotation; sinks [heads], or NULL. */
struct decoder_heads {
    struct tensor *q, *k, *v, *sinks;
};
/* Projects with q_proj, k_proj and v_proj, then normalizes queries and keys as the family does. */
struct decoder_heads decoder_project(struct builder *builder, struct tensor *normed);
/* Rotates queries and keys by `table`, except in layers without positions. Attends within the layer's window, and adds
 * the output projection to x (NULL: to nothing). */
struct tensor *decoder_attention(struct builder *builder, struct decoder_heads heads, struct tensor *table,
                                 struct tensor *x);
/* x (NULL: nothing) + down_proj(f(gate_proj(normed)) * up_proj(normed)) */
struct tensor *decoder_mlp(struct builder *builder, struct tensor *normed, struct tensor *x);
/* x + part, for families that change the added part. */
struct tensor *decoder_add(struct builder *builder, const char *name, struct tensor *x, struct tensor *part);

/* Embedding, layers (the family's `layer`, or Llama's), norm and head. Windowed layers have their own table if
 * config->local_rope says so. */
struct tensor *decoder_build(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                             struct graph *graph);

/* Fields of struct model_family that these families share, with their configs and without. */
extern const char *const decoder_buffers[];
#define DECODER_FAMILY                                                                                                 \
    DECODER_FAMILY_BUT_CONFIG, .read_config = decoder_read_config, .write_config = decoder_write_config
#define DECODER_FAMILY_BUT_CONFIG                                                                                      \
    .initial = decoder_initial, .prefix = "model.", .embedding = "embed_tokens.weight", .buffers = decoder_buffers,    \
    .build = decoder_build, .initial_deviation = decoder_initial_deviation

/* Mixtures of experts, in place of the MLP in a decoder's layers. A router chooses a few experts for each token; no
 * token is dropped. */

/* Keys of all of them. The loss that balances experts is off unless output_router_logits is true; its factor alone has
 * no effect. */
#define EXPERT_KEYS(experts_key)                                                                                       \
    KEY_OPTIONAL_SIZE(experts_key, experts, ROUTING_EXPERTS_MAX),                                                      \
        KEY_OPTIONAL_SIZE("num_experts_per_tok", experts_per_token, ROUTING_EXPERTS_MAX),                              \
        KEY_BOOL("output_router_logits", balances_experts),                                                            \
        KEY_DOUBLE("router_aux_loss_coef", balance_coefficient, 0, 1e6)
#define EXPERT_KEY_NORMALISED KEY_BOOL("norm_topk_prob", normalise_experts)
/* Qwen's: experts with their own width, in every layer, without windows. intermediate_size is for layers without
 * experts. */
#define EXPERT_KEYS_QWEN                                                                                               \
    EXPERT_KEY_NORMALISED, KEY_OPTIONAL_SIZE("moe_intermediate_size", expert_ffn, CONFIG_WIDTH_MAX),                   \
        KEY_FIXED("decoder_sparse_step", "1"), KEY_FIXED("mlp_only_layers", "[]"),                                     \
        KEY_FIXED("use_sliding_window", "false"), KEYS_IGNORED("sliding_window", "max_window_layers"),                 \
        KEY_ELSEWHERE("layer_types")

/* router_aux_loss_coef of all families except OLMoE. */
#define EXPERTS_BALANCE_COEFFICIENT 0.001
/* Defaults of a new model: 8 experts, 2 per token. */
void experts_set_defaults(struct model_config *config);

/* Names within a layer: of the router's weight, which may have a bias, and of an expert's number and parts. */
struct expert_names {
    const char *router, *experts, *gate, *up, *down;
    const char *fused_router; /* in files with fused experts; NULL: the same */
    bool router_bias;
};
extern const struct expert_names expert_names_mlp; /* "mlp.gate", "mlp.experts.0.gate_proj" */
/* Routes tokens to experts. Adds the layer to the load if its balance is part of the loss. */
struct routing experts_route(struct builder *builder, const struct expert_names *names, struct tensor *normed);
