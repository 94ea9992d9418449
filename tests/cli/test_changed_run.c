/* Files of a run that were changed or damaged between train and resume. Changes that would give other bits are
 * refused by name, allowed changes are reported, and moving to another machine requires an option. */
/* ctest: PROCESSORS 2 LABELS long */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "ballast.h"
#include "base/file.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, temp_folder_drop)
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EXPECT(status, texts, ...) program_expect(*state, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define RUN temp_path(*state, "run")
#define CHECKPOINT "run/checkpoints/step-00000004"

static void train(const char *folder, const char *run) {
    const char *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    const char *const arguments[] = {"train", model,           text,    "-o",        run,    "--steps",
                                     "4",     "--save-every",  "2",     "--batch",   "3",    "--seq",
                                     "16",    "--micro-batch", "2",     "--dtype",   "fp32", "--schedule-steps",
                                     "20",    "--lr",          "0.001", "--threads", "2",    NULL};
    program_expect(folder, 0, NULL, arguments);
}

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    if (setenv("XDG_CACHE_HOME", *state, 1) != 0) return -1;
    make_text(temp_path(*state, "text.txt"), 20000);
    make_tiny_model(*state, temp_path(*state, "model"), temp_path(*state, "text.txt"));
    train(*state, RUN);
    return 0;
}

__attribute__((noinline)) static char *read_text(const char *path) { /* inlined, gcc 12 warns for nothing */
    char *text = NULL;
    size_t bytes;
    if (file_read(path, 1 << 24, &text, &bytes) != STATUS_OK) fail_msg("%s", status_message());
    return text;
}

/* Replaces the first `from`. */
static void edit(const char *path, const char *from, const char *to) {
    char *text = read_text(path), *at = strstr(text, from);
    if (!at) fail_msg("%s has no %s", path, from);
    char *changed = mem_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_non_null(changed);
    temp_write_text(path, changed);
    mem_free(changed);
    mem_free(text);
}

static const struct {
    const char *file, *from, *to; /* of one length */
} digits[] = {
    {"state.json", "\"batch\": 3", "\"batch\": 2"},
    {"state.json", "\"micro_batch\": 2", "\"micro_batch\": 1"},
    {"state.json", "\"seed\": 1", "\"seed\": 2"},
    {"state.json", "\"clip_norm\": 1", "\"clip_norm\": 2"},
    {"state.json", "\"step\": 4", "\"step\": 3"},
    {"config.json", "\"rope_theta\": 1", "\"rope_theta\": 2"},
    {"config.json", "\"rms_norm_eps\": 1", "\"rms_norm_eps\": 2"},
    {"tokenizer.json", "\"lstrip\": false", "\"lstrip\": true "},
    {"tokenizer_config.json", "false", "true "},
};

static void a_changed_digit_is_refused(void **state) {
    for (size_t i = 0; i < sizeof digits / sizeof *digits; i++) {
        char path[600], named[100];
        snprintf(path, sizeof path, "%s/" CHECKPOINT "/%s", (const char *)*state, digits[i].file);
        snprintf(named, sizeof named, "step-00000004: damaged: %s: block 0 (bytes 0 to ", digits[i].file);
        edit(path, digits[i].from, digits[i].to);
        EXPECT(2, TEXTS(named, "hint: to go on from", "step-00000002, remove"), "resume", RUN, "--steps", "6");
        EXPECT(2, TEXTS(named), "eval", temp_path(*state, CHECKPOINT), temp_path(*state, "text.txt"));
        EXPECT(2, TEXTS(named), "generate", temp_path(*state, CHECKPOINT), "--prompt", "the");
        EXPECT(2, TEXTS(named), "train", temp_path(*state, CHECKPOINT), temp_path(*state, "text.txt"), "-o",
               temp_path(*state, "other"), "--steps", "1");
        assert_false(file_exists(temp_path(*state, "other")));
        edit(path, digits[i].to, digits[i].from);
    }
    EXPECT(0, NULL, "resume", RUN, "--steps", "6");
}

static json_t *verified(const char *folder, const char *run, int status) {
    struct program_run done = PROGRAM(folder, "inspect", "--verify", run, "--json");
    if (done.status != status) fail_msg("exit status %d, expected %d: %s", done.status, status, done.err);
    json_t *document = json_loads(done.out, 0, NULL);
    assert_non_null(document);
    program_run_free(&done);
    return document;
}

static const char *problem(const json_t *document, size_t folder) {
    const json_t *row = json_array_get(json_object_get(document, "folders"), folder);
    return json_string_value(json_array_get(json_object_get(row, "problems"), 0));
}

static void verify_names_what_is_damaged(void **state) {
    json_t *document = verified(*state, RUN, 0);
    assert_int_equal(json_array_size(json_object_get(document, "folders")), 3);
    json_decref(document);
    EXPECT(0, NULL, "inspect", "--verify", temp_path(*state, CHECKPOINT));
    assert_int_equal(truncate(temp_path(*state, "run/model/model.safetensors"), 1000), 0);
    assert_int_equal(unlink(temp_path(*state, "run/checkpoints/step-00000002/ballast_manifest.json")), 0);
    edit(temp_path(*state, CHECKPOINT "/config.json"), "1", "2");
    document = verified(*state, RUN, 2);
    assert_non_null(strstr(problem(document, 0), "step-00000002: damaged: ballast_manifest.json is missing"));
    assert_non_null(strstr(problem(document, 1), "config.json: block 0 (bytes 0 to "));
    assert_non_null(strstr(problem(document, 2), "model.safetensors: has 1000 bytes, was written with "));
    json_decref(document);
    EXPECT(2, TEXTS("3 of 3 directories are damaged"), "inspect", "--verify", RUN);
    EXPECT(2, TEXTS("has no checksums to compare with"), "inspect", "--verify", temp_path(*state, "model"));
    EXPECT(2, TEXTS("is not a directory"), "inspect", "--verify", temp_path(*state, "text.txt"));
}

/* Settings of a finished model are its owner's to edit, its weights are not. */
static void a_finished_model_is_verified(void **state) {
    edit(temp_path(*state, "run/model/tokenizer_config.json"), "{", "{ ");
    EXPECT(0, NULL, "eval", temp_path(*state, "run/model"), temp_path(*state, "text.txt"), "--batches", "1");
    char *bytes;
    size_t count;
    const char *weights = temp_path(*state, "run/model/model.safetensors");
    assert_int_equal(file_read(weights, 1 << 24, &bytes, &count), STATUS_OK);
    bytes[count - 4] ^= 1;
    temp_write(weights, bytes, count);
    mem_free(bytes);
    const char *const texts[] = {"run/model: damaged: model.safetensors: block 0",
                                 "hint: if the change is meant, remove", NULL};
    EXPECT(2, texts, "eval", temp_path(*state, "run/model"), temp_path(*state, "text.txt"), "--batches", "1");
    assert_int_equal(unlink(temp_path(*state, "run/model/ballast_manifest.json")), 0);
    EXPECT(0, NULL, "eval", temp_path(*state, "run/model"), temp_path(*state, "text.txt"), "--batches", "1");
}

static void an_edited_recipe_is_refused(void **state) {
    static const char *const edits[][3] = {
        {"\"batch\": 3", "\"batch\": 4", "run.json: plan.recipe.batch: is 4, and "},
        {"\"micro_batch\": 2", "\"micro_batch\": 1", "run.json: plan.recipe.micro_batch: is 1, and "},
        {"\"seed\": 1", "\"seed\": 7", "run.json: plan.recipe.seed: is 7, and "},
        {"\"clip_norm\": 1.0", "\"clip_norm\": 1.5", "run.json: plan.recipe.clip_norm: is 1.5, and "},
        {"\"dtype\": \"fp32\"", "\"dtype\": \"bf16\"", "run.json: plan.recipe.dtype: is \"bf16\", and "},
        {"\"loss_on_all\": false", "\"loss_on_all\": true", "run.json: options.loss_on_all: is true, and "},
        {"text.txt\"", "text.txt:0.5\"", "run.json: options.data: is ["},
        {"\"steps\": 4", "\"steps\": 3", "steps: 3 is less than the 4 steps already done"},
        {"\"keep\": 2", "\"keep\": -2", "run.json: keep: -2 is outside"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        edit(temp_path(*state, "run/run.json"), edits[i][0], edits[i][1]);
        EXPECT(2, TEXTS(edits[i][2]), "resume", RUN);
        edit(temp_path(*state, "run/run.json"), edits[i][1], edits[i][0]);
    }
}

static void a_run_without_a_checkpoint_is_reported(void **state) {
    assert_int_equal(folder_remove(temp_path(*state, "run/checkpoints")), STATUS_OK);
    edit(temp_path(*state, "run/run.json"), "\"batch\": 3", "\"batch\": 4");
    EXPECT(2, TEXTS("run.json: plan.recipe.batch: is 4, and ", "/run/plan.json was made with 3"), "resume", RUN);
    assert_int_equal(unlink(temp_path(*state, "run/plan.json")), 0); /* killed before it was there */
    EXPECT(0, NULL, "resume", RUN);
}

/* The new value counts from there on, and is said. */
static void an_edited_setting_is_reported(void **state) {
    char *before = read_text(temp_path(*state, "run/metrics.jsonl"));
    edit(temp_path(*state, "run/run.json"), "\"learning_rate\": 0.001", "\"learning_rate\": 0.1");
    edit(temp_path(*state, "run/run.json"), "\"valid_every\": 100", "\"valid_every\": 0");
    EXPECT(
        0,
        TEXTS("learning_rate is 0.1 from step 5 on, it was 0.001\n", "valid_every is 0 from step 5 on, it was 100\n"),
        "resume", RUN, "--steps", "5");
    char *after = read_text(temp_path(*state, "run/metrics.jsonl"));
    assert_int_equal(strncmp(before, after, strlen(before)), 0);
    const char *rate = strstr(after + strlen(before), "\"lr\": ");
    assert_non_null(rate);
    if (!(strtod(rate + strlen("\"lr\": "), NULL) > 0.01)) fail_msg("the learning rate is still %s", rate);
    mem_free(before);
    mem_free(after);
    struct program_run again = PROGRAM(*state, "resume", RUN, "--steps", "6");
    assert_int_equal(again.status, 0);
    if (strstr(again.err, "learning_rate")) fail_msg("said twice: %s", again.err);
    program_run_free(&again);
}

/* Numbers that were not given: null in run.json, and in checkpoints of earlier versions 0. */
static void what_was_not_given_has_not_changed(void **state) {
    const char *checkpoint = temp_path(*state, CHECKPOINT);
    assert_int_equal(unlink(temp_path(checkpoint, "ballast_manifest.json")), 0);
    edit(temp_path(checkpoint, "state.json"), "\"version\": 5", "\"version\": 3");
    edit(temp_path(checkpoint, "state.json"), "\"epochs\": null", "\"epochs\": 0.0");
    struct program_run again = PROGRAM(*state, "resume", RUN, "--steps", "5");
    if (again.status != 0 || strstr(again.err, "epochs")) fail_msg("status %d: %s", again.status, again.err);
    program_run_free(&again);
}

/* Its message names the directory; the document has it fixed. */
static void a_failure_in_a_folder_that_is_not_utf8_is_reported(void **state) {
    const char *run = temp_path(*state, "r\xffn");
    assert_int_equal(rename(RUN, run), 0);
    assert_int_equal(unlink(temp_path(run, "end.json")), 0);
    assert_int_equal(folder_create(temp_path(run, "end.json")), STATUS_OK);
    assert_int_equal(folder_create(temp_path(run, "end.json/within")), STATUS_OK);
    struct program_run failed = PROGRAM(*state, "resume", run, "--steps", "5", "--json", "--quiet");
    assert_int_equal(failed.status, 1);
    assert_non_null(strstr(failed.err, "r\xffn/end.json: "));
    json_t *document = json_loads(failed.out, 0, NULL);
    const char *message = json_string_value(json_object_get(document, "message"));
    assert_non_null(message);
    assert_non_null(strstr(message, "r\xEF\xBF\xBDn/end.json: "));
    json_decref(document);
    program_run_free(&failed);
}

static char *changes_of(const char *run) {
    char *text = read_text(temp_path(run, "run.json"));
    json_t *settings = json_loads(text, 0, NULL);
    char *changes = json_dumps(json_object_get(settings, "changes"), JSON_COMPACT);
    json_decref(settings);
    mem_free(text);
    assert_non_null(changes);
    return changes;
}

static void expect_changes(const char *run, const char *expected) {
    char *changes = changes_of(run);
    assert_string_equal(changes, expected);
    free(changes);
}

/* Of a run of 4 steps that was resumed with --steps 6. */
#define LONGER "[{\"step\":4,\"field\":\"steps\",\"from\":\"4\",\"to\":\"6\"}]"

static const char weights[] = "run/checkpoints/step-00000006/model.safetensors";

/* The number of threads is no part of the recipe: an option sets it, and so does an edit. */
static void other_threads_change_no_bit(void **state) {
    EXPECT(2, TEXTS("batch: 4 differs from the 3 of"), "resume", RUN, "--steps", "6", "--batch", "4",
           "--allow-recipe-change");
    EXPECT(0, NULL, "resume", RUN, "--steps", "6", "--threads", "5");
    expect_changes(RUN, LONGER);
    char *settings = read_text(temp_path(*state, "run/run.json"));
    assert_non_null(strstr(settings, "\"threads\": 5"));
    mem_free(settings);
    assert_int_equal(file_copy(temp_path(*state, weights), temp_path(*state, "with-5")), STATUS_OK);
    assert_int_equal(folder_remove(temp_path(*state, "run/checkpoints/step-00000006")), STATUS_OK);
    edit(temp_path(*state, "run/run.json"), "\"threads\": 5", "\"threads\": 1");
    EXPECT(0, TEXTS("run.json: plan.threads is 1, was 2 up to step 4\n"), "resume", RUN);
    assert_true(files_equal(temp_path(*state, weights), temp_path(*state, "with-5")));
}

/* As an earlier version wrote it: the threads in the recipe, in run.json and in the checkpoint. */
static void threads_of_an_earlier_version_are_taken(void **state) {
    const char *files[] = {"run/run.json", CHECKPOINT "/state.json"};
    assert_int_equal(unlink(temp_path(*state, CHECKPOINT "/ballast_manifest.json")), 0);
    edit(temp_path(*state, files[1]), "\"version\": 5", "\"version\": 3");
    for (int i = 0; i < 2; i++) {
        json_error_t error;
        json_t *object = json_load_file(temp_path(*state, files[i]), 0, &error);
        json_t *plan = json_object_get(object, "plan");
        assert_int_equal(json_object_set(json_object_get(plan, "recipe"), "threads", json_object_get(plan, "threads")),
                         0);
        assert_int_equal(json_object_del(plan, "threads"), 0);
        assert_int_equal(json_dump_file(object, temp_path(*state, files[i]), JSON_INDENT(2)), 0);
        json_decref(object);
    }
    EXPECT(0, NULL, "resume", RUN, "--steps", "5");
    EXPECT(0, NULL, "resume", RUN, "--steps", "6", "--threads", "1");
}

/* A checkpoint of a processor that is not here; one without checksums can be made to say so. */
static void come_from(const char *folder, const char *isa) {
    char *text = read_text(temp_path(folder, "run/run.json")), from[64], to[64];
    json_t *settings = json_loads(text, 0, NULL);
    const json_t *recipe = json_object_get(json_object_get(settings, "plan"), "recipe");
    snprintf(from, sizeof from, "\"isa\": \"%s\"", json_string_value(json_object_get(recipe, "isa")));
    snprintf(to, sizeof to, "\"isa\": \"%s\"", isa);
    edit(temp_path(folder, "run/run.json"), from, to);
    edit(temp_path(folder, CHECKPOINT "/state.json"), from, to);
    edit(temp_path(folder, CHECKPOINT "/state.json"), "\"version\": 5", "\"version\": 3");
    (void)unlink(temp_path(folder, CHECKPOINT "/ballast_manifest.json"));
    json_decref(settings);
    mem_free(text);
}

static void another_instruction_set_may_be_taken_on_purpose(void **state) {
    come_from(*state, "avx1024");
    EXPECT(2, TEXTS("isa is another here: it was made with avx1024, this machine has", "hint: --allow-recipe-change"),
           "resume", RUN, "--steps", "6");
    EXPECT(0, TEXTS("warning: recipe: isa is ", "from step 5 on, it was avx1024: the bits differ"), "resume", RUN,
           "--steps", "6", "--allow-recipe-change");
    char *changes = changes_of(RUN);
    assert_non_null(strstr(changes, "{\"step\":4,\"field\":\"isa\",\"from\":\"avx1024\",\"to\":\""));
    struct program_run seen = PROGRAM(*state, "inspect", RUN);
    assert_int_equal(seen.status, 0);
    assert_non_null(strstr(seen.out, "changes (2)"));
    program_run_free(&seen);
    /* From a checkpoint of before the change it is recreated, without being asked for. */
    char *model = read_text(temp_path(*state, "run/checkpoints/step-00000006/ballast_manifest.json"));
    assert_int_equal(folder_remove(temp_path(*state, "run/checkpoints/step-00000006")), STATUS_OK);
    EXPECT(0, NULL, "resume", RUN);
    expect_changes(RUN, changes);
    char *again = read_text(temp_path(*state, "run/checkpoints/step-00000006/ballast_manifest.json"));
    assert_string_equal(model, again);
    mem_free(model);
    mem_free(again);
    free(changes);
    EXPECT(0, TEXTS("--allow-recipe-change: nothing had to change"), "resume", RUN, "--steps", "7",
           "--allow-recipe-change");
    edit(temp_path(*state, "run/run.json"), "\"field\": \"isa\"", "\"field\": \"batch\"");
    EXPECT(2, TEXTS("run.json: changes: number 0: field: a run cannot change 'batch'"), "resume", RUN, "--steps", "8");
    edit(temp_path(*state, "run/run.json"), "\"field\": \"batch\"", "\"field\": \"lanes\"");
    EXPECT(2, TEXTS("run.json: changes: number 0: from: 'avx", "is not legal"), "resume", RUN, "--steps", "8");
}

/* The same of the kernels' version. */
static void come_from_kernels(const char *folder, int version) {
    static const char *const files[] = {"run/run.json", CHECKPOINT "/state.json"};
    (void)unlink(temp_path(folder, CHECKPOINT "/ballast_manifest.json"));
    for (int i = 0; i < 2; i++) {
        json_t *object = json_load_file(temp_path(folder, files[i]), 0, NULL);
        json_t *recipe = json_object_get(json_object_get(object, "plan"), "recipe");
        assert_int_equal(json_object_set_new(recipe, "kernels_version", json_integer(version)), 0);
        if (i == 1) assert_int_equal(json_object_set_new(object, "version", json_integer(3)), 0);
        assert_int_equal(json_dump_file(object, temp_path(folder, files[i]), JSON_INDENT(2)), 0);
        json_decref(object);
    }
}

static void refuse_kernels(void **state, const char *message, const char *hint) {
    char *before = read_text(temp_path(*state, "run/run.json"));
    EXPECT(2,
           TEXTS("run/run.json: recipe.kernels_version: ", message, hint, "; or --allow-recipe-change continues here"),
           "resume", RUN, "--steps", "6");
    char *after = read_text(temp_path(*state, "run/run.json"));
    assert_string_equal(before, after);
    mem_free(before);
    mem_free(after);
}

/* As if the kernels' version had been raised, and as if the run came from a later release. */
static void another_version_of_the_kernels_may_be_taken_on_purpose(void **state) {
    const int here = backend_cpu.kernels_version,
              older = 8; /* 9 has the same bits but for the loss that balances experts */
    char text[200], hint[200];
    come_from_kernels(*state, older);
    snprintf(text, sizeof text, ": %d is an older version of the cpu kernels; Ballast %s has version %d, ", older,
             ballast_version(), here);
    snprintf(hint, sizeof hint, "hint: use %s, the last with version %d", kernel_version_last("cpu", older), older);
    refuse_kernels(state, text, hint);
    EXPECT(2, TEXTS("run/run.json: recipe.kernels_version: ", text), "train", temp_path(*state, "model"),
           temp_path(*state, "text.txt"), "-o", RUN, "--continue", "--steps", "6");
    come_from_kernels(*state, 99);
    snprintf(text, sizeof text, ": 99 needs a newer Ballast; Ballast %s has version %d of the cpu kernels",
             ballast_version(), here);
    refuse_kernels(state, text, "hint: update Ballast to the release that wrote the file");
    come_from_kernels(*state, older);
    snprintf(text, sizeof text, "warning: recipe: kernels_version is %d from step 5 on, it was %d: ", here, older);
    EXPECT(0, TEXTS(text), "resume", RUN, "--steps", "6", "--allow-recipe-change");
    snprintf(text, sizeof text,
             "[{\"step\":4,\"field\":\"kernels_version\",\"from\":\"%d\",\"to\":\"%d\"},"
             "{\"step\":4,\"field\":\"steps\",\"from\":\"4\",\"to\":\"6\"}]",
             older, here);
    expect_changes(RUN, text);
    EXPECT(0, NULL, "resume", RUN, "--steps", "7"); /* the change is not asked for twice */
}

/* Where the processor can be held to what the run was made with, that is the way. */
static void the_way_back_is_named(void **state) {
    assert_int_equal(setenv("BALLAST_MAX_ISA", "avx2", 1), 0);
    train(*state, temp_path(*state, "narrow"));
    EXPECT(0, NULL, "resume", temp_path(*state, "narrow"), "--steps", "5");
    assert_int_equal(unsetenv("BALLAST_MAX_ISA"), 0);
    struct program_run done = PROGRAM(*state, "resume", temp_path(*state, "narrow"), "--steps", "6");
    if (done.status == 0) { /* it has nothing wider */
        program_run_free(&done);
        return;
    }
    assert_int_equal(done.status, 2);
    assert_non_null(strstr(done.err, "it was made with avx2, this machine has "));
    assert_non_null(strstr(done.err, "hint: set BALLAST_MAX_ISA=avx2"));
    assert_null(strstr(done.err, "--allow-recipe-change"));
    program_run_free(&done);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_changed_digit_is_refused),
        CASE(verify_names_what_is_damaged),
        CASE(a_finished_model_is_verified),
        CASE(an_edited_recipe_is_refused),
        CASE(a_run_without_a_checkpoint_is_reported),
        CASE(an_edited_setting_is_reported),
        CASE(what_was_not_given_has_not_changed),
        CASE(a_failure_in_a_folder_that_is_not_utf8_is_reported),
        CASE(other_threads_change_no_bit),
        CASE(threads_of_an_earlier_version_are_taken),
        CASE(another_instruction_set_may_be_taken_on_purpose),
        CASE(another_version_of_the_kernels_may_be_taken_on_purpose),
        CASE(the_way_back_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
