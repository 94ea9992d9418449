/* A loss or gradient that is not finite stops the run, and the message names its origin. */
/* ctest: PROCESSORS 2 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "ir/tensor.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "support/weight_files.h"

/* Copies the model with element 0 of a tensor set. */
static void plant_value(const char *folder, struct tiny_run *run, const char *tensor, float value) {
    int written = snprintf(run->model, sizeof run->model, "%s/model", folder);
    assert_true(written > 0 && (size_t)written < sizeof run->model);
    assert_int_equal(folder_remove(run->model), STATUS_OK);
    assert_int_equal(folder_create(run->model), STATUS_OK);
    copy_model("llama", run->model);
    struct weight_file file = weight_file_load(temp_path(run->model, "model.safetensors"));
    json_t *entry = json_object_get(file.header, tensor);
    assert_non_null(entry);
    json_int_t begin = json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    memcpy(file.data + begin, &value, sizeof value);
    weight_file_save(&file, temp_path(run->model, "model.safetensors"));
    weight_file_drop(&file);
}

static void a_weight_is_named(void **state) {
    struct tiny_run run;
    tiny_run_make(*state, "llama", &run);
    plant_value(*state, &run, "model.layers.1.mlp.up_proj.weight", INFINITY);
    const char *folder = temp_path(*state, "weight");
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_BAD_INPUT, run.model);
    assert_non_null(strstr(status_message(), "model.layers.1.mlp.up_proj.weight (a weight) holds a value"));
    assert_false(file_exists(folder));
    const char *paths[] = {run.valid};
    struct eval_options options = {.data_paths = paths, .data_path_count = 1};
    struct eval_result result;
    expect_status(evaluate_files(run.model, &run.plan, &options, &result), STATUS_FAILED, run.valid);
    assert_non_null(strstr(status_message(), "model.layers.1.mlp.up_proj.weight (a weight)"));
}

static void the_first_activation_is_named(void **state) {
    struct tiny_run run;
    char folder[512];
    tiny_run_make(*state, "llama", &run);
    plant_value(*state, &run, "model.layers.1.mlp.up_proj.weight", 3e38f);
    snprintf(folder, sizeof folder, "%s/activation", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_FAILED, "step 1: ");
    assert_non_null(strstr(status_message(), "block "));
    assert_non_null(strstr(status_message(), "micro-batch 0"));
    assert_null(strstr(status_message(), "layers.0"));
    assert_non_null(strstr(status_hint_text(), "--lr"));
}

static void expect_finite(const char *path) {
    struct safetensors *set;
    expect_status(safetensors_open(path, &set), STATUS_OK, NULL);
    assert_true(set->tensors.count > 0);
    for (size_t i = 0; i < set->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &set->tensors.items[i];
        assert_int_equal(tensor->dtype, SAFETENSORS_F32);
        float *values = malloc(tensor->bytes);
        expect_status(safetensors_read(set, tensor, 0, tensor->bytes, values), STATUS_OK, NULL);
        if (values_find_nonfinite(DTYPE_F32, values, (int64_t)tensor->elements) >= 0)
            fail_msg("%s: %s is not finite", path, tensor->name);
        free(values);
    }
    safetensors_close(set);
}

static void the_last_checkpoint_is_named(void **state) {
    struct tiny_run run;
    char folder[512];
    tiny_run_make(*state, "llama", &run);
    run.options.learning_rate = 1000;
    SETTINGS_GIVE(&run.options, warmup_steps, 0);
    run.options.save_every = 1;
    run.options.valid_every = 0;
    run.options.steps = 200;
    SETTINGS_GIVE(&run.options, beta1, 0);
    SETTINGS_GIVE(&run.options, beta2, 0);
    SETTINGS_GIVE(&run.options, weight_decay, 1000); /* weights grow by a factor of 1e6 each step */
    snprintf(folder, sizeof folder, "%s/diverged", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_FAILED, "is not finite");
    assert_non_null(strstr(status_hint_text(), "the last good checkpoint is "));
    char *metrics = tiny_run_metrics(folder);
    assert_null(strstr(metrics, "nan"));
    assert_null(strstr(metrics, "inf"));
    mem_free(metrics);
    const char *named = strstr(status_hint_text(), folder);
    assert_non_null(named);
    char checkpoint[600];
    snprintf(checkpoint, sizeof checkpoint, "%s", named);
    assert_true(file_exists(temp_path(checkpoint, "state.json")));
    expect_finite(temp_path(checkpoint, "model.safetensors"));
    expect_finite(temp_path(checkpoint, "optimizer.safetensors"));
}

/* A gradient whose square is more than fp32 holds: the loss stays finite, and the weight would never move again. */
static void infinite_moments_are_no_checkpoint(void **state) {
    struct tiny_run run;
    char folder[512];
    tiny_run_make(*state, "llama", &run);
    plant_value(*state, &run, "model.norm.weight", 3e21f);
    SETTINGS_GIVE(&run.options, clip_norm, 0);
    run.options.valid_every = 0;
    snprintf(folder, sizeof folder, "%s/moments", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_FAILED,
                  "the checkpoint of step 2 is not written: exp_avg_sq.");
    assert_non_null(strstr(status_message(), "is not finite"));
    assert_non_null(strstr(status_hint_text(), "no checkpoint was written yet"));
    assert_int_equal(temp_count(temp_path(folder, "checkpoints")), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_is_named),
        cmocka_unit_test(the_first_activation_is_named),
        cmocka_unit_test(the_last_checkpoint_is_named),
        cmocka_unit_test(infinite_moments_are_no_checkpoint),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
