/* Qwen2 and Qwen2.5 (Yang et al., arXiv 2407.10671 and 2412.15115): Llama with biases on queries, keys and values, as
 * transformers' Qwen2ForCausalLM computes it. */
#include "base/json.h"
#include "model/families/builder.h"

static const struct config_key qwen2_keys[] = {
    KEY_ARCHITECTURES("[\"Qwen2ForCausalLM\", \"Qwen2Model\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEYS_LAYER_WINDOWS,
    KEY_FIXED("use_mrope", "false"), /* positions in images */
    {0},
};

static void qwen2_set_assumed(struct model_config *config) {
    decoder_set_defaults(config);
    config->attention_bias = true;
}

static void qwen2_set_defaults(struct model_config *config) {
    qwen2_set_assumed(config);
    config->rope.theta = 1e6;
}

const struct model_family family_qwen2 = {
    .name = "qwen2",
    .models = "Qwen2 and Qwen2.5 (dense, text), and models of that form",
    .ffn = {16, 3, 128}, /* 4864 at a hidden size of 896; near those of the larger models */
    .keys = qwen2_keys,
    DECODER_FAMILY,
    .set_defaults = qwen2_set_defaults,
    .set_assumed = qwen2_set_assumed,
    .output_unbiased = true,
    .windows = CONFIG_WINDOWS_FROM_LAYER,
};

/* Qwen1.5-MoE and Qwen2-MoE (Yang et al., arXiv 2407.10671): Qwen2 with experts in place of the MLP, and a shared
 * expert for all tokens with its own gate, as in transformers' Qwen2MoeForCausalLM. */

static const struct config_key qwen2_moe_keys[] = {
    KEY_ARCHITECTURES("[\"Qwen2MoeForCausalLM\", \"Qwen2MoeModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEY_BOOL("qkv_bias", attention_bias),
    EXPERT_KEYS("num_experts"),
    EXPERT_KEYS_QWEN,
    KEY_OPTIONAL_SIZE("shared_expert_intermediate_size", shared_ffn, CONFIG_WIDTH_MAX),
    {0},
};

static void qwen2_moe_set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    experts_set_defaults(config);
    config->attention_bias = true;
    config->rope.theta = 1e6;
}

static void qwen2_moe_set_assumed(struct model_config *config) {
    qwen2_set_assumed(config);
    config->experts = 60;
    config->experts_per_token = 4;
    config->expert_ffn = 1408;
    config->shared_ffn = 5632;
    config->balance_coefficient = EXPERTS_BALANCE_COEFFICIENT;
}

const struct model_family family_qwen2_moe = {
    .name = "qwen2_moe",
    .models = "Qwen1.5-MoE and Qwen2 with experts (57B-A14B)",
    .ffn = {11, 16, 1}, /* of an expert: 1408 at a hidden size of 2048 */
    .keys = qwen2_moe_keys,
    DECODER_FAMILY,
    .set_defaults = qwen2_moe_set_defaults,
    .set_assumed = qwen2_moe_set_assumed,
    .output_unbiased = true,
    .experts = &expert_names_mlp,
    .windows = CONFIG_WINDOWS_REFUSED,
};

/* Qwen3 (Yang et al., arXiv 2505.09388): Llama whose queries and keys are normalised by head, as transformers'
 * Qwen3ForCausalLM computes it. */

static const struct config_key qwen3_keys[] = {
    KEY_ARCHITECTURES("[\"Qwen3ForCausalLM\", \"Qwen3Model\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEYS_LAYER_WINDOWS,
    KEY_BOOL("attention_bias", attention_bias),
    {0},
};

static void qwen3_set_assumed(struct model_config *config) {
    decoder_set_defaults(config);
    config->head_dim = 128; /* whatever the hidden size */
}

static void qwen3_set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    config->rope.theta = 1e6;
}

const struct model_family family_qwen3 = {
    .name = "qwen3",
    .models = "Qwen3 (dense, text)",
    .ffn = {3, 1, 1}, /* as in the models of 0.6B, 1.7B and 8B */
    .keys = qwen3_keys,
    DECODER_FAMILY,
    .set_defaults = qwen3_set_defaults,
    .set_assumed = qwen3_set_assumed,
    .heads_norm = HEADS_NORMED,
    .windows = CONFIG_WINDOWS_FROM_LAYER,
};

/* Qwen3-MoE (Yang et al., arXiv 2505.09388): Qwen3 with experts in place of the MLP, as transformers'
 * Qwen3MoeForCausalLM computes it. */

static const struct config_key qwen3_moe_keys[] = {
    KEY_ARCHITECTURES("[\"Qwen3MoeForCausalLM\", \"Qwen3MoeModel\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEY_BOOL("attention_bias", attention_bias),
    EXPERT_KEYS("num_experts"),
    KEY_ELSEWHERE("num_local_experts"),
    EXPERT_KEYS_QWEN,
    {0},
};

static void qwen3_moe_set_defaults(struct model_config *config) {
    decoder_set_defaults(config);
    experts_set_defaults(config);
    config->normalise_experts = true;
    config->rope.theta = 1e6;
}

/* transformers 5 writes the number of experts by another name, and reads both. */
static enum status read_experts(const char *file, const json_t *object, struct model_config *config) {
    int64_t experts = 0, local = 0;
    TRY(json_read_int(file, object, "num_experts", 1, ROUTING_EXPERTS_MAX, &experts));
    TRY(json_read_int(file, object, "num_local_experts", 1, ROUTING_EXPERTS_MAX, &local));
    if (experts > 0 && local > 0 && experts != local)
        return status_set(STATUS_BAD_INPUT, "%s: num_experts: differs from num_local_experts (%lld)", file,
                          (long long)local);
    config->experts = local > 0 ? local : 128;
    return STATUS_OK;
}

static void qwen3_moe_set_assumed(struct model_config *config) {
    decoder_set_defaults(config);
    config->experts_per_token = 8;
    config->expert_ffn = 768;
    config->balance_coefficient = EXPERTS_BALANCE_COEFFICIENT;
}

static enum status qwen3_moe_read_config(const char *file, const json_t *object, struct model_config *config) {
    TRY(read_experts(file, object, config));
    return decoder_read_config(file, object, config);
}

const struct model_family family_qwen3_moe = {
    .name = "qwen3_moe",
    .models = "Qwen3 with experts (30B-A3B, 235B-A22B; text)",
    .ffn = {3, 8, 1}, /* of an expert: 768 at a hidden size of 2048 */
    .keys = qwen3_moe_keys,
    DECODER_FAMILY_BUT_CONFIG,
    .set_defaults = qwen3_moe_set_defaults,
    .set_assumed = qwen3_moe_set_assumed,
    .read_config = qwen3_moe_read_config,
    .heads_norm = HEADS_NORMED,
    .experts = &expert_names_mlp,
    .windows = CONFIG_WINDOWS_REFUSED,
    .write_config = decoder_write_config,
};
