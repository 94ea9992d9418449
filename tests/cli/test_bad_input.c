/* Bad input, one error at a time: exit status 2, a message that names file and field, no new run directory, and an
 * existing run stays unchanged. */
/* ctest: LABELS long */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/data_files.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A sound model and text, made once. */
static struct program_place place;
static char broken[600];

static int set_up(void **state) {
    (void)state;
    if (program_place_make(&place, 20000) != 0) return -1;
    snprintf(broken, sizeof broken, "%s/broken", place.folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return program_place_drop(&place);
}

/* A fresh copy of the sound model to break. */
static const char *copy_model(void) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    assert_int_equal(folder_remove(broken), STATUS_OK);
    assert_int_equal(folder_create(broken), STATUS_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_int_equal(file_copy(temp_path(place.model, files[i]), temp_path(broken, files[i])), STATUS_OK);
    return broken;
}

/* Training must refuse, name all of `texts`, and make no run directory. */
static void refuse_data(const char *model, const char *data, const char *const *texts) {
    const char *const arguments[] = {"train", model, data, "-o", place.run, "--steps", "1", "--dtype", "fp32", NULL};
    program_expect(place.folder, 2, texts, arguments);
    assert_false(file_exists(place.run));
}
static void refuse_model(const char *const *texts) { refuse_data(broken, place.text, texts); }

static const char *weights_path(void) { return temp_path(broken, "model.safetensors"); }

static void bad_weights_are_refused(void **state) {
    (void)state;
    char *good;
    size_t bytes;
    copy_model();
    assert_int_equal(file_read(weights_path(), 1 << 28, &good, &bytes), STATUS_OK);

    temp_write(weights_path(), good, bytes - 100);
    refuse_model(TEXTS("model.safetensors", "data_offsets"));
    temp_write(weights_path(), good, 4);
    refuse_model(TEXTS("model.safetensors"));
    temp_write(weights_path(), "", 0);
    refuse_model(TEXTS("model.safetensors"));

    uint64_t huge = UINT64_MAX / 2;
    char *bad = mem_array(bytes, 1);
    memcpy(bad, good, bytes);
    memcpy(bad, &huge, sizeof huge);
    temp_write(weights_path(), bad, bytes);
    refuse_model(TEXTS("model.safetensors", "header"));

    memcpy(bad, good, bytes);
    char *dtype = strstr(bad + 8, "\"F32\"");
    assert_non_null(dtype);
    memcpy(dtype, "\"I32\"", 5);
    temp_write(weights_path(), bad, bytes);
    refuse_model(TEXTS("model.safetensors", "I32"));

    memcpy(bad, good, bytes);
    char *name = strstr(bad + 8, "model.norm.weight");
    assert_non_null(name);
    name[6] = 'N';
    temp_write(weights_path(), bad, bytes);
    refuse_model(TEXTS("model.safetensors", "orm.weight"));

    unlink(weights_path());
    refuse_model(TEXTS("broken"));
    mem_free(bad);
    mem_free(good);
}

/* Sets one key of the broken model's config. */
static void set_config(const char *key, json_t *value) {
    copy_model();
    const char *path = temp_path(broken, "config.json");
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    json_object_set_new(config, key, value);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
}

static void bad_configs_are_refused(void **state) {
    (void)state;
    set_config("model_type", json_string("mamba"));
    refuse_model(TEXTS("config.json", "model_type", "mamba"));
    set_config("hidden_size", json_integer(-24));
    refuse_model(TEXTS("config.json", "hidden_size"));
    set_config("hidden_size", json_integer(INT64_MAX));
    refuse_model(TEXTS("config.json", "hidden_size"));
    set_config("num_hidden_layers", json_integer(0));
    refuse_model(TEXTS("config.json", "num_hidden_layers"));
    set_config("intermediate_size", json_integer(48));
    refuse_model(TEXTS("model.safetensors", "mlp"));
    set_config("num_key_value_heads", json_integer(2));
    refuse_model(TEXTS("config.json", "num_key_value_heads"));
    set_config("brand_new_setting", json_true());
    refuse_model(TEXTS("config.json", "brand_new_setting"));
    set_config("num_hidden_layers", json_integer(3));
    refuse_model(TEXTS("model.layers.2"));
}

static void json_that_is_none_is_refused(void **state) {
    (void)state;
    copy_model();
    const char *config = temp_path(broken, "config.json");
    temp_write_text(config, "{\"model_type\": ");
    refuse_model(TEXTS("config.json", "not valid JSON"));
    enum { DEEP = 100000 };
    char *deep = mem_array(DEEP + 32, 1);
    char *at = stpcpy(deep, "{\"model_type\": ");
    memset(at, '[', DEEP);
    temp_write_text(config, deep);
    refuse_model(TEXTS("config.json", "not valid JSON"));
    mem_free(deep);
    copy_model();
    temp_write_text(temp_path(broken, "tokenizer.json"), "{\"model\": {\"type\": \"Unigram\"}}");
    refuse_model(TEXTS("tokenizer.json"));
    copy_model();
    unlink(temp_path(broken, "tokenizer.json"));
    refuse_model(TEXTS("tokenizer"));
}

static void bad_data_are_refused(void **state) {
    (void)state;
    char text[600], tokens[600];
    snprintf(text, sizeof text, "%s/bad.txt", place.folder);
    snprintf(tokens, sizeof tokens, "%s/bad.bin", place.folder);
    temp_write(text, "", 0);
    refuse_data(place.model, text, TEXTS("bad.txt"));
    temp_write_text(text, "short");
    refuse_data(place.model, text, TEXTS("sequence"));
    unlink(text);
    refuse_data(place.model, text, TEXTS("bad.txt"));
    uint32_t ids[400];
    for (uint32_t i = 0; i < 400; i++)
        ids[i] = i;
    token_file_write(tokens, 2, ids, 400);
    refuse_data(place.model, tokens, TEXTS("bad.bin", "300"));
    token_file_write_raw(tokens, 123, 1, 400, 2, ids, 400);
    refuse_data(place.model, tokens, TEXTS("bad.bin"));
    token_file_write_raw(tokens, TOKEN_MAGIC_16, TOKEN_VERSION_16, 500, 2, ids, 400);
    refuse_data(place.model, tokens, TEXTS("bad.bin"));
    refuse_data(place.model, place.folder, TEXTS("train"));
}

/* It is read all the same, and every run says so: those that tokenize it and those that find its tokens. */
static void text_that_is_not_utf8_is_reported(void **state) {
    (void)state;
    char *text;
    size_t bytes;
    const char *path = temp_path(place.folder, "latin1.txt");
    assert_int_equal(file_read(place.text, 1 << 20, &text, &bytes), STATUS_OK);
    text[100] = text[101] = text[7000] = '\xe9';
    assert_int_equal(file_replace(path, text, bytes), STATUS_OK);
    mem_free(text);
    static const char message[] = "latin1.txt: bytes that are not UTF-8: 3, in 3 places, the first at byte 100";
    for (int time = 0; time < 2; time++) {
        struct program_run run =
            PROGRAM(place.folder, "eval", place.model, path, "--seq", "32", "--batches", "1", "--quiet");
        const char *found = strstr(run.err, message);
        assert_int_equal(run.status, 0);
        if (!found || strstr(found + 1, message)) fail_msg("said %s: %s", found ? "twice" : "never", run.err);
        program_run_free(&run);
    }
}

static void bad_settings_are_refused(void **state) {
    (void)state;
    static const char *const bad[][3] = {
        {"--batch", "0", "--batch: 0"},
        {"--seq", "-1", "--seq: -1"},
        {"--seq", "64", "64"},
        {"--micro-batch", "9", "micro_batch"},
        {"--lr", "0", "--lr: 0"},
        {"--steps", "-5", "--steps: -5"},
        {"--threads", "0", "--threads"},
        {"--save-every", "-1", "--save-every"},
        {"--clip-norm", "-1", "--clip-norm"},
        {"--valid", "gone.txt", "gone.txt"},
        {"--plan", "gone.json", "gone.json"},
        {"--disk", "/nowhere", "/nowhere"},
        {"--host-memory", "much", "--host-memory"},
        {"--micro-batches-per-wave", "99", "micro_batches_per_wave"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *const arguments[] = {"train",   place.model, place.text, "-o",      place.run,
                                         "--steps", "1",         bad[i][0],  bad[i][1], NULL};
        /* --steps may not be given twice */
        const char *const with_steps[] = {"train",   place.model, place.text, "-o",
                                          place.run, bad[i][0],   bad[i][1],  NULL};
        program_expect(place.folder, 2, TEXTS(bad[i][2]), strcmp(bad[i][0], "--steps") == 0 ? with_steps : arguments);
        assert_false(file_exists(place.run));
    }
}

/* A policy that is not legal is refused before anything is made, by field and with what would be legal. */
static void bad_policies_are_refused(void **state) {
    (void)state;
    static const char *const bad[][4] = {
        {"micro_batches_per_wave", "99", "policy.micro_batches_per_wave: 99", "hint: the nearest legal value is"},
        {"chunk_bytes", "-1", "policy.chunk_bytes: -1", "hint: the nearest legal value is 0"},
        {"lookahead", "65", "policy.lookahead: 65", "hint: the nearest legal value is 64"},
        {"parameters", "\"host\"", "policy.buffers: 0", "hint: the nearest legal value is 1"},
        {"parameters", "\"cloud\"", "policy.parameters: 'cloud'", "device, host and disk"},
        {"update", "\"disk\"", "policy.update", "hint: the nearest legal value is device"},
        {"update", "\"host\"", "policy.update", "hint: the nearest legal value is device"},
        {"colour", "1", "colour", "policy"},
    };
    char plan[600];
    snprintf(plan, sizeof plan, "%s", temp_path(place.folder, "bad-plan.json"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        program_expect(place.folder, 0, NULL, (const char *const[]){"plan", place.model, "-o", plan, NULL});
        json_t *document = json_load_file(plan, 0, NULL), *policy = json_object_get(document, "policy");
        assert_true(json_is_object(policy));
        json_object_set_new(policy, bad[i][0], json_loads(bad[i][1], JSON_DECODE_ANY, NULL));
        assert_int_equal(json_dump_file(document, plan, 0), 0);
        json_decref(document);
        const char *const texts[] = {"bad-plan.json", bad[i][2], bad[i][3], NULL};
        const char *const arguments[] = {"train", place.model, place.text, "-o", place.run, "--plan", plan, NULL};
        program_expect(place.folder, 2, texts, arguments);
        assert_false(file_exists(place.run));
        assert_int_equal(unlink(plan), 0);
    }
}

/* The sizes that differ are named; a plan without them, of an older version, is taken. */
static void a_plan_for_another_model_is_refused(void **state) {
    (void)state;
    char plan[600];
    snprintf(plan, sizeof plan, "%s", temp_path(place.folder, "other-plan.json"));
    program_expect(place.folder, 0, NULL, (const char *const[]){"plan", place.model, "-o", plan, NULL});
    json_t *document = json_load_file(plan, 0, NULL), *shape = json_object_get(document, "model_shape");
    assert_int_equal(json_integer_value(json_object_get(shape, "layers")), 2);
    json_object_set_new(shape, "layers", json_integer(3));
    json_object_set_new(shape, "family", json_string("gpt2"));
    assert_int_equal(json_dump_file(document, plan, 0), 0);
    const char *const arguments[] = {"train", place.model, place.text, "-o", place.run, "--plan", plan, NULL};
    const char *const texts[] = {"other-plan.json: is for another model", "layers 3 (here 2)",
                                 "family \"gpt2\" (here \"llama\")", "hint: plan for this model", NULL};
    program_expect(place.folder, 2, texts, arguments);
    program_expect(place.folder, 2, texts, (const char *const[]){"simulate", plan, NULL});
    assert_false(file_exists(place.run));
    json_object_del(document, "model_shape");
    assert_int_equal(json_dump_file(document, plan, 0), 0);
    program_expect(place.folder, 0, NULL, (const char *const[]){"simulate", plan, NULL});
    json_decref(document);
}

static void output_that_holds_something_else_is_refused(void **state) {
    (void)state;
    char note[700], *after;
    size_t bytes;
    assert_int_equal(folder_create(place.run), STATUS_OK);
    snprintf(note, sizeof note, "%s/note", place.run);
    temp_write_text(note, "mine");
    const char *const arguments[] = {"train", place.model, place.text, "-o", place.run, "--steps", "1", NULL};
    program_expect(place.folder, 2, TEXTS("run"), arguments);
    assert_int_equal(file_read(note, 100, &after, &bytes), STATUS_OK);
    assert_string_equal(after, "mine");
    mem_free(after);
    struct names names;
    assert_int_equal(folder_list(place.run, &names), STATUS_OK);
    assert_int_equal(names.count, 1);
    names_free(&names);
    assert_int_equal(folder_remove(place.run), STATUS_OK);
}

/* What -o of plan and profile names is replaced only by what is of its kind. */
static void output_over_another_file_is_refused(void **state) {
    (void)state;
    char config[600];
    snprintf(config, sizeof config, "%s", temp_path(copy_model(), "config.json"));
    const char *const texts[] = {"config.json", "is left as it is", NULL};
    program_expect(place.folder, 2, texts, (const char *const[]){"plan", broken, "-o", config, NULL});
    program_expect(place.folder, 2, texts, (const char *const[]){"profile", "-o", config, NULL});
    char *before, *after;
    size_t bytes, after_bytes;
    assert_int_equal(file_read(temp_path(place.model, "config.json"), 1 << 20, &before, &bytes), STATUS_OK);
    assert_int_equal(file_read(config, 1 << 20, &after, &after_bytes), STATUS_OK);
    assert_string_equal(before, after);
    mem_free(before);
    mem_free(after);
    snprintf(config, sizeof config, "%s", temp_path(place.folder, "plan.json"));
    for (int i = 0; i < 2; i++)
        program_expect(place.folder, 0, NULL, (const char *const[]){"plan", place.model, "-o", config, NULL});
    program_expect(place.folder, 2, texts + 1, (const char *const[]){"profile", "-o", config, NULL});
}

/* The environment of these tests hides GPUs. */
static void bad_devices_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "cuda1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        program_expect(place.folder, 2, TEXTS("device", wrong[i], "is not cuda, cuda:N or cpu"),
                       (const char *const[]){"plan", place.model, "--device", wrong[i], NULL});
    const char *const arguments[] = {"train", place.model, place.text, "-o", place.run, "--device", "cuda", NULL};
    program_expect(place.folder, 2, TEXTS("device: cuda: ", "GPU"), arguments);
    assert_false(file_exists(place.run));
    program_expect(place.folder, 0, NULL, (const char *const[]){"plan", place.model, "--device", "cpu", NULL});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_weights_are_refused),
        cmocka_unit_test(bad_configs_are_refused),
        cmocka_unit_test(json_that_is_none_is_refused),
        cmocka_unit_test(bad_data_are_refused),
        cmocka_unit_test(text_that_is_not_utf8_is_reported),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(bad_policies_are_refused),
        cmocka_unit_test(a_plan_for_another_model_is_refused),
        cmocka_unit_test(output_that_holds_something_else_is_refused),
        cmocka_unit_test(output_over_another_file_is_refused),
        cmocka_unit_test(bad_devices_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
