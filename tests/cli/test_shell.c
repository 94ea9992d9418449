/* Effects of a shell on a run: streams that are closed at the start or whose reader ends, a limit on file sizes, no
 * cache directory. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/file.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static int set_up(void **state) {
    if (temp_folder_make(state) != 0 || setenv("XDG_CACHE_HOME", *state, 1) != 0) return -1;
    make_text(temp_path(*state, "text.txt"), 20000);
    make_tiny_model(*state, temp_path(*state, "model"), temp_path(*state, "text.txt"));
    return 0;
}

/* The status of a shell's command in the directory; $B is the program. */
static int shell(const char *folder, const char *command) {
    char text[2048];
    int length = snprintf(text, sizeof text, "cd '%s' && B='%s' && { %s; }", folder, BALLAST_PROGRAM, command);
    assert_in_range(length, 0, (int)sizeof text - 1);
    int status = system(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void train(const char *folder, const char *run, const char *streams) {
    char text[1024];
    snprintf(text, sizeof text,
             "$B train model text.txt -o %s --steps 6 --save-every 3 --batch 3 --seq 16 --threads 1 --lr 1e-2 "
             "--dtype fp32 %s",
             run, streams);
    int status = shell(folder, text);
    if (status != 0) fail_msg("exit status %d: %s", status, text);
}

static void expect_whole_run(const char *folder, const char *run) {
    char path[512], name[64];
    snprintf(path, sizeof path, "%s/%s", folder, run);
    char *metrics = tiny_run_metrics(path); /* each line is JSON */
    size_t lines = 0;
    for (const char *at = metrics; *at; at++)
        lines += *at == '\n';
    assert_int_equal(lines, 6);
    mem_free(metrics);
    snprintf(name, sizeof name, "%s/model/model.safetensors", run);
    assert_true(files_equal(temp_path(folder, "open/model/model.safetensors"), temp_path(folder, name)));
}

static void streams_may_be_closed_at_the_start(void **state) {
    train(*state, "open", "2>/dev/null");
    /* The run's lock, its metrics and its event file are the first that stay open. */
    train(*state, "closed-2", "2>&-");
    expect_whole_run(*state, "closed-2");
    train(*state, "closed-1-2", ">&- 2>&-");
    expect_whole_run(*state, "closed-1-2");
    train(*state, "closed-all", "<&- >&- 2>&-");
    expect_whole_run(*state, "closed-all");
}

static void printing_to_a_closed_stream_fails(void **state) {
    assert_int_equal(shell(*state, "$B help options >&- 2>err.txt; test $? = 1 && grep -q 'standard output' err.txt"),
                     0);
}

#define TRAIN "$B train model text.txt --steps 6 --save-every 3 --batch 3 --seq 16 --threads 1 --dtype fp32 -o "

/* The run goes on without anybody who reads what it prints. */
static void a_log_may_lose_its_reader(void **state) {
    int status = shell(*state, "{ " TRAIN "piped; echo $? > status.txt; } 2>&1 | true; test $(cat status.txt) = 0");
    assert_int_equal(status, 0);
    assert_true(file_is_folder(temp_path(*state, "piped/model")));
}

/* The optimizer's file is larger; all else is smaller. */
static void a_limit_on_files_is_reported(void **state) {
    int status = shell(*state, "(ulimit -f 250; " TRAIN "limited 2> err.txt); test $? = 1 && "
                               "grep -q 'optimizer.safetensors: cannot write: File too large' err.txt");
    assert_int_equal(status, 0);
    assert_false(file_exists(temp_path(*state, "limited/checkpoints/.tmp-step-00000003")));
}

static void no_folder_for_the_cache_is_no_error(void **state) {
    int status = shell(*state, "XDG_CACHE_HOME=/proc/none " TRAIN "uncached 2> err.txt && "
                               "grep -q '^warning: XDG_CACHE_HOME names' err.txt");
    assert_int_equal(status, 0);
    assert_true(files_equal(temp_path(*state, "piped/model/model.safetensors"),
                            temp_path(*state, "uncached/model/model.safetensors")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_may_be_closed_at_the_start), cmocka_unit_test(a_log_may_lose_its_reader),
        cmocka_unit_test(a_limit_on_files_is_reported),       cmocka_unit_test(no_folder_for_the_cache_is_no_error),
        cmocka_unit_test(printing_to_a_closed_stream_fails),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
