/* config.json: the settings that each family reads, and those that are ignored or may be missing. */
#include <string.h>

#include "support/config_change.h"
#include "support/unit.h"
#include "support/weight_files.h"

static struct model_config read_case(const char *model_case) {
    json_t *object = fixture_json(model_case, "config.json");
    struct model_config config;
    if (config_read(object, &config) != STATUS_OK) fail_msg("%s: %s", model_case, status_message());
    json_decref(object);
    return config;
}

static void gpt2_is_read(void **state) {
    (void)state;
    struct model_config config = read_case("gpt2");
    assert_string_equal(config.family->name, "gpt2");
    assert_int_equal(config.vocab_size, 53);
    assert_int_equal(config.hidden, 30);
    assert_int_equal(config.layers, 2);
    assert_int_equal(config.heads, 3);
    assert_int_equal(config.kv_heads, 3);
    assert_int_equal(config.head_dim, 10);
    assert_int_equal(config.ffn, 47);
    assert_int_equal(config.context, 40);
    assert_int_equal(config.activation, ACTIVATION_GELU_TANH);
    assert_true(config.norm_epsilon == 1e-5);
    assert_true(config.tied && config.scale_attention && !config.scale_by_inverse_layer);
    assert_true(config.dropout == 0.1);

    config = read_case("gpt2_relu");
    assert_int_equal(config.activation, ACTIVATION_RELU);
    assert_int_equal(config.ffn, 4 * 10); /* n_inner is null */
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
    assert_int_equal(config.hidden, 36);
    assert_int_equal(config.heads, 6);
    assert_int_equal(config.kv_heads, 3);
    assert_int_equal(config.head_dim, 10);
    assert_int_equal(config.ffn, 39);
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
    assert_int_equal(config.hidden, 20);
    assert_int_equal(config.embedding_width, 20);
    assert_int_equal(config.head_dim, 10);
    assert_int_equal(config.ffn, 23);
    assert_int_equal(config.activation, ACTIVATION_RELU);
    assert_true(config.tied && config.attention_bias && config.mlp_bias && !config.norm_after);
    assert_true(config.norm_epsilon == 1e-5 && config.dropout == 0.1);
    config = read_case("opt_post_norm");
    assert_int_equal(config.embedding_width, 13);
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
    assert_true(config.rope.theta == 5e5 && config.local_rope.theta == 300 && config.hidden == 15 && config.tied);
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
    struct config_change change = {"smollm3_interval", "no_rope_layer_interval", "", NULL};
    assert_int_equal(config_read_changed(&change, &config), STATUS_OK);
    assert_true(!config.without_rope[1] && !config.windowed[1] && config.window == 0); /* the first is layer 3 */
    change = (struct config_change){"smollm3", "rope_parameters", "", NULL};
    assert_int_equal(config_read_changed(&change, &config), STATUS_OK);
    assert_true(config.rope.theta == 2e6);
}

/* By what transformers assumes where keys are missing. */
static void gemmas_miss_what_transformers_knows(void **state) {
    (void)state;
    struct model_config config;
    assert_int_equal(
        config_read_changed(&(struct config_change){"gemma2", "attn_logit_softcapping", "", NULL}, &config), STATUS_OK);
    assert_true(config.attention_softcap == 50 && config.logits_softcap == 2.5);
    assert_int_equal(
        config_read_changed(&(struct config_change){"gemma2", "final_logit_softcapping", "", NULL}, &config),
        STATUS_OK);
    assert_true(config.logits_softcap == 30);
    assert_int_equal(config_read_changed(&(struct config_change){"gemma2", "query_pre_attn_scalar", "", NULL}, &config),
                     STATUS_OK);
    assert_int_equal(config.query_scalar, 256);
    assert_int_equal(config_read_changed(&(struct config_change){"gemma2", "head_dim", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.head_dim, 256);
    assert_int_equal(config_read_changed(&(struct config_change){"gemma2", "sliding_window", "", NULL}, &config),
                     STATUS_OK);
    assert_true(config.window == 4096 && config.windowed[0] && !config.windowed[1]);
    assert_int_equal(config_read_changed(&(struct config_change){"gemma3_text", "rope_parameters", "", NULL}, &config),
                     STATUS_OK);
    assert_true(config.rope.theta == 1e6 && config.local_rope.theta == 1e4);
    assert_int_equal(
        config_read_changed(&(struct config_change){"gemma3_text_bias", "num_attention_heads", "", NULL}, &config),
        STATUS_BAD_INPUT); /* 8 heads, but 3 of keys and values */
    assert_int_equal(
        config_read_changed(&(struct config_change){"gemma3_text", "num_key_value_heads", "", NULL}, &config),
        STATUS_BAD_INPUT);
    assert_int_equal(config_read_changed(&(struct config_change){"gemma3_text", "vocab_size", "", NULL}, &config),
                     STATUS_OK);
    assert_int_equal(config.vocab_size, 262208);
    assert_int_equal(config_read_changed(&(struct config_change){"gemma3_text", "layer_types", "", NULL}, &config),
                     STATUS_OK);
    assert_true(config.windowed[0] && config.windowed[1]); /* the sixth is the first without a window */
    assert_int_equal(config_read_changed(&(struct config_change){"gpt_oss", "layer_types", "", NULL}, &config),
                     STATUS_OK);
    assert_true(config.window == 7 && config.windowed[0] && !config.windowed[1]);
    assert_int_equal(config_read_changed(&(struct config_change){"gpt_oss", "sliding_window", "", NULL}, &config),
                     STATUS_OK);
    assert_int_equal(config.window, 128);
    assert_int_equal(config_read_changed(&(struct config_change){"gpt_oss", "rope_parameters", "", NULL}, &config),
                     STATUS_OK);
    assert_true(config.rope.scaling == ROPE_SCALING_YARN && config.rope.factor == 32 && config.rope.theta == 150000);
    assert_int_equal(config_read_changed(&(struct config_change){"gpt_oss", "swiglu_limit", "", NULL}, &config),
                     STATUS_OK);
    assert_true(config.glu_limit == 7 && config.glu_alpha == 1.702);
}

/* Both transformers and Ballast read a gpt-oss without a word of scaling as YaRN's, so plain angles are written. */
static void plain_angles_are_written_where_yarn_is_the_default(void **state) {
    (void)state;
    struct model_config config, again;
    struct config_change plain = {"gpt_oss", "rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":1e5}", NULL};
    assert_int_equal(config_read_changed(&plain, &config), STATUS_OK);
    assert_int_equal(config.rope.scaling, ROPE_SCALING_NONE);
    json_t *written = config.family->write_config(&config);
    assert_non_null(written);
    assert_int_equal(model_config_read("written", written, config.family, &again), STATUS_OK);
    json_decref(written);
    assert_int_equal(again.rope.scaling, ROPE_SCALING_NONE);
    assert_true(again.rope.theta == config.rope.theta && again.rope.factor == config.rope.factor);
}

static const struct config_change accepted[] = {
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
    {"llama", "num_key_value_heads", "6", NULL},
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
    {"llama", "sliding_window", "null", NULL},
    {"llama", "layer_types", "[\"full_attention\", \"full_attention\"]", NULL},
    {"llama", "unsloth_fixed", "true", NULL},
    {"llama", "unsloth_version", "\"2026.5\"", NULL},
    {"llama", "auto_map", "{\"AutoModel\": \"modeling.Llama\"}", NULL},
    {"llama", "partial_rotary_factor", "1.0", NULL},
    {"llama", "some_new_switch", "null", NULL},
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
    struct config_change change = {"llama", "rope_parameters", "{\"rope_type\":\"yarn\",\"factor\":4}", NULL};
    assert_int_equal(config_read_changed(&change, &config), STATUS_OK);
    assert_true(config.rope.original_context == 128);
    change = (struct config_change){"phi3_longrope", "original_max_position_embeddings", "", NULL};
    assert_int_equal(config_read_changed(&change, &config), STATUS_OK);
    assert_true(config.rope.original_context == 4096);
}

/* What transformers 5.23 accepts in a config of any family, and computes the same with. */
static const struct {
    const char *key, *value;
} neutral[] = {
    {"unsloth_fixed", "true"}, {"unsloth_version", "\"2026.5\""}, {"auto_map", "{\"AutoModel\": \"modeling.Model\"}"},
    {"auto_map", "{}"},        {"partial_rotary_factor", "1.0"},  {"some_new_switch", "null"},
    {"some_new_switch", "{}"}, {"some_new_switch", "[]"},         {"rope_scaling", "{}"},
};

static void neutral_settings_are_accepted_by_every_family(void **state) {
    (void)state;
    for (int f = 0; f < model_family_count; f++)
        for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++) {
            struct model_config plain, changed;
            const char *family = model_families[f]->name;
            const struct config_change change = {family, neutral[i].key, neutral[i].value, NULL};
            assert_int_equal(config_read_changed(&(struct config_change){family, "some_new_switch", "", NULL}, &plain),
                             STATUS_OK);
            if (config_read_changed(&change, &changed) != STATUS_OK)
                fail_msg("%s: %s = %s: %s", family, change.key, change.value, status_message());
            assert_memory_equal(&plain, &changed, sizeof plain);
        }
}

static void harmless_changes_are_accepted(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        struct model_config config;
        if (config_read_changed(&accepted[i], &config) != STATUS_OK)
            fail_msg("%s = %s: %s", accepted[i].key, accepted[i].value, status_message());
    }
}

static void missing_fields_take_defaults(void **state) {
    (void)state;
    struct model_config config;
    assert_int_equal(config_read_changed(&(struct config_change){"llama", "num_key_value_heads", "", NULL}, &config),
                     STATUS_OK);
    assert_int_equal(config.kv_heads, 6);
    assert_int_equal(config_read_changed(&(struct config_change){"llama", "head_dim", "null", NULL}, &config),
                     STATUS_OK);
    assert_int_equal(config.head_dim, 6);
    assert_int_equal(config_read_changed(&(struct config_change){"llama", "rms_norm_eps", "", NULL}, &config),
                     STATUS_OK);
    assert_true(config.norm_epsilon == 1e-6);
    assert_int_equal(config_read_changed(&(struct config_change){"gpt2", "scale_attn_weights", "false", NULL}, &config),
                     STATUS_OK);
    assert_false(config.scale_attention);
}

/* Windows, by what transformers assumes where a key is missing. */
static void missing_windows_take_defaults(void **state) {
    (void)state;
    struct model_config config;
    assert_int_equal(config_read_changed(&(struct config_change){"mistral", "sliding_window", "", NULL}, &config),
                     STATUS_OK);
    assert_true(config.window == 4096 && config.windowed[1]);
    assert_int_equal(config_read_changed(&(struct config_change){"mistral", "sliding_window", "null", NULL}, &config),
                     STATUS_OK);
    assert_true(config.window == 0 && !config.windowed[1]);
    assert_int_equal(config_read_changed(&(struct config_change){"phi3", "sliding_window", "", NULL}, &config),
                     STATUS_OK);
    assert_int_equal(config.window, 0);
    assert_int_equal(config_read_changed(&(struct config_change){"qwen2_older", "sliding_window", "", NULL}, &config),
                     STATUS_OK);
    assert_true(config.window == 4096 && !config.windowed[0] && config.windowed[1]);
    assert_int_equal(
        config_read_changed(&(struct config_change){"qwen2_older", "max_window_layers", "", NULL}, &config), STATUS_OK);
    assert_true(config.window == 0 && !config.windowed[1]); /* from layer 28 on */
    assert_int_equal(
        config_read_changed(&(struct config_change){"qwen2_older", "use_sliding_window", "", NULL}, &config),
        STATUS_OK);
    assert_int_equal(config.window, 0);
    assert_int_equal(config_read_changed(&(struct config_change){"qwen3", "head_dim", "", NULL}, &config), STATUS_OK);
    assert_int_equal(config.head_dim, 128);
    assert_int_equal(config_read_changed(&(struct config_change){"opt", "init_std", "", NULL}, &config), STATUS_OK);
    assert_true(config.initial_range == 0.02);
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
        cmocka_unit_test(neutral_settings_are_accepted_by_every_family),
        cmocka_unit_test(missing_fields_take_defaults),
        cmocka_unit_test(plain_angles_are_written_where_yarn_is_the_default),
    };
    return cmocka_run_group_tests_name("model config", tests, NULL, NULL);
}
