/* Ten steps of DPO reach the losses, rewards and norms of TRL, from texts and conversations, with each loss. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/folder.h"
#include "base/json.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "support/weight_files.h"

enum { STEPS_MAX = 16, PAIRS = 4 };
static const double TOLERANCE = 1e-4;

struct course {
    struct train_step steps[STEPS_MAX];
    int64_t count;
};

static void keep_step(void *payload, const struct train_step *step) {
    struct course *course = payload;
    assert_true(course->count < STEPS_MAX);
    course->steps[course->count++] = *step;
}

static json_t *read_expected(void) {
    json_t *object;
    if (json_read_object(BALLAST_FIXTURES "/preferences/losses.json", 1 << 20, &object) != STATUS_OK)
        fail_msg("%s", status_message());
    return object;
}

static void copy_to(const char *folder, const char *from, const char *name) {
    char path[512], to[64];
    snprintf(path, sizeof path, "%s/chat/%s", BALLAST_FIXTURES, from);
    snprintf(to, sizeof to, "model/%s", name);
    copy_file(path, temp_path(folder, to));
}

static int set_up(void **state) {
    if (temp_folder_make(state) != 0 || setenv("XDG_CACHE_HOME", *state, 1) != 0) return -1;
    if (folder_create(temp_path(*state, "model")) != STATUS_OK) return -1;
    copy_to(*state, "model/config.json", "config.json");
    copy_to(*state, "model/model.safetensors", "model.safetensors");
    copy_to(*state, "tokenizer.json", "tokenizer.json");
    json_t *expected = read_expected(),
           *config = json_pack("{s:O}", "chat_template", json_object_get(expected, "template"));
    write_json(temp_path(*state, "model/tokenizer_config.json"), config);
    json_decref(config);
    json_decref(expected);
    return 0;
}

static double number(const json_t *object, const char *field) {
    return json_number_value(json_object_get(object, field));
}

static void compare(const char *what, double found, const json_t *expected, const char *field, size_t step) {
    double wanted = json_number_value(json_array_get(json_object_get(expected, field), step));
    if (!(fabs(found - wanted) <= TOLERANCE * fmax(1, fabs(wanted))))
        fail_msg("%s, step %zu: %s is %.8f, not %.8f", what, step + 1, field, found, wanted);
}

/* `kind`: {"loss", "smoothing"}; NULL: as it is by default. `expected` by the name of the data's file. */
static void check(const char *folder, const char *name, int64_t micro_batch, const json_t *settings,
                  const json_t *by_name, const json_t *kind) {
    const json_t *expected = json_object_get(by_name, name);
    const char *loss = kind ? json_string_value(json_object_get(kind, "loss")) : "default";
    struct plan_options plan;
    struct train_options options;
    struct course course = {.count = 0};
    char data[512], run[512], model[512];
    const char *path = data;
    snprintf(data, sizeof data, "%s/preferences/%s.jsonl", BALLAST_FIXTURES, name);
    snprintf(run, sizeof run, "%s/run-%s-%s", folder, name, loss);
    snprintf(model, sizeof model, "%s/model", folder);
    plan_options_init(&plan);
    train_options_init(&options);
    options.data_paths = &path;
    options.data_path_count = 1;
    options.steps = (int64_t)number(settings, "steps");
    options.learning_rate = number(settings, "lr");
    options.schedule = LR_SCHEDULE_CONSTANT;
    options.save_every = 100;
    SETTINGS_GIVE(&options, warmup_steps, 0);
    SETTINGS_GIVE(&options, epsilon, number(settings, "epsilon"));
    SETTINGS_GIVE(&options, weight_decay, number(settings, "weight_decay"));
    SETTINGS_GIVE(&options, clip_norm, number(settings, "clip_norm"));
    SETTINGS_GIVE(&plan, loss, TRAINING_DPO);
    SETTINGS_GIVE(&plan, dpo_beta, number(settings, "beta"));
    if (kind) {
        SETTINGS_GIVE(&plan, dpo_loss, (enum pair_loss)setting_choice_value(&setting_table[SETTING_dpo_loss], loss));
        SETTINGS_GIVE(&plan, dpo_label_smoothing, number(kind, "smoothing"));
    }
    SETTINGS_GIVE(&plan, batch, 2 * PAIRS);
    SETTINGS_GIVE(&plan, micro_batch_sequences, micro_batch);
    SETTINGS_GIVE(&plan, threads, 2);
    SETTINGS_GIVE(&plan, sequence_length, (int64_t)number(settings, "length"));
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    struct train_events events = {.step = keep_step, .payload = &course};
    expect_status(train_begin(model, run, &plan, &options, &events), STATUS_OK, NULL);
    assert_int_equal(course.count, options.steps);
    for (int64_t i = 0; i < course.count; i++) {
        const struct train_step *step = &course.steps[i];
        compare(run, step->loss, expected, "loss", (size_t)i);
        compare(run, step->preference[PREFERENCE_CHOSEN], expected, "chosen", (size_t)i);
        compare(run, step->preference[PREFERENCE_REJECTED], expected, "rejected", (size_t)i);
        compare(run, step->preference[PREFERENCE_RIGHT], expected, "accuracy", (size_t)i);
        compare(run, step->grad_norm, expected, "grad_norm", (size_t)i);
    }
    print_message("%s, %s: loss %.6f to %.6f\n", name, loss, course.steps[0].loss, course.steps[course.count - 1].loss);
}

static void losses_are_those_of_trl(void **state) {
    json_t *all = read_expected(), *settings = json_object_get(all, "settings"),
           *kinds = json_object_get(all, "losses");
    check(*state, "chats", 2, settings, all, NULL);
    check(*state, "texts", 4, settings, all, NULL);
    assert_int_equal(json_array_size(kinds), PAIR_LOSS_COUNT);
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const json_t *kind = json_array_get(kinds, i);
        check(*state, "texts", 4, settings, kind, kind);
    }
    json_decref(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_those_of_trl)};
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
