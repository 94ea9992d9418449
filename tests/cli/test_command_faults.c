/* If an operation of a command fails, it reports an error, and its output file is the old one or the new one. */
/* ctest: PROCESSORS 2 TIMEOUT 3500 LABELS long */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/commands/command.h"
#include "cli/program.h"
#include "support/fault_sweep.h"
#include "support/kept_profile.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define SHAPE "--batch", "4", "--seq", "16", "--micro-batch", "2", "--dtype", "fp32"

struct call {
    const char *folder;
    const char *arguments[24];
    const char *output; /* the file that it writes; NULL: none */
};

/* What it prints goes nowhere. */
static enum status call_once(void *payload) {
    const struct call *call = payload;
    char *arguments[24];
    int count = 0;
    for (; call->arguments[count]; count++)
        arguments[count] = (char *)(uintptr_t)call->arguments[count];
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
    assert_true(out >= 0 && err >= 0 && nowhere >= 0);
    fflush(NULL);
    dup2(nowhere, STDOUT_FILENO), dup2(nowhere, STDERR_FILENO);
    int status = cli_run(count, arguments);
    fflush(NULL);
    dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
    close(out), close(err), close(nowhere);
    return (enum status)status;
}

/* JSON that can be read, or a page from its beginning to its end. */
static void require_whole(const char *path) {
    static const char start[] = "<!doctype html>", end[] = "</html>\n";
    char *text;
    size_t bytes;
    assert_int_equal(file_read(path, 1 << 26, &text, &bytes), STATUS_OK);
    if (text[0] == '{') {
        json_t *object;
        assert_int_equal(json_parse_object(path, text, bytes, &object), STATUS_OK);
        json_decref(object);
    } else {
        assert_true(bytes > sizeof start + sizeof end);
        assert_memory_equal(text, start, sizeof start - 1);
        assert_memory_equal(text + bytes - (sizeof end - 1), end, sizeof end - 1);
    }
    mem_free(text);
}

static void after_call(void *payload, enum status status) {
    const struct call *call = payload;
    struct names names;
    (void)status;
    if (call->output) require_whole(call->output);
    kept_profile_quieten(call->folder);
    assert_int_equal(folder_list(call->folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        if (strncmp(names.items[i], ".tmp-", 5) == 0) fail_msg("%s was left", names.items[i]);
    names_free(&names);
}

/* What was measured is found in the cache; where that fails it is measured again, and nothing is reported. */
static void sweep(const struct call *call) {
    const struct fault_subject subject = {call_once, after_call, (void *)(uintptr_t)call};
    assert_true(fault_sweep_bearable(FAULT_ALLOCATE, false, unit_sweep(3, FAULT_EVERY), &subject).reported > 0);
    for (enum fault_kind kind = FAULT_OPEN; kind <= FAULT_RENAME; kind++)
        (void)fault_sweep_bearable(kind, false, unit_sweep(2, FAULT_EVERY), &subject);
    if (!call->output) return;
    assert_true(fault_sweep_bearable(FAULT_WRITE, true, 1, &subject).reported > 0);
    assert_true(fault_sweep_bearable(FAULT_RENAME, true, 1, &subject).reported > 0);
}

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    const char *folder = *state, *text = temp_path(folder, "text.txt"), *model = temp_path(folder, "model");
    make_text(text, 3000);
    make_tiny_model(folder, model, text);
    assert_int_equal(folder_create(temp_path(folder, "scratch")), STATUS_OK);
    return setenv("XDG_CACHE_HOME", folder, 1);
}

static void plan_survives_faults(void **state) {
    const char *folder = *state, *output = temp_path(folder, "plan.json");
    sweep(&(struct call){folder, {"plan", temp_path(folder, "model"), SHAPE, "-o", output}, output});
}

static void plan_by_search_survives_faults(void **state) {
    const char *folder = *state, *output = temp_path(folder, "plan.json");
    sweep(&(struct call){folder,
                         {"plan", temp_path(folder, "model"), SHAPE, "--device-memory", "500K", "--disk",
                          temp_path(folder, "scratch"), "-o", output},
                         output});
}

static void simulate_and_report_survive_faults(void **state) {
    const char *folder = *state, *plan = temp_path(folder, "plan.json"), *trace = temp_path(folder, "trace.json");
    const char *page = temp_path(folder, "page.html");
    program_expect(folder, 0, NULL, (const char *const[]){"plan", temp_path(folder, "model"), SHAPE, "-o", plan, NULL});
    sweep(&(struct call){folder, {"simulate", plan, "--trace", trace}, trace});
    sweep(&(struct call){folder, {"report", plan, "-o", page}, page});
}

static void report_of_a_run_survives_faults(void **state) {
    const char *folder = *state, *run = temp_path(folder, "run"), *page = temp_path(folder, "page.html");
    program_expect(folder, 0, NULL,
                   (const char *const[]){"train", temp_path(folder, "model"), temp_path(folder, "text.txt"), "-o", run,
                                         "--steps", "3", SHAPE, "--quiet", NULL});
    sweep(&(struct call){folder, {"report", run, "-o", page}, page});
    sweep(&(struct call){folder, {"simulate", run, "--json"}, temp_path(run, "predicted.json")});
}

static void eval_survives_faults(void **state) {
    const char *folder = *state;
    sweep(&(struct call){
        folder, {"eval", temp_path(folder, "model"), temp_path(folder, "text.txt"), SHAPE, "--json"}, NULL});
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(plan_survives_faults),
        CASE(plan_by_search_survives_faults),
        CASE(simulate_and_report_survive_faults),
        CASE(report_of_a_run_survives_faults),
        CASE(eval_survives_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
