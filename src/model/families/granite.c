/* Granite (IBM, "Granite 3.0 Language Models", 2024): Llama with multipliers after muP (Yang et al., arXiv 2203.03466),
 * as transformers' GraniteForCausalLM computes it. */
#include "model/families/builder.h"

static const double MIN = 1e-9, MAX = 1e9; /* of a multiplier; 0 would zero its product */

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"GraniteForCausalLM\", \"GraniteModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_OPTIONAL,
    KEY_BOOL("attention_bias", attention_bias),
    KEY_BOOL("mlp_bias", mlp_bias),
    KEY_DOUBLE("attention_multiplier", attention_multiplier, MIN, MAX),
    KEY_DOUBLE("embedding_multiplier", embedding_multiplier, MIN, MAX),
    KEY_DOUBLE("residual_multiplier", residual_multiplier, MIN, MAX),
    KEY_DOUBLE("logits_scaling", logits_divisor, MIN, MAX),
    {0},
};

/* As in the authors' models. The scores' multiplier follows from the head size. */
static void set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->norm_epsilon = 1e-5;
    config->tied = true;
    config->embedding_multiplier = 12;
    config->residual_multiplier = 0.22;
    config->logits_divisor = 8;
}

static void set_assumed(struct model_config *config) {
    decoder_set_defaults(config);
    config->attention_multiplier = 1;
    config->embedding_multiplier = 1;
    config->residual_multiplier = 1;
    config->logits_divisor = 1;
}

static struct tensor *add_scaled(struct builder *builder, const char *part_of, struct tensor *x, struct tensor *part) {
    struct graph *graph = builder->graph;
    const char *name = build_node_name(builder, graph_format(graph, "%s.scale", part_of));
    part = ops_scale(graph, name, part, builder->config->residual_multiplier);
    return decoder_add(builder, graph_format(graph, "%s.add", part_of), x, part);
}

static struct tensor *layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    const struct model_config *config = builder->config;
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, config->hidden);
    struct tensor *part = decoder_attention(builder, decoder_project(builder, normed), table, NULL);
    x = add_scaled(builder, "attention", x, part);
    normed = decoder_norm(builder, "post_attention_layernorm", x, config->hidden);
    return add_scaled(builder, "mlp", x, decoder_mlp(builder, normed, NULL));
}

const struct model_family family_granite = {
    .name = "granite",
    .models = "Granite 3 (dense, text)",
    .ffn = {4, 1, 1},
    .keys = keys,
    DECODER_FAMILY,
    .set_defaults = set_defaults,
    .set_assumed = set_assumed,
    .layer = layer,
};
