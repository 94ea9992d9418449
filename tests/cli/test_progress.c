/* Progress of long work: each piece begins, reaches its total and ends. Checkpoints that are written during steps
 * report none, because nobody waits for them. */
#include <stdio.h>
#include <string.h>

#include "base/folder.h"
#include "base/terminal.h"
#include "cli/commands/command.h"
#include "support/data_files.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

/* What was told, "reading model.safetensors;" after the other. */
static struct {
    char names[1024];
    bool open;
    int64_t done;
} reported;

static void listen(void *payload, enum progress_moment moment, const struct progress *progress) {
    (void)payload;
    assert_int_equal(reported.open, moment != PROGRESS_BEGINS);
    reported.open = moment != PROGRESS_ENDS;
    if (moment == PROGRESS_BEGINS) reported.done = 0;
    assert_true(progress->done >= reported.done && progress->done <= progress->total);
    reported.done = progress->done;
    if (moment != PROGRESS_ENDS) return;
    if (progress->done != progress->total)
        fail_msg("%s: %lld of %lld at its end", progress->what, (long long)progress->done, (long long)progress->total);
    strcat(strcat(reported.names, progress->what), ";");
}

static void begin_listening(void) {
    reported.names[0] = '\0';
    reported.open = false;
    progress_listen(listen, NULL);
}

static void expect_reported(const char *names) {
    progress_listen(NULL, NULL);
    assert_false(reported.open);
    assert_string_equal(reported.names, names);
}

static void a_run_shows_progress(void **state) {
    struct tiny_run run;
    char folder[600];
    tiny_run_make(*state, "llama", &run);
    run.options.save_every = 1;
    snprintf(folder, sizeof folder, "%s/run", (const char *)*state);
    begin_listening();
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    expect_reported("taking memory;reading model.safetensors;writing model.safetensors;");
    begin_listening();
    expect_status(tiny_run_resume(folder, 8, NULL), STATUS_OK, NULL);
    expect_reported("taking memory;reading model.safetensors;reading optimizer.safetensors;writing model.safetensors;");
}

static void evaluation_shows_progress(void **state) {
    struct tiny_run run;
    struct eval_result result;
    tiny_run_make(*state, "llama", &run);
    const struct eval_options options = {.data_paths = run.valid_paths, .data_path_count = 1};
    begin_listening();
    expect_status(evaluate_files(run.model, &run.plan, &options, &result), STATUS_OK, NULL);
    char names[200];
    snprintf(names, sizeof names, "taking memory;reading model.safetensors;batches of %s;", path_name(run.valid));
    expect_reported(names);
    eval_result_free(&result);
}

static void a_new_model_shows_progress(void **state) {
    char text[600];
    int64_t parameters;
    struct new_model wanted = {.tokenizer_text = text, .seed = 1, .dtype = DTYPE_F32};
    snprintf(text, sizeof text, "%s/text.txt", (const char *)*state);
    make_text(text, 3000);
    assert_int_equal(model_config_init("llama", &wanted.config), STATUS_OK);
    wanted.config.vocab_size = 300;
    wanted.config.hidden = 24;
    wanted.config.layers = 2;
    wanted.config.heads = 3;
    wanted.config.context = 32;
    begin_listening();
    assert_int_equal(new_model_write(&wanted, temp_path(*state, "model"), &parameters), STATUS_OK);
    expect_reported("writing model.safetensors;tokenizer: counting words;tokenizer: learning tokens;");
}

/* Work within other work is a part of it. */
static void work_within_work_shows_once(void **state) {
    (void)state;
    begin_listening();
    progress_begin(PROGRESS_COUNT, 2, "%s", "outer");
    progress_begin(PROGRESS_COUNT, 100, "inner");
    progress_add(50);
    progress_end();
    progress_add(2);
    progress_end();
    expect_reported("outer;");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)
int main(void) {
    const struct CMUnitTest tests[] = {CASE(a_run_shows_progress), CASE(evaluation_shows_progress),
                                       CASE(a_new_model_shows_progress), CASE(work_within_work_shows_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
