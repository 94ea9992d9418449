/* GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), as transformers'
 * GPT2LMHeadModel computes it. */
#include <math.h>

#include "base/json.h"
#include "model/config.h"
#include "model/families/builder.h"

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"GPT2LMHeadModel\", \"GPT2Model\"]"),
    KEY_SIZE("vocab_size", vocab_size, CONFIG_VOCAB_MAX),
    KEY_SIZE("n_positions", context, CONFIG_CONTEXT_MAX),
    KEY_SIZE("n_embd", hidden, CONFIG_WIDTH_MAX),
    KEY_SIZE("n_layer", layers, CONFIG_LAYERS_MAX),
    KEY_SIZE("n_head", heads, CONFIG_HEADS_MAX),
    KEY_OPTIONAL_SIZE("n_inner", ffn, 4 * CONFIG_WIDTH_MAX),
    KEY_ACTIVATION("activation_function", activation),
    KEY_DOUBLE("layer_norm_epsilon", norm_epsilon, 1e-30, 1),
    KEY_DOUBLE("initializer_range", initial_range, 0, 100),
    KEY_BOOL("tie_word_embeddings", tied),
    KEY_BOOL("scale_attn_weights", scale_attention),
    KEY_BOOL("scale_attn_by_inverse_layer_idx", scale_by_inverse_layer),
    KEY_DROPOUT("embd_pdrop"),
    KEY_DROPOUT("resid_pdrop"),
    KEY_DROPOUT("attn_pdrop"),
    KEY_ELSEWHERE("n_ctx"),
    /* another order of the same GEMMs; the classifier of GPT2DoubleHeadsModel, and of the first releases */
    KEYS_IGNORED("reorder_and_upcast_attn", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                 "summary_type", "summary_use_proj", "n_special", "predict_special_tokens"),
    {0},
};

static void set_defaults(struct model_config *config) {
    config->activation = ACTIVATION_GELU_TANH;
    config->norm_epsilon = 1e-5;
    config->initial_range = 0.02;
    config->tied = true;
    config->attention_bias = true;
    config->mlp_bias = true;
    config->scale_attention = true;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *config) {
    set_defaults(config);
    TRY(config_read_keys(file, object, keys, config));
    if (config->ffn == 0) config->ffn = 4 * config->hidden;
    TRY(config_complete(file, keys, config));
    int64_t older_context = config->context;
    TRY(json_read_int(file, object, "n_ctx", 1, (int64_t)CONFIG_CONTEXT_MAX, &older_context));
    if (older_context != config->context)
        return status_set(STATUS_BAD_INPUT, "%s: n_ctx: %lld is not n_positions (%lld)", file, (long long)older_context,
                          (long long)config->context);
    return STATUS_OK;
}

static json_t *write_config(const struct model_config *config) {
    struct model_config written = *config;
    written.ffn = config_ffn(config);
    return config_write_keys(&written, keys);
}

/* y = x W + bias [+ residual] with the layer's Conv1D `name`, whose weight is [in, out]. */
static struct tensor *conv1d(struct builder *builder, const char *name, struct tensor *x, int64_t in, int64_t out,
                             struct tensor *residual) {
    struct linear_sizes sizes = {.in = in, .out = out, .has_bias = true, .weight_is_kn = true};
    return build_layer_linear_of(builder, name, x, &sizes, residual);
}

static struct tensor *attention(struct builder *builder, struct tensor *x) {
    const struct model_config *config = builder->config;
    struct graph *graph = builder->graph;
    int64_t width = config->heads * config->head_dim;
    double scale = config->scale_attention ? 1 / sqrt((double)config->head_dim) : 1;
    if (config->scale_by_inverse_layer) scale /= (double)(builder->layer + 1);
    struct tensor *normed = build_layer_norm(builder, "ln_1", x);
    struct tensor *qkv = conv1d(builder, "attn.c_attn", normed, config->hidden, 3 * width, NULL);
    struct attention_attributes attributes = {
        .heads = config->heads, .kv_heads = config->kv_heads, .head_dim = config->head_dim, .scale = scale};
    struct tensor *mixed =
        build_attention(builder, graph_view(graph, qkv, 0, width), graph_view(graph, qkv, width, width),
                        graph_view(graph, qkv, 2 * width, width), NULL, attributes);
    return conv1d(builder, "attn.c_proj", mixed, width, config->hidden, x);
}

static struct tensor *mlp(struct builder *builder, struct tensor *x) {
    const struct model_config *config = builder->config;
    struct tensor *normed = build_layer_norm(builder, "ln_2", x);
    struct tensor *wide = conv1d(builder, "mlp.c_fc", normed, config->hidden, config->ffn, NULL);
    struct tensor *active =
        ops_activation(builder->graph, build_node_name(builder, "mlp.act"), wide, config->activation);
    return conv1d(builder, "mlp.c_proj", active, config->ffn, config->hidden, x);
}

static struct tensor *build(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                            struct graph *graph) {
    struct builder builder = {.graph = graph, .config = config, .prefix = prefix, .layers = "h", .purpose = purpose};
    graph_begin_block(graph, "embedding");
    struct tensor *tokens = build_input(&builder, "tokens"), *positions = build_input(&builder, "positions");
    builder.segments = build_segments(&builder);
    struct tensor *wte = build_parameter(&builder, "wte.weight", config->vocab_size, config->hidden);
    struct tensor *wpe = build_parameter(&builder, "wpe.weight", config->context, config->hidden);
    struct tensor *x = ops_add(graph, "embedding", ops_embedding(graph, "wte", tokens, wte),
                               ops_embedding(graph, "wpe", positions, wpe));
    for (int64_t layer = 0; layer < config->layers; layer++) {
        builder.layer = layer;
        build_begin_layer(&builder);
        x = mlp(&builder, attention(&builder, x));
    }
    graph_begin_block(graph, "head");
    struct tensor *weight = build_parameter(&builder, "ln_f.weight", config->hidden, 0);
    struct tensor *bias = build_parameter(&builder, "ln_f.bias", config->hidden, 0);
    return build_head(&builder, ops_layer_norm(graph, "ln_f", x, weight, bias, config->norm_epsilon), wte);
}

/* Causal masks, which older releases stored with the weights. */
static const char *const buffers[] = {"h.#.attn.bias", "h.#.attn.masked_bias", NULL};

const struct model_family family_gpt2 = {
    .name = "gpt2",
    .models = "GPT-2 of any size, DistilGPT-2, and models of that form with an untied head, with attention scaled by "
              "layer or not at all",
    .initial = "normal with deviation 0.02 (`initializer_range`), for projections into the residual stream divided by "
               "the root of their number; biases 0, norm weights 1",
    .ffn = {4, 1, 1},
    .keys = keys,
    .prefix = "transformer.",
    .embedding = "wte.weight",
    .buffers = buffers,
    .set_defaults = set_defaults,
    .read_config = read_config,
    .build = build,
    .plain_mlp = true,
    .write_config = write_config,
    .initial_deviation = plain_initial_deviation,
};
