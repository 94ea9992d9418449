/* generation_config.json: its effect, options that override it, refusals, and copies in runs and merged models. */
/* ctest: PROCESSORS 2 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "generate/generate.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/text_writer.h"
#include "support/tiny_run.h"
#include "support/unit.h"

enum { TOKENS = 270, VOCAB = 300, NEW = 40 };

static const char text[] = "the river ran by the old mill and the river ran on to the sea, to the sea by the mill";

static const char *model_folder(const char *folder) {
    const char *path = temp_path(folder, "model");
    if (!file_exists(path)) text_model_make(path, text, TOKENS, VOCAB, false);
    return path;
}

static void write_config(const char *folder, const char *config) {
    char path[600];
    snprintf(path, sizeof path, "%s/generation_config.json", model_folder(folder));
    temp_write_text(path, config);
}

static enum status read_config(const char *folder, struct generation_config *out) {
    struct model *model;
    assert_int_equal(model_open(model_folder(folder), &model), STATUS_OK);
    enum status status = generation_config_read(model, NULL, true, out);
    model_free(model);
    return status;
}

static void values_are_read(void **state) {
    struct generation_config config;
    struct generate_options options;
    char note[GENERATION_NOTE_BYTES];
    write_config(*state, "{\"eos_token_id\": [7, 9], \"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, "
                         "\"top_k\": 20, \"repetition_penalty\": 1.05, \"num_beams\": 1.0, \"max_length\": 20}");
    expect_status(read_config(*state, &config), STATUS_OK, NULL);
    assert_true(generation_config_is_end(&config, 7) && generation_config_is_end(&config, 9));
    assert_false(generation_config_is_end(&config, 0));
    generate_options_init(&options);
    SETTINGS_GIVE(&options, top_p, 0.5);
    generation_config_apply(&config, &options, note);
    assert_string_equal(note, "eos_token_id 7 9, temperature 0.6, top_k 20, repetition_penalty 1.05");
    assert_true(options.temperature == 0.6 && options.top_p == 0.5 && options.top_k == 20);
    assert_true(options.repetition_penalty == 1.05);
    generation_config_free(&config);
}

static void greedy_is_read(void **state) {
    struct generation_config config;
    struct generate_options options;
    char note[GENERATION_NOTE_BYTES];
    write_config(*state, "{\"eos_token_id\": 3, \"do_sample\": false, \"temperature\": 0.6, \"top_k\": null}");
    expect_status(read_config(*state, &config), STATUS_OK, NULL);
    generate_options_init(&options);
    generation_config_apply(&config, &options, note);
    assert_string_equal(note, "eos_token_id 3, do_sample false");
    assert_true(options.temperature == 0 && options.top_k == 0 && options.top_p == 1);
    generate_options_init(&options);
    SETTINGS_GIVE(&options, temperature, 1);
    options.ignore_end = true;
    generation_config_apply(&config, &options, note);
    assert_string_equal(note, "");
    assert_true(options.temperature == 1);
    generation_config_free(&config);
}

/* Without the file: config.json's end, and the defaults. */
static void an_absent_file_is_no_error(void **state) {
    struct generation_config config;
    struct generate_options options;
    char note[GENERATION_NOTE_BYTES], path[600];
    snprintf(path, sizeof path, "%s/generation_config.json", model_folder(*state));
    remove(path);
    json_t *object;
    snprintf(path, sizeof path, "%s/config.json", model_folder(*state));
    expect_status(json_read_object(path, 1 << 16, &object), STATUS_OK, NULL);
    json_object_set_new(object, "eos_token_id", json_pack("[i, i]", 5, 6));
    expect_status(json_write(path, object), STATUS_OK, NULL);
    json_decref(object);
    expect_status(read_config(*state, &config), STATUS_OK, NULL);
    assert_int_equal(config.ends.count, 2);
    generate_options_init(&options);
    generation_config_apply(&config, &options, note);
    assert_string_equal(note, "");
    assert_true(options.temperature == 0.8 && options.top_k == 0 && options.top_p == 1);
    generation_config_free(&config);
    expect_status(json_read_object(path, 1 << 16, &object), STATUS_OK, NULL);
    static const char *const nonsense[] = {"300", "-4", "1.5", "\"1\"", "{}", "[5, 99999]"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        json_object_set_new(object, "eos_token_id", json_loads(nonsense[i], JSON_DECODE_ANY, NULL));
        expect_status(json_write(path, object), STATUS_OK, NULL);
        expect_status(read_config(*state, &config), STATUS_BAD_INPUT, "is no token of the model");
    }
    json_decref(object);
}

static void bad_values_are_refused(void **state) {
    static const char *const bad[][2] = {
        {"{\"eos_token_id\": \"</s>\"}", "generation_config.json: eos_token_id: "},
        {"{\"eos_token_id\": [1, 300]}", "generation_config.json: eos_token_id: 300"},
        {"{\"eos_token_id\": -1}", "generation_config.json: eos_token_id: -1"},
        {"{\"do_sample\": 1}", "generation_config.json: do_sample: "},
        {"{\"temperature\": \"hot\"}", "generation_config.json: temperature: "},
        {"{\"temperature\": -0.5}", "generation_config.json: temperature: "},
        {"{\"top_p\": 0}", "generation_config.json: top_p: "},
        {"{\"top_p\": 1.5}", "generation_config.json: top_p: "},
        {"{\"top_k\": 1.5}", "generation_config.json: top_k: "},
        {"{\"repetition_penalty\": 0}", "generation_config.json: repetition_penalty: "},
        {"[]", "generation_config.json: must hold a JSON object"},
    };
    struct generation_config config;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_config(*state, bad[i][0]);
        expect_status(read_config(*state, &config), STATUS_BAD_INPUT, bad[i][1]);
    }
}

static char *stderr_of_reading(const char *folder, const char *json) {
    const char *path = temp_path(folder, "stderr.txt");
    char *printed;
    size_t bytes;
    struct generation_config config;
    write_config(folder, json);
    fflush(stderr);
    int kept = dup(2);
    assert_non_null(freopen(path, "w", stderr));
    enum status status = read_config(folder, &config);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    expect_status(status, STATUS_OK, NULL);
    generation_config_free(&config);
    assert_int_equal(file_read(path, 1 << 16, &printed, &bytes), STATUS_OK);
    return printed;
}

static void settings_not_applied_are_reported(void **state) {
    char *printed =
        stderr_of_reading(*state, "{\"num_beams\": 4, \"no_repeat_ngram_size\": 0, \"suppress_tokens\": null, "
                                  "\"bad_words_ids\": [[1]], \"length_penalty\": 2.0, \"new_key\": 1}");
    assert_non_null(strstr(printed, "num_beams: is not applied"));
    assert_non_null(strstr(printed, "bad_words_ids: is not applied"));
    assert_non_null(strstr(printed, "new_key: is not known"));
    assert_null(strstr(printed, "no_repeat_ngram_size"));
    assert_null(strstr(printed, "suppress_tokens"));
    assert_null(strstr(printed, "length_penalty"));
    mem_free(printed);
}

static int64_t count_tokens(const char *model, bool ignore_end) {
    struct plan_options plan = text_writer_plan(64);
    struct generate_options options;
    struct generate_result result;
    char out[TEXT_WRITER_BYTES];
    generate_options_init(&options);
    options.tokens = NEW;
    options.ignore_end = ignore_end;
    expect_status(text_writer_run(model, &plan, &options, "the river", out, &result), STATUS_OK, NULL);
    assert_int_equal(result.finish, result.tokens < NEW ? GENERATE_FINISH_END : GENERATE_FINISH_LENGTH);
    return result.tokens;
}

/* Every token ends a text, by generation_config.json alone; also of what a run writes, which has the file. */
static void ends_of_texts_are_read(void **state) {
    struct tiny_run run;
    char model[512], all[8192] = "", ends[8300], trained[600];
    snprintf(model, sizeof model, "%s", model_folder(*state));
    for (int i = 0; i < VOCAB; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%d", i ? ", " : "", i);
    snprintf(ends, sizeof ends, "{\"eos_token_id\": [%s], \"do_sample\": false}", all);
    write_config(*state, "{}");
    assert_true(count_tokens(model, false) > 0);
    write_config(*state, ends);
    assert_int_equal(count_tokens(model, false), 0);
    assert_int_equal(count_tokens(model, true), NEW);
    tiny_run_make(*state, "llama", &run);
    memcpy(run.model, model, sizeof run.model);
    run.options.sample_every = 2;
    run.options.sample_prompt = "the river";
    const char *folder = temp_path(*state, "run");
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    snprintf(trained, sizeof trained, "%s/checkpoints/step-00000006/generation_config.json", folder);
    assert_true(file_exists(trained));
    snprintf(trained, sizeof trained, "%s/model", folder);
    assert_int_equal(count_tokens(trained, false), 0);
    char *samples;
    size_t bytes;
    assert_int_equal(file_read(temp_path(folder, "samples.jsonl"), 1 << 16, &samples, &bytes), STATUS_OK);
    assert_non_null(strstr(samples, "\"text\":\"\""));
    mem_free(samples);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read),        cmocka_unit_test(greedy_is_read),
        cmocka_unit_test(bad_values_are_refused), cmocka_unit_test(settings_not_applied_are_reported),
        cmocka_unit_test(ends_of_texts_are_read), cmocka_unit_test(an_absent_file_is_no_error),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
