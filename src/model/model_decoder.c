#include "model/model_decoder.h"

#include <math.h>

void decoder_set_defaults(struct model_config *config) {
    config->activation = ACTIVATION_SILU;
    config->norm_epsilon = 1e-6;
    config->initial_range = 0.02;
    config->scale_attention = true;
    config->rope.theta = 10000;
}

enum status decoder_read_config(const char *file, const json_t *object, struct model_config *config) {
    TRY(decoder_read_sizes(file, object, config));
    TRY(config_read_rope(file, object, &config->rope));
    return config_complete_rope(file, config, &config->rope);
}

enum status decoder_read_sizes(const char *file, const json_t *object, struct model_config *config) {
    const struct config_key *keys = config->family->keys;
    TRY(config_read_keys(file, object, keys, config));
    TRY(config_complete(file, keys, config));
    if (config->head_dim % 2 != 0)
        return status_set(STATUS_BAD_INPUT, "%s: head_dim: %lld is odd; rotary embeddings turn pairs", file,
                          (long long)config->head_dim);
    return STATUS_OK;
}

json_t *decoder_write_config(const struct model_config *config) {
    struct model_config written = *config;
    written.ffn = config_ffn(config);
    if (written.kv_heads == 0) written.kv_heads = written.heads;
    if (written.head_dim == 0 && written.heads > 0) written.head_dim = written.hidden / written.heads;
    json_t *object = config_write_keys(&written, config->family->keys);
    if (!object || config_write_rope(&written.rope, object)) return object;
    json_decref(object);
    return NULL;
}

const char decoder_initial[] = "normal with deviation 0.02 (`initializer_range`); biases 0, norm weights 1";

double decoder_initial_deviation(const struct model_config *config, const struct tensor *parameter) {
    if (name_ends(parameter->name, ".bias")) return 0;
    if (parameter->shape.rank == 1) return config->norm_one_plus ? 0 : -1;
    return config->initial_range;
}

static struct norm_attributes norm_of(const struct model_config *config) {
    return (struct norm_attributes){.epsilon = config->norm_epsilon, .one_plus = config->norm_one_plus};
}

struct tensor *decoder_norm(struct builder *builder, const char *name, struct tensor *x, int64_t size) {
    struct tensor *weight =
        build_layer_parameter(builder, graph_format(builder->graph, "%s.weight", name), size, 0, true);
    return ops_rms_norm(builder->graph, build_node_name(builder, name), x, weight, norm_of(builder->config));
}

struct decoder_heads decoder_project(struct builder *builder, struct tensor *normed, bool has_bias) {
    const struct model_config *config = builder->config;
    int64_t width = config->heads * config->head_dim, kv_width = config->kv_heads * config->head_dim;
    return (struct decoder_heads){
        .q = build_layer_linear(builder, "self_attn.q_proj", normed, config->hidden, width, has_bias, NULL),
        .k = build_layer_linear(builder, "self_attn.k_proj", normed, config->hidden, kv_width, has_bias, NULL),
        .v = build_layer_linear(builder, "self_attn.v_proj", normed, config->hidden, kv_width, has_bias, NULL),
    };
}

/* Granite and Gemma set their own. */
static double score_scale(const struct model_config *config) {
    if (config->attention_multiplier > 0) return config->attention_multiplier;
    return 1 / sqrt((double)(config->query_scalar > 0 ? config->query_scalar : config->head_dim));
}

struct tensor *decoder_attention(struct builder *builder, struct decoder_heads heads, struct tensor *table,
                                 bool has_bias, struct tensor *x) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    struct attention_attributes attributes = {
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .scale = score_scale(config),
        .window = config->windowed[builder->layer] ? config->window : 0,
        .softcap = config->attention_softcap,
    };
    if (table) {
        heads.q = ops_rope(graph, build_node_name(builder, "rope.q"), heads.q, table, config->heads, config->head_dim);
        heads.k =
            ops_rope(graph, build_node_name(builder, "rope.k"), heads.k, table, config->kv_heads, config->head_dim);
    }
    struct tensor *mixed = build_attention(builder, heads.q, heads.k, heads.v, heads.sinks, attributes);
    return build_layer_linear(builder, "self_attn.o_proj", mixed, config->heads * config->head_dim, config->hidden,
                              has_bias, x);
}

struct tensor *decoder_mlp(struct builder *builder, struct tensor *normed, bool has_bias, struct tensor *x) {
    const struct model_config *config = builder->config;
    int64_t hidden = config->hidden, ffn = config->ffn;
    struct tensor *gate = build_layer_linear(builder, "mlp.gate_proj", normed, hidden, ffn, has_bias, NULL);
    struct tensor *up = build_layer_linear(builder, "mlp.up_proj", normed, hidden, ffn, has_bias, NULL);
    struct tensor *active =
        ops_gated_activation(builder->graph, build_node_name(builder, "mlp.act"), gate, up, config->activation);
    return build_layer_linear(builder, "mlp.down_proj", active, ffn, hidden, has_bias, x);
}

struct tensor *decoder_normed_mlp(struct builder *builder, struct tensor *x, bool has_bias) {
    struct tensor *normed = decoder_norm(builder, "post_attention_layernorm", x, builder->config->hidden);
    return decoder_mlp(builder, normed, has_bias, x);
}

struct tensor *decoder_add(struct builder *builder, const char *name, struct tensor *x, struct tensor *part) {
    return ops_add(builder->graph, build_node_name(builder, name), x, part);
}

/* x times a setting of the config, where it has the setting. */
static struct tensor *scale_by(struct graph *graph, const char *name, struct tensor *x, double factor) {
    return factor == 0 || factor == 1 ? x : ops_scale(graph, name, x, factor);
}

/* The tables of rotary positions: of all layers, and of windowed layers where these have another. */
struct rope_tables {
    struct tensor *global, *local;
};

static struct rope_tables add_tables(struct graph *graph, const struct model_config *config, struct tensor *positions) {
    int64_t windowed = 0;
    for (int64_t layer = 0; layer < config->layers; layer++)
        windowed += config->windowed[layer];
    if (config->local_rope.head_dim == 0) windowed = 0;
    struct rope_tables tables = {0};
    struct rope_table_attributes rope = config->rope;
    int64_t longest = graph->cache_positions > 0 ? graph->cache_positions : graph->sequence_length;
    rope.is_long = rope.scaling == ROPE_SCALING_LONGROPE && (double)longest > rope.original_context;
    if (windowed < config->layers) tables.global = ops_rope_table(graph, "rope", positions, rope);
    tables.local = windowed > 0 ? ops_rope_table(graph, "rope.local", positions, config->local_rope) : tables.global;
    return tables;
}

struct tensor *decoder_build(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                             struct graph *graph) {
    struct builder builder = {
        .graph = graph, .config = config, .prefix = prefix, .layers = "layers", .purpose = purpose};
    graph_begin_block(graph, "embedding");
    struct tensor *tokens = build_input(&builder, "tokens"), *positions = build_input(&builder, "positions");
    builder.segments = build_segments(&builder);
    struct rope_tables tables = add_tables(graph, config, positions);
    struct tensor *embedding = build_parameter(&builder, "embed_tokens.weight", config->vocab_size, config->hidden);
    struct tensor *x = scale_by(graph, "embedding.scale", ops_embedding(graph, "embedding", tokens, embedding),
                                config->embedding_multiplier);
    for (; builder.layer < config->layers; builder.layer++) {
        build_begin_layer(&builder);
        x = config->family->layer(&builder, x, config->windowed[builder.layer] ? tables.local : tables.global);
    }
    graph_begin_block(graph, "head");
    struct tensor *weight = build_parameter(&builder, "norm.weight", config->hidden, 0);
    x = ops_rms_norm(graph, "norm", x, weight, norm_of(config));
    double factor = config->logits_divisor > 0 ? 1 / config->logits_divisor : 1;
    return build_head(&builder, scale_by(graph, "norm.scale", x, factor), embedding);
}

/* Which older releases stored with the weights. */
const char *const decoder_buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq", NULL};
