/* Runs that train adapters or a part of the weights: the files in their directories, resuming, memory. */
/* ctest: PROCESSORS 2 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "support/weight_files.h"

static void expect_same(const char *a, const char *b, const char *name) {
    if (!files_equal(temp_path(a, name), temp_path(b, name))) fail_msg("%s and %s differ in %s", a, b, name);
}

static void stop_and_go_on(const char *folder, const char *name, const char *lora, enum dtype dtype) {
    struct tiny_run run;
    char whole[512], parts[512];
    tiny_run_make(folder, name, &run);
    SETTINGS_GIVE(&run.plan, dtype, dtype);
    if (lora) SETTINGS_GIVE(&run.plan, lora, lora);
    snprintf(whole, sizeof whole, "%s/whole-%s", folder, name);
    snprintf(parts, sizeof parts, "%s/parts-%s", folder, name);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    run.options.steps = 1;
    SETTINGS_GIVE(&run.options, schedule_steps, 6);
    run.options.keep = 1;
    expect_status(tiny_run_begin(&run, parts, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(parts, 4, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(parts, 6, NULL), STATUS_OK, NULL);
    char *x = tiny_run_metrics(whole), *y = tiny_run_metrics(parts);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    expect_same(whole, parts, "model/adapter_model.safetensors");
    expect_same(whole, parts, "model/adapter_config.json");
    expect_same(whole, parts, "checkpoints/step-00000006/adapter_model.safetensors");
    expect_same(whole, parts, "checkpoints/step-00000006/optimizer.safetensors");
    assert_false(file_exists(temp_path(whole, "model/model.safetensors")));
    assert_false(file_exists(temp_path(whole, "model/config.json")));
}

/* The model below is not in the checkpoint: its config is compared too. */
static void another_base_is_refused(void **state) {
    struct tiny_run run;
    char folder[512];
    tiny_run_make(*state, "llama", &run);
    snprintf(run.model, sizeof run.model, "%s/base", (const char *)*state);
    assert_int_equal(folder_create(run.model), STATUS_OK);
    copy_model("llama", run.model);
    SETTINGS_GIVE(&run.plan, lora, "2,4,all-linear");
    snprintf(folder, sizeof folder, "%s/of-base", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(folder, 7, NULL), STATUS_OK, NULL);
    json_t *config = fixture_json("llama", "config.json");
    assert_int_equal(json_object_set_new(config, "rms_norm_eps", json_real(1e-4)), 0);
    write_json(temp_path(run.model, "config.json"), config);
    json_decref(config);
    expect_status(tiny_run_resume(folder, 8, NULL), STATUS_BAD_INPUT, "base/config.json: is not the one that the");
}

static void adapters_are_resumed(void **state) {
    stop_and_go_on(*state, "llama", "2,4,all-linear", DTYPE_F32);
    stop_and_go_on(*state, "gpt2", "3,3,c_attn,c_fc", DTYPE_BF16);
}

static enum status evaluate(const char *model, const struct tiny_run *run, double *loss) {
    struct plan_options plan = run->plan;
    struct eval_options options = {.data_paths = run->valid_paths, .data_path_count = 1};
    struct eval_result result;
    SETTINGS_DROP(&plan, lora);
    TRY(evaluate_files(model, &plan, &options, &result));
    *loss = result.total.loss;
    eval_result_free(&result);
    return STATUS_OK;
}

/* An adapter's directory is a model for eval and train; training goes on from it, and keeps to its settings. */
static void an_adapter_stands_for_a_model(void **state) {
    struct tiny_run run;
    char folder[500];
    double base, adapted, merged;
    tiny_run_make(*state, "llama", &run);
    SETTINGS_GIVE(&run.plan, lora, "4,16,q_proj,v_proj");
    run.options.learning_rate = 1e-2;
    run.options.steps = 40;
    snprintf(folder, sizeof folder, "%s/first", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    expect_status(evaluate(run.model, &run, &base), STATUS_OK, NULL);
    snprintf(run.model, sizeof run.model, "%s/model", folder);
    expect_status(evaluate(run.model, &run, &adapted), STATUS_OK, NULL);
    assert_true(adapted < base);
    struct model *model;
    assert_int_equal(model_open(run.model, &model), STATUS_OK);
    const char *merged_folder = temp_path(*state, "merged");
    assert_int_equal(folder_create(merged_folder), STATUS_OK);
    assert_int_equal(model_write_merged(model, merged_folder), STATUS_OK);
    model_free(model);
    expect_status(evaluate(merged_folder, &run, &merged), STATUS_OK, NULL);
    assert_true(fabs(merged - adapted) < 1e-6 * adapted);
    run.options.steps = 6;
    SETTINGS_DROP(&run.plan, lora);
    expect_status(tiny_run_begin(&run, temp_path(*state, "second"), NULL), STATUS_OK, NULL);
    assert_true(file_exists(temp_path(temp_path(*state, "second"), "model/adapter_model.safetensors")));
    SETTINGS_GIVE(&run.plan, lora, "8,16,q_proj");
    expect_status(tiny_run_begin(&run, temp_path(*state, "third"), NULL), STATUS_BAD_INPUT, "differs");
    assert_false(file_exists(temp_path(*state, "third")));
}

struct planned {
    struct session session;
    struct session_plan plan;
};

static void measure(const struct tiny_run *run, const char *lora, const char *freeze, struct planned *out) {
    struct plan_options plan = run->plan;
    const char *patterns[] = {freeze};
    if (lora) SETTINGS_GIVE(&plan, lora, lora);
    if (freeze) SETTINGS_GIVE(&plan, freeze, patterns);
    plan.freeze_count = freeze ? 1 : 0;
    expect_status(session_begin(run->model, PROGRAMS_TO_TRAIN, &plan, NULL, &out->session, &out->plan), STATUS_OK,
                  NULL);
}

static void drop(struct planned *planned) {
    session_plan_free(&planned->plan);
    session_close(&planned->session);
}

static int64_t kind(const struct planned *planned, enum buffer_kind which) {
    return planned->plan.memory[TIER_DEVICE].by_kind[which];
}

static bool has_tensor(const struct planned *planned, enum tensor_kind wanted, const char *end) {
    const struct graph *graph = programs_main(&planned->plan.programs)->graph;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        size_t length = strlen(tensor->name);
        if (tensor->kind == wanted && length >= strlen(end) && strcmp(tensor->name + length - strlen(end), end) == 0)
            return true;
    }
    return false;
}

/* Gradients and optimizer state for what trains and nothing else. */
static void adapters_take_less_memory(void **state) {
    struct tiny_run run;
    struct planned all, adapters, frozen;
    tiny_run_make(*state, "llama", &run);
    measure(&run, NULL, NULL, &all);
    measure(&run, "2,4,q_proj", NULL, &adapters);
    measure(&run, NULL, "*.mlp.*", &frozen);
    int64_t count = 2 * (2 * 36 + 2 * 60); /* layers, A and B of rank 2: 36 features in, 6 heads of 10 out */
    assert_int_equal(adapters.plan.figures.trained_parameters, count);
    assert_int_equal(adapters.plan.figures.parameters, all.plan.figures.parameters + count);
    assert_true(kind(&adapters, BUFFER_OPTIMIZER) >= count * 8 && kind(&adapters, BUFFER_OPTIMIZER) < count * 8 + 1024);
    assert_int_equal(all.plan.figures.trained_parameters, all.plan.figures.parameters);
    assert_true(kind(&all, BUFFER_OPTIMIZER) >= all.plan.figures.parameters * 8);
    assert_true(kind(&frozen, BUFFER_OPTIMIZER) < kind(&all, BUFFER_OPTIMIZER));
    assert_true(adapters.plan.programs.tier_bytes[TIER_DEVICE] < frozen.plan.programs.tier_bytes[TIER_DEVICE]);
    assert_true(frozen.plan.programs.tier_bytes[TIER_DEVICE] < all.plan.programs.tier_bytes[TIER_DEVICE]);
    assert_true(has_tensor(&adapters, TENSOR_GRADIENT, "q_proj.lora_B.weight"));
    assert_false(has_tensor(&adapters, TENSOR_GRADIENT, "q_proj.weight"));
    assert_false(has_tensor(&adapters, TENSOR_STATE, "q_proj.weight"));
    assert_true(has_tensor(&frozen, TENSOR_GRADIENT, "q_proj.weight"));
    assert_false(has_tensor(&frozen, TENSOR_GRADIENT, "up_proj.weight"));
    assert_false(has_tensor(&frozen, TENSOR_STATE, "up_proj.weight"));
    assert_true(all.plan.figures.flops_per_token > frozen.plan.figures.flops_per_token &&
                frozen.plan.figures.flops_per_token > adapters.plan.figures.flops_per_token);
    drop(&all);
    drop(&adapters);
    drop(&frozen);
}

/* Frozen weights keep their bits, the others do not; several patterns; resuming keeps to them. */
static void frozen_weights_stay(void **state) {
    struct tiny_run run;
    char folder[512], path[600];
    const char *patterns[] = {"model.layers.0.*", "*embed*"};
    tiny_run_make(*state, "llama", &run);
    SETTINGS_GIVE(&run.plan, freeze, patterns);
    run.plan.freeze_count = 2;
    run.options.steps = 2;
    snprintf(folder, sizeof folder, "%s/run", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(folder, 3, NULL), STATUS_OK, NULL);
    struct safetensors *before, *after;
    snprintf(path, sizeof path, "%s/model.safetensors", run.model);
    assert_int_equal(safetensors_open(path, &before), STATUS_OK);
    assert_int_equal(safetensors_open(temp_path(folder, "model/model.safetensors"), &after), STATUS_OK);
    for (size_t i = 0; i < before->tensors.count; i++) {
        const struct safetensors_tensor *x = &before->tensors.items[i];
        const struct safetensors_tensor *y = safetensors_find(after, x->name);
        bool frozen = strstr(x->name, "layers.0.") || strstr(x->name, "embed");
        assert_int_equal(x->bytes, y->bytes);
        void *was = malloc(x->bytes), *is = malloc(x->bytes);
        expect_status(safetensors_read(before, x, 0, x->bytes, was), STATUS_OK, NULL);
        expect_status(safetensors_read(after, y, 0, x->bytes, is), STATUS_OK, NULL);
        if ((memcmp(was, is, x->bytes) == 0) != frozen) fail_msg("%s: changed: %d", x->name, !frozen);
        free(was);
        free(is);
    }
    safetensors_close(before);
    safetensors_close(after);
    SETTINGS_GIVE(&run.plan, freeze, (const char *[]){"*"});
    run.plan.freeze_count = 1;
    expect_status(tiny_run_begin(&run, temp_path(*state, "none"), NULL), STATUS_BAD_INPUT, "nothing to train");
    SETTINGS_GIVE(&run.plan, freeze, (const char *[]){"model.layers.7.*"});
    expect_status(tiny_run_begin(&run, temp_path(*state, "none"), NULL), STATUS_BAD_INPUT, "model.layers.7.*");
    assert_false(file_exists(temp_path(*state, "none")));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(adapters_are_resumed),          IN_FOLDER(another_base_is_refused),
        IN_FOLDER(an_adapter_stands_for_a_model), IN_FOLDER(adapters_take_less_memory),
        IN_FOLDER(frozen_weights_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
