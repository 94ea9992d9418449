/* Settings and files of adapters: reading, refusals by name, initial values, and merging. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "model/model.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

static void expect_bad(enum status status, const char *text) {
    if (status != STATUS_BAD_INPUT) fail_msg("status %d, expected a refusal with '%s'", (int)status, text);
    if (!strstr(status_message(), text)) fail_msg("'%s' is not in: %s", text, status_message());
}

static const char *fixture(const char *adapter_case) {
    char name[128];
    snprintf(name, sizeof name, "adapters/%s", adapter_case);
    return temp_path(BALLAST_FIXTURES, name);
}

static void adapters_are_read(void **state) {
    (void)state;
    struct adapter adapter;
    char text[ADAPTER_TEXT_BYTES];
    assert_int_equal(adapter_parse("8,16.0,q_proj,mlp.c_proj", &adapter), STATUS_OK);
    assert_int_equal(adapter.rank, 8);
    assert_string_equal(adapter_print(&adapter, text), "8,16,q_proj,mlp.c_proj");
    assert_true(adapter_wanted(&adapter, "model.layers.0.self_attn.q_proj"));
    assert_true(adapter_wanted(&adapter, "transformer.h.0.mlp.c_proj"));
    assert_true(adapter_wanted(&adapter, "q_proj"));
    assert_false(adapter_wanted(&adapter, "model.layers.0.xq_proj"));
    assert_false(adapter_wanted(&adapter, "transformer.h.0.attn.c_proj"));
    static const char *const wrong[][2] = {
        {"", "rank"},
        {"8", "alpha and the targets are missing"},
        {"8x,16,a", "whole number"},
        {"8,16", "alpha"},
        {"0,16,a", "rank"},
        {"-1,16,a", "rank"},
        {"70000,1,a", "rank"},
        {"8,0,a", "alpha"},
        {"8,nan,a", "alpha"},
        {"8,x,a", "alpha"},
        {"8,16,", "empty"},
        {"8,16,a,,b", "empty"},
        {"8,16,a b", "name"},
        {"8,16,a*", "name"},
        {"8,16,all-linear,q", "alone"},
        {"8,16,q,all-linear", "alone"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_bad(adapter_parse(wrong[i][0], &adapter), wrong[i][1]);
}

static void targets_are_found(void **state) {
    (void)state;
    struct model *model;
    assert_int_equal(model_open(fixture_model("gpt2_relu"), &model), STATUS_OK);
    expect_bad(model_set_adapter(model, "4,8,c_attn,lm_head", 1), "lm_head");
    assert_non_null(strstr(status_hint_text(), "c_attn, c_proj, c_fc"));
    expect_bad(model_set_frozen(model, "*.bias,h.99.*"), "h.99.*");
    model_free(model);
    assert_int_equal(model_open(fixture_model("opt_post_norm"), &model), STATUS_OK);
    assert_int_equal(model_set_adapter(model, "4,8,all-linear", 1), STATUS_OK);
    assert_non_null(strstr(model->config.adapter.targets, "project_in"));
    expect_bad(model_set_adapter(model, "4,8,fc1", 1), "differs");
    model_free(model);
}

/* A within 1 / sqrt(in) and spread over all of it; B zero; by name and seed. */
static void new_adapters_change_nothing(void **state) {
    (void)state;
    struct model *model;
    float first = 0;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        assert_int_equal(model_open(fixture_model("llama"), &model), STATUS_OK);
        assert_int_equal(model_set_adapter(model, "16,8,q_proj", seed), STATUS_OK);
        struct model_targets targets = model_targets_make(model, DTYPE_F32);
        assert_int_equal(model_load_weights(model, targets.items, targets.count), STATUS_OK);
        const struct weight_target *a = model_target(&targets, "0.self_attn.q_proj.lora_A.weight");
        const struct weight_target *b = model_target(&targets, "0.self_attn.q_proj.lora_B.weight");
        double largest = 0, square = 0, bound = 1 / sqrt(36);
        int64_t count = shape_elements(&a->tensor->shape);
        for (int64_t i = 0; i < count; i++) {
            double value = (double)((const float *)a->data)[i];
            largest = fmax(largest, fabs(value));
            square += value * value;
        }
        assert_true(largest <= bound && largest > 0.98 * bound);
        assert_true(fabs(sqrt(square / (double)count) / (bound / sqrt(3)) - 1) < 0.05);
        for (int64_t i = 0; i < shape_elements(&b->tensor->shape); i++)
            assert_true(fabsf(((const float *)b->data)[i]) <= 0);
        float value = *(const float *)a->data;
        assert_true(fabsf(value - first) > 0);
        first = value;
        model_targets_drop(&targets);
        model_free(model);
    }
}

static void copy_adapter(const char *adapter_case, const char *folder) {
    assert_int_equal(folder_create(folder), STATUS_OK);
    copy_file(temp_path(fixture(adapter_case), "adapter_config.json"), temp_path(folder, "adapter_config.json"));
    copy_file(temp_path(fixture(adapter_case), "adapter_model.safetensors"),
              temp_path(folder, "adapter_model.safetensors"));
}

static enum status open_changed(const char *folder, const char *key, json_t *value) {
    char path[512];
    struct model *model;
    copy_adapter("llama_lora", folder);
    snprintf(path, sizeof path, "%s", temp_path(folder, "adapter_config.json"));
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    if (value)
        json_object_set_new(config, key, value);
    else
        json_object_del(config, key);
    write_json(path, config);
    json_decref(config);
    enum status status = model_open_adapter(folder, fixture_model("llama_bias"), &model);
    if (status == STATUS_OK) model_free(model);
    return status;
}

static void bad_configs_are_refused(void **state) {
    const char *folder = temp_path(*state, "adapter");
    assert_int_equal(open_changed(folder, "lora_dropout", json_real(0.1)), STATUS_OK);
    assert_int_equal(open_changed(folder, "a_new_setting", json_null()), STATUS_OK);
    expect_bad(open_changed(folder, "a_new_setting", json_true()), "a_new_setting");
    expect_bad(open_changed(folder, "use_dora", json_true()), "use_dora");
    expect_bad(open_changed(folder, "use_rslora", json_true()), "use_rslora");
    expect_bad(open_changed(folder, "bias", json_string("all")), "bias");
    expect_bad(open_changed(folder, "rank_pattern", json_pack("{s:i}", "q_proj", 2)), "rank_pattern");
    expect_bad(open_changed(folder, "modules_to_save", json_pack("[s]", "lm_head")), "modules_to_save");
    expect_bad(open_changed(folder, "init_lora_weights", json_string("pissa")), "init_lora_weights");
    expect_bad(open_changed(folder, "peft_type", json_string("IA3")), "peft_type");
    expect_bad(open_changed(folder, "peft_type", NULL), "peft_type");
    expect_bad(open_changed(folder, "task_type", json_string("SEQ_CLS")), "task_type");
    expect_bad(open_changed(folder, "r", json_integer(0)), "r:");
    expect_bad(open_changed(folder, "r", NULL), "r:");
    expect_bad(open_changed(folder, "r", json_integer(5)), "adapter_config.json asks for");
    expect_bad(open_changed(folder, "lora_alpha", json_string("7")), "lora_alpha");
    expect_bad(open_changed(folder, "target_modules", json_string(".*proj")), "target_modules");
    expect_bad(open_changed(folder, "target_modules", json_array()), "target_modules");
    expect_bad(open_changed(folder, "target_modules", json_pack("[i]", 1)), "target_modules");
    expect_bad(open_changed(folder, "target_modules", json_pack("[s]", "[q_proj")), "target_modules: must be names");
    expect_bad(open_changed(folder, "target_modules", json_pack("[s]", "nothing")),
               "adapter_config.json: target_modules: 'nothing' is not");
    expect_bad(open_changed(folder, "target_modules", json_pack("[s, s]", "q_proj", "v_proj")), "unexpected tensor");
    expect_bad(open_changed(folder, "target_modules", json_pack("[s, s]", "q_proj", "k_proj")), "missing");
}

/* Each setting that peft writes, with every value of a type that it does not write. */
static void settings_of_another_type_are_refused(void **state) {
    static const struct {
        const char *key, *good; /* values that mean what the adapter's own does, or change nothing */
    } settings[] = {
        {"peft_type", "\"LORA\""},
        {"task_type", "\"CAUSAL_LM\" null"},
        {"r", ""},
        {"lora_alpha", "1 1.5"},
        {"target_modules", ""},
        {"base_model_name_or_path", "\"\" \"x\" \"LORA\" \"CAUSAL_LM\" \"none\" null"},
        {"lora_dropout", "0 1"},
        {"init_lora_weights", "true false"},
        {"fan_in_fan_out", "true false"},
        {"revision", "\"\" \"x\" \"LORA\" \"CAUSAL_LM\" \"none\" null"},
        {"peft_version", "\"\" \"x\" \"LORA\" \"CAUSAL_LM\" \"none\" null"},
        {"inference_mode", "true false"},
        {"auto_mapping", "{} {\"a\":1} null"},
        {"megatron_core", "\"\" \"x\" \"LORA\" \"CAUSAL_LM\" \"none\" null"},
        {"qalora_group_size", "0 1 -1 1.5"},
        {"layers_pattern", "\"\" \"x\" \"LORA\" \"CAUSAL_LM\" \"none\" [] [1] null"},
        {"bias", "\"none\" null"},
        {"lora_bias", "false null"},
        {"use_dora", "false null"},
        {"use_rslora", "false null"},
        {"alpha_pattern", "{} null"},
        {"rank_pattern", "{} null"},
        {"loftq_config", "{} null"},
        {"layers_to_transform", "[] null"},
        {"modules_to_save", "[] null"},
    };
    static const char *const values[] = {
        "null", "true", "false", "0",         "1",     "-1",       "1.5",           "{}",
        "[]",   "[1]",  "\"\"",  "{\"a\":1}", "\"x\"", "\"LORA\"", "\"CAUSAL_LM\"", "\"none\""};
    const char *folder = temp_path(*state, "adapter");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char list[200], value[40];
            snprintf(list, sizeof list, " %s ", settings[i].good);
            snprintf(value, sizeof value, " %s ", values[v]);
            enum status expected = strstr(list, value) ? STATUS_OK : STATUS_BAD_INPUT;
            enum status status = open_changed(folder, settings[i].key, json_loads(values[v], JSON_DECODE_ANY, NULL));
            if (status != expected) fail_msg("%s = %s: status %d", settings[i].key, values[v], (int)status);
            if (status != STATUS_OK && !strstr(status_message(), settings[i].key))
                fail_msg("%s = %s: %s", settings[i].key, values[v], status_message());
        }
}

static void bad_weights_are_refused(void **state) {
    const char *folder = temp_path(*state, "adapter"), *path = temp_path(folder, "adapter_model.safetensors");
    struct model *model;
    float zero = 0;
    copy_adapter("llama_lora", folder);
    struct weight_file file = weight_file_load(path);
    weight_file_append(&file, "base_model.model.lm_head.weight", "F32", json_pack("[i]", 1), &zero, sizeof zero);
    weight_file_save(&file, path);
    weight_file_drop(&file);
    expect_bad(model_open_adapter(folder, fixture_model("llama_bias"), &model), "lm_head");
    weight_file_write(path, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    expect_bad(model_open_adapter(folder, fixture_model("llama_bias"), &model), "missing");
    temp_write_text(path, "nothing");
    expect_bad(model_open_adapter(folder, fixture_model("llama_bias"), &model), "adapter_model.safetensors");
    expect_bad(model_open_adapter(folder, folder, &model), "adapter_config.json");
    expect_bad(model_open(fixture("llama_lora"), &model), "is no directory here");
    assert_non_null(strstr(status_hint_text(), "ballast merge"));
}

static void *read_tensor(const struct safetensors *set, const struct safetensors_tensor *tensor) {
    void *bytes = mem_array(tensor->bytes, 1);
    assert_non_null(bytes);
    assert_int_equal(safetensors_read(set, tensor, 0, tensor->bytes, bytes), STATUS_OK);
    return bytes;
}

/* W + (alpha / rank) B A, against what peft's merge_and_unload gives. */
static void check_merged(const char *place, const char *adapter_case, const char *base, int min) {
    struct model *model, *merged;
    struct safetensors *reference;
    int changed = 0;
    assert_int_equal(model_open_adapter(fixture(adapter_case), fixture_model(base), &model), STATUS_OK);
    const char *folder = temp_path(place, adapter_case);
    assert_int_equal(folder_create(folder), STATUS_OK);
    if (model_write_merged(model, folder) != STATUS_OK) fail_msg("%s", status_message());
    if (model_open(folder, &merged) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(merged->config.adapter.rank, 0);
    assert_int_equal(safetensors_open(temp_path(fixture(adapter_case), "reference.safetensors"), &reference),
                     STATUS_OK);
    for (size_t i = 0; i < merged->weights->tensors.count; i++) {
        const struct safetensors_tensor *found = &merged->weights->tensors.items[i];
        const struct safetensors_tensor *before = safetensors_find(model->weights, found->name);
        char name[256];
        snprintf(name, sizeof name, "merged.%s", found->name);
        const struct safetensors_tensor *expected = safetensors_find(reference, name);
        assert_int_equal(found->dtype, before->dtype);
        if (!expected) {
            void *x = read_tensor(merged->weights, found), *y = read_tensor(model->weights, before);
            assert_memory_equal(x, y, found->bytes);
            mem_free(x);
            mem_free(y);
            continue;
        }
        assert_int_equal(found->bytes, expected->bytes);
        float *x = read_tensor(merged->weights, found), *y = read_tensor(reference, expected);
        for (size_t k = 0; k < found->elements; k++)
            if (!(fabsf(x[k] - y[k]) <= 1e-6f)) fail_msg("%s: %g, expected %g", name, (double)x[k], (double)y[k]);
        mem_free(x);
        mem_free(y);
        changed++;
    }
    assert_int_equal(changed, min);
    safetensors_close(reference);
    model_free(merged);
    model_free(model);
}

static void merged_weights_are_those_of_peft(void **state) {
    check_merged(*state, "llama_lora", "llama_bias", 6);
    check_merged(*state, "gpt2_lora", "gpt2_gelu", 4);
    check_merged(*state, "qwen2_lora", "qwen2_tied", 14);
}

/* A base in bf16: what does not change keeps its bytes, what changes is rounded once. */
static void bf16_weights_are_merged(void **state) {
    struct model *model, *merged, *wide;
    assert_int_equal(model_open_adapter(fixture("llama_lora"), fixture_model("llama_bf16"), &model), STATUS_OK);
    const char *folder = temp_path(*state, "merged");
    assert_int_equal(folder_create(folder), STATUS_OK);
    assert_int_equal(model_write_merged(model, folder), STATUS_OK);
    assert_int_equal(model_open(folder, &merged), STATUS_OK);
    assert_int_equal(model_open_adapter(fixture("llama_lora"), fixture_model("llama_bias"), &wide), STATUS_OK);
    const char *wide_folder = temp_path(*state, "wide");
    assert_int_equal(folder_create(wide_folder), STATUS_OK);
    assert_int_equal(model_write_merged(wide, wide_folder), STATUS_OK);
    model_free(wide);
    assert_int_equal(model_open(wide_folder, &wide), STATUS_OK);
    struct model_targets x = model_targets_make(merged, DTYPE_F32), y = model_targets_make(wide, DTYPE_F32);
    assert_int_equal(model_load_weights(merged, x.items, x.count), STATUS_OK);
    assert_int_equal(model_load_weights(wide, y.items, y.count), STATUS_OK);
    for (int i = 0; i < x.count; i++) {
        const struct safetensors_tensor *found = safetensors_find(merged->weights, x.items[i].tensor->name);
        assert_int_equal(found->dtype, SAFETENSORS_BF16);
        for (int64_t k = 0; k < shape_elements(&x.items[i].tensor->shape); k++) {
            float a = ((const float *)x.items[i].data)[k], b = ((const float *)y.items[i].data)[k];
            if (!(fabsf(a - b) <= 0.008f * (fabsf(b) + 1))) fail_msg("%s: %g, %g", found->name, (double)a, (double)b);
        }
    }
    model_targets_drop(&x);
    model_targets_drop(&y);
    model_free(wide);
    model_free(merged);
    model_free(model);
}

static enum status open_and_merge(void *payload) {
    struct model *model;
    const char *folder = payload;
    TRY(model_open_adapter(fixture("llama_lora"), fixture_model("llama_bias"), &model));
    enum status status = model_write_merged(model, folder);
    if (status == STATUS_OK) {
        unlink(temp_path(folder, "config.json")); /* which allocates nothing */
        unlink(temp_path(folder, "model.safetensors"));
    } else {
        struct names names = {0};
        fault_arm(FAULT_ALLOCATE, 0, false);
        assert_int_equal(folder_list(folder, &names), STATUS_OK);
        assert_int_equal(names.count, 0);
        names_free(&names);
    }
    model_free(model);
    return status;
}

static void faults_are_reported(void **state) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", temp_path(*state, "faults"));
    assert_int_equal(folder_create(folder), STATUS_OK);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, open_and_merge, folder) > 20);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_are_read),
        cmocka_unit_test(targets_are_found),
        cmocka_unit_test(new_adapters_change_nothing),
        IN_FOLDER(bad_configs_are_refused),
        IN_FOLDER(settings_of_another_type_are_refused),
        IN_FOLDER(bad_weights_are_refused),
        IN_FOLDER(merged_weights_are_those_of_peft),
        IN_FOLDER(bf16_weights_are_merged),
        IN_FOLDER(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
