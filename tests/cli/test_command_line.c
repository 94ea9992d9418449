/* The program from a user's view: exit statuses, messages, JSON, and the state after bad input. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/model.h"
#include "support/data_files.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)

static json_t *parse_document(const char *text) {
    json_error_t error;
    json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!value) fail_msg("stdout is not one JSON document: %s\n%s", error.text, text);
    return value;
}

static void help_and_version_are_printed(void **state) {
    static const char *const all[] = {"init",     "plan", "train",   "resume",   "eval",
                                      "generate", "chat", "profile", "simulate", "inspect"};
    struct program_run run = PROGRAM(*state, "help");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "\n  4          ended by a second signal"));
    assert_non_null(strstr(run.out, "\n  129        stopped by SIGHUP"));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_non_null(strstr(run.out, all[i]));
    assert_null(strstr(run.out, "deploy"));
    program_run_free(&run);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct program_run help = PROGRAM(*state, "help", all[i]), same = PROGRAM(*state, all[i], "--help");
        assert_int_equal(help.status, 0);
        assert_int_equal(same.status, 0);
        assert_string_equal(help.out, same.out);
        assert_string_equal(same.err, "");
        program_run_free(&help);
        program_run_free(&same);
    }
    run = PROGRAM(*state, "help", "models");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "## `qwen3`"));
    program_run_free(&run);
    run = PROGRAM(*state, "help", "tokenizers");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "`Metaspace`"));
    program_run_free(&run);
    run = PROGRAM(*state, "help", "presets");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "meta-llama/Llama-3.1-8B"));
    program_run_free(&run);
    run = PROGRAM(*state, "help", "templates");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "`raise_exception`"));
    program_run_free(&run);
    run = PROGRAM(*state, "version");
    assert_int_equal(run.status, 0);
    assert_int_equal(strncmp(run.out, "ballast ", 8), 0);
    program_run_free(&run);
}

static void errors_go_to_stderr_with_status_2(void **state) {
    struct program_run run = PROGRAM(*state, "trian", "model");
    assert_int_equal(run.status, 2);
    assert_string_equal(run.out, "");
    assert_int_equal(strncmp(run.err, "ballast: error: ", 16), 0);
    assert_non_null(strstr(run.err, "\nhint: did you mean `ballast train`?\n"));
    program_run_free(&run);
    EXPECT(*state, 2, TEXTS("no command given"), NULL);
    EXPECT(*state, 2, TEXTS("no command 'deploy'"), "deploy", "plan.json");
    EXPECT(*state, 2, TEXTS("no command 'serve'", "hint: ", "report RUN_DIR --serve PORT"), "serve", "model");
    EXPECT(*state, 2, TEXTS("no command 'finetune'", "hint: `ballast train MODEL_DIR DATA -o RUN_DIR`"), "finetune");
    EXPECT(*state, 2, TEXTS("no command 'fine-tune'", "hint: `ballast train MODEL_DIR DATA -o RUN_DIR`"), "fine-tune");
    EXPECT(*state, 2, TEXTS("no command 'grpo'", "hint: DPO is the only preference method"), "grpo");
    EXPECT(*state, 2, TEXTS("no command 'torchrun'", "--ranks N"), "torchrun", "train.py");
    EXPECT(*state, 2, TEXTS("plan.json"), "simulate", "plan.json");
    EXPECT(*state, 2, TEXTS("--output (-o) PATH is missing"), "train", "model", "data.txt");
    EXPECT(*state, 2, TEXTS("--batch", "needs a model"), "profile", "--batch", "4");
    EXPECT(*state, 2, TEXTS("nowhere"), "profile", "nowhere");
    EXPECT(*state, 2, TEXTS("nowhere.json"), "profile", "--cluster", "nowhere.json");
    EXPECT(*state, 2, TEXTS("nowhere: no such file"), "inspect", "nowhere");
    EXPECT(*state, 2, TEXTS("nowhere"), "plan", "nowhere");
    EXPECT(*state, 2, TEXTS("nowhere"), "resume", "nowhere");
}

static bool folder_has(const char *folder, const char *part) {
    struct names names;
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    bool found = false;
    for (size_t i = 0; i < names.count; i++)
        found |= strstr(names.items[i], part) != NULL;
    names_free(&names);
    return found;
}

static void init_makes_a_whole_model_or_nothing(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    make_text(text, 20000);
    make_tiny_model(folder, model, text);
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_true(file_exists(temp_path(model, files[i])));
    json_t *settings = json_load_file(temp_path(model, "tokenizer_config.json"), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(settings, "tokenizer_class")), "PreTrainedTokenizerFast");
    assert_string_equal(json_string_value(json_object_get(settings, "eos_token")), "<|endoftext|>");
    json_decref(settings);
    json_t *config = json_load_file(temp_path(model, "config.json"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(config, "eos_token_id")), 0);
    assert_true(json_is_integer(json_object_get(config, "eos_token_id")));
    json_decref(config);

#define SIZES "--arch", "llama", "--hidden", "24", "--layers", "1", "--heads", "3", "--context", "16"
    const char *other = temp_path(folder, "other");
    EXPECT(folder, 2, TEXTS("model: already holds something else"), "init", model, SIZES, "--vocab", "300");
    EXPECT(folder, 2, TEXTS("text.txt: exists and is no directory"), "init", text, SIZES, "--vocab", "300");
    EXPECT(folder, 2, TEXTS("text.txt"), "init", other, SIZES, "--vocab", "10", "--tokenizer-data", text);
    EXPECT(folder, 2, TEXTS("text.txt"), "init", other, SIZES, "--vocab", "100000", "--tokenizer-data", text);
    EXPECT(folder, 2, TEXTS("nothing.txt"), "init", other, SIZES, "--vocab", "300", "--tokenizer-data", "nothing.txt");
    EXPECT(folder, 2, TEXTS("x.jsonl", "plain text"), "init", other, SIZES, "--vocab", "300", "--tokenizer-data",
           "x.jsonl");
    EXPECT(folder, 2, TEXTS("--kv-heads: gpt2"), "init", other, "--arch", "gpt2", "--hidden", "24", "--layers", "1",
           "--heads", "3", "--context", "16", "--vocab", "300", "--kv-heads", "1");
    EXPECT(folder, 2, TEXTS("--window: llama"), "init", other, SIZES, "--vocab", "300", "--window", "8");
    EXPECT(folder, 2, TEXTS("heads"), "init", other, SIZES, "--vocab", "300", "--kv-heads", "2");
    assert_false(folder_has(folder, "other"));
    assert_true(file_exists(temp_path(model, "config.json")));
}

static json_t *read_json(const char *folder, const char *name) {
    json_t *value = json_load_file(temp_path(folder, name), 0, NULL);
    assert_non_null(value);
    return value;
}

static void init_takes_the_shape_of_another_model(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    const char *twin = temp_path(folder, "twin"), *quantized = temp_path(folder, "quantized");
    make_text(text, 20000);
    make_tiny_model(folder, model, text);
    EXPECT(folder, 0, TEXTS("a model like"), "init", twin, "--like", model, "--dtype", "bf16");
    EXPECT(folder, 0, TEXTS("a model like"), "init", quantized, "--like", twin, "--quantize-base", "nf4", "--dtype",
           "bf16");
    static const char *const made[] = {"twin", "quantized"};
    for (int i = 0; i < 2; i++) {
        const char *path = temp_path(folder, made[i]);
        json_t *config = read_json(path, "config.json");
        assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")), "bfloat16");
        assert_int_equal(json_object_get(config, "quantization_config") != NULL, i);
        json_decref(config);
        assert_true(file_exists(temp_path(path, "tokenizer.json")));
    }
    EXPECT(folder, 0, TEXTS("a model like"), "init", temp_path(folder, "plain"), "--like", quantized);
    json_t *config = read_json(temp_path(folder, "plain"), "config.json");
    assert_null(json_object_get(config, "quantization_config"));
    json_decref(config);

    EXPECT(folder, 2, TEXTS("quantize-base: none, but the model's files have weights in nf4"), "plan", quantized,
           "--lora", "2,4,all-linear", "--quantize-base", "none");
    const char *other = temp_path(folder, "other");
    EXPECT(folder, 2, TEXTS("--layers and --like"), "init", other, "--like", model, "--layers", "2");
    EXPECT(folder, 2, TEXTS("no preset has this name", "qwen3-0.6b"), "init", other, "--like", "qwen3-0.6c");
    EXPECT(folder, 2, TEXTS("tokenizer.json", "cannot have another"), "init", other, "--like", model,
           "--tokenizer-data", text);
    assert_false(folder_has(folder, "other"));
}

/* Made, trained, and what was trained used: with a window that is shorter than the sequences where there can be one. */
static void every_family_goes_from_init_to_generate(void **state) {
    const char *folder = *state, *text = temp_path(folder, "text.txt");
    make_text(text, 20000);
    for (int i = 0; i < model_family_count; i++) {
        const char *arch = model_families[i]->name, *model = temp_path(folder, arch);
        bool windows = model_family_has(model_families[i], offsetof(struct model_config, window));
        char run[300], trained[320];
        snprintf(run, sizeof run, "%s-run", model);
        snprintf(trained, sizeof trained, "%s/model", run);
        EXPECT(folder, 0, TEXTS(arch), "init", model, "--arch", arch, "--hidden", "24", "--layers", "2", "--heads", "2",
               "--ffn", "20", "--vocab", "300", "--context", "32", "--tokenizer-data", text,
               windows ? "--window" : NULL, "5");
        json_t *config = read_json(model, "config.json");
        assert_int_equal(json_integer_value(json_object_get(config, "sliding_window")), windows ? 5 : 0);
        json_decref(config);
        EXPECT(folder, 0, TEXTS(""), "train", model, text, "-o", run, "--steps", "2", "--batch", "2", "--seq", "16");
        EXPECT(folder, 0, TEXTS(""), "generate", trained, "--prompt", "a", "--tokens", "3", "--seq", "16");
        EXPECT(folder, 2, TEXTS("context"), "generate", trained, "--prompt", "a", "--seq", "1000000");
    }
}

/* Every field that scripts read, and nothing on stdout apart from the document. */
static void json_is_one_document(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    const char *plan = temp_path(folder, "plan.json");
    make_text(text, 20000);
    make_tiny_model(folder, model, text);
    struct program_run run = PROGRAM(folder, "plan", model, "--batch", "4", "--json", "-o", plan);
    assert_int_equal(run.status, 0);
    json_t *document = parse_document(run.out), *written = json_load_file(plan, 0, NULL);
    assert_true(json_equal(document, written));
    static const char *const keys[] = {"version", "recipe",     "policy", "step_s", "tiers",
                                       "streams", "runners_up", "tried",  "binds"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_object_get(document, keys[i])) fail_msg("plan --json lacks %s", keys[i]);
    const json_t *tier = json_array_get(json_object_get(document, "tiers"), 0);
    assert_string_equal(json_string_value(json_object_get(tier, "name")), "device");
    json_int_t bytes = json_integer_value(json_object_get(tier, "program_bytes")), sum = 0;
    const char *kind;
    json_t *value;
    json_object_foreach(json_object_get(tier, "by_kind"), kind, value) sum += json_integer_value(value);
    assert_true(bytes > 0);
    assert_int_equal(sum, bytes);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(document, "recipe"), "batch")), 4);
    json_decref(document);
    json_decref(written);
    program_run_free(&run);

    const char *const inspected[] = {model, temp_path(model, "model.safetensors"), temp_path(model, "tokenizer.json"),
                                     plan};
    static const char *const kinds[] = {"model", "safetensors", "tokenizer", "plan"};
    for (size_t i = 0; i < sizeof inspected / sizeof *inspected; i++) {
        run = PROGRAM(folder, "inspect", inspected[i], "--json");
        assert_int_equal(run.status, 0);
        document = parse_document(run.out);
        assert_string_equal(json_string_value(json_object_get(document, "kind")), kinds[i]);
        json_decref(document);
        program_run_free(&run);
    }

    const char *tokens = temp_path(folder, "tokens.bin");
    token_file_write(tokens, 2, (const uint32_t[]){5, 299, 7}, 3);
    run = PROGRAM(folder, "inspect", tokens, "--json");
    assert_int_equal(run.status, 0);
    document = parse_document(run.out);
    assert_int_equal(json_integer_value(json_object_get(document, "tokens")), 3);
    assert_int_equal(json_integer_value(json_object_get(document, "largest_id")), 299);
    json_decref(document);
    program_run_free(&run);

    run = PROGRAM(folder, "eval", model, text, "--json", "--batches", "2");
    assert_int_equal(run.status, 0);
    document = parse_document(run.out);
    const json_t *total = json_object_get(document, "total");
    double loss = json_real_value(json_object_get(total, "loss"));
    assert_true(loss > 3 && loss < 8); /* a model that knows nothing: about ln(300) = 5.7 */
    assert_true(json_integer_value(json_object_get(total, "tokens")) > 0);
    json_decref(document);
    program_run_free(&run);
}

static void profile_writes_a_cluster(void **state) {
    const char *folder = *state, *cluster = temp_path(folder, "cluster.json");
    struct program_run run = PROGRAM(folder, "profile", "--json", "-o", cluster, "--threads", "1");
    assert_int_equal(run.status, 0);
    json_t *document = parse_document(run.out), *written = json_load_file(cluster, 0, NULL);
    assert_true(json_equal(document, written));
    const json_t *device = json_array_get(json_object_get(document, "devices"), 0);
    assert_true(json_real_value(json_object_get(device, "fp32_flops_per_s")) > 0);
    json_decref(document);
    program_run_free(&run);
    EXPECT(folder, 0, NULL, "inspect", cluster);

    run = PROGRAM(folder, "profile", "--json", "--cluster", cluster); /* nothing is left to measure */
    assert_int_equal(run.status, 0);
    json_t *again = parse_document(run.out);
    assert_true(json_equal(written, again));
    json_decref(again);
    json_decref(written);
    program_run_free(&run);
}

static void profile_measures_a_model(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    make_text(text, 20000);
    make_tiny_model(folder, model, text);
    struct program_run run =
        PROGRAM(folder, "profile", model, "--json", "--batch", "3", "--seq", "16", "--threads", "1");
    assert_int_equal(run.status, 0);
    json_t *document = parse_document(run.out);
    const json_t *operators = json_object_get(document, "operators"), *row;
    size_t i;
    double sum = 0;
    assert_true(json_array_size(operators) > 10);
    json_array_foreach(operators, i, row) {
        assert_true(json_real_value(json_object_get(row, "seconds")) > 0);
        assert_true(json_integer_value(json_object_get(row, "count")) > 0);
        sum += json_real_value(json_object_get(row, "seconds")) *
               (double)json_integer_value(json_object_get(row, "count"));
    }
    assert_true(fabs(sum / json_real_value(json_object_get(document, "kernels_s")) - 1) < 1e-9);
    json_decref(document);
    program_run_free(&run);
    EXPECT(folder, 0, NULL, "profile", model, "--threads", "1");
}

static void no_plan_fits_is_status_3(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    const char *out = temp_path(folder, "run");
    make_text(text, 20000);
    make_tiny_model(folder, model, text);
    EXPECT(folder, 3, TEXTS("ballast: error: ", "hint: "), "plan", model, "--device-memory", "64K");
    EXPECT(folder, 3, TEXTS("ballast: error: "), "train", model, text, "-o", out, "--device-memory", "64K");
    assert_false(file_exists(out));
}

static void full_disk_behind_stdout_is_status_1(void **state) {
    char command[4096];
    snprintf(command, sizeof command, "'%s' help >/dev/full 2>'%s/err'", BALLAST_PROGRAM, (const char *)*state);
    int status = system(command);
    assert_int_equal(status >> 8, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(help_and_version_are_printed),
        CASE(errors_go_to_stderr_with_status_2),
        CASE(init_makes_a_whole_model_or_nothing),
        CASE(init_takes_the_shape_of_another_model),
        CASE(every_family_goes_from_init_to_generate),
        CASE(json_is_one_document),
        CASE(profile_writes_a_cluster),
        CASE(profile_measures_a_model),
        CASE(no_plan_fits_is_status_3),
        CASE(full_disk_behind_stdout_is_status_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
