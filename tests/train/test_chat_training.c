/* Fine-tuning on conversations reaches the losses of PyTorch, step by step, in any layout of the examples. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/json.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "support/weight_files.h"

enum { STEPS_MAX = 64, CONVERSATIONS = 7 };
static const char fixture[] = BALLAST_FIXTURES "/chat";

struct losses {
    double values[STEPS_MAX];
    int64_t steps;
};

static void keep_loss(void *payload, const struct train_step *step) {
    struct losses *losses = payload;
    assert_true(losses->steps < STEPS_MAX);
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
    SETTINGS_GIVE(&plan, micro_batch_sequences, 2);
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
    print_message("%s, packing %d: losses off by %.2e\n", template, (int)packing, worst);
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

static json_t *ends_of(const char *folder, const char *name) {
    char path[600];
    json_t *object;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    expect_status(json_read_object(path, 1 << 20, &object), STATUS_OK, NULL);
    json_t *ends = json_incref(json_object_get(object, "eos_token_id"));
    json_decref(object);
    return ends;
}

static void expect_ends(const char *folder, const char *name, const char *expected) {
    json_t *ends = ends_of(folder, name), *wanted = json_loads(expected, JSON_DECODE_ANY, NULL);
    char *text = ends ? json_dumps(ends, JSON_ENCODE_ANY) : NULL;
    if (!json_equal(ends, wanted))
        fail_msg("%s of %s has %s, expected %s", name, folder, text ? text : "none", expected);
    free(text);
    json_decref(ends);
    json_decref(wanted);
}

/* Two steps. */
static void train_on(const char *folder, const char *data, const char *template, const char *run,
                     const char *tokenizer_end, const char *lora) {
    json_t *reference = read_reference();
    write_json(temp_path(folder, "model/tokenizer_config.json"),
               json_pack("{s:s, s:s?}", "chat_template", template, "eos_token", tokenizer_end));
    struct plan_options plan;
    struct train_options options;
    plan_options_init(&plan);
    train_options_init(&options);
    options.data_paths = &data;
    options.data_path_count = 1;
    options.steps = 2;
    SETTINGS_GIVE(&options, save_every, 1);
    SETTINGS_GIVE(&plan, sequence_length, (int64_t)number(reference, "length"));
    SETTINGS_GIVE(&plan, batch, 2);
    if (lora) SETTINGS_GIVE(&plan, lora, lora);
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    expect_status(train_begin(temp_path(folder, "model"), run, &plan, &options, NULL), STATUS_OK, NULL);
    json_decref(reference);
}

/* On conversations whose template ends turns with <|im_end|>. */
static void train_briefly(const char *folder, const char *run, const char *tokenizer_end, const char *lora) {
    char data[600];
    json_t *reference = read_reference();
    const char *template = json_string_value(json_object_get(json_object_get(reference, "templates"), "plain"));
    snprintf(data, sizeof data, "%s/model/data.jsonl", folder);
    train_on(folder, data, template, run, tokenizer_end, lora);
    json_decref(reference);
}

/* As transformers' Trainer aligns them: the turn's end first, then those that the model had. */
static void generation_ends_at_the_trained_turn_end(void **state) {
    char run[512], model[600], checkpoint[600];
    snprintf(run, sizeof run, "%s/ends", (const char *)*state);
    snprintf(model, sizeof model, "%s/model", run);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoints/step-00000001", run);
    train_briefly(*state, run, "<|endoftext|>", NULL);
    expect_ends(model, "generation_config.json", "[602, 0]");
    expect_ends(model, "config.json", "602");
    expect_ends(checkpoint, "generation_config.json", "[602, 0]");
    expect_status(tiny_run_resume(run, 3, NULL), STATUS_OK, NULL);
    expect_ends(model, "generation_config.json", "[602, 0]");
}

/* The end of documents, which config.json alone names, stays what it is. */
static void an_end_that_only_the_config_names_stays(void **state) {
    char run[512], model[600], before[600];
    snprintf(run, sizeof run, "%s/unnamed", (const char *)*state);
    snprintf(model, sizeof model, "%s/model", run);
    snprintf(before, sizeof before, "%s/model", (const char *)*state);
    train_briefly(*state, run, NULL, NULL);
    json_t *old = ends_of(before, "config.json");
    char *text = json_dumps(old, JSON_ENCODE_ANY), list[64];
    snprintf(list, sizeof list, "[602, %s]", text);
    expect_ends(model, "config.json", text);
    expect_ends(model, "generation_config.json", list);
    free(text);
    json_decref(old);
}

static void an_adapter_run_writes_the_turn_end_and_resumes(void **state) {
    char run[512], model[600];
    snprintf(run, sizeof run, "%s/adapter", (const char *)*state);
    snprintf(model, sizeof model, "%s/model", run);
    train_briefly(*state, run, "<|endoftext|>", "4,8,q_proj");
    expect_ends(model, "generation_config.json", "[602, 0]");
    expect_status(tiny_run_resume(run, 3, NULL), STATUS_OK, NULL);
}

static void a_model_that_ends_there_already_is_written_as_it_was(void **state) {
    char run[512], written[600], path[600];
    snprintf(run, sizeof run, "%s/already", (const char *)*state);
    snprintf(written, sizeof written, "%s/model/generation_config.json", run);
    snprintf(path, sizeof path, "%s", temp_path(*state, "model/generation_config.json"));
    temp_write_text(path, "{\"eos_token_id\":  [600, 602]}");
    train_briefly(*state, run, "<|endoftext|>", NULL);
    assert_true(files_equal(path, written));
    assert_int_equal(unlink(path), 0);
}

static void prompts_and_completions_leave_the_ends_alone(void **state) {
    char run[512], data[600], after[600];
    json_t *reference = read_reference();
    const char *template = json_string_value(json_object_get(json_object_get(reference, "templates"), "plain"));
    snprintf(run, sizeof run, "%s/prompts", (const char *)*state);
    snprintf(data, sizeof data, "%s", temp_path(*state, "prompts.jsonl"));
    temp_write_text(data, "{\"prompt\": \"one\", \"completion\": \" two\"}\n"
                          "{\"prompt\": \"three\", \"completion\": \" four\"}\n");
    train_on(*state, data, template, run, "<|endoftext|>", NULL);
    json_t *old = ends_of(*state, "model/config.json"), *now = ends_of(run, "model/config.json");
    assert_true(json_equal(old, now));
    snprintf(after, sizeof after, "%s/model/generation_config.json", run);
    assert_int_equal(access(after, F_OK), -1);
    json_decref(old);
    json_decref(now);
    json_decref(reference);
}

static void prompts_and_completions_need_no_readable_template(void **state) {
    char run[512], data[600];
    snprintf(run, sizeof run, "%s/unreadable", (const char *)*state);
    snprintf(data, sizeof data, "%s", temp_path(*state, "prompts.jsonl"));
    train_on(*state, data, "{% for %}", run, NULL, NULL);
    expect_status(tiny_run_resume(run, 3, NULL), STATUS_OK, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_pytorch),
        cmocka_unit_test(packing_changes_nothing),
        cmocka_unit_test(generation_ends_at_the_trained_turn_end),
        cmocka_unit_test(an_end_that_only_the_config_names_stays),
        cmocka_unit_test(an_adapter_run_writes_the_turn_end_and_resumes),
        cmocka_unit_test(a_model_that_ends_there_already_is_written_as_it_was),
        cmocka_unit_test(prompts_and_completions_leave_the_ends_alone),
        cmocka_unit_test(prompts_and_completions_need_no_readable_template),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
