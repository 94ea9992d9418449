#include "model/model_gemma.h"

#include <math.h>

#include "base/half.h"
#include "base/json.h"

static const char logits_softcap[] = "final_logit_softcapping";

void gemma_set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->activation = ACTIVATION_GELU_TANH;
    config->norm_one_plus = true;
    config->tied = true;
    config->window = 4096;
}

enum status gemma_read_softcap(const char *file, const json_t *object, const char *key, double *out) {
    if (json_is_null(json_object_get(object, key))) *out = 0;
    return json_read_double(file, object, key, 1e-3, 1e9, out);
}

json_t *gemma_softcap_value(double softcap) { return softcap > 0 ? json_real(softcap) : json_null(); }

json_t *gemma_write_config(const struct model_config *config) {
    struct model_config written = *config;
    if (written.head_dim == 0 && written.heads > 0) written.head_dim = written.hidden / written.heads;
    if (written.query_scalar == 0) written.query_scalar = written.head_dim;
    json_t *object = config_write_listed_windows(config, decoder_write_config(&written));
    if (object && json_object_set_new(object, logits_softcap, gemma_softcap_value(config->logits_softcap)) == 0)
        return object;
    json_decref(object);
    return NULL;
}

static struct tensor *attention(struct builder *builder, struct tensor *x, struct tensor *table, bool norms_heads) {
    const struct model_config *config = builder->config;
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, config->hidden);
    struct decoder_heads heads = decoder_project(builder, normed, config->attention_bias);
    if (norms_heads) {
        heads.q = decoder_norm(builder, "self_attn.q_norm", heads.q, config->head_dim);
        heads.k = decoder_norm(builder, "self_attn.k_norm", heads.k, config->head_dim);
    }
    return decoder_attention(builder, heads, table, config->attention_bias, NULL);
}

struct tensor *gemma_layer(struct builder *builder, struct tensor *x, struct tensor *table, bool norms_heads) {
    int64_t hidden = builder->config->hidden;
    struct tensor *part = attention(builder, x, table, norms_heads);
    x = decoder_add(builder, "attention.add", x, decoder_norm(builder, "post_attention_layernorm", part, hidden));
    part = decoder_norm(builder, "pre_feedforward_layernorm", x, hidden);
    part = decoder_mlp(builder, part, false, NULL);
    return decoder_add(builder, "mlp.add", x, decoder_norm(builder, "post_feedforward_layernorm", part, hidden));
}

/* The multiple is rounded to the weights' dtype, as transformers has it. */
struct tensor *gemma_build(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                           struct graph *graph) {
    struct model_config scaled = *config;
    float root = (float)sqrt((double)config->hidden);
    scaled.embedding_multiplier = (double)(graph->dtype == DTYPE_BF16 ? bf16_to_float(bf16_from_float(root)) : root);
    return decoder_build(&scaled, prefix, purpose, graph);
}

const char gemma_initial[] =
    "normal with deviation 0.02 (`initializer_range`); biases 0, norm weights 0 (norms multiply by 1 + weight)";
