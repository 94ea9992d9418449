/* What Gemma 2 and 3 share: norms by 1 + w before and after attention and MLP, an embedding times the root of the
 * width, scores by a setting of their own, soft caps. */
#ifndef BALLAST_MODEL_MODEL_GEMMA_H
#define BALLAST_MODEL_MODEL_GEMMA_H

#include "model/model_decoder.h"

/* Keys of both next to those of the sizes. */
#define GEMMA_KEYS                                                                                                     \
    KEY_ACTIVATION("hidden_activation", activation), KEYS_LISTED_WINDOWS, KEY_BOOL("attention_bias", attention_bias),  \
        KEY_OPTIONAL_SIZE("query_pre_attn_scalar", query_scalar, CONFIG_WIDTH_MAX),                                    \
        KEY_ELSEWHERE("final_logit_softcapping"), KEY_FIXED("use_bidirectional_attention", "false"),                   \
        KEY_IGNORED("hidden_act"), /* older files have it too; transformers reads hidden_activation alone */           \
        KEY_IGNORED("cache_implementation")

/* Of a new model; the scores' scalar is the head size (gemma_write_config). */
void gemma_set_defaults(struct model_config *config);
/* Where the key is missing, *out stays; null: 0. */
enum status gemma_read_softcap(const char *file, const json_t *object, const char *key, double *out);
json_t *gemma_softcap_value(double softcap);
/* What gemma_read_config needs no family for; NULL when out of memory. */
json_t *gemma_write_config(const struct model_config *config);

/* x + norm(attention(norm(x))), then the same with the MLP. */
struct tensor *gemma_layer(struct builder *builder, struct tensor *x, struct tensor *table, bool norms_heads);
/* decoder_build with the embedding's multiple. */
struct tensor *gemma_build(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                           struct graph *graph);

extern const char gemma_initial[];
#define GEMMA_FAMILY                                                                                                   \
    .initial = gemma_initial, .embedding = "embed_tokens.weight", .buffers = decoder_buffers, .build = gemma_build,    \
    .initial_deviation = decoder_initial_deviation

#endif
