/* Runs that begin before their text is tokenized have the bits of runs with cached tokens, also after a kill and
 * resume. Errors in later text are reported by the step that reads it. */
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/terminal.h"
#include "support/data_files.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/tiny_run.h"
#include "support/unit.h"

enum { STEPS = 34, KILLED_AT = 25, WORDS = 150000, BAD_LINE = 9000 };

struct place {
    char *folder;
    char model[512], text[512], lines[512], cache[512];
    const char *paths[1];
    struct plan_options plan;
    struct train_options options;
};

/* With one thread opening makes a chunk of text, about 130 thousand tokens. Step 32 reads rows of a shuffle buffer that
 * ends beyond them: the sixth, rows 1984 to 4031 of 40 tokens. */
static void make_options(struct place *place) {
    plan_options_init(&place->plan);
    SETTINGS_GIVE(&place->plan, batch, 64);
    SETTINGS_GIVE(&place->plan, sequence_length, 40);
    SETTINGS_GIVE(&place->plan, threads, 1);
    SETTINGS_GIVE(&place->plan.memory, device_bytes, 256 << 20);
    train_options_init(&place->options);
    place->options.steps = STEPS;
    place->options.learning_rate = 1e-3;
    place->options.save_every = 8;
    place->options.data_paths = place->paths;
    place->options.data_path_count = 1;
}

static int make_place(void **state) {
    struct place *place = mem_array(1, sizeof *place);
    if (!place || temp_folder_make((void **)&place->folder) != 0) return -1;
    snprintf(place->model, sizeof place->model, "%s/model", place->folder);
    snprintf(place->text, sizeof place->text, "%s/text.txt", place->folder);
    snprintf(place->lines, sizeof place->lines, "%s/lines.jsonl", place->folder);
    snprintf(place->cache, sizeof place->cache, "%s/cache", place->folder);
    if (setenv("XDG_CACHE_HOME", place->cache, 1) != 0) return -1;
    omp_set_num_threads(1); /* the first test forks */
    size_t bytes;
    char *text = random_text(1, 2000, &bytes);
    text_model_make(place->model, text, 300, 300, false);
    mem_free(text);
    random_text_write(place->text, 2, WORDS);
    place->paths[0] = place->text;
    make_options(place);
    *state = place;
    return 0;
}

static int drop_place(void **state) {
    struct place *place = *state;
    int result = temp_folder_drop((void **)&place->folder);
    mem_free(place);
    return result;
}

static enum status begin(const struct place *place, const char *run, const struct train_events *events) {
    return train_begin(place->model, run, &place->plan, &place->options, events);
}

static void drop_cache(const struct place *place) { assert_int_equal(folder_remove(place->cache), STATUS_OK); }

static void count_tokens(const struct place *place, const char *ending, int expected) {
    struct names names = {0};
    int count = 0;
    const char *folder = temp_path(place->cache, "ballast");
    if (file_exists(folder)) assert_int_equal(folder_list(folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        count += strlen(names.items[i]) > strlen(ending) &&
                 strcmp(names.items[i] + strlen(names.items[i]) - strlen(ending), ending) == 0;
    names_free(&names);
    assert_int_equal(count, expected);
}

static void expect_same_runs(const char *a, const char *b) {
    char *x = tiny_run_metrics(a), *y = tiny_run_metrics(b);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    assert_true(files_equal(temp_path(a, "model/model.safetensors"), temp_path(b, "model/model.safetensors")));
}

static void kill_at_step(void *payload, const struct train_step *step) {
    (void)payload;
    if (step->step == KILLED_AT) raise(SIGKILL);
}

/* OpenMP's threads do not outlive a fork: the child comes before the parent's first run. */
static void begin_and_die(const struct place *place, const char *run) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct train_events events = {.step = kill_at_step};
        _exit(begin(place, run, &events) == STATUS_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* What the killed process had of its cache is there as long as nobody makes another. */
static void evaluate_text(const struct place *place) {
    struct eval_options options = {.data_paths = place->paths, .data_path_count = 1, .max_batches = 1};
    struct eval_result result;
    expect_status(evaluate_files(place->model, &place->plan, &options, &result), STATUS_OK, NULL);
    eval_result_free(&result);
}

static void note_tokens(void *payload, const struct session_plan *plan, const char *run_folder, int64_t first_step,
                        int64_t steps, int64_t data_tokens) {
    (void)plan, (void)run_folder, (void)first_step, (void)steps;
    *(int64_t *)payload = data_tokens;
}

static void it_has_the_bits_of_a_cached_run(void **state) {
    const struct place *place = *state;
    char killed[600], made[600], cached[600];
    snprintf(killed, sizeof killed, "%s/killed", place->folder);
    snprintf(made, sizeof made, "%s/made", place->folder);
    snprintf(cached, sizeof cached, "%s/cached", place->folder);
    begin_and_die(place, killed);
    drop_cache(place);
    int64_t tokens = 0;
    struct train_events events = {.begin = note_tokens, .payload = &tokens};
    expect_status(begin(place, made, &events), STATUS_OK, NULL);
    assert_int_equal(tokens, -1);
    count_tokens(place, ".new", 0);
    drop_cache(place);
    expect_status(tiny_run_resume(killed, 0, NULL), STATUS_OK, NULL);
    evaluate_text(place);
    count_tokens(place, ".tokens", 1);
    expect_status(begin(place, cached, &events), STATUS_OK, NULL);
    assert_true(tokens > 0);
    expect_same_runs(made, cached);
    expect_same_runs(killed, cached);
}

static void held_out_rows_are_waited_for(void **state) {
    struct place *place = *state;
    char made[600], cached[600];
    place->options.valid_fraction = 0.02;
    place->options.valid_every = 5;
    place->options.steps = 6;
    snprintf(made, sizeof made, "%s/made", place->folder);
    snprintf(cached, sizeof cached, "%s/cached", place->folder);
    expect_status(begin(place, made, NULL), STATUS_OK, NULL);
    count_tokens(place, ".tokens", 1);
    expect_status(begin(place, cached, NULL), STATUS_OK, NULL);
    expect_same_runs(made, cached);
}

static void later_errors_leave_checkpoints(void **state) {
    struct place *place = *state;
    char run[600];
    FILE *file = fopen(place->lines, "w");
    assert_non_null(file);
    for (int i = 1; i <= 2 * BAD_LINE; i++)
        fprintf(file, i == BAD_LINE ? "{\"text\": %d}\n" : "{\"text\": \"document %d of several words\"}\n", i);
    assert_int_equal(fclose(file), 0);
    place->paths[0] = place->lines;
    snprintf(run, sizeof run, "%s/run", place->folder);
    place->options.steps = 1000;
    expect_status(begin(place, run, NULL), STATUS_BAD_INPUT, "lines.jsonl: line 9000: text: must be a string");
    assert_non_null(strstr(status_hint_text(), "the last good checkpoint is"));
    assert_true(file_is_folder(temp_path(run, "checkpoints")));
    char *first = tiny_run_metrics(run);
    expect_status(tiny_run_resume(run, 0, NULL), STATUS_BAD_INPUT, "line 9000");
    char *again = tiny_run_metrics(run);
    assert_string_equal(first, again);
    mem_free(first);
    mem_free(again);
    count_tokens(place, ".new", 0);
    count_tokens(place, ".tokens", 0);
}

/* Data that are not those of the run, and checkpoints whose data came in another order. */
static void what_cannot_be_resumed_is_reported(void **state) {
    struct place *place = *state;
    char run[600], path[700];
    snprintf(run, sizeof run, "%s/run", place->folder);
    place->options.steps = 2;
    expect_status(begin(place, run, NULL), STATUS_OK, NULL);
    FILE *file = fopen(place->text, "r+");
    assert_non_null(file);
    fputs("Another", file);
    assert_int_equal(fclose(file), 0);
    expect_status(tiny_run_resume(run, 3, NULL), STATUS_BAD_INPUT, "data: they are not those of the run");
    snprintf(path, sizeof path, "%s/checkpoints/step-00000002/ballast_manifest.json", run);
    assert_int_equal(unlink(path), 0); /* older versions wrote none */
    snprintf(path, sizeof path, "%s/checkpoints/step-00000002/state.json", run);
    char *text;
    size_t bytes;
    assert_int_equal(file_read(path, 1 << 20, &text, &bytes), STATUS_OK);
    char *version = strstr(text, "\"version\"");
    assert_non_null(version);
    version += strcspn(version, "0123456789");
    *version = '2';
    temp_write_text(path, text);
    expect_status(tiny_run_resume(run, 3, NULL), STATUS_BAD_INPUT,
                  "state.json: version: 2 is from before Ballast 0.1.0");
    *version = '9';
    temp_write_text(path, text);
    mem_free(text);
    expect_status(tiny_run_resume(run, 3, NULL), STATUS_BAD_INPUT, "state.json: version: 9 needs a newer Ballast");
}

int main(void) {
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, drop_place)
    const struct CMUnitTest tests[] = {
        IN_PLACE(it_has_the_bits_of_a_cached_run),
        IN_PLACE(held_out_rows_are_waited_for),
        IN_PLACE(later_errors_leave_checkpoints),
        IN_PLACE(what_cannot_be_resumed_is_reported),
    };
    log_set_quiet(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
