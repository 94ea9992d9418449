/* config.json: what each family reads, and what it refuses by which name. */
#include <string.h>

#include "model/model.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

static const struct model_family *family_of(const json_t *object) {
    const struct model_family *family = NULL;
    assert_int_equal(model_family_of("config.json", object, &family), STATUS_OK);
    return family;
}

static enum status read_object(const json_t *object, struct model_config *out) {
    return family_of(object)->read_config("config.json", object, out);
}

static struct model_config read_case(const char *model_case) {
    json_t *object = fixture_json(model_case, "config.json");
    struct model_config config;
    if (read_object(object, &config) != STATUS_OK) fail_msg("%s: %s", model_case, status_message());
    json_decref(object);
    return config;
}

static void gpt2_is_read(void **state) {
    (void)state;
    struct model_config config = read_case("gpt2");
    assert_string_equal(config.family->name, "gpt2");
    assert_int_equal(config.vocab_size, 211);
    assert_int_equal(config.hidden, 90);
    assert_int_equal(config.layers, 2);
    assert_int_equal(config.heads, 9);
    assert_int_equal(config.kv_heads, 9);
    assert_int_equal(config.head_dim, 10);
    assert_int_equal(config.ffn, 77);
    assert_int_equal(config.context, 40);
    assert_int_equal(config.activation, ACTIVATION_GELU_TANH);
    assert_true(config.norm_epsilon == 1e-5);
    assert_true(config.tied && config.scale_attention && !config.scale_by_inverse_layer);
    assert_true(config.dropout == 0.1);

    config = read_case("gpt2_relu");
    assert_int_equal(config.activation, ACTIVATION_RELU);
    assert_int_equal(config.ffn, 4 * 30); /* n_inner is null */
    config = read_case("gpt2_gelu");
    assert_int_equal(config.activation, ACTIVATION_GELU_ERF);
    assert_true(config.norm_epsilon == 1e-3);
    config = read_case("gpt2_inverse_layer");
    assert_true(config.scale_by_inverse_layer);
    assert_false(config.tied);
}

static void llama_is_read(void **state) {
    (void)state;
    struct model_config config = read_case("llama");
    assert_string_equal(config.family->name, "llama");
    assert_int_equal(config.hidden, 90);
    assert_int_equal(config.heads, 9);
    assert_int_equal(config.kv_heads, 3);
    assert_int_equal(config.head_dim, 10);
    assert_int_equal(config.ffn, 62);
    assert_int_equal(config.context, 128);
    assert_int_equal(config.activation, ACTIVATION_SILU);
    assert_true(config.norm_epsilon == 1e-6);
    assert_true(!config.tied && !config.attention_bias && !config.mlp_bias);
    assert_true(config.dropout == 0);
    assert_int_equal(config.rope.scaling, ROPE_SCALING_NONE);
    assert_int_equal(config.rope.head_dim, 10);
    assert_true(config.rope.theta == 10000);
    assert_true(read_case("llama_tied").tied);
    config = read_case("llama_bias");
    assert_true(config.attention_bias && config.mlp_bias);
}

static void assert_windows(const char *model_case, int64_t window, bool first, bool second) {
    struct model_config config = read_case(model_case);
    assert_int_equal(config.window, window);
    assert_true(config.windowed[0] == first && config.windowed[1] == second);
}

static void windows_are_read(void **state) {
    (void)state;
    assert_windows("mistral", 7, true, true);
    assert_windows("mistral_older", 7, true, true);
    assert_windows("phi3", 13, true, true);
    assert_windows("qwen2", 11, false, true);       /* by layer_types */
    assert_windows("qwen2_older", 11, false, true); /* by max_window_layers */
    assert_windows("qwen2_tied", 0, false, false);
    assert_windows("qwen3_bias", 11, true, false);
    assert_windows("qwen3_older", 0, false, false);
    assert_windows("llama", 0, false, false);
    assert_windows("gemma2", 7, true, false);
    assert_windows("gemma2_older", 7, true, false); /* every other layer */
    assert_windows("gemma2_bias", 11, false, true);
    assert_windows("gemma3_text", 7, true, false);
    assert_windows("gemma3_text_older", 7, true, false); /* by sliding_window_pattern */
    assert_windows("gemma3_text_bias", 11, true, true);
    assert_windows("smollm3", 11, false, true);
    assert_windows("smollm3_bias", 13, false, true);
    assert_windows("smollm3_interval", 11, false, true); /* the layers without positions */
}

static void other_families_are_read(void **state) {
    (void)state;
    struct model_config config = read_case("opt");
    assert_int_equal(config.hidden, 30);
    assert_int_equal(config.embedding_width, 30);
    assert_int_equal(config.head_dim, 10);
    assert_int_equal(config.ffn, 47);
    assert_int_equal(config.activation, ACTIVATION_RELU);
    assert_true(config.tied && config.attention_bias && config.mlp_bias && !config.norm_after);
    assert_true(config.norm_epsilon == 1e-5 && config.dropout == 0.1);
    config = read_case("opt_post_norm");
    assert_int_equal(config.embedding_width, 17);
    assert_true(!config.tied && !config.attention_bias && !config.mlp_bias && config.norm_after);
    config = read_case("qwen2");
    assert_true(config.attention_bias && !config.mlp_bias && !config.tied);
    config = read_case("qwen3_bias");
    assert_true(config.attention_bias && config.rope.theta == 10000);
    config = read_case("qwen3_older");
    assert_true(!config.attention_bias && config.tied && config.rope.theta == 1e6);
    config = read_case("granite");
    assert_true(config.attention_multiplier == 0.21 && config.embedding_multiplier == 2.7);
    assert_true(config.residual_multiplier == 0.63 && config.logits_divisor == 1.3);
    config = read_case("granite_bias");
    assert_true(config.attention_multiplier == 1 && config.residual_multiplier == 1 && config.logits_divisor == 2);
    assert_true(config.attention_bias && config.mlp_bias && config.tied);
    config = read_case("olmo2");
    assert_true(!config.attention_bias && !config.tied && config.norm_epsilon == 1e-5);
    assert_true(read_case("olmo2_bias").attention_bias && read_case("olmo2_older").rope.theta == 10000);
    config = read_case("phi3");
    assert_true(config.dropout == 0.1 && config.kv_heads == 3 && config.head_dim == 10);
}

static void gemmas_are_read(void **state) {
    (void)state;
    struct model_config config = read_case("gemma2");
    assert_true(config.norm_one_plus && config.tied && config.query_scalar == 6);
    assert_true(config.attention_softcap == 0.8 && config.logits_softcap == 2.5);
    assert_int_equal(config.activation, ACTIVATION_GELU_TANH);
    config = read_case("gemma2_bias");
    assert_true(config.attention_softcap == 0 && config.logits_softcap == 0 && config.attention_bias && !config.tied);
    assert_int_equal(config.activation, ACTIVATION_SILU);
    static const char *const both[] = {"gemma3_text", "gemma3_text_older"};
    for (int i = 0; i < 2; i++) {
        config = read_case(both[i]);
        assert_true(config.rope.theta == 5e5 && config.rope.scaling == ROPE_SCALING_LINEAR &&
                    config.rope.factor == 2.5);
        assert_true(config.local_rope.theta == 300 && config.local_rope.scaling == ROPE_SCALING_NONE);
        assert_true(config.local_rope.head_dim == 10 && config.query_scalar == 14 && config.logits_softcap == 0);
    }
    assert_true(read_case("gemma3_text_bias").logits_softcap == 3);
    config = read_case("gemma3_wrapped_modules");
    assert_string_equal(config.family->name, "gemma3");
    assert_true(config.rope.theta == 5e5 && config.local_rope.theta == 300 && config.hidden == 27 && config.tied);
    assert_true(config.windowed[0] && !config.windowed[1] && config.context == 131072);
}

static void both_spellings_of_rope_are_read_alike(void **state) {
    (void)state;
    static const char *const linear[] = {"llama_rope_linear", "llama_rope_scaling_linear"};
    static const char *const llama3[] = {"llama_rope_llama3", "llama_rope_scaling_llama3"};
    for (int i = 0; i < 2; i++) {
        struct rope_table_attributes rope = read_case(linear[i]).rope;
        assert_int_equal(rope.scaling, ROPE_SCALING_LINEAR);
        assert_true(rope.theta == 10000 && rope.factor == 2.5);
        rope = read_case(llama3[i]).rope;
        assert_int_equal(rope.scaling, ROPE_SCALING_LLAMA3);
        assert_true(rope.theta == 500 && rope.factor == 8);
        assert_true(rope.low_freq_factor == 1 && rope.high_freq_factor == 4 && rope.original_context == 100);
    }
}

/* One key of a good config is changed (or, where value is "", removed). */
struct change {
    const char *model_case, *key, *value, *says;
};

static enum status read_changed(const struct change *change, struct model_config *config) {
    json_t *object = fixture_json(change->model_case, "config.json");
    json_t *value = json_loads(change->value, JSON_DECODE_ANY, NULL);
    if (value)
        json_object_set_new(object, change->key, value);
    else
        json_object_del(object, change->key);
    status_clear();
    enum status status = read_object(object, config);
    json_decref(object);
    return status;
}

static void assert_positions(const char *model_case, bool first, bool second) {
    struct model_config config = read_case(model_case);
    assert_true(config.without_rope[0] == !first && config.without_rope[1] == !second);
}

static void layers_without_positions_are_read(void **state) {
    (void)state;
    assert_positions("smollm3", true, false);
    assert_positions("smollm3_bias", false, true); /* by no_rope_layers */
    assert_positions("smollm3_interval", true, false);
    assert_positions("llama", true, true);
    struct model_config config;
    struct change change = {"smollm3_interval", "no_rope_layer_interval", "", NULL};
    assert_int_equal(read_changed(&change, &config), STATUS_OK);
    assert_true(!config.without_rope[1] && !config.windowed[1] && config.window == 0); /* the first is layer 3 */
    change = (struct change){"smollm3", "rope_parameters", "", NULL};
    assert_int_equal(read_changed(&change, &config), STATUS_OK);
    assert_true(config.rope.theta == 2e6);
}

/* By what transformers assumes where keys are missing. */
static void gemmas_miss_what_transformers_knows(void **state) {
    (void)state;
    struct model_config config;
    assert_int_equal(read_changed(&(struct change){"gemma2", "attn_logit_softcapping", "", NULL}, &config), STATUS_OK);
    assert_true(config.attention_softcap == 50 && config.logits_softcap == 2.5);
    assert_int_equal(read_changed(&(struct change){"gemma2", "final_logit_softcapping", "", NULL}, &config), STATUS_OK);
    assert_true(config.logits_softcap == 30);
    assert_int_equal(read_changed(&(struct change){"gemma2", "query_pre_attn_scalar", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.query_scalar, 256);
    assert_int_equal(read_changed(&(struct change){"gemma2", "head_dim", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.head_dim, 256);
    assert_int_equal(read_changed(&(struct change){"gemma2", "sliding_window", "", NULL}, &config), STATUS_OK);
    assert_true(config.window == 4096 && config.windowed[0] && !config.windowed[1]);
    assert_int_equal(read_changed(&(struct change){"gemma3_text", "rope_parameters", "", NULL}, &config), STATUS_OK);
    assert_true(config.rope.theta == 1e6 && config.local_rope.theta == 1e4);
    assert_int_equal(read_changed(&(struct change){"gemma3_text", "num_attention_heads", "", NULL}, &config),
                     STATUS_BAD_INPUT); /* 8 heads, but 3 of keys and values */
    assert_int_equal(read_changed(&(struct change){"gemma3_text", "num_key_value_heads", "", NULL}, &config),
                     STATUS_BAD_INPUT);
    assert_int_equal(read_changed(&(struct change){"gemma3_text", "vocab_size", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.vocab_size, 262208);
    assert_int_equal(read_changed(&(struct change){"gemma3_text", "layer_types", "", NULL}, &config), STATUS_OK);
    assert_true(config.windowed[0] && config.windowed[1]); /* the sixth is the first without a window */
    assert_int_equal(read_changed(&(struct change){"gpt_oss", "layer_types", "", NULL}, &config), STATUS_OK);
    assert_true(config.window == 7 && config.windowed[0] && !config.windowed[1]);
    assert_int_equal(read_changed(&(struct change){"gpt_oss", "sliding_window", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.window, 128);
    assert_int_equal(read_changed(&(struct change){"gpt_oss", "rope_parameters", "", NULL}, &config), STATUS_OK);
    assert_true(config.rope.scaling == ROPE_SCALING_YARN && config.rope.factor == 32 && config.rope.theta == 150000);
    assert_int_equal(read_changed(&(struct change){"gpt_oss", "swiglu_limit", "", NULL}, &config), STATUS_OK);
    assert_true(config.glu_limit == 7 && config.glu_alpha == 1.702);
}

static const struct change accepted[] = {
    {"gemma2", "hidden_act", "\"gelu\"", NULL},
    {"gemma2", "cache_implementation", "\"hybrid\"", NULL},
    {"gemma2", "sliding_window_size", "4096", NULL},
    {"gemma2", "use_bidirectional_attention", "null", NULL},
    {"gemma3_text", "rope_parameters", "{\"sliding_attention\":null,\"full_attention\":{\"rope_theta\":1e5}}", NULL},
    {"gemma3_text_older", "sliding_window_pattern", "6", NULL},
    {"gpt2", "n_ctx", "40", NULL},
    {"gpt2", "architectures", "", NULL},
    {"gpt2", "architectures", "null", NULL},
    {"gpt2", "tie_word_embeddings", "", NULL},
    {"gpt2", "scale_attn_weights", "false", NULL},
    {"gpt2", "reorder_and_upcast_attn", "true", NULL},
    {"gpt2", "task_specific_params", "{\"text-generation\":{\"max_length\":50}}", NULL},
    {"gpt2", "activation_function", "\"gelu_pytorch_tanh\"", NULL},
    {"gpt2", "pruned_heads", "{}", NULL},
    {"llama", "num_key_value_heads", "", NULL},
    {"llama", "num_key_value_heads", "null", NULL},
    {"llama", "num_key_value_heads", "9", NULL},
    {"llama", "num_key_value_heads", "1", NULL},
    {"llama", "head_dim", "null", NULL},
    {"llama", "head_dim", "4", NULL},
    {"llama", "rope_parameters", "", NULL},
    {"llama", "rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":5e5,\"partial_rotary_factor\":1.0}", NULL},
    {"llama", "rope_scaling", "null", NULL},
    {"llama", "rope_theta", "10000", NULL},
    {"llama", "pretraining_tp", "1", NULL},
    {"llama", "torch_dtype", "\"float16\"", NULL},
    {"llama", "use_cache", "false", NULL},
    {"llama", "max_sequence_length", "2048", NULL},
    {"granite", "logits_scaling", "8", NULL},
    {"mistral", "head_dim", "4", NULL},
    {"mixtral", "router_aux_loss_coef", "0.02", NULL},
    {"mixtral", "output_router_logits", "true", NULL},
    {"gpt_oss", "swiglu_limit", "7.5", NULL},
    {"gpt_oss", "swiglu_alpha", "", NULL},
    {"gpt_oss", "attention_bias", "false", NULL},
    {"gpt_oss", "rope_parameters", "", NULL},
    {"gpt_oss", "layer_types", "", NULL},
    {"mixtral", "router_jitter_noise", "0.0", NULL},
    {"mixtral", "router_jitter_noise", "0", NULL},
    {"qwen2_moe", "decoder_sparse_step", "1.0", NULL},
    {"mixtral", "num_experts_per_tok", "", NULL},
    {"olmo2", "num_key_value_heads", "", NULL},
    {"olmoe", "clip_qkv", "null", NULL},
    {"opt", "prefix", "\"</s>\"", NULL},
    {"opt", "activation_dropout", "0.1", NULL},
    {"opt", "word_embed_proj_dim", "null", NULL},
    {"opt", "pad_token_id", "1", NULL},
    {"phi3", "auto_map", "{\"AutoConfig\":\"configuration_phi3.Phi3Config\"}", NULL},
    {"phi3", "sliding_window", "null", NULL},
    {"qwen2", "use_mrope", "false", NULL},
    {"qwen2", "max_window_layers", "28", NULL},
    {"qwen2", "layer_types", "null", NULL},
    {"qwen2_moe", "layer_types", "", NULL},
    {"qwen2_moe", "sliding_window", "4096", NULL},
    {"qwen3_moe", "mlp_only_layers", "[]", NULL},
    {"qwen3_moe", "num_experts", "7", NULL},
    {"qwen3", "sliding_window", "4096", NULL},
    {"qwen2", "rope_parameters", "{\"rope_type\":\"yarn\",\"factor\":4,\"attention_factor\":null}", NULL},
    {"phi3_longrope_older", "rope_scaling",
     "{\"type\":\"su\",\"short_factor\":[1,1,1],\"long_factor\":[2,2,2],\"attention_factor\":1.5}", NULL},
    {"smollm3", "no_rope_layers", "null", NULL},
    {"smollm3", "no_rope_layers", "[1,0,1]", NULL},
    {"smollm3", "no_rope_layers", "[0,0]", NULL},
    {"smollm3", "max_window_layers", "28", NULL},
    {"smollm3", "pretraining_tp", "2", NULL},
    {"llama_rope_scaling_linear", "rope_scaling", "{\"type\":\"linear\",\"rope_type\":\"linear\",\"factor\":2}", NULL},
};

static void partial_and_long_rope_are_read(void **state) {
    (void)state;
    static const char *const both[] = {"phi3_longrope_long", "phi3_longrope_older"};
    for (int i = 0; i < 2; i++) {
        struct rope_table_attributes rope = read_case(both[i]).rope;
        assert_int_equal(rope.scaling, ROPE_SCALING_LONGROPE);
        assert_true(rope.head_dim == 6 && rope.factors == 3 && rope.partial == 0.6);
        assert_true(rope.original_context == 8 && rope.factor == 128.0 / 8);
        assert_true(rope.short_factor[2] == 2.5f && rope.long_factor[1] == 3.0f);
    }
    struct rope_table_attributes rope = read_case("llama_rope_yarn").rope;
    assert_int_equal(rope.scaling, ROPE_SCALING_YARN);
    assert_true(rope.factor == 4 && rope.original_context == 64 && rope.head_dim == 10 && !rope.untruncated);
    struct model_config config;
    struct change change = {"llama", "rope_parameters", "{\"rope_type\":\"yarn\",\"factor\":4}", NULL};
    assert_int_equal(read_changed(&change, &config), STATUS_OK);
    assert_true(config.rope.original_context == 128);
    change = (struct change){"phi3_longrope", "original_max_position_embeddings", "", NULL};
    assert_int_equal(read_changed(&change, &config), STATUS_OK);
    assert_true(config.rope.original_context == 4096);
}

static void harmless_changes_are_accepted(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        struct model_config config;
        if (read_changed(&accepted[i], &config) != STATUS_OK)
            fail_msg("%s = %s: %s", accepted[i].key, accepted[i].value, status_message());
    }
}

static void missing_fields_take_defaults(void **state) {
    (void)state;
    struct model_config config;
    assert_int_equal(read_changed(&(struct change){"llama", "num_key_value_heads", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.kv_heads, 9);
    assert_int_equal(read_changed(&(struct change){"llama", "head_dim", "null", NULL}, &config), STATUS_OK);
    assert_int_equal(config.head_dim, 10);
    assert_int_equal(read_changed(&(struct change){"llama", "rms_norm_eps", "", NULL}, &config), STATUS_OK);
    assert_true(config.norm_epsilon == 1e-6);
    assert_int_equal(read_changed(&(struct change){"gpt2", "scale_attn_weights", "false", NULL}, &config), STATUS_OK);
    assert_false(config.scale_attention);
}

/* Windows, by what transformers assumes where a key is missing. */
static void missing_windows_take_defaults(void **state) {
    (void)state;
    struct model_config config;
    assert_int_equal(read_changed(&(struct change){"mistral", "sliding_window", "", NULL}, &config), STATUS_OK);
    assert_true(config.window == 4096 && config.windowed[1]);
    assert_int_equal(read_changed(&(struct change){"mistral", "sliding_window", "null", NULL}, &config), STATUS_OK);
    assert_true(config.window == 0 && !config.windowed[1]);
    assert_int_equal(read_changed(&(struct change){"phi3", "sliding_window", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.window, 0);
    assert_int_equal(read_changed(&(struct change){"qwen2_older", "sliding_window", "", NULL}, &config), STATUS_OK);
    assert_true(config.window == 4096 && !config.windowed[0] && config.windowed[1]);
    assert_int_equal(read_changed(&(struct change){"qwen2_older", "max_window_layers", "", NULL}, &config), STATUS_OK);
    assert_true(config.window == 0 && !config.windowed[1]); /* from layer 28 on */
    assert_int_equal(read_changed(&(struct change){"qwen2_older", "use_sliding_window", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.window, 0);
    assert_int_equal(read_changed(&(struct change){"qwen3", "head_dim", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.head_dim, 128);
    assert_int_equal(read_changed(&(struct change){"opt", "init_std", "", NULL}, &config), STATUS_OK);
    assert_true(config.initial_range == 0.02);
}

static const struct change refused[] = {
    /* unknown keys */
    {"gpt2", "n_expert", "4", "n_expert: unknown setting"},
    {"llama", "quantization_config", "{}", "quantization_config: the weights are quantised"},
    {"llama", "quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}", "the weights are quantised (gptq)"},
    {"gpt2", "compression_config", "{}", "compression_config: the weights are quantised"},
    {"llama", "sliding_window", "null", "sliding_window: unknown setting"},
    {"llama", "n_embd", "90", "n_embd: unknown setting"},
    {"gpt2", "rope_theta", "1e4", "rope_theta: unknown setting"},
    {"mistral", "attention_bias", "false", "attention_bias: unknown setting"},
    {"mistral", "layer_types", "[]", "layer_types: unknown setting"},
    {"gpt_oss", "swiglu_limit", "0", "swiglu_limit: 0 is outside"},
    {"gpt_oss", "swiglu_alpha", "-1", "swiglu_alpha: -1 is outside"},
    {"gpt_oss", "hidden_act", "\"relu\"", "hidden_act: only \"silu\" is supported"},
    {"gpt_oss", "num_experts_per_tok", "6", "num_experts_per_tok: 6, but there are 5 experts"},
    {"gpt_oss", "sliding_window", "null", "layer_types: layer 0 is sliding_attention, but no sliding_window"},
    {"gpt_oss", "layer_types", "[\"full_attention\"]", "layer_types: 1 entries for 2 layers"},
    {"gpt_oss", "quantization_config", "{\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true}",
     "quantization_config: only quant_method mxfp4 is supported"},
    {"llama", "quantization_config", "{\"quant_method\": \"mxfp4\"}", "quantization_config: the weights are quantised"},
    {"mixtral", "router_jitter_noise", "0.1", "router_jitter_noise: only 0.0 is supported"},
    {"mixtral", "output_router_logits", "1", "output_router_logits: must be"},
    {"mixtral", "router_aux_loss_coef", "-0.1", "router_aux_loss_coef: -0.1 is outside"},
    {"mixtral", "num_experts_per_tok", "6", "num_experts_per_tok: 6, but there are 5 experts"},
    {"mixtral", "num_local_experts", "0", "num_local_experts: 0 is outside"},
    {"mixtral", "num_local_experts", "1025", "num_local_experts: 1025 is outside"},
    {"mixtral", "num_experts", "5", "num_experts: unknown setting"},
    {"olmoe", "clip_qkv", "8.0", "clip_qkv: only null is supported"},
    {"olmoe", "head_dim", "8", "head_dim: must be hidden_size / num_attention_heads"},
    {"qwen2_moe", "decoder_sparse_step", "2", "decoder_sparse_step: only 1 is supported"},
    {"qwen3_moe_older", "num_local_experts", "77", "num_experts: differs from num_local_experts (77)"},
    {"qwen2_moe", "mlp_only_layers", "[1]", "mlp_only_layers: only [] is supported"},
    {"qwen2_moe", "use_sliding_window", "true", "use_sliding_window: only false is supported"},
    {"qwen2_moe", "layer_types", "[\"full_attention\",\"sliding_attention\"]", "layer_types"},
    {"qwen3_moe", "shared_expert_intermediate_size", "8", "shared_expert_intermediate_size: unknown setting"},
    {"olmo2", "clip_qkv", "8.0", "clip_qkv: unknown setting"},
    {"olmo2", "residual_multiplier", "0.5", "residual_multiplier: unknown setting"},
    {"opt", "hidden_act", "\"relu\"", "hidden_act: unknown setting"},
    {"phi3", "layer_types", "[]", "layer_types: unknown setting"},
    {"qwen2", "attention_bias", "true", "attention_bias: unknown setting"},
    {"qwen3", "num_experts", "8", "num_experts: unknown setting"},
    /* values that would make another model */
    {"gemma2", "use_bidirectional_attention", "true", "use_bidirectional_attention: only false"},
    {"gemma2", "attn_logit_softcapping", "0", "attn_logit_softcapping: 0 is outside"},
    {"gemma2", "final_logit_softcapping", "\"30\"", "final_logit_softcapping: must be a number"},
    {"gemma2", "query_pre_attn_scalar", "0", "query_pre_attn_scalar: 0 is outside"},
    {"gemma2", "num_key_value_heads", "", "num_key_value_heads: missing"},
    {"gemma2", "rope_local_base_freq", "1e4", "rope_local_base_freq: unknown setting"},
    {"gemma2", "sliding_window", "null", "layer_types: layer 0 is sliding_attention, but no sliding_window"},
    {"gemma2", "hidden_activation", "\"tanh\"", "hidden_activation: \"tanh\" is not supported"},
    {"gemma3_text", "attn_logit_softcapping", "50.0", "attn_logit_softcapping: only null"},
    {"gemma3_text", "vision_config", "{}", "vision_config: unknown setting"},
    {"gemma3_text", "rope_parameters", "[]", "rope_parameters: must be an object"},
    {"gemma3_text", "rope_parameters", "{\"rope_theta\":1e6}", "rope_parameters: rope_theta: unknown setting"},
    {"gemma3_text", "rope_parameters", "{\"full_attention\":7}", "rope_parameters: full_attention: must be an object"},
    {"gemma3_text", "rope_parameters", "{\"full_attention\":{\"rope_type\":\"linear\"}}",
     "rope_parameters: full_attention: factor: missing"},
    {"gemma3_text", "rope_parameters", "{\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":2}}",
     "rope_parameters: sliding_attention: rope_type: only default"},
    {"gemma3_text", "rope_scaling", "{\"rope_type\":\"linear\",\"factor\":2}", "rope_parameters and rope_scaling"},
    {"gemma3_text_older", "rope_local_base_freq", "-1", "rope_local_base_freq: -1 is outside"},
    {"gemma3_text_older", "sliding_window_pattern", "0", "sliding_window_pattern: 0 is outside"},
    {"gemma3_wrapped", "text_config", "", "text_config: missing"},
    {"gemma3_wrapped", "text_config", "[]", "text_config: must be an object"},
    {"gemma3_wrapped", "text_config", "{\"hidden_size\":27}", "text_config: intermediate_size: missing"},
    {"gemma3_wrapped", "text_config",
     "{\"hidden_size\":27,\"intermediate_size\":9,\"num_hidden_layers\":1,\"final_logit_softcapping\":30}",
     "text_config: final_logit_softcapping: only null"},
    {"gemma3_wrapped", "text_config",
     "{\"hidden_size\":27,\"intermediate_size\":9,\"num_hidden_layers\":1,\"tie_word_embeddings\":false}",
     "text_config: tie_word_embeddings: only true"},
    {"gemma3_wrapped", "audio_config", "{}", "audio_config: unknown setting for a model of type gemma3"},
    {"gemma3_wrapped", "tie_word_embeddings", "false", "tie_word_embeddings: only true"},
    {"granite", "attention_multiplier", "0", "attention_multiplier: 0 is outside"},
    {"granite", "residual_multiplier", "-0.2", "residual_multiplier: -0.2 is outside"},
    {"granite", "logits_scaling", "\"8\"", "logits_scaling: must be a number"},
    {"granite", "embedding_multiplier", "1e10", "embedding_multiplier: 1e+10 is outside"},
    {"opt", "_remove_final_layer_norm", "true", "_remove_final_layer_norm: only false"},
    {"opt", "layer_norm_elementwise_affine", "false", "layer_norm_elementwise_affine: only true"},
    {"opt", "do_layer_norm_before", "1", "do_layer_norm_before: must be true or false"},
    {"opt", "word_embed_proj_dim", "0", "word_embed_proj_dim: 0 is outside"},
    {"opt", "num_attention_heads", "4", "num_attention_heads: 4 does not divide hidden_size (30)"},
    {"phi3", "rope_parameters", "{\"partial_rotary_factor\":0.5}",
     "partial_rotary_factor: 5 of 10 features of a head would be rotated; only even"},
    {"phi3_older", "partial_rotary_factor", "1.5", "partial_rotary_factor: 1.5 is outside"},
    {"phi3", "rope_parameters", "{\"rope_type\":\"longrope\"}", "rope_parameters: short_factor: missing"},
    {"phi3", "rope_parameters", "{\"rope_type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1,2]}",
     "rope_parameters: long_factor: 2 entries, but short_factor has 1"},
    {"phi3", "rope_parameters", "{\"rope_type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[0]}",
     "rope_parameters: long_factor: entry 0 must be a number above 0"},
    {"phi3", "rope_parameters", "{\"rope_type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[2]}",
     "short_factor: 1 entries, but 5 pairs of features are rotated"},
    {"phi3", "rope_parameters", "{\"rope_type\":\"longrope\",\"short_factor\":3,\"long_factor\":[2]}",
     "short_factor: must be an array"},
    {"phi3", "rope_parameters", "{\"rope_type\":\"linear\",\"factor\":2}", "rope_type: only default and longrope"},
    {"phi3_longrope", "original_max_position_embeddings", "1", "original_max_position_embeddings: 1 is outside"},
    {"phi3", "lm_head_bias", "true", "lm_head_bias: only false"},
    {"qwen2", "use_mrope", "true", "use_mrope: only false"},
    {"qwen2", "rope_parameters", "{\"rope_type\":\"dynamic\",\"factor\":4}", "rope_type: \"dynamic\" is not supported"},
    /* windows */
    {"mistral", "sliding_window", "0", "sliding_window: 0 is outside"},
    {"mistral", "sliding_window", "\"7\"", "sliding_window: must be a whole number"},
    {"qwen2", "use_sliding_window", "1", "use_sliding_window: must be true or false"},
    {"qwen2", "use_sliding_window", "false", "layer_types: layer 1 is sliding_attention, but no sliding_window"},
    {"qwen2", "sliding_window", "null", "layer_types: layer 1 is sliding_attention, but no sliding_window"},
    {"qwen2", "max_window_layers", "-1", "max_window_layers: -1 is outside"},
    {"qwen2", "layer_types", "{}", "layer_types: must be an array"},
    {"qwen2", "layer_types", "[\"full_attention\"]", "layer_types: 1 entries for 2 layers"},
    {"qwen2", "layer_types", "[\"full_attention\",\"chunked_attention\"]", "layer_types: \"chunked_attention\""},
    {"qwen3", "layer_types", "[\"full_attention\",3]", "layer_types: \"(not a string)\""},
    /* layers without positions */
    {"smollm3", "no_rope_layers", "{}", "no_rope_layers: must be an array"},
    {"smollm3", "no_rope_layers", "[1]", "no_rope_layers: 1 entries for 2 layers"},
    {"smollm3", "no_rope_layers", "[1,2]", "no_rope_layers: the entry of layer 1 must be 0 or 1"},
    {"smollm3", "no_rope_layers", "[true,1]", "no_rope_layers: the entry of layer 0 must be 0 or 1"},
    {"smollm3", "no_rope_layer_interval", "0", "no_rope_layer_interval: 0 is outside"},
    {"smollm3", "use_sliding_window", "false", "layer_types: layer 1 is sliding_attention, but no sliding_window"},
    {"llama", "no_rope_layers", "[1,0]", "no_rope_layers: unknown setting"},
    /* what a reader cannot guess */
    {"mistral", "num_key_value_heads", "", "num_key_value_heads: missing"},
    {"qwen2", "num_key_value_heads", "null", "num_key_value_heads: missing"},
    {"qwen3", "num_key_value_heads", "", "num_key_value_heads: missing"},
    {"gpt2", "add_cross_attention", "true", "add_cross_attention: only false"},
    {"gpt2", "is_encoder_decoder", "true", "is_encoder_decoder: only false"},
    {"llama", "pretraining_tp", "2", "pretraining_tp: only 1"},
    {"gpt2", "pruned_heads", "{\"1\":[0]}", "pruned_heads: only {}"},
    {"llama", "architectures", "[\"LlamaForSequenceClassification\"]", "architectures: \"LlamaForSequence"},
    {"llama", "architectures", "\"LlamaForCausalLM\"", "architectures: must be an array"},
    {"llama", "architectures", "[7]", "architectures: \"(not a string)\""},
    {"gpt2", "activation_function", "\"tanh\"", "activation_function: \"tanh\" is not supported"},
    {"llama", "hidden_act", "7", "hidden_act: must be a string"},
    /* sizes */
    {"gpt2", "n_embd", "", "n_embd: missing"},
    {"gpt2", "n_embd", "null", "n_embd: missing"},
    {"gpt2", "n_embd", "0", "n_embd: 0 is outside 1 to"},
    {"gpt2", "n_embd", "-90", "n_embd: -90 is outside 1 to"},
    {"gpt2", "n_embd", "90.0", "n_embd: must be a whole number"},
    {"gpt2", "n_embd", "\"90\"", "n_embd: must be a whole number"},
    {"gpt2", "n_embd", "9223372036854775807", "n_embd: 9223372036854775807 is outside"},
    {"gpt2", "n_embd", "91", "n_head: 9 does not divide n_embd (91)"},
    {"gpt2", "n_inner", "0", "n_inner: 0 is outside 1 to"},
    {"gpt2", "n_ctx", "64", "n_ctx: 64 is not n_positions (40)"},
    {"gpt2", "n_ctx", "\"40\"", "n_ctx: must be a whole number"},
    {"llama", "num_hidden_layers", "0", "num_hidden_layers: 0 is outside"},
    {"llama", "num_hidden_layers", "1000000", "num_hidden_layers: 1000000 is outside"},
    {"llama", "vocab_size", "4294967296", "vocab_size: 4294967296 is outside"},
    {"llama", "max_position_embeddings", "0", "max_position_embeddings: 0 is outside"},
    {"llama", "num_key_value_heads", "4", "num_key_value_heads: 4 does not divide num_attention_heads (9)"},
    {"llama", "num_key_value_heads", "18", "num_key_value_heads: 18 does not divide num_attention_heads (9)"},
    {"llama", "head_dim", "9", "head_dim: 9 is odd"},
    {"llama", "rms_norm_eps", "-1", "rms_norm_eps: -1 is outside"},
    {"llama", "rms_norm_eps", "\"1e-6\"", "rms_norm_eps: must be a number"},
    {"llama", "initializer_range", "-0.02", "initializer_range: -0.02 is outside"},
    {"llama", "tie_word_embeddings", "1", "tie_word_embeddings: must be true or false"},
    {"llama", "attention_dropout", "1.5", "attention_dropout: 1.5 is outside 0 to 1"},
    /* rope */
    {"llama", "rope_scaling", "{\"type\":\"linear\",\"factor\":2}", "rope_parameters and rope_scaling: only one"},
    {"llama", "rope_theta", "5", "rope_theta: differs from the one in rope_parameters"},
    {"llama", "rope_theta", "-5", "rope_theta: -5 is outside"},
    {"llama", "rope_parameters", "[]", "rope_parameters: must be an object"},
    {"llama", "rope_parameters", "{\"rope_type\":\"yarn\"}", "rope_parameters: factor: missing"},
    {"llama", "rope_parameters", "{\"rope_type\":\"yarn\",\"factor\":2,\"truncate\":1}",
     "truncate: must be true or false"},
    {"llama", "rope_parameters", "{\"rope_type\":\"yarn\",\"factor\":2,\"beta_fast\":-1}", "beta_fast: -1 is outside"},
    {"llama", "rope_parameters", "{\"rope_type\":\"linear\",\"factor\":2,\"mscale\":1}", "mscale: unknown setting"},
    {"llama", "rope_parameters", "{\"rope_type\":3}", "rope_parameters: rope_type: must be a string"},
    {"llama", "rope_parameters", "{\"rope_type\":\"linear\",\"type\":\"default\"}", "rope_type and type: differ"},
    {"llama", "rope_parameters", "{\"rope_type\":\"linear\"}", "rope_parameters: factor: missing"},
    {"llama", "rope_parameters", "{\"rope_type\":\"linear\",\"factor\":0.5}",
     "rope_parameters: factor: 0.5 is outside"},
    {"llama", "rope_parameters", "{\"factor\":2}", "rope_parameters: factor: unknown setting for rope_type default"},
    {"llama", "rope_parameters", "{\"beta_fast\":32}", "rope_parameters: beta_fast: unknown setting"},
    {"llama", "rope_parameters", "{\"partial_rotary_factor\":0.5}", "partial_rotary_factor: only 1"},
    {"llama_rope_scaling_linear", "rope_scaling", "{\"type\":\"dynamic\",\"factor\":2}",
     "rope_scaling: type: \"dynamic\" is not supported"},
    {"llama_rope_scaling_llama3", "rope_scaling",
     "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
     "\"high_freq_factor\":4}",
     "rope_scaling: original_max_position_embeddings: missing"},
    {"llama_rope_scaling_llama3", "rope_scaling",
     "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4,"
     "\"original_max_position_embeddings\":100}",
     "rope_scaling: high_freq_factor: must be above low_freq_factor"},
};

static void everything_else_is_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct model_config config;
        enum status status = read_changed(&refused[i], &config);
        if (status != STATUS_BAD_INPUT) fail_msg("%s = %s: status %d", refused[i].key, refused[i].value, (int)status);
        if (strncmp(status_message(), "config.json: ", 13) != 0 || !strstr(status_message(), refused[i].says))
            fail_msg("\"%s\" is not in: %s", refused[i].says, status_message());
    }
}

/* Each size alone is within its limit, but not all together. */
static void sizes_that_overflow_together_are_refused(void **state) {
    (void)state;
    json_t *object = fixture_json("llama", "config.json");
    static const char *const keys[] = {"hidden_size",         "intermediate_size", "num_attention_heads",
                                       "num_key_value_heads", "head_dim",          "num_hidden_layers"};
    static const json_int_t sizes[] = {1 << 24, 1 << 24, 1 << 16, 1 << 16, 1 << 16, 1024};
    for (int i = 0; i < 6; i++)
        json_object_set_new(object, keys[i], json_integer(sizes[i]));
    struct model_config config;
    assert_int_equal(read_object(object, &config), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "overflow 64 bits"));
    assert_non_null(strstr(status_message(), "hidden_size"));
    json_decref(object);
}

/* model_open gives the message of each kind of unreadable config. */
static void assert_open_refused(const char *folder, const char *says) {
    struct model *model;
    assert_int_equal(model_open(folder, &model), STATUS_BAD_INPUT);
    if (!strstr(status_message(), "config.json") || !strstr(status_message(), says))
        fail_msg("\"%s\" is not in: %s", says, status_message());
}

static void unreadable_configs_are_refused(void **state) {
    const char *path = temp_path(*state, "config.json");
    assert_open_refused(*state, "is no model: it holds no config.json");
    temp_write_text(path, "");
    assert_open_refused(*state, "not valid JSON");
    temp_write_text(path, "{\"model_type\": \"llama\",");
    assert_open_refused(*state, "not valid JSON");
    temp_write_text(path, "[]");
    assert_open_refused(*state, "must hold a JSON object");
    temp_write_text(path, "{\"model_type\":\"gpt2\",\"model_type\":\"llama\"}");
    assert_open_refused(*state, "duplicate");
    temp_write_text(path, "{}");
    assert_open_refused(*state, "model_type: missing");
    temp_write_text(path, "{\"model_type\":7}");
    assert_open_refused(*state, "model_type: must be a string");
    temp_write_text(path, "{\"model_type\":\"mamba\"}");
    assert_open_refused(*state, "model_type: \"mamba\" is not supported");
    assert_non_null(strstr(status_hint_text(), "gemma2, gemma3_text, gpt2"));

    enum { HUGE = 17 << 20 };
    temp_write_text(path, "{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"llama\"}}");
    assert_open_refused(*state, "model_type: \"llava\" is not supported: it has other parts beside its text model");
    assert_non_null(strstr(status_hint_text(), "gemma3"));
    char *text = mem_array(HUGE, 1);
    memset(text, ' ', HUGE);
    temp_write(path, text, HUGE);
    assert_open_refused(*state, "more than the limit");
    memset(text, '[', HUGE / 2);
    temp_write(path, text, HUGE / 2);
    assert_open_refused(*state, "not valid JSON");
    mem_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_read),
        cmocka_unit_test(llama_is_read),
        cmocka_unit_test(windows_are_read),
        cmocka_unit_test(layers_without_positions_are_read),
        cmocka_unit_test(other_families_are_read),
        cmocka_unit_test(missing_windows_take_defaults),
        cmocka_unit_test(gemmas_are_read),
        cmocka_unit_test(gemmas_miss_what_transformers_knows),
        cmocka_unit_test(partial_and_long_rope_are_read),
        cmocka_unit_test(both_spellings_of_rope_are_read_alike),
        cmocka_unit_test(harmless_changes_are_accepted),
        cmocka_unit_test(missing_fields_take_defaults),
        cmocka_unit_test(everything_else_is_refused_by_name),
        cmocka_unit_test(sizes_that_overflow_together_are_refused),
        cmocka_unit_test(unreadable_configs_are_refused),
    };
    return cmocka_run_group_tests_name("model config", tests, temp_folder_make, temp_folder_drop);
}
