/* "Will it fit?", asked before weights are there, and what answers it. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "support/data_files.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)

static void test_a_config_alone_can_be_planned(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    const char *plan = temp_path(folder, "plan.json");
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    assert_int_equal(unlink(temp_path(model, "model.safetensors")), 0);
    EXPECT(folder, 0, TEXTS("model: its weights are not here; config.json is enough"), "plan", model, "-o", plan);
    EXPECT(folder, 0, NULL, "plan", model, "--for", "generate");
    EXPECT(folder, 0, NULL, "profile", model);
    EXPECT(folder, 0, NULL, "simulate", plan);
    EXPECT(folder, 0, NULL, "report", plan);
    static const char weights[] = "holds neither model.safetensors nor";
    EXPECT(folder, 2, TEXTS(weights), "train", model, text, "-o", temp_path(folder, "run"));
    EXPECT(folder, 2, TEXTS(weights), "eval", model, text);
    EXPECT(folder, 2, TEXTS(weights), "generate", model, "--prompt", "a");
}

static void test_a_preset_can_be_planned(void **state) {
    const char *folder = *state, *text = temp_path(folder, "text.txt"), *plan = temp_path(folder, "plan.json");
    make_text(text, 1000);
    struct program_run run = PROGRAM(folder, "plan", "SmolLM-135M", "--for", "generate", "--seq", "32", "-o", plan);
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "134515008 parameters"));
    program_run_free(&run);
    json_t *document = json_load_file(plan, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(document, "model")), "smollm-135m");
    json_decref(document);
    EXPECT(folder, 2, TEXTS("hint: did you mean the preset smollm-135m?"), "plan", "smolm-135m");
    static const char weights[] = "smollm-135m: no such folder; the preset of that name has no weights";
    EXPECT(folder, 2, TEXTS(weights, "HuggingFaceTB/SmolLM-135M"), "train", "smollm-135m", text, "-o",
           temp_path(folder, "run"));
    EXPECT(folder, 2, TEXTS(weights), "eval", "smollm-135m", text);
    EXPECT(folder, 2, TEXTS(weights), "generate", "smollm-135m", "--prompt", "a");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_a_config_alone_can_be_planned),
        CASE(test_a_preset_can_be_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
