/* Any config.json is refused with a message, or can be read, written, read again and built. */
#include <string.h>

#include "base/json.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void build(const struct model_config *config, enum model_purpose purpose) {
    enum { LAYERS_MAX = 4 };
    struct model model = {.config = *config, .prefix = ""};
    struct graph *graph;
    struct tensor *out;
    if (config->layers > LAYERS_MAX) return; /* more of the same */
    enum status status = model_build_graph(&model, purpose, DTYPE_BF16, 2, 3, &graph, &out);
    if (status == STATUS_BAD_INPUT) return;
    BUG_IF(status != STATUS_OK, "%s", status_message());
    BUG_IF(model_matrix_parameter_count(graph) > model_parameter_count(graph), "counts");
    graph_free(graph);
}

static void read_again(const struct model_config *config) {
    struct model_config again;
    json_t *written = config->family->write_config(config);
    BUG_IF(!written, "%s", status_message());
    enum status status = model_config_read("written", written, config->family, &again);
    BUG_IF(status != STATUS_OK, "%s", status_message());
    BUG_IF(again.hidden != config->hidden || again.layers != config->layers || again.ffn != config->ffn ||
               again.kv_heads != config->kv_heads || again.head_dim != config->head_dim || again.tied != config->tied ||
               again.activation != config->activation || again.rope.scaling != config->rope.scaling ||
               again.window != config->window || again.embedding_width != config->embedding_width ||
               again.norm_after != config->norm_after || again.attention_bias != config->attention_bias ||
               again.attention_multiplier != config->attention_multiplier ||
               again.embedding_multiplier != config->embedding_multiplier ||
               again.residual_multiplier != config->residual_multiplier ||
               again.logits_divisor != config->logits_divisor || again.norm_one_plus != config->norm_one_plus ||
               again.attention_softcap != config->attention_softcap || again.logits_softcap != config->logits_softcap ||
               again.query_scalar != config->query_scalar || again.local_rope.theta != config->local_rope.theta ||
               again.local_rope.head_dim != config->local_rope.head_dim || again.experts != config->experts ||
               again.experts_per_token != config->experts_per_token || again.expert_ffn != config->expert_ffn ||
               again.shared_ffn != config->shared_ffn || again.normalise_experts != config->normalise_experts ||
               again.glu_alpha != config->glu_alpha || again.glu_limit != config->glu_limit ||
               again.balances_experts != config->balances_experts ||
               again.balance_coefficient != config->balance_coefficient ||
               memcmp(again.windowed, config->windowed, sizeof again.windowed) != 0 ||
               memcmp(again.without_rope, config->without_rope, (size_t)config->layers) != 0,
           "the written config is another");
    json_decref(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *object;
    status_clear();
    if (json_parse_object("fuzz", (const char *)data, bytes, &object) != STATUS_OK) return 0;
    for (int i = 0; i < model_family_count + model_wrapper_count; i++) {
        bool wrapper = i >= model_family_count;
        const struct model_family *family = wrapper ? model_wrappers[i - model_family_count] : model_families[i];
        struct model_config config;
        enum status status = model_config_read("fuzz", object, family, &config);
        BUG_IF(status != STATUS_OK && (status != STATUS_BAD_INPUT || status_message()[0] == '\0'), "no message");
        if (status != STATUS_OK) continue;
        if (!wrapper) read_again(&config);
        build(&config, MODEL_LOSS);
        build(&config, MODEL_LOSS_SEGMENTED);
        build(&config, MODEL_LOGITS);
    }
    json_decref(object);
    return 0;
}
