/* "Will it fit?", asked before weights are there, and what answers it. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <stdlib.h>
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

/* The amount of memory after each "--device-memory" of a hint, in the order of the text. */
static int read_amounts(const char *hint, double mib[8]) {
    int count = 0;
    for (const char *at = hint; count < 8 && (at = strstr(at, "--device-memory ")); count++) {
        char *unit;
        at += strlen("--device-memory ");
        mib[count] = strtod(at, &unit) * (*unit == 'G' ? 1024 : *unit == 'K' ? 1.0 / 1024 : 1);
    }
    return count;
}

/* Where other settings save nothing they are not suggested; where they do, they ask for less. */
static void test_suggestions_ask_for_less(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *caps[] = {"64K", "1M", "3M", "8M", "20M"};
    EXPECT(folder, 0, NULL, "init", model, "--arch", "llama", "--hidden", "128", "--layers", "1", "--heads", "2",
           "--vocab", "6000", "--context", "128");
    for (size_t c = 0; c < sizeof caps / sizeof *caps; c++)
        for (int few = 0; few < 2; few++) {
            double mib[8];
            struct program_run run = PROGRAM(folder, "plan", model, "--device-memory", caps[c], "--dtype", "fp32",
                                             "--batch", few ? "1" : "8", "--seq", few ? "64" : "128");
            const char *hint = strstr(run.err, "hint: ");
            assert_int_equal(run.status, 3);
            assert_non_null(hint);
            int amounts = read_amounts(hint, mib);
            assert_true(amounts >= 1);
            for (int i = 1; i < amounts; i++)
                if (mib[i] >= mib[0]) fail_msg("%s", hint);
            program_run_free(&run);
        }
}

/* A device tier that is given needs no look at the system's memory. */
static void test_without_proc_a_given_memory_is_enough(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    char command[8192];
    make_text(text, 5000);
    make_tiny_model(folder, model, text);
    static const char hide[] = "unshare -rm sh -c \"mount -t tmpfs none /proc && %s\" >/dev/null 2>&1";
    snprintf(command, sizeof command, hide, "true");
    if (system(command) != 0) {
        print_message("no namespaces here: /proc cannot be hidden\n");
        skip();
    }
    snprintf(command, sizeof command,
             "unshare -rm sh -c \"mount -t tmpfs none /proc && XDG_CACHE_HOME=%s '%s' plan %s --device-memory 64M && "
             "'%s' train %s %s --steps 2 --device-memory 64M -o %s/run\" >%s/out 2>%s/err",
             folder, BALLAST_PROGRAM, model, BALLAST_PROGRAM, model, text, folder, folder, folder);
    int status = system(command);
    if (status != 0) {
        snprintf(command, sizeof command, "cat %s/err >&2", folder);
        (void)!system(command);
    }
    assert_int_equal(status, 0);
}

static void test_sizes_nobody_means(void **state) {
    const char *folder = *state;
    EXPECT(folder, 2, TEXTS("--device-memory: 24 without a unit is 24 bytes", "hint: did you mean 24G?"), "plan",
           "gpt2", "--device-memory", "24");
    EXPECT(folder, 2, TEXTS("--host-memory: 4096 without a unit", "hint: did you mean 4096M?"), "plan", "gpt2",
           "--host-memory", "4096");
    EXPECT(folder, 2, TEXTS("--disk: 100 without a unit", "hint: did you mean 100G?"), "plan", "gpt2", "--disk",
           ".:100");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_a_config_alone_can_be_planned),
        CASE(test_a_preset_can_be_planned),
        CASE(test_suggestions_ask_for_less),
        CASE(test_without_proc_a_given_memory_is_enough),
        CASE(test_sizes_nobody_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
