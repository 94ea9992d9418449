/* config.json: refused settings, and the names in messages. */
#include <stdlib.h>
#include <string.h>

#include "support/config_change.h"
#include "support/model_cases.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

static const struct config_change refused[] = {
    /* unknown keys */
    {"gpt2", "n_expert", "4", "n_expert: unknown setting"},
    {"llama", "quantization_config", "{}", "quantization_config: the weights are quantised"},
    {"llama", "quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}", "the weights are quantised (gptq)"},
    {"gpt2", "compression_config", "{}", "compression_config: the weights are quantised"},
    {"llama", "sliding_window", "7", "sliding_window: unknown setting"},
    {"llama", "partial_rotary_factor", "0.5", "partial_rotary_factor: unknown setting"},
    {"llama", "layer_types", "[\"full_attention\", \"sliding_attention\"]", "layer_types: unknown setting"},
    {"llama", "rms_norm_eps", "0", "rms_norm_eps: 0 is outside"},
    {"gpt2", "layer_norm_epsilon", "0", "layer_norm_epsilon: 0 is outside"},
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
    {"gemma3_text", "vision_config", "{\"hidden_size\": 8}", "vision_config: unknown setting"},
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
    {"gemma3_wrapped", "audio_config", "{\"layers\": 2}", "audio_config: unknown setting for a model of type gemma3"},
    {"gemma3_wrapped", "tie_word_embeddings", "false", "tie_word_embeddings: only true"},
    {"granite", "attention_multiplier", "0", "attention_multiplier: 0 is outside"},
    {"granite", "residual_multiplier", "-0.2", "residual_multiplier: -0.2 is outside"},
    {"granite", "logits_scaling", "\"8\"", "logits_scaling: must be a number"},
    {"granite", "embedding_multiplier", "1e10", "embedding_multiplier: 1e+10 is outside"},
    {"opt", "_remove_final_layer_norm", "true", "_remove_final_layer_norm: only false"},
    {"opt", "layer_norm_elementwise_affine", "false", "layer_norm_elementwise_affine: only true"},
    {"opt", "do_layer_norm_before", "1", "do_layer_norm_before: must be true or false"},
    {"opt", "word_embed_proj_dim", "0", "word_embed_proj_dim: 0 is outside"},
    {"opt", "num_attention_heads", "3", "num_attention_heads: 3 does not divide hidden_size (20)"},
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
    {"gpt2", "n_embd", "91", "n_head: 3 does not divide n_embd (91)"},
    {"gpt2", "n_inner", "0", "n_inner: 0 is outside 1 to"},
    {"gpt2", "n_ctx", "64", "n_ctx: 64 is not n_positions (40)"},
    {"gpt2", "n_ctx", "\"40\"", "n_ctx: must be a whole number"},
    {"llama", "num_hidden_layers", "0", "num_hidden_layers: 0 is outside"},
    {"llama", "num_hidden_layers", "1000000", "num_hidden_layers: 1000000 is outside"},
    {"llama", "vocab_size", "4294967296", "vocab_size: 4294967296 is outside"},
    {"llama", "max_position_embeddings", "0", "max_position_embeddings: 0 is outside"},
    {"llama", "num_key_value_heads", "4", "num_key_value_heads: 4 does not divide num_attention_heads (6)"},
    {"llama", "num_key_value_heads", "18", "num_key_value_heads: 18 does not divide num_attention_heads (6)"},
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

/* Whether a key of the fixtures may hold anything, since it changes nothing in training. */
static bool is_ignored(const char *key) {
    static const char *const ignored[] = {"_sliding_window_pattern",
                                          "bos_token_id",
                                          "dtype",
                                          "eos_token_id",
                                          "max_window_layers",
                                          "pad_token_id",
                                          "reorder_and_upcast_attn",
                                          "sliding_window",
                                          "torch_dtype",
                                          "transformers_version",
                                          "use_cache"};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (strcmp(ignored[i], key) == 0) return true;
    return strncmp(key, "summary_", 8) == 0;
}

static void everything_else_is_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct model_config config;
        enum status status = config_read_changed(&refused[i], &config);
        if (status != STATUS_BAD_INPUT) fail_msg("%s = %s: status %d", refused[i].key, refused[i].value, (int)status);
        if (strncmp(status_message(), "config.json: ", 13) != 0 || !strstr(status_message(), refused[i].message))
            fail_msg("\"%s\" is not in: %s", refused[i].message, status_message());
    }
}

/* What a config says of the model, as one that Ballast writes. */
static char *describe(const json_t *object, const struct model_config *config) {
    const struct model_family *family = NULL;
    assert_int_equal(model_family_of("config.json", object, &family), STATUS_OK);
    json_t *written = family->write_config(config);
    char *text = json_dumps(written, JSON_SORT_KEYS);
    assert_non_null(text);
    json_decref(written);
    return text;
}

static bool is_of_type(const json_t *value, const json_t *other) {
    if (json_is_number(value)) return json_is_number(other);
    return json_is_boolean(value) ? json_is_boolean(other) : json_typeof(value) == json_typeof(other);
}

/* A value of another type is refused by the key's name, or the key changes nothing. */
static void expect_typed(const char *model_case, const char *key, const char *wrong) {
    json_t *object = fixture_json(model_case, "config.json"), *other = json_loads(wrong, JSON_DECODE_ANY, NULL);
    struct model_config config;
    assert_int_equal(config_read(object, &config), STATUS_OK);
    char *before = describe(object, &config), *after;
    bool same = is_of_type(json_object_get(object, key), other);
    json_object_set_new(object, key, other);
    status_clear();
    enum status status = same ? STATUS_OK : config_read(object, &config);
    after = describe(object, &config);
    bool named = status == STATUS_BAD_INPUT && strstr(status_message(), key);
    bool changed = status == STATUS_OK && strcmp(before, after) != 0;
    if (!same && !named && (status != STATUS_OK || changed || !is_ignored(key)))
        fail_msg("%s: %s = %s: status %d: %s", model_case, key, wrong, (int)status, status_message());
    free(before);
    free(after);
    json_decref(object);
}

static void values_of_another_type_are_refused(void **state) {
    static const char *const cases[] = {FULL_MODEL_CASES, LIGHT_MODEL_CASES};
    static const char *const wrong[] = {"{}",   "[]", "[1]", "{\"a\": 1}", "\"1\"", "\"\"",
                                        "true", "1",  "0",   "-1",         "1.5"};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        if (strncmp(cases[c], "gemma3_wrapped", 14) == 0) continue; /* nothing of the text model is next to it */
        json_t *object = fixture_json(cases[c], "config.json"), *value;
        const char *key;
        json_object_foreach(object, key, value) {
            if (json_is_null(value) || strcmp(key, "model_type") == 0) continue;
            for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++)
                expect_typed(cases[c], key, wrong[w]);
        }
        json_decref(object);
    }
}

/* A norm divides by the root of its mean square and this number. */
static void an_epsilon_of_0_is_refused(void **state) {
    static const char *const cases[] = {FULL_MODEL_CASES};
    int found = 0;
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        json_t *object = fixture_json(cases[c], "config.json"), *value;
        const char *key;
        json_object_foreach(object, key, value) {
            if (!strstr(key, "eps")) continue;
            struct config_change change = {cases[c], key, "0", NULL};
            struct model_config config;
            assert_int_equal(config_read_changed(&change, &config), STATUS_BAD_INPUT);
            assert_non_null(strstr(status_message(), key));
            found++;
        }
        json_decref(object);
    }
    assert_true(found >= 30);
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
    assert_int_equal(config_read(object, &config), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "overflow 64 bits"));
    assert_non_null(strstr(status_message(), "hidden_size"));
    json_decref(object);
}

/* model_open gives the message of each kind of unreadable config. */
static void assert_open_refused(const char *folder, const char *message) {
    struct model *model;
    assert_int_equal(model_open(folder, &model), STATUS_BAD_INPUT);
    if (!strstr(status_message(), "config.json") || !strstr(status_message(), message))
        fail_msg("\"%s\" is not in: %s", message, status_message());
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
    assert_open_refused(*state, "model_type: \"llava\" is not supported: it has other parts than its text model");
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
        cmocka_unit_test(everything_else_is_refused_by_name),
        cmocka_unit_test(values_of_another_type_are_refused),
        cmocka_unit_test(an_epsilon_of_0_is_refused),
        cmocka_unit_test(sizes_that_overflow_together_are_refused),
        cmocka_unit_test(unreadable_configs_are_refused),
    };
    return cmocka_run_group_tests_name("refused configs", tests, temp_folder_make, temp_folder_drop);
}
