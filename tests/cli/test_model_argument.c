/* A model argument that is not a model: the message says what it is, and what to do. Every command that takes a
 * model accepts a run's directory for the run's model. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A model, a run of it with adapters and one without, made once. */
static struct program_place place;
static char adapted[600], other[600];

static void expect_run(int status, const char *const *texts, const char *const *arguments) {
    program_expect(place.folder, status, texts, arguments);
}
#define EXPECT(status, texts, ...) expect_run(status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define SMALL "--steps", "2", "--batch", "2", "--dtype", "fp32", "--threads", "1"

static int set_up(void **state) {
    (void)state;
    if (program_place_make(&place, 5000) != 0) return -1;
    snprintf(adapted, sizeof adapted, "%s/adapted", place.folder);
    snprintf(other, sizeof other, "%s/other", place.folder);
    EXPECT(0, NULL, "train", place.model, place.text, "-o", place.run, SMALL);
    EXPECT(0, TEXTS("parameters train ("), "train", place.model, place.text, "-o", adapted, SMALL, "--lora",
           "2,4,q_proj");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return program_place_drop(&place);
}

static void a_run_stands_for_its_model(void **state) {
    (void)state;
    EXPECT(0, NULL, "eval", place.run, place.text, "--batches", "1");
    EXPECT(0, NULL, "generate", place.run, "--prompt", "a", "--tokens", "2");
    EXPECT(0, NULL, "plan", place.run, "-o", temp_path(place.folder, "plan.json"));
    EXPECT(0, NULL, "inspect", place.run);
    EXPECT(0, NULL, "merge", adapted, "-o", temp_path(place.folder, "merged"));
    EXPECT(0, NULL, "merge", adapted, "--base", place.run, "-o", temp_path(place.folder, "merged2"));
    EXPECT(0, NULL, "train", place.run, place.text, "-o", other, SMALL);
    json_t *settings = json_load_file(temp_path(other, "run.json"), 0, NULL);
    const char *model = json_string_value(json_object_get(settings, "model"));
    assert_non_null(strstr(model, "/run/model"));
    json_decref(settings);
}

static void a_run_without_a_model_is_reported(void **state) {
    (void)state;
    char model[700], aside[700];
    snprintf(model, sizeof model, "%s/model", place.run);
    snprintf(aside, sizeof aside, "%s/aside", place.run);
    assert_int_equal(file_rename(model, aside), STATUS_OK);
    EXPECT(2, TEXTS("no model yet", "ballast resume", "checkpoints/step-00000002"), "eval", place.run, place.text);
    EXPECT(2, TEXTS("no model yet", "ballast resume"), "plan", place.run);
    assert_int_equal(file_rename(aside, model), STATUS_OK);
}

static void names_of_the_hub_are_reported(void **state) {
    (void)state;
    static const char hub[] = "hf download meta-llama/Llama-9-1B --local-dir Llama-9-1B";
    EXPECT(2, TEXTS("no such directory", hub), "eval", "meta-llama/Llama-9-1B", place.text);
    EXPECT(2, TEXTS("no such directory", hub), "generate", "meta-llama/Llama-9-1B", "--prompt", "a");
    assert_int_equal(folder_remove(other), STATUS_OK);
    EXPECT(2, TEXTS("no such directory", hub), "train", "meta-llama/Llama-9-1B", place.text, "-o", other, SMALL);
    EXPECT(2, TEXTS("no such directory", hub), "eval", "https://huggingface.co/meta-llama/Llama-9-1B", place.text);
    EXPECT(2, TEXTS("no such directory"), "eval", temp_path(place.folder, "nothing"), place.text);
}

static void write_file(const char *name, const char *bytes, size_t count) {
    assert_int_equal(folder_create(other), STATUS_OK);
    temp_write(temp_path(other, name), bytes, count);
}

static void other_formats_are_reported(void **state) {
    (void)state;
    static const struct {
        const char *name, *bytes;
        size_t count;
        const char *what, *hint;
    } files[] = {{"model-Q4_K_M.gguf", "GGUF\3\0\0\0", 8, "is GGUF", "config.json and *.safetensors"},
                 {"pytorch_model.bin", "PK\3\4\0\0", 6, "is a pickle", "save_pretrained"},
                 {"consolidated.00.pth", "\x80\2}", 3, "is a pickle", "save_pretrained"},
                 {"tf_model.h5", "\x89HDF\r\n", 6, "TensorFlow", "save_pretrained"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_int_equal(folder_remove(other), STATUS_OK);
        write_file(files[i].name, files[i].bytes, files[i].count);
        const char *const texts[] = {files[i].name, files[i].what, files[i].hint, NULL};
        char file[800];
        snprintf(file, sizeof file, "%s/%s", other, files[i].name);
        EXPECT(2, texts, "eval", other, place.text);
        EXPECT(2, texts, "eval", file, place.text);
        EXPECT(2, texts, "inspect", file);
        EXPECT(2, texts, "inspect", other);
        /* with a config, as on the hub */
        assert_int_equal(file_copy(temp_path(place.model, "config.json"), temp_path(other, "config.json")), STATUS_OK);
        EXPECT(2, texts, "eval", other, place.text);
    }
}

static void files_in_place_of_folders_are_reported(void **state) {
    (void)state;
    EXPECT(2, TEXTS("is a file", "give its directory"), "eval", temp_path(place.model, "model.safetensors"),
           place.text);
    EXPECT(2, TEXTS("is a file", "give its directory"), "eval", temp_path(place.model, "config.json"), place.text);
    EXPECT(2, TEXTS("is a file"), "eval", place.text, place.text);
    EXPECT(2, TEXTS("holds no config.json"), "eval", place.folder, place.text);
    assert_int_equal(folder_remove(other), STATUS_OK);
    assert_int_equal(folder_create(temp_path(other, "snapshots/0123abc")), STATUS_OK);
    EXPECT(2, TEXTS("cache", "/snapshots/0123abc"), "eval", other, place.text);
}

/* A clone of the hub's repository without its large files. */
static void pointers_of_git_lfs_are_reported(void **state) {
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    assert_int_equal(folder_remove(other), STATUS_OK);
    write_file("model.safetensors", pointer, sizeof pointer - 1);
    assert_int_equal(file_copy(temp_path(place.model, "config.json"), temp_path(other, "config.json")), STATUS_OK);
    EXPECT(2, TEXTS("model.safetensors", "pointer of Git LFS", "git lfs pull"), "eval", other, place.text);
}

/* The tiny model with one name of its weights changed. */
static void write_changed(const char *from, const char *to) {
    char *bytes;
    size_t count;
    assert_int_equal(folder_remove(other), STATUS_OK);
    assert_int_equal(file_read(temp_path(place.model, "model.safetensors"), 1 << 28, &bytes, &count), STATUS_OK);
    char *at = strstr(bytes + 8, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    write_file("model.safetensors", bytes, count);
    mem_free(bytes);
    assert_int_equal(file_copy(temp_path(place.model, "config.json"), temp_path(other, "config.json")), STATUS_OK);
}

static void quantised_weights_are_reported(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *text;
    } cases[] = {{"q_proj.weight", "q_pro.qweight", "q_pro.qweight"},
                 {"k_proj.weight", "k_proj.absmax", "k_proj.absmax"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_changed(cases[i].from, cases[i].to);
        EXPECT(2, TEXTS(cases[i].text, "the weights are quantised", "get the model that they were made from"), "eval",
               other, place.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_stands_for_its_model),
        cmocka_unit_test(a_run_without_a_model_is_reported),
        cmocka_unit_test(names_of_the_hub_are_reported),
        cmocka_unit_test(other_formats_are_reported),
        cmocka_unit_test(files_in_place_of_folders_are_reported),
        cmocka_unit_test(pointers_of_git_lfs_are_reported),
        cmocka_unit_test(quantised_weights_are_reported),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
