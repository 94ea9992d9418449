/* Adapters with the program: plan, train --lora, resume, eval, generate, inspect, merge, and refusals. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define SMALL "--batch", "2", "--seq", "16", "--dtype", "fp32"

struct names_of_run {
    char model[512], text[512], run[512], adapter[600], merged[512], plan[512];
};

static struct names_of_run set_up(const char *folder) {
    struct names_of_run names;
    snprintf(names.model, sizeof names.model, "%s/model", folder);
    snprintf(names.text, sizeof names.text, "%s/text.txt", folder);
    snprintf(names.run, sizeof names.run, "%s/run", folder);
    snprintf(names.adapter, sizeof names.adapter, "%s/model", names.run);
    snprintf(names.merged, sizeof names.merged, "%s/merged", folder);
    snprintf(names.plan, sizeof names.plan, "%s/plan.json", folder);
    make_text(names.text, 3000);
    make_tiny_model(folder, names.model, names.text);
    return names;
}

static double loss_of(const char *folder, const char *model, const char *text) {
    struct program_run run = PROGRAM(folder, "eval", model, text, SMALL, "--json");
    assert_int_equal(run.status, 0);
    json_t *object = json_loads(run.out, 0, NULL);
    double loss = json_real_value(json_object_get(json_object_get(object, "total"), "loss"));
    json_decref(object);
    program_run_free(&run);
    return loss;
}

static void trained_adapters_are_merged(void **state) {
    const char *folder = *state;
    struct names_of_run names = set_up(folder);
    EXPECT(folder, 0, TEXTS(NULL), "plan", names.model, SMALL, "--lora", "4,8,all-linear", "-o", names.plan);
    EXPECT(folder, 2, TEXTS("lora", "differs"), "train", names.model, names.text, "-o", names.run, "--plan", names.plan,
           "--lora", "2,8,q_proj");
    EXPECT(folder, 0, TEXTS("done"), "train", names.model, names.text, "-o", names.run, "--plan", names.plan, "--steps",
           "20", "--lr", "1e-2");
    EXPECT(folder, 0, TEXTS("done"), "resume", names.run, "--steps", "30");
    EXPECT(folder, 0, TEXTS(NULL), "generate", names.adapter, "--prompt", "a", "--tokens", "2", "--seq", "16");
    EXPECT(folder, 0, TEXTS(NULL), "inspect", names.adapter);
    EXPECT(folder, 0, TEXTS(names.merged), "merge", names.adapter, "-o", names.merged);
    EXPECT(folder, 2, TEXTS("already holds"), "merge", names.adapter, "-o", names.merged);
    double base = loss_of(folder, names.model, names.text), adapted = loss_of(folder, names.adapter, names.text);
    double merged = loss_of(folder, names.merged, names.text);
    assert_true(adapted < base - 0.01);
    assert_true(merged < adapted + 1e-5 && merged > adapted - 1e-5);
    assert_true(file_exists(temp_path(names.merged, "tokenizer.json")));
    assert_false(file_exists(temp_path(names.merged, "adapter_config.json")));
}

/* The base model has moved: --base says where it is. */
static void a_moved_base_is_reported(void **state) {
    const char *folder = *state;
    struct names_of_run names = set_up(folder);
    const char *moved = temp_path(folder, "elsewhere");
    EXPECT(folder, 0, TEXTS("done"), "train", names.model, names.text, "-o", names.run, SMALL, "--steps", "1", "--lora",
           "2,4,v_proj");
    assert_int_equal(file_rename(names.model, moved), STATUS_OK);
    EXPECT(folder, 2, TEXTS("base_model_name_or_path", "is no directory here", "ballast merge"), "eval", names.adapter,
           names.text);
    EXPECT(folder, 2, TEXTS("is no directory here"), "merge", names.adapter, "-o", names.merged);
    assert_false(file_exists(names.merged));
    EXPECT(folder, 0, TEXTS(names.merged), "merge", names.adapter, "-o", names.merged, "--base", moved);
}

static void what_cannot_be_merged_is_refused(void **state) {
    const char *folder = *state;
    struct names_of_run names = set_up(folder);
    EXPECT(folder, 2, TEXTS("--output"), "merge", names.model);
    EXPECT(folder, 2, TEXTS("without adapters"), "merge", names.model, "-o", names.merged);
    EXPECT(folder, 2, TEXTS("adapter_config.json"), "merge", names.model, "-o", names.merged, "--base", names.model);
    EXPECT(folder, 2, TEXTS("lora", "attn", "q_proj, k_proj"), "train", names.model, names.text, "-o", names.run,
           "--lora", "2,4,attn");
    EXPECT(folder, 2, TEXTS("lora", "RANK,ALPHA,TARGETS"), "plan", names.model, "--lora", "all-linear");
    EXPECT(folder, 2, TEXTS("freeze", "h.0.*"), "train", names.model, names.text, "-o", names.run, "--freeze", "*norm*",
           "--freeze", "h.0.*");
    assert_false(file_exists(names.run));
    assert_false(file_exists(names.merged));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(trained_adapters_are_merged), IN_FOLDER(a_moved_base_is_reported),
                                       IN_FOLDER(what_cannot_be_merged_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
