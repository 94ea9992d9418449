#include "model/families/builder.h"

#include <math.h>

#include "base/json.h"
#include "model/stored_format.h"

struct tensor *build_input(struct builder *builder, const char *name) {
    struct graph *graph = builder->graph;
    return graph_tensor(graph, TENSOR_INPUT, name,
                        shape_make(DTYPE_I32, 2, graph->micro_batch_sequences, graph->sequence_length, 1));
}

/* The input "targets", the same for all callers; NULL if the purpose has none. */
static struct tensor *build_targets(struct builder *builder) {
    bool has_targets = builder->purpose != MODEL_LOGITS && builder->purpose != MODEL_DECODE;
    if (!builder->targets && has_targets) builder->targets = build_input(builder, "targets");
    return builder->targets;
}

struct tensor *build_segments(struct builder *builder) {
    return builder->purpose == MODEL_LOSS_SEGMENTED ? build_input(builder, "segments") : NULL;
}

static struct tensor *parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1) {
    return d1 == 0 ? graph_parameter(builder->graph, name, 1, d0, 1) : graph_parameter(builder->graph, name, 2, d0, d1);
}

struct tensor *build_parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1) {
    return parameter(builder, graph_format(builder->graph, "%s%s", builder->prefix, name), d0, d1);
}

const char *build_layer_name(struct builder *builder, const char *name) {
    return graph_format(builder->graph, "%s%s.%lld.%s", builder->prefix, builder->layers, (long long)builder->layer,
                        name);
}

struct tensor *build_layer_parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1, bool wanted) {
    return wanted ? parameter(builder, build_layer_name(builder, name), d0, d1) : NULL;
}

static struct tensor *quantized(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    const struct weight_code code = {builder->config->base_format, shape_make(DTYPE_F32, 2, rows, columns, 1),
                                     builder->config->base_block};
    return graph_quantized_parameter(builder->graph, name, &code);
}

static struct tensor *matrix(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    const struct model_config *config = builder->config;
    if (config->base_format == WEIGHT_PLAIN || config->family->expert_format != WEIGHT_PLAIN ||
        (name && plain_layers_have(config->plain_layers, name)))
        return parameter(builder, name, rows, columns);
    return quantized(builder, name, rows, columns);
}

struct tensor *build_matrix(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    return matrix(builder, graph_format(builder->graph, "%s%s", builder->prefix, name), rows, columns);
}

/* A matrix of the current layer. */
static struct tensor *build_layer_matrix(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    return matrix(builder, build_layer_name(builder, name), rows, columns);
}

struct tensor *build_layer_quantized(struct builder *builder, const char *name, int64_t rows, int64_t columns) {
    return quantized(builder, build_layer_name(builder, name), rows, columns);
}

struct tensor *build_layer_linear(struct builder *builder, const char *name, struct tensor *x, int64_t in, int64_t out,
                                  bool has_bias, struct tensor *residual) {
    struct linear_sizes sizes = {.in = in, .out = out, .has_bias = has_bias};
    return build_layer_linear_of(builder, name, x, &sizes, residual);
}

struct tensor *build_layer_linear_of(struct builder *builder, const char *name, struct tensor *x,
                                     const struct linear_sizes *sizes, struct tensor *residual) {
    const char *full = graph_format(builder->graph, "%s.%lld.%s", builder->layers, (long long)builder->layer, name);
    return build_linear(builder, full, build_node_name(builder, name), x, sizes, residual);
}

struct tensor *build_layer_norm(struct builder *builder, const char *name, struct tensor *x) {
    struct graph *graph = builder->graph;
    int64_t hidden = builder->config->hidden;
    struct tensor *weight = build_layer_parameter(builder, graph_format(graph, "%s.weight", name), hidden, 0, true);
    struct tensor *bias = build_layer_parameter(builder, graph_format(graph, "%s.bias", name), hidden, 0, true);
    return ops_layer_norm(graph, build_node_name(builder, name), x, weight, bias, builder->config->norm_epsilon);
}

struct tensor *build_attention(struct builder *builder, struct tensor *q, struct tensor *k, struct tensor *v,
                               struct tensor *sinks, struct attention_attributes attributes) {
    return ops_attention(builder->graph, build_node_name(builder, "attention"), q, k, v, builder->segments, sinks,
                         attributes);
}

const char *build_node_name(struct builder *builder, const char *name) {
    return graph_format(builder->graph, "layer.%lld.%s", (long long)builder->layer, name);
}

void build_begin_layer(struct builder *builder) {
    graph_begin_block(builder->graph, graph_format(builder->graph, "layer %lld", (long long)builder->layer));
}

/* Log-probability head: the loss is computed from it and the experts' balance. */
static struct tensor *balanced_head(struct builder *builder, struct tensor *x, struct tensor *weight,
                                    struct tensor *targets) {
    struct graph *graph = builder->graph;
    const struct model_config *config = builder->config;
    struct tensor *y = ops_head_log_probability(graph, "head", x, weight, targets, NULL,
                                                (struct head_attributes){.softcap = config->logits_softcap});
    struct balance_attributes attributes = {.coefficient = config->balance_coefficient, .layers = config->layers};
    return ops_balanced_loss(graph, "loss", y, targets, builder->load, attributes);
}

struct tensor *build_head(struct builder *builder, struct tensor *x, struct tensor *embedding) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    struct tensor *weight = embedding;
    if (!config->tied) weight = parameter(builder, "lm_head.weight", config->vocab_size, config->embedding_width);
    struct head_attributes attributes = {.softcap = config->logits_softcap};
    if (builder->purpose == MODEL_DECODE) x = ops_last_token(graph, "last", x);
    if (builder->purpose == MODEL_LOGITS || builder->purpose == MODEL_DECODE)
        return ops_head_logits(graph, "logits", x, weight, NULL, attributes);
    struct tensor *targets = build_targets(builder);
    if (builder->load) return balanced_head(builder, x, weight, targets);
    if (builder->purpose == MODEL_LOG_PROBABILITIES)
        return ops_head_log_probability(graph, "head", x, weight, targets, NULL, attributes);
    return ops_head_loss(graph, "head", x, weight, targets, NULL, attributes);
}

bool name_ends(const char *name, const char *end) {
    size_t length = strlen(name), wanted = strlen(end);
    return length >= wanted && strcmp(name + length - wanted, end) == 0;
}

void decoder_set_defaults(struct model_config *config) {
    config->activation = ACTIVATION_SILU;
    config->norm_epsilon = 1e-6;
    config->initial_range = 0.02;
    config->scale_attention = true;
    config->rope.theta = 10000;
}

enum status decoder_read_config(const char *file, const json_t *object, struct model_config *config) {
    TRY(decoder_read_sizes(file, object, config));
    return decoder_read_positions(file, object, config);
}

enum status decoder_read_sizes(const char *file, const json_t *object, struct model_config *config) {
    const struct model_family *family = config->family;
    (family->set_assumed ? family->set_assumed : decoder_set_defaults)(config);
    TRY(config_read_keys(file, object, family->keys, config));
    TRY(config_complete(file, family->keys, config));
    if (config->head_dim % 2 != 0)
        return status_set(STATUS_BAD_INPUT, "%s: head_dim: %lld is odd; rotary embeddings turn pairs", file,
                          (long long)config->head_dim);
    if (config->experts_per_token <= config->experts) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: num_experts_per_tok: %lld, but there are %lld experts", file,
                      (long long)config->experts_per_token, (long long)config->experts);
}

enum status decoder_read_positions(const char *file, const json_t *object, struct model_config *config) {
    const struct model_family *family = config->family;
    TRY(config_read_rope(file, object, &config->rope));
    TRY(config_complete_rope(file, config, &config->rope));
    return config_read_windows(file, object, family->windows, family->window_pattern, config);
}

json_t *decoder_write_config(const struct model_config *config) {
    struct model_config written = *config;
    written.ffn = config_ffn(config);
    if (written.kv_heads == 0) written.kv_heads = written.heads;
    if (written.head_dim == 0 && written.heads > 0) written.head_dim = written.hidden / written.heads;
    if (written.expert_ffn == 0) written.expert_ffn = written.ffn;
    if (written.shared_ffn == 0 && written.experts > 0)
        written.shared_ffn = written.expert_ffn * written.experts_per_token;
    if (written.query_scalar == 0) written.query_scalar = written.head_dim;
    if (written.attention_multiplier == 0 && written.head_dim > 0)
        written.attention_multiplier = 1 / (double)written.head_dim;
    json_t *object = config_write_rope(&written.rope, config_write_keys(&written, config->family->keys));
    return config_write_windows(config, config->family->windows, object);
}

const char decoder_initial[] = "normal with deviation 0.02 (`initializer_range`); biases 0, norm weights 1";

double decoder_initial_deviation(const struct model_config *config, const struct tensor *parameter) {
    if (name_ends(parameter->name, ".bias")) return 0;
    if (parameter->shape.rank == 1) return config->norm_one_plus ? 0 : -1;
    return config->initial_range;
}

/* Radford et al., section 2.3; Zhang et al., section 2.2. */
double plain_initial_deviation(const struct model_config *config, const struct tensor *parameter) {
    static const char *const outputs[] = {".c_proj.weight", ".out_proj.weight", ".fc2.weight"};
    double deviation = decoder_initial_deviation(config, parameter);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (name_ends(parameter->name, outputs[i])) deviation /= sqrt(2.0 * (double)config->layers);
    return deviation;
}

static struct norm_attributes norm_of(const struct model_config *config) {
    return (struct norm_attributes){.epsilon = config->norm_epsilon, .one_plus = config->norm_one_plus};
}

struct tensor *decoder_norm(struct builder *builder, const char *name, struct tensor *x, int64_t size) {
    struct tensor *weight =
        build_layer_parameter(builder, graph_format(builder->graph, "%s.weight", name), size, 0, true);
    return ops_rms_norm(builder->graph, build_node_name(builder, name), x, weight, norm_of(builder->config));
}

struct decoder_heads decoder_project(struct builder *builder, struct tensor *normed) {
    const struct model_config *config = builder->config;
    enum decoder_heads_norm norm = config->family->heads_norm;
    bool has_bias = config->attention_bias;
    int64_t width = config->heads * config->head_dim, kv_width = config->kv_heads * config->head_dim;
    struct decoder_heads heads = {
        .q = build_layer_linear(builder, "self_attn.q_proj", normed, config->hidden, width, has_bias, NULL),
        .k = build_layer_linear(builder, "self_attn.k_proj", normed, config->hidden, kv_width, has_bias, NULL),
        .v = build_layer_linear(builder, "self_attn.v_proj", normed, config->hidden, kv_width, has_bias, NULL),
    };
    if (norm == HEADS_UNNORMED) return heads;
    heads.q = decoder_norm(builder, "self_attn.q_norm", heads.q, norm == HEADS_NORMED ? config->head_dim : width);
    heads.k = decoder_norm(builder, "self_attn.k_norm", heads.k, norm == HEADS_NORMED ? config->head_dim : kv_width);
    return heads;
}

/* Granite and Gemma set their own. */
static double score_scale(const struct model_config *config) {
    if (config->attention_multiplier > 0) return config->attention_multiplier;
    return 1 / sqrt((double)(config->query_scalar > 0 ? config->query_scalar : config->head_dim));
}

struct tensor *decoder_attention(struct builder *builder, struct decoder_heads heads, struct tensor *table,
                                 struct tensor *x) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    bool has_bias = config->attention_bias && !config->family->output_unbiased;
    struct attention_attributes attributes = {
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .scale = score_scale(config),
        .window = config->windowed[builder->layer] ? config->window : 0,
        .softcap = config->attention_softcap,
    };
    if (!config->without_rope[builder->layer]) {
        heads.q = ops_rope(graph, build_node_name(builder, "rope.q"), heads.q, table, config->heads, config->head_dim);
        heads.k =
            ops_rope(graph, build_node_name(builder, "rope.k"), heads.k, table, config->kv_heads, config->head_dim);
    }
    struct tensor *mixed = build_attention(builder, heads.q, heads.k, heads.v, heads.sinks, attributes);
    return build_layer_linear(builder, "self_attn.o_proj", mixed, config->heads * config->head_dim, config->hidden,
                              has_bias, x);
}

/* Uses the names and biases of the layer's MLP or of another one, with so many inner features. */
static struct tensor *decoder_gated_mlp(struct builder *builder, const char *name, int64_t ffn, bool has_bias,
                                        struct tensor *normed, struct tensor *x) {
    struct graph *graph = builder->graph;
    int64_t hidden = builder->config->hidden;
    const char *gate_name = graph_format(graph, "%s.gate_proj", name),
               *up_name = graph_format(graph, "%s.up_proj", name);
    struct tensor *gate = build_layer_linear(builder, gate_name, normed, hidden, ffn, has_bias, NULL);
    struct tensor *up = build_layer_linear(builder, up_name, normed, hidden, ffn, has_bias, NULL);
    const char *node = build_node_name(builder, graph_format(graph, "%s.act", name));
    struct tensor *active = ops_gated_activation(graph, node, gate, up, builder->config->activation);
    return build_layer_linear(builder, graph_format(graph, "%s.down_proj", name), active, ffn, hidden, has_bias, x);
}

struct tensor *decoder_mlp(struct builder *builder, struct tensor *normed, struct tensor *x) {
    return decoder_gated_mlp(builder, "mlp", builder->config->ffn, builder->config->mlp_bias, normed, x);
}

struct tensor *decoder_add(struct builder *builder, const char *name, struct tensor *x, struct tensor *part) {
    return ops_add(builder->graph, build_node_name(builder, name), x, part);
}

/* x times a setting of the config, if the config has it. */
static struct tensor *scale_by(struct graph *graph, const char *name, struct tensor *x, double factor) {
    return factor == 0 || factor == 1 ? x : ops_scale(graph, name, x, factor);
}

/* Tables of rotary positions: of all layers, and of windowed layers if theirs differs. */
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

/* residual + the sum over a token's experts of weight * expert(normed) */
static struct tensor *experts_mlp(struct builder *builder, const struct expert_names *names, struct tensor *normed,
                                  struct tensor *residual);

/* residual + sigmoid(shared_expert_gate(normed)) * shared_expert(normed) */
static struct tensor *shared_expert(struct builder *builder, struct tensor *normed, struct tensor *residual) {
    const struct model_config *config = builder->config;
    struct tensor *y = decoder_gated_mlp(builder, "mlp.shared_expert", config->shared_ffn, false, normed, NULL);
    struct tensor *gate = build_layer_linear(builder, "mlp.shared_expert_gate", normed, config->hidden, 1, false, NULL);
    return ops_token_gate(builder->graph, build_node_name(builder, "mlp.shared_expert.add"), y, gate, residual);
}

static struct tensor *llama_layer(struct builder *builder, struct tensor *x, struct tensor *table) {
    const struct model_config *config = builder->config;
    struct tensor *normed = decoder_norm(builder, "input_layernorm", x, config->hidden);
    x = decoder_attention(builder, decoder_project(builder, normed), table, x);
    normed = decoder_norm(builder, "post_attention_layernorm", x, config->hidden);
    if (!config->family->experts) return decoder_mlp(builder, normed, x);
    x = experts_mlp(builder, config->family->experts, normed, x);
    return config->shared_ffn > 0 ? shared_expert(builder, normed, x) : x;
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
        struct tensor *table = config->windowed[builder.layer] ? tables.local : tables.global;
        x = (config->family->layer ? config->family->layer : llama_layer)(&builder, x, table);
    }
    graph_begin_block(graph, "head");
    struct tensor *weight = build_parameter(&builder, "norm.weight", config->hidden, 0);
    x = ops_rms_norm(graph, "norm", x, weight, norm_of(config));
    double factor = config->logits_divisor > 0 ? 1 / config->logits_divisor : 1;
    return build_head(&builder, scale_by(graph, "norm.scale", x, factor), embedding);
}

/* Older releases stored these with the weights. */
const char *const decoder_buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq", NULL};

void experts_set_defaults(struct model_config *config) {
    config->experts = 8;
    config->experts_per_token = 2;
    config->balance_coefficient = EXPERTS_BALANCE_COEFFICIENT;
}

const struct expert_names expert_names_mlp = {
    .router = "mlp.gate",
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

/* transformers 5 has the experts of a layer in two tensors: gate_up_proj [E,2F,C], with each expert's gate first, and
 * down_proj [E,C,F]. save_pretrained(save_original_format=False) writes these. */
static void fuse(struct builder *builder, const char *name, int64_t expert, int64_t place, int64_t cuts,
                 struct tensor *weight) {
    const struct tensor_stack stack = {.name = build_layer_name(builder, name),
                                       .index = expert * cuts + place,
                                       .count = builder->config->experts * cuts,
                                       .cuts = cuts};
    graph_fuse(builder->graph, weight, stack);
}

static struct tensor *weight_of(struct builder *builder, const struct expert_names *names, int64_t expert,
                                const char *part, int64_t out, int64_t in) {
    const char *name = graph_format(builder->graph, "%s.%lld.%s.weight", names->experts, (long long)expert, part);
    return build_layer_matrix(builder, name, out, in);
}

static struct expert_weights weights_of(struct builder *builder, const struct expert_names *names, int64_t expert,
                                        int64_t ffn) {
    int64_t hidden = builder->config->hidden;
    const struct expert_weights weights = {.gate = weight_of(builder, names, expert, names->gate, ffn, hidden),
                                           .up = weight_of(builder, names, expert, names->up, ffn, hidden),
                                           .down = weight_of(builder, names, expert, names->down, hidden, ffn)};
    fuse(builder, "mlp.experts.gate_up_proj", expert, 0, 2, weights.gate);
    fuse(builder, "mlp.experts.gate_up_proj", expert, 1, 2, weights.up);
    fuse(builder, "mlp.experts.down_proj", expert, 0, 1, weights.down);
    return weights;
}

struct routing experts_route(struct builder *builder, const struct expert_names *names, struct tensor *normed) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    struct tensor *weight = build_layer_parameter(builder, graph_format(graph, "%s.weight", names->router),
                                                  config->experts, config->hidden, true);
    if (names->fused_router) {
        const char *name = build_layer_name(builder, graph_format(graph, "%s.weight", names->fused_router));
        graph_fuse(graph, weight, (struct tensor_stack){.name = name});
    }
    struct tensor *bias = build_layer_parameter(builder, graph_format(graph, "%s.bias", names->router), config->experts,
                                                0, names->router_bias);
    struct tensor *logits = ops_linear(graph, build_node_name(builder, names->router), normed, weight, bias, NULL,
                                       (struct linear_attributes){.weight_is_kn = false});
    struct tensor *targets = build_targets(builder);
    struct routing routing = ops_route(graph, build_node_name(builder, "mlp.route"), logits, targets,
                                       (struct route_attributes){config->experts_per_token, config->normalise_experts});
    bool loss = builder->purpose == MODEL_LOSS || builder->purpose == MODEL_LOSS_SEGMENTED;
    if (loss && config->balances_experts && config->balance_coefficient > 0)
        builder->load =
            ops_expert_load(graph, build_node_name(builder, "mlp.load"), logits, routing, targets, builder->load);
    return routing;
}

static struct tensor *experts_mlp(struct builder *builder, const struct expert_names *names, struct tensor *normed,
                                  struct tensor *residual) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    int64_t ffn = config->expert_ffn > 0 ? config->expert_ffn : config->ffn;
    struct routing routing = experts_route(builder, names, normed);
    struct dispatch_attributes all = {.experts = config->experts, .features = ffn};
    struct tensor *rows = ops_dispatch(graph, build_node_name(builder, "mlp.dispatch"), normed, routing, all);
    struct tensor *result = NULL;
    struct expert_attributes attributes = {
        .experts = config->experts,
        .slots = graph->micro_batch_sequences * graph->sequence_length * config->experts_per_token,
        .function = config->activation,
    };
    for (; attributes.expert < config->experts; attributes.expert++) {
        const struct expert_weights weights = weights_of(builder, names, attributes.expert, ffn);
        const char *name = graph_format(graph, "mlp.experts.%lld", (long long)attributes.expert);
        result = ops_expert_mlp(graph, build_node_name(builder, name), rows, routing, &weights, result, attributes);
    }
    return ops_combine(graph, build_node_name(builder, "mlp.combine"), result, routing, residual, all);
}
