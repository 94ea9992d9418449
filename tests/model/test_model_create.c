/* New models: configs, initial values, and the files for transformers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/half.h"
#include "model/model.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

static struct model_config small(const char *arch) {
    struct model_config config;
    assert_int_equal(model_config_init(arch, &config), STATUS_OK);
    config.vocab_size = 300;
    config.hidden = 96;
    config.layers = 3;
    config.heads = 6;
    config.context = 64;
    return config;
}

static struct model *create(const struct model_config *config) {
    struct model *model;
    if (model_create(config, &model) != STATUS_OK) fail_msg("%s", status_message());
    return model;
}

static void sizes_left_out_are_the_authors(void **state) {
    (void)state;
    struct model_config config = small("llama");
    struct model *model = create(&config);
    assert_int_equal(model->config.kv_heads, 6);
    assert_int_equal(model->config.head_dim, 16);
    assert_int_equal(model->config.ffn, 256);
    assert_int_equal(model->config.activation, ACTIVATION_SILU);
    assert_false(model->config.tied);
    assert_true(model->config.rope.theta == 10000);
    assert_int_equal(model->config.rope.head_dim, 16);
    model_free(model);
    config.hidden = 4096;
    config.heads = 32;
    model = create(&config);
    assert_int_equal(model->config.ffn, 11008); /* as the 7B model's */
    model_free(model);

    config = small("gpt2");
    model = create(&config);
    assert_int_equal(model->config.ffn, 384);
    assert_int_equal(model->config.activation, ACTIVATION_GELU_TANH);
    assert_true(model->config.tied);
    assert_string_equal(model->prefix, "transformer.");
    model_free(model);
}

static void sizes_of_later_families(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int64_t hidden, heads, ffn; /* of published models */
    } wanted[] = {{"gemma2", 2304, 9, 9216},   {"gemma3_text", 2560, 10, 10240}, {"granite", 2048, 32, 8192},
                  {"olmo2", 4096, 32, 11008},  {"mistral", 4096, 32, 14336},     {"mixtral", 4096, 32, 14336},
                  {"gpt_oss", 2880, 45, 2880}, {"olmoe", 2048, 16, 2048},        {"phi3", 3072, 32, 8192},
                  {"qwen2", 896, 14, 4864},    {"qwen3", 1024, 16, 3072},        {"smollm3", 2048, 16, 11008},
                  {"opt", 768, 12, 3072}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct model_config config = small(wanted[i].arch);
        config.hidden = wanted[i].hidden;
        config.heads = wanted[i].heads;
        struct model *model = create(&config);
        assert_int_equal(model->config.ffn, wanted[i].ffn);
        assert_int_equal(model->config.head_dim, wanted[i].hidden / wanted[i].heads);
        assert_int_equal(model->config.embedding_width, wanted[i].hidden);
        model_free(model);
    }
    struct model_config config = small("mistral");
    struct model *model = create(&config);
    assert_int_equal(model->config.window, 4096);
    assert_true(model->config.windowed[2]);
    model_free(model);
}

static void windows_survive_writing(void **state) {
    (void)state;
    static const char *const archs[] = {"mistral", "phi3", "qwen2", "qwen3", "smollm3"};
    for (int i = 0; i < 5; i++)
        for (int64_t window = 0; window <= 9; window += 9) {
            struct model_config config = small(archs[i]);
            model_config_set_window(&config, window);
            struct model *model = create(&config);
            assert_int_equal(model->config.window, window);
            for (int64_t layer = 0; layer < 3; layer++)
                assert_true(model->config.windowed[layer] == (window > 0));
            model_free(model);
        }
    struct model_config config = small("qwen3");
    config.window = 9;
    config.windowed[0] = config.windowed[2] = true;
    struct model *model = create(&config);
    const bool *found = model->config.windowed;
    assert_true(model->config.window == 9 && found[0] && !found[1] && found[2]);
    model_free(model);
}

static void positions_survive_writing(void **state) {
    (void)state;
    struct model_config config = small("smollm3");
    config.layers = 9;
    struct model *model = create(&config);
    assert_true(model->config.tied && model->config.rope.theta == 2e6);
    for (int64_t layer = 0; layer < 9; layer++)
        assert_true(model->config.without_rope[layer] == (layer % 4 == 3));
    model_free(model);
    config.without_rope[3] = false;
    config.without_rope[8] = true;
    model = create(&config);
    for (int64_t layer = 0; layer < 9; layer++)
        assert_true(model->config.without_rope[layer] == (layer >= 7));
    model_free(model);
}

static void gemmas_survive_writing(void **state) {
    (void)state;
    struct model_config config = small("gemma2");
    struct model *model = create(&config);
    const struct model_config *found = &model->config;
    assert_true(found->attention_softcap == 50 && found->logits_softcap == 30 && found->query_scalar == 16);
    assert_true(found->window == 4096 && found->windowed[0] && !found->windowed[1] && found->windowed[2]);
    assert_true(found->tied && found->norm_one_plus && found->activation == ACTIVATION_GELU_TANH);
    model_free(model);
    config.attention_softcap = config.logits_softcap = 0;
    config.query_scalar = 144;
    model_config_set_window(&config, 9);
    model = create(&config);
    found = &model->config;
    assert_true(found->attention_softcap == 0 && found->logits_softcap == 0 && found->query_scalar == 144);
    assert_true(found->window == 9 && found->windowed[0] && !found->windowed[1] && found->windowed[2]);
    model_free(model);

    config = small("gemma3_text");
    config.layers = 7;
    config.local_rope.theta = 300;
    model = create(&config);
    found = &model->config;
    assert_true(found->rope.theta == 1e6 && found->local_rope.theta == 300 && found->local_rope.head_dim == 16);
    for (int64_t layer = 0; layer < 7; layer++)
        assert_true(found->windowed[layer] == (layer != 5));
    model_free(model);
    model_config_set_window(&config, 0);
    config.logits_softcap = 20;
    model = create(&config);
    assert_true(model->config.window == 0 && !model->config.windowed[0] && model->config.logits_softcap == 20);
    model_free(model);
}

static void long_rope_survives_writing(void **state) {
    (void)state;
    struct model_config config = small("phi3");
    config.rope.partial = 0.25;
    config.rope.scaling = ROPE_SCALING_LONGROPE;
    config.rope.original_context = 16;
    config.rope.attention_factor = 1.25;
    config.rope.factors = 2;
    config.rope.short_factor[0] = config.rope.short_factor[1] = 1.5f;
    config.rope.long_factor[0] = config.rope.long_factor[1] = 3.1f;
    struct model *model = create(&config);
    const struct rope_table_attributes *rope = &model->config.rope;
    assert_true(rope->scaling == ROPE_SCALING_LONGROPE && rope->head_dim == 4 && rope->factor == 4);
    assert_true(rope->original_context == 16 && rope->attention_factor == 1.25 && rope->factors == 2);
    assert_true(rope->short_factor[1] == 1.5f && rope->long_factor[1] == 3.1f);
    model_free(model);
    config = small("llama");
    config.rope.scaling = ROPE_SCALING_YARN;
    config.rope.factor = 3;
    config.rope.mscale = 0.7;
    config.rope.beta_slow = 2;
    config.rope.untruncated = true;
    model = create(&config);
    rope = &model->config.rope;
    assert_true(rope->scaling == ROPE_SCALING_YARN && rope->factor == 3 && rope->original_context == 64);
    assert_true(rope->mscale == 0.7 && rope->mscale_all_dim == 0 && rope->beta_slow == 2 && rope->untruncated);
    model_free(model);
}

static void multipliers_survive_writing(void **state) {
    (void)state;
    struct model_config config = small("granite");
    struct model *model = create(&config);
    const struct model_config *found = &model->config;
    assert_true(found->attention_multiplier == 1.0 / 16 && found->embedding_multiplier == 12);
    assert_true(found->residual_multiplier == 0.22 && found->logits_divisor == 8 && found->tied);
    model_free(model);
    config.attention_multiplier = 0.3;
    config.embedding_multiplier = 1;
    config.residual_multiplier = 0.7;
    config.logits_divisor = 5;
    model = create(&config);
    found = &model->config;
    assert_true(found->attention_multiplier == 0.3 && found->embedding_multiplier == 1);
    assert_true(found->residual_multiplier == 0.7 && found->logits_divisor == 5);
    model_free(model);
}

static void opt_layouts_survive_writing(void **state) {
    (void)state;
    struct model_config config = small("opt");
    config.norm_after = true;
    config.embedding_width = 40;
    config.attention_bias = false;
    config.tied = false;
    struct model *model = create(&config);
    const struct model_config *found = &model->config;
    assert_true(found->norm_after && found->embedding_width == 40 && !found->attention_bias && !found->tied);
    model_free(model);
}

/* What is written is what was asked for, and a strict reader takes it. */
static void configs_survive_writing(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "gpt2"};
    for (int i = 0; i < 2; i++) {
        struct model_config config = small(archs[i]);
        config.norm_epsilon = 3e-6;
        config.activation = ACTIVATION_RELU;
        config.ffn = 100;
        config.tied = i == 0;
        if (i == 0) {
            config.kv_heads = 2;
            config.head_dim = 8;
            config.attention_bias = true;
            config.rope = (struct rope_table_attributes){.theta = 5e5,
                                                         .scaling = ROPE_SCALING_LLAMA3,
                                                         .factor = 8,
                                                         .low_freq_factor = 1,
                                                         .high_freq_factor = 4,
                                                         .original_context = 32};
        } else {
            config.scale_by_inverse_layer = true;
            config.scale_attention = false;
        }
        struct model *model = create(&config);
        const struct model_config *found = &model->config;
        assert_true(found->norm_epsilon == 3e-6 && found->activation == ACTIVATION_RELU && found->ffn == 100);
        assert_true(found->tied == config.tied && found->attention_bias == config.attention_bias);
        assert_true(found->scale_by_inverse_layer == config.scale_by_inverse_layer);
        assert_true(found->scale_attention == config.scale_attention);
        assert_true(found->dropout == 0);
        if (i == 0) {
            assert_true(found->kv_heads == 2 && found->head_dim == 8);
            assert_true(found->rope.theta == 5e5 && found->rope.scaling == ROPE_SCALING_LLAMA3);
            assert_true(found->rope.factor == 8 && found->rope.original_context == 32);
        }
        model_free(model);
    }
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int64_t hidden, layers, heads, kv_heads, head_dim, vocab;
        const char *message;
    } bad[] = {
        {"llama", 96, 2, 5, 0, 0, 300, "hidden: 96 is not a multiple of heads (5)"},
        {"llama", 96, 2, 5, 0, 16, 300, "hidden: 96 is not a multiple of heads (5)"},
        {"llama", 96, 2, 6, 4, 0, 300, "num_key_value_heads: 4 does not divide num_attention_heads (6)"},
        {"llama", 90, 2, 6, 0, 0, 300, "head_dim: 15 is odd"},
        {"llama", 0, 2, 6, 0, 0, 300, "hidden_size: 0 is outside"},
        {"llama", INT64_MAX, 2, 6, 0, 0, 300, "hidden: 9223372036854775807"},
        {"llama", 96, -1, 6, 0, 0, 300, "num_hidden_layers: -1 is outside"},
        {"llama", 96, 2, 0, 0, 0, 300, "num_attention_heads: 0 is outside"},
        {"llama", 96, 2, 6, 0, 0, 0, "vocab_size: 0 is outside"},
        {"gpt2", 96, 2, 5, 0, 0, 300, "hidden: 96 is not a multiple of heads (5)"},
        {"gpt2", INT64_MIN, 2, 6, 0, 0, 300, "hidden: -9223372036854775808"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config config = small(bad[i].arch);
        config.hidden = bad[i].hidden;
        config.layers = bad[i].layers;
        config.heads = bad[i].heads;
        config.kv_heads = bad[i].kv_heads;
        config.head_dim = bad[i].head_dim;
        config.vocab_size = bad[i].vocab;
        struct model *model;
        assert_int_equal(model_create(&config, &model), STATUS_BAD_INPUT);
        if (!strstr(status_message(), bad[i].message))
            fail_msg("\"%s\" is not in: %s", bad[i].message, status_message());
    }
    struct model_config config;
    assert_int_equal(model_config_init("mamba", &config), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "\"mamba\" is not supported"));
}

static void statistics(const struct weight_target *target, double *mean, double *deviation) {
    const float *values = target->data;
    int64_t count = shape_elements(&target->tensor->shape);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += values[i];
        squares += (double)values[i] * values[i];
    }
    *mean = sum / (double)count;
    *deviation = sqrt(squares / (double)count - *mean * *mean);
}

static void assert_normal(const struct model_targets *targets, const char *name, double wanted) {
    const struct weight_target *target = model_target(targets, name);
    double mean, deviation, root = sqrt((double)shape_elements(&target->tensor->shape));
    statistics(target, &mean, &deviation);
    /* five standard errors of the mean and of the deviation */
    if (fabs(mean) > 5 * wanted / root || fabs(deviation - wanted) > 5 * wanted / (1.414 * root))
        fail_msg("%s: mean %g, deviation %g, not %g", name, mean, deviation, wanted);
}

static void assert_all(const struct model_targets *targets, const char *name, float wanted) {
    const struct weight_target *target = model_target(targets, name);
    for (int64_t i = 0; i < shape_elements(&target->tensor->shape); i++)
        assert_true(((const float *)target->data)[i] == wanted);
}

static void initial_values_are_the_authors(void **state) {
    (void)state;
    struct model_config config = small("gpt2");
    struct model *model = create(&config);
    struct model_targets targets = model_targets_make(model, DTYPE_F32);
    (void)model_initialise_weights(model, 7, targets.items, targets.count);
    assert_normal(&targets, "wte.weight", 0.02);
    assert_normal(&targets, "wpe.weight", 0.02);
    assert_normal(&targets, "h.0.attn.c_attn.weight", 0.02);
    assert_normal(&targets, "h.2.attn.c_proj.weight", 0.02 / sqrt(6));
    assert_normal(&targets, "h.1.mlp.c_proj.weight", 0.02 / sqrt(6));
    assert_all(&targets, "h.1.mlp.c_proj.bias", 0);
    assert_all(&targets, "h.1.ln_1.weight", 1);
    assert_all(&targets, "ln_f.bias", 0);
    model_targets_drop(&targets);
    model_free(model);

    config = small("llama");
    config.attention_bias = true;
    config.initial_range = 0.1;
    model = create(&config);
    targets = model_targets_make(model, DTYPE_F32);
    (void)model_initialise_weights(model, 7, targets.items, targets.count);
    assert_normal(&targets, "embed_tokens.weight", 0.1);
    assert_normal(&targets, "layers.2.mlp.down_proj.weight", 0.1);
    assert_normal(&targets, "lm_head.weight", 0.1);
    assert_all(&targets, "layers.1.input_layernorm.weight", 1);
    assert_all(&targets, "layers.1.self_attn.q_proj.bias", 0);
    model_targets_drop(&targets);
    model_free(model);
}

static void initial_values_of_later_families(void **state) {
    (void)state;
    struct model_config config = small("opt");
    struct model *model = create(&config);
    struct model_targets targets = model_targets_make(model, DTYPE_F32);
    (void)model_initialise_weights(model, 7, targets.items, targets.count);
    assert_normal(&targets, "decoder.embed_tokens.weight", 0.006);
    assert_normal(&targets, "decoder.embed_positions.weight", 0.006);
    assert_normal(&targets, "decoder.layers.1.self_attn.k_proj.weight", 0.006);
    assert_normal(&targets, "decoder.layers.1.self_attn.out_proj.weight", 0.006 / sqrt(6));
    assert_normal(&targets, "decoder.layers.1.fc2.weight", 0.006 / sqrt(6));
    assert_all(&targets, "decoder.layers.1.fc1.bias", 0);
    assert_all(&targets, "decoder.layers.2.final_layer_norm.weight", 1);
    assert_all(&targets, "decoder.final_layer_norm.bias", 0);
    model_targets_drop(&targets);
    model_free(model);

    config = small("qwen3");
    model = create(&config);
    targets = model_targets_make(model, DTYPE_F32);
    (void)model_initialise_weights(model, 7, targets.items, targets.count);
    assert_normal(&targets, "layers.0.self_attn.o_proj.weight", 0.02);
    assert_all(&targets, "layers.0.self_attn.q_norm.weight", 1);
    assert_all(&targets, "layers.2.self_attn.k_norm.weight", 1);
    model_targets_drop(&targets);
    model_free(model);
}

static bool same(const struct weight_target *a, const struct weight_target *b) {
    return memcmp(a->data, b->data, (size_t)shape_elements(&a->tensor->shape) * sizeof(float)) == 0;
}

static void initial_values_hang_on_seed_and_name_alone(void **state) {
    (void)state;
    struct model_config config = small("llama");
    struct model *model = create(&config);
    struct model_targets all = model_targets_make(model, DTYPE_F32), other = model_targets_make(model, DTYPE_F32);
    struct model_targets rounded = model_targets_make(model, DTYPE_BF16);
    (void)model_initialise_weights(model, 7, all.items, all.count);
    for (int i = other.count - 1; i >= 0; i--)
        (void)model_initialise_weights(model, 7, &other.items[i], 1);
    (void)model_initialise_weights(model, 7, rounded.items, rounded.count);
    for (int i = 0; i < all.count; i++) {
        assert_true(same(&all.items[i], &other.items[i]));
        for (int64_t k = 0; k < shape_elements(&all.items[i].tensor->shape); k++)
            assert_int_equal(((uint16_t *)rounded.items[i].data)[k], bf16_from_float(((float *)all.items[i].data)[k]));
    }
    assert_false(
        same(model_target(&all, "layers.0.mlp.up_proj.weight"), model_target(&all, "layers.1.mlp.up_proj.weight")));
    (void)model_initialise_weights(model, 8, other.items, other.count);
    assert_false(same(model_target(&all, "embed_tokens.weight"), model_target(&other, "embed_tokens.weight")));
    model_targets_drop(&all);
    model_targets_drop(&other);
    model_targets_drop(&rounded);
    model_free(model);
}

static void a_new_model_can_be_opened(void **state) {
    for (int i = 0; i < model_family_count; i++) {
        const char *arch = model_families[i]->name;
        struct model_config config = small(arch);
        struct model *model = create(&config), *again;
        struct model_targets targets = model_targets_make(model, DTYPE_F32);
        (void)model_initialise_weights(model, 1, targets.items, targets.count);
        const char *folder = temp_path(*state, arch);
        assert_int_equal(folder_create(folder), STATUS_OK);
        if (model_write(model, folder, targets.items, targets.count, NULL) != STATUS_OK)
            fail_msg("%s", status_message());
        if (model_open(folder, &again) != STATUS_OK) fail_msg("%s", status_message());
        assert_int_equal(again->weights->tensors.count, targets.count);
        json_t *config_json = json_load_file(temp_path(folder, "config.json"), 0, NULL);
        assert_string_equal(json_string_value(json_object_get(config_json, "torch_dtype")), "float32");
        const char *class = json_string_value(json_array_get(json_object_get(config_json, "architectures"), 0));
        assert_string_equal(json_string_value(json_object_get(config_json, "model_type")), arch);
        assert_non_null(strstr(class, strcmp(arch, "gpt2") == 0 ? "LMHeadModel" : "ForCausalLM"));
        json_decref(config_json);
        model_targets_drop(&targets);
        model_free(model);
        model_free(again);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_left_out_are_the_authors),
        cmocka_unit_test(configs_survive_writing),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(sizes_of_later_families),
        cmocka_unit_test(windows_survive_writing),
        cmocka_unit_test(positions_survive_writing),
        cmocka_unit_test(gemmas_survive_writing),
        cmocka_unit_test(long_rope_survives_writing),
        cmocka_unit_test(multipliers_survive_writing),
        cmocka_unit_test(opt_layouts_survive_writing),
        cmocka_unit_test(initial_values_are_the_authors),
        cmocka_unit_test(initial_values_of_later_families),
        cmocka_unit_test(initial_values_hang_on_seed_and_name_alone),
        cmocka_unit_test(a_new_model_can_be_opened),
    };
    return cmocka_run_group_tests_name("model create", tests, temp_folder_make, temp_folder_drop);
}
