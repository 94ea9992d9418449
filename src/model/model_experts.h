/* Mixtures of experts: what takes the place of the MLP in layers of model_decoder.h. A router chooses a few experts for
 * each token; no token is dropped. */
#ifndef BALLAST_MODEL_MODEL_EXPERTS_H
#define BALLAST_MODEL_MODEL_EXPERTS_H

#include "model/model_decoder.h"

/* Keys that all of them have. The loss that balances experts is off unless output_router_logits asks for it: its factor
 * alone changes nothing. */
#define EXPERT_KEYS(experts_key)                                                                                       \
    KEY_OPTIONAL_SIZE(experts_key, experts, ROUTING_EXPERTS_MAX),                                                      \
        KEY_OPTIONAL_SIZE("num_experts_per_tok", experts_per_token, ROUTING_EXPERTS_MAX),                              \
        KEY_BOOL("output_router_logits", balances_experts),                                                            \
        KEY_DOUBLE("router_aux_loss_coef", balance_coefficient, 0, 1e6)
#define EXPERT_KEY_NORMALISED KEY_BOOL("norm_topk_prob", normalise_experts)
/* Qwen's: experts of their own width, in every layer, without windows. intermediate_size is that of layers without
 * experts. */
#define EXPERT_KEYS_QWEN                                                                                               \
    EXPERT_KEY_NORMALISED, KEY_OPTIONAL_SIZE("moe_intermediate_size", expert_ffn, CONFIG_WIDTH_MAX),                   \
        KEY_FIXED("decoder_sparse_step", "1"), KEY_FIXED("mlp_only_layers", "[]"),                                     \
        KEY_FIXED("use_sliding_window", "false"), KEY_IGNORED("sliding_window"), KEY_IGNORED("max_window_layers"),     \
        KEY_ELSEWHERE("layer_types")

/* router_aux_loss_coef of all families but OLMoE. */
#define EXPERTS_BALANCE_COEFFICIENT 0.001
/* Of a new model: 8 experts, of which a token takes 2. */
void experts_set_defaults(struct model_config *config);
/* Reads the family's keys, and refuses what does not fit: more experts of a token than there are; layers with windows
 * where the family has none. */
enum status experts_read_config(const char *file, const json_t *object, struct model_config *config);
/* decoder_write_config, experts as wide as an MLP would be where nothing is said. */
json_t *experts_write_config(const struct model_config *config);

/* BAD_INPUT where a token takes more experts than there are. */
enum status experts_check_config(const char *file, const struct model_config *config);

/* Names within a layer: of the router's weight, which may have a bias, and of an expert's number and parts. */
struct expert_names {
    const char *router, *experts, *gate, *up, *down;
    const char *fused_router; /* of files whose experts are fused; NULL: the same */
    bool router_bias;
};
extern const struct expert_names expert_names_mlp; /* "mlp.gate", "mlp.experts.0.gate_proj" */
/* Where tokens go; adds the layer to the load where its balance is a part of the loss. */
struct routing experts_route(struct builder *builder, const struct expert_names *names, struct tensor *normed);
/* residual + the sum over a token's experts of weight * expert(normed) */
struct tensor *experts_mlp(struct builder *builder, const struct expert_names *names, struct tensor *normed,
                           struct tensor *residual);

#endif
