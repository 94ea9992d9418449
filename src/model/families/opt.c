/* OPT (Zhang et al., arXiv 2205.01068), as transformers' OPTForCausalLM computes it. */
#include <math.h>

#include "base/json.h"
#include "model/config.h"
#include "model/families/builder.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"OPTForCausalLM\", \"OPTModel\"]"),
    KEY_SIZE("vocab_size", vocab_size, CONFIG_VOCAB_MAX),
    KEY_SIZE("max_position_embeddings", context, CONFIG_CONTEXT_MAX),
    KEY_SIZE("hidden_size", hidden, CONFIG_WIDTH_MAX),
    KEY_OPTIONAL_SIZE("word_embed_proj_dim", embedding_width, CONFIG_WIDTH_MAX),
    KEY_SIZE("ffn_dim", ffn, 4 * CONFIG_WIDTH_MAX),
    KEY_SIZE("num_hidden_layers", layers, CONFIG_LAYERS_MAX),
    KEY_SIZE("num_attention_heads", heads, CONFIG_HEADS_MAX),
    KEY_ACTIVATION("activation_function", activation),
    KEY_DOUBLE("init_std", initial_range, 0, 100),
    KEY_BOOL("tie_word_embeddings", tied),
    KEY_BOOL("enable_bias", attention_bias),
    KEY_ELSEWHERE("do_layer_norm_before"),
    KEY_DROPOUT("dropout"),
    KEY_DROPOUT("attention_dropout"),
    KEY_DROPOUT("activation_dropout"),
    KEY_DROPOUT("layerdrop"),
    KEY_FIXED("_remove_final_layer_norm", "false"),
    KEY_FIXED("layer_norm_elementwise_affine", "true"),
    {0},
};

/* Rows of the position table that are no positions. */
enum { FIRST_POSITION = 2 };

static void set_defaults(struct model_config *config) {
    config->activation = ACTIVATION_RELU;
    config->norm_epsilon = 1e-5; /* not configurable in these models */
    config->initial_range = 0.006;
    config->tied = true;
    config->attention_bias = true;
    config->mlp_bias = true;
    config->scale_attention = true;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *config) {
    bool norm_before = true;
    set_defaults(config);
    config->initial_range = 0.02; /* transformers' default if the key is missing */
    TRY(config_read_keys(file, object, keys, config));
    TRY(config_complete(file, keys, config));
    TRY(json_read_bool(file, object, "do_layer_norm_before", &norm_before));
    config->norm_after = !norm_before;
    config->mlp_bias = config->attention_bias;
    return STATUS_OK;
}

static json_t *write_config(const struct model_config *config) {
    struct model_config written = *config;
    written.ffn = config_ffn(config);
    if (written.embedding_width == 0) written.embedding_width = written.hidden;
    return config_put(config_write_keys(&written, keys), "do_layer_norm_before", json_boolean(!config->norm_after));
}

/* Applies the norm before `part` of the layer, or after the residual sum. */
static struct tensor *norm_before(struct builder *builder, const char *name, struct tensor *x) {
    return builder->config->norm_after ? x : build_layer_norm(builder, name, x);
}

static struct tensor *norm_after(struct builder *builder, const char *name, struct tensor *x) {
    return builder->config->norm_after ? build_layer_norm(builder, name, x) : x;
}

static struct tensor *attention(struct builder *builder, struct tensor *x) {
    const struct model_config *config = builder->config;
    int64_t hidden = config->hidden;
    bool bias = config->attention_bias;
    struct attention_attributes attributes = {
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .scale = 1 / sqrt((double)config->head_dim),
    };
    struct tensor *normed = norm_before(builder, "self_attn_layer_norm", x);
    struct tensor *q = build_layer_linear(builder, "self_attn.q_proj", normed, hidden, hidden, bias, NULL);
    struct tensor *k = build_layer_linear(builder, "self_attn.k_proj", normed, hidden, hidden, bias, NULL);
    struct tensor *v = build_layer_linear(builder, "self_attn.v_proj", normed, hidden, hidden, bias, NULL);
    struct tensor *mixed = build_attention(builder, q, k, v, NULL, attributes);
    struct tensor *sum = build_layer_linear(builder, "self_attn.out_proj", mixed, hidden, hidden, bias, x);
    return norm_after(builder, "self_attn_layer_norm", sum);
}

static struct tensor *mlp(struct builder *builder, struct tensor *x) {
    const struct model_config *config = builder->config;
    struct tensor *normed = norm_before(builder, "final_layer_norm", x);
    struct tensor *wide =
        build_layer_linear(builder, "fc1", normed, config->hidden, config->ffn, config->mlp_bias, NULL);
    struct tensor *active = ops_activation(builder->graph, build_node_name(builder, "act"), wide, config->activation);
    struct tensor *sum = build_layer_linear(builder, "fc2", active, config->ffn, config->hidden, config->mlp_bias, x);
    return norm_after(builder, "final_layer_norm", sum);
}

/* x unchanged, or projected by NAME.weight [out,in] if the embedding's width differs from the layers'. */
static struct tensor *project(struct builder *builder, const char *name, struct tensor *x, int64_t in, int64_t out) {
    if (in == out) return x;
    struct linear_sizes sizes = {.in = in, .out = out};
    return build_linear(builder, graph_format(builder->graph, "decoder.%s", name), name, x, &sizes, NULL);
}

static struct tensor *final_norm(struct builder *builder, struct tensor *x) {
    const struct model_config *config = builder->config;
    if (config->norm_after) return x;
    struct tensor *weight = build_parameter(builder, "decoder.final_layer_norm.weight", config->hidden, 0);
    struct tensor *bias = build_parameter(builder, "decoder.final_layer_norm.bias", config->hidden, 0);
    return ops_layer_norm(builder->graph, "final_layer_norm", x, weight, bias, config->norm_epsilon);
}

static struct tensor *build(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                            struct graph *graph) {
    struct builder builder = {
        .graph = graph, .config = config, .prefix = prefix, .layers = "decoder.layers", .purpose = purpose};
    int64_t hidden = config->hidden, width = config->embedding_width;
    graph_begin_block(graph, "embedding");
    struct tensor *tokens = build_input(&builder, "tokens"), *positions = build_input(&builder, "positions");
    builder.segments = build_segments(&builder);
    struct tensor *embedding = build_parameter(&builder, "decoder.embed_tokens.weight", config->vocab_size, width);
    struct tensor *places =
        build_parameter(&builder, "decoder.embed_positions.weight", config->context + FIRST_POSITION, hidden);
    struct tensor *x = ops_embedding(graph, "embed_tokens", tokens, embedding);
    x = ops_add(graph, "embedding", project(&builder, "project_in", x, width, hidden),
                ops_embedding_from(graph, "embed_positions", positions, places, FIRST_POSITION));
    for (; builder.layer < config->layers; builder.layer++) {
        build_begin_layer(&builder);
        x = mlp(&builder, attention(&builder, x));
    }
    graph_begin_block(graph, "head");
    x = project(&builder, "project_out", final_norm(&builder, x), hidden, width);
    return build_head(&builder, x, embedding);
}

static const char *const buffers[] = {NULL};

const struct model_family family_opt = {
    .name = "opt",
    .models = "OPT of any size, Galactica, and models of that form without biases or with an untied head",
    .initial = "normal with deviation 0.006 (`init_std`), for projections into the residual stream divided by the root "
               "of their number; biases 0, norm weights 1",
    .ffn = {4, 1, 1},
    .keys = keys,
    .prefix = "model.",
    .embedding = "decoder.embed_tokens.weight",
    .buffers = buffers,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .build = build,
    .plain_mlp = true,
    .write_config = write_config,
    .initial_deviation = plain_initial_deviation,
};
