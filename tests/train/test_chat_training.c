/* A fine-tune on conversations reaches the losses of PyTorch, step by step, however the examples are laid out. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/json.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "support/weight_files.h"

enum { STEPS_MOST = 64, CONVERSATIONS = 7 };
static const char fixture[] = BALLAST_FIXTURES "/chat";

struct losses {
    double values[STEPS_MOST];
    int64_t steps;
};

static void keep_loss(void *payload, const struct train_step *step) {
    struct losses *losses = payload;
    assert_true(losses->steps < STEPS_MOST);
    losses->values[losses->steps++] = step->loss;
}

static int set_up(void **state) {
    static const char *const names[] = {"config.json", "model.safetensors", "data.jsonl"};
    char from[512], tokenizer[512];
    if (temp_folder_make(state) != 0 || setenv("XDG_CACHE_HOME", *state, 1) != 0) return -1;
    if (folder_create(temp_path(*state, "model")) != STATUS_OK) return -1;
    for (int i = 0; i < 3; i++) {
        char to[64];
        snprintf(from, sizeof from, "%s/model/%s", fixture, names[i]);
        snprintf(to, sizeof to, "model/%s", names[i]);
        copy_file(from, temp_path(*state, to));
    }
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.json", fixture);
    copy_file(tokenizer, temp_path(*state, "model/tokenizer.json"));
    return 0;
}

static json_t *read_reference(void) {
    char path[512];
    json_t *object;
    snprintf(path, sizeof path, "%s/model/losses.json", fixture);
    if (json_read_object(path, 1 << 20, &object) != STATUS_OK) fail_msg("%s", status_message());
    return object;
}

static double number(const json_t *object, const char *field) {
    return json_number_value(json_object_get(object, field));
}

static void expect_losses(const char *folder, const char *template, enum example_packing packing, int64_t batch) {
    json_t *reference = read_reference(), *expected = json_object_get(reference, "losses");
    json_t *config = json_pack("{s:s}", "chat_template",
                               json_string_value(json_object_get(json_object_get(reference, "templates"), template)));
    write_json(temp_path(folder, "model/tokenizer_config.json"), config);
    struct plan_options plan;
    struct train_options options;
    plan_options_init(&plan);
    train_options_init(&options);
    const char *data = temp_path(folder, "model/data.jsonl");
    options.data_paths = &data;
    options.data_path_count = 1;
    options.steps = (int64_t)number(reference, "steps");
    options.learning_rate = number(reference, "lr");
    options.schedule = LR_SCHEDULE_CONSTANT;
    SETTINGS_GIVE(&options, warmup_steps, 0);
    SETTINGS_GIVE(&options, epsilon, number(reference, "epsilon"));
    SETTINGS_GIVE(&options, weight_decay, number(reference, "weight_decay"));
    SETTINGS_GIVE(&options, clip_norm, number(reference, "clip_norm"));
    SETTINGS_GIVE(&plan, batch, batch);
    SETTINGS_GIVE(&plan, grain_sequences, 2);
    SETTINGS_GIVE(&plan, threads, 2);
    SETTINGS_GIVE(&plan, sequence_length, (int64_t)number(reference, "length"));
    SETTINGS_GIVE(&plan, packing, packing);
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    struct losses losses = {0};
    struct train_events events = {.step = keep_loss, .payload = &losses};
    char run[512], model[512];
    snprintf(run, sizeof run, "%s/run-%s-%d", folder, template, (int)packing);
    snprintf(model, sizeof model, "%s/model", folder);
    expect_status(train_begin(model, run, &plan, &options, &events), STATUS_OK, NULL);
    assert_int_equal(losses.steps, json_array_size(expected));
    double worst = 0;
    for (int64_t i = 0; i < losses.steps; i++)
        worst = fmax(worst, fabs(losses.values[i] / json_number_value(json_array_get(expected, (size_t)i)) - 1));
    print_message("%s, packing %s: losses off by %.2e\n", template, example_packing_name(packing), worst);
    assert_true(worst < 1e-5);
    json_decref(config);
    json_decref(reference);
}

/* Each batch is the whole of the data: seven rows of one conversation, or as many as they pack into. */
static void losses_are_those_of_pytorch(void **state) {
    expect_losses(*state, "generation", EXAMPLE_PACKING_OFF, CONVERSATIONS);
    expect_losses(*state, "plain", EXAMPLE_PACKING_OFF, CONVERSATIONS);
}

static void packing_changes_nothing(void **state) {
    enum { PACKED_ROWS = 5 };
    expect_losses(*state, "generation", EXAMPLE_PACKING_ON, PACKED_ROWS);
    expect_losses(*state, "plain", EXAMPLE_PACKING_ON, PACKED_ROWS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_pytorch),
        cmocka_unit_test(packing_changes_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
