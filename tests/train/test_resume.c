/* A run that stops and resumes equals one that did not stop: metrics, weights and optimizer state, bit for bit. */
/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 slow BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/ranks.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static void expect_same_runs(const char *a, const char *b, int steps) {
    char *x = tiny_run_metrics(a), *y = tiny_run_metrics(b), path[64];
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    assert_true(files_equal(temp_path(a, "model/model.safetensors"), temp_path(b, "model/model.safetensors")));
    snprintf(path, sizeof path, "checkpoints/step-%08d/optimizer.safetensors", steps);
    assert_true(files_equal(temp_path(a, path), temp_path(b, path)));
}

static void stop_and_go_on(const char *folder, const char *name, enum dtype dtype) {
    struct tiny_run run;
    char whole[512], parts[512];
    tiny_run_make(folder, name, &run);
    SETTINGS_GIVE(&run.plan, dtype, dtype);
    snprintf(whole, sizeof whole, "%s/whole-%s-%s", folder, name, dtype_name(dtype));
    snprintf(parts, sizeof parts, "%s/parts-%s-%s", folder, name, dtype_name(dtype));
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    run.options.steps = 1;
    SETTINGS_GIVE(&run.options, schedule_steps, 6);
    expect_status(tiny_run_begin(&run, parts, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(parts, 5, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(parts, 6, NULL), STATUS_OK, NULL);
    expect_same_runs(whole, parts, 6);
}

static void runs_are_extended_in_parts(void **state) {
    stop_and_go_on(*state, "llama", DTYPE_F32);
    stop_and_go_on(*state, "gpt2", DTYPE_BF16);
    stop_and_go_on(*state, "llama_tied", DTYPE_BF16);
}

static enum status resume_on(const char *folder, int threads, int64_t steps) {
    struct plan_options plan;
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan, threads, threads);
    return train_resume(folder, &plan, TINY_RESUME(steps), NULL);
}

/* The whole is made on 2. */
static void go_on_with_other_threads(const char *folder, const char *name, enum dtype dtype) {
    struct tiny_run run;
    char whole[512], parts[512];
    tiny_run_make(folder, name, &run);
    SETTINGS_GIVE(&run.plan, dtype, dtype);
    snprintf(whole, sizeof whole, "%s/two-threads-%s", folder, name);
    snprintf(parts, sizeof parts, "%s/more-threads-%s", folder, name);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    run.options.steps = 1;
    SETTINGS_GIVE(&run.options, schedule_steps, 6);
    SETTINGS_GIVE(&run.plan, threads, 1);
    expect_status(tiny_run_begin(&run, parts, NULL), STATUS_OK, NULL);
    expect_status(resume_on(parts, 4, 3), STATUS_OK, NULL);
    expect_status(resume_on(parts, 7, 4), STATUS_OK, NULL);
    expect_status(resume_on(parts, 16, 6), STATUS_OK, NULL);
    expect_same_runs(whole, parts, 6);
}

static void the_number_of_threads_may_change(void **state) {
    go_on_with_other_threads(*state, "llama", DTYPE_F32);
    go_on_with_other_threads(*state, "gpt2", DTYPE_BF16);
}

static void raise_at_step(void *payload, const struct train_step *step) {
    const int *at = payload;
    if (step->step == at[0]) raise(at[1]);
}

static void stop_by_signal(const char *folder, int number, enum status expected) {
    struct tiny_run run;
    char whole[512], parts[512];
    tiny_run_make(folder, "llama", &run);
    snprintf(whole, sizeof whole, "%s/whole-%d", folder, number);
    snprintf(parts, sizeof parts, "%s/parts-%d", folder, number);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    /* Step 3 has a validation: the signal comes before it, and it is made up for. */
    int at[2] = {3, number};
    struct train_events events = {.step = raise_at_step, .stop = stop_signal_poll, .payload = at};
    expect_status(tiny_run_begin(&run, parts, &events), expected, "after step 3 of 6");
    stop_signal_end();
    assert_true(file_is_folder(temp_path(parts, "checkpoints/step-00000003")));
    assert_false(file_exists(temp_path(parts, "model")));
    expect_status(tiny_run_resume(parts, 0, NULL), STATUS_OK, NULL);
    expect_same_runs(whole, parts, 6);
}

static void a_signal_stops_with_a_checkpoint(void **state) {
    stop_by_signal(*state, SIGINT, STATUS_INTERRUPTED);
    stop_by_signal(*state, SIGTERM, STATUS_TERMINATED);
    stop_by_signal(*state, SIGHUP, STATUS_HUNG_UP);
}

static int64_t known_saved; /* as of the last poll */

static enum status poll_and_note(void *payload, int64_t step, int64_t saved_step) {
    known_saved = saved_step;
    return stop_signal_poll(payload, step, saved_step);
}

/* Once the checkpoint of step 2, which is written during steps, is known to be whole. */
static void raise_twice(void *payload, const struct train_step *step) {
    (void)payload, (void)step;
    if (known_saved < 2) return;
    raise(SIGINT);
    raise(SIGTERM); /* at once: timeout(1) sends two */
    raise(SIGHUP);  /* a shell sends several */
    usleep(200000);
    raise(SIGHUP);
    assert_true(write(STDERR_FILENO, "still there\n", 12) == 12);
    raise(SIGTERM);
}

/* OpenMP's threads do not outlive a fork: the run is begun in a child whose parent has started none. */
static void second_signal_ends_at_once(void **state) {
    struct tiny_run run;
    char folder[512];
    tiny_run_make(*state, "llama", &run);
    SETTINGS_GIVE(&run.plan, threads, 1);
    snprintf(folder, sizeof folder, "%s/twice", (const char *)*state);
    const char *stderr_path = temp_path(*state, "printed.txt");
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct train_events events = {.step = raise_twice, .stop = poll_and_note};
        if (!freopen(stderr_path, "w", stderr)) _exit(99);
        _exit(tiny_run_begin(&run, folder, &events) == STATUS_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == STATUS_QUIT);
    char *text, expected[300];
    size_t bytes;
    int step;
    assert_int_equal(file_read(stderr_path, 1 << 16, &text, &bytes), STATUS_OK);
    assert_int_equal(sscanf(text, "ballast: finishing step %d,", &step), 1);
    assert_in_range(step, 3, 6);
    snprintf(expected, sizeof expected,
             "ballast: finishing step %d, then saving; again: quit and lose the steps since 2\n"
             "still there\nballast: quit by a second signal: the steps since 2 are lost\n",
             step);
    assert_string_equal(text, expected);
    mem_free(text);
}

static void a_run_without_a_checkpoint_begins_again(void **state) {
    struct tiny_run run;
    char whole[512], cut[512];
    tiny_run_make(*state, "llama", &run);
    snprintf(whole, sizeof whole, "%s/whole-start", (const char *)*state);
    snprintf(cut, sizeof cut, "%s/cut-start", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_begin(&run, cut, NULL), STATUS_OK, NULL);
    assert_int_equal(folder_remove(temp_path(cut, "checkpoints")), STATUS_OK);
    expect_status(tiny_run_resume(cut, 0, NULL), STATUS_OK, NULL);
    expect_same_runs(whole, cut, 6);
}

static void expect_same_mixed(void **state, enum document_attention attention) {
    struct tiny_run run;
    char whole[512], cut[512], first[600], second[600];
    tiny_run_make(*state, "llama", &run);
    snprintf(first, sizeof first, "%s:0.7", run.data);
    snprintf(second, sizeof second, "%s:0.3", run.valid);
    const char *paths[] = {first, second};
    run.options.data_paths = paths;
    run.options.data_path_count = 2;
    SETTINGS_GIVE(&run.plan, document_attention, attention);
    snprintf(whole, sizeof whole, "%s/whole-mixed-%d", (const char *)*state, (int)attention);
    snprintf(cut, sizeof cut, "%s/cut-mixed-%d", (const char *)*state, (int)attention);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    run.options.steps = 3;
    SETTINGS_GIVE(&run.options, schedule_steps, 6);
    expect_status(tiny_run_begin(&run, cut, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(cut, 6, NULL), STATUS_OK, NULL);
    expect_same_runs(whole, cut, 6);
}

static void mixtures_go_on(void **state) {
    expect_same_mixed(state, DOCUMENT_ATTENTION_ACROSS);
    expect_same_mixed(state, DOCUMENT_ATTENTION_WITHIN);
}

/* Rounded stochastically: the numbers drawn depend on the step, not on where the run began. */
static void expect_states_go_on(void **state, enum update_rule rule, enum state_format format,
                                enum master_weights master_weights) {
    struct tiny_run run;
    char whole[512], cut[512];
    tiny_run_make(*state, "llama", &run);
    SETTINGS_GIVE(&run.plan, dtype, DTYPE_BF16);
    SETTINGS_GIVE(&run.plan, optimizer, rule);
    SETTINGS_GIVE(&run.plan, optimizer_dtype, format);
    SETTINGS_GIVE(&run.plan, master_weights, master_weights);
    snprintf(whole, sizeof whole, "%s/whole-states-%d", (const char *)*state, (int)format);
    snprintf(cut, sizeof cut, "%s/cut-states-%d", (const char *)*state, (int)format);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    run.options.steps = 3;
    SETTINGS_GIVE(&run.options, schedule_steps, 6);
    expect_status(tiny_run_begin(&run, cut, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(cut, 6, NULL), STATUS_OK, NULL);
    expect_same_runs(whole, cut, 6);
}

static void smaller_states_go_on(void **state) {
    expect_states_go_on(state, UPDATE_LION, STATE_BF16, MASTER_WEIGHTS_NONE);
    expect_states_go_on(state, UPDATE_ADAMW, STATE_INT8, MASTER_WEIGHTS_SPLIT);
    expect_states_go_on(state, UPDATE_MUON, STATE_FP32, MASTER_WEIGHTS_NONE);
}

/* The base is quantised again when a run goes on. */
static void adapters_on_a_quantised_base_go_on(void **state) {
    struct tiny_run run;
    char whole[512], cut[512];
    tiny_run_make(*state, "llama", &run);
    SETTINGS_GIVE(&run.plan, dtype, DTYPE_BF16);
    SETTINGS_GIVE(&run.plan, lora, "2,4,all-linear");
    SETTINGS_GIVE(&run.plan, quantize_base, WEIGHT_NF4);
    snprintf(whole, sizeof whole, "%s/whole-quantised", (const char *)*state);
    snprintf(cut, sizeof cut, "%s/cut-quantised", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    run.options.steps = 3;
    SETTINGS_GIVE(&run.options, schedule_steps, 6);
    expect_status(tiny_run_begin(&run, cut, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(cut, 6, NULL), STATUS_OK, NULL);
    char *x = tiny_run_metrics(whole), *y = tiny_run_metrics(cut);
    assert_string_equal(x, y);
    mem_free(x);
    mem_free(y);
    assert_true(files_equal(temp_path(whole, "model/adapter_model.safetensors"),
                            temp_path(cut, "model/adapter_model.safetensors")));
    struct plan_options plan;
    struct train_options none = {0};
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan, quantize_base, WEIGHT_PLAIN);
    expect_status(train_resume(cut, &plan, &none, NULL), STATUS_BAD_INPUT, "quantize-base: none differs from the nf4");
}

static void what_may_not_change_is_refused(void **state) {
    struct tiny_run run;
    char folder[512];
    tiny_run_make(*state, "llama", &run);
    snprintf(folder, sizeof folder, "%s/fixed", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    struct plan_options plan;
    struct train_options none = {0};
#define REFUSED(field, value, name)                                                                                    \
    plan_options_init(&plan);                                                                                          \
    SETTINGS_GIVE(&plan, field, value);                                                                                \
    expect_status(train_resume(folder, &plan, &none, NULL), STATUS_BAD_INPUT, name);
    REFUSED(batch, 4, "batch: 4 differs from the 3")
    REFUSED(sequence_length, 8, "seq")
    REFUSED(micro_batch_sequences, 1, "micro-batch")
    REFUSED(seed, 9, "seed")
    REFUSED(dtype, DTYPE_BF16, "dtype")
    REFUSED(optimizer, UPDATE_SGD, "optimizer: sgd differs from the adamw")
    REFUSED(optimizer_dtype, STATE_BF16, "optimizer-dtype: bf16 differs from the fp32")
    REFUSED(master_weights, MASTER_WEIGHTS_NONE, "master-weights: none differs from the fp32")
    REFUSED(quantize_base, WEIGHT_INT8, "quantize-base: int8 differs from the none")
    REFUSED(document_attention, DOCUMENT_ATTENTION_WITHIN, "document-attention: within differs from the across")
    REFUSED(packing, EXAMPLE_PACKING_ON, "packing: on differs from the off")
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan.memory, device_bytes, 1 << 12);
    expect_status(train_resume(folder, &plan, &none, NULL), STATUS_NO_FIT, "no plan fits");
    assert_null(strstr(status_hint_text(), "--micro-batch "));
    assert_null(strstr(status_hint_text(), "--seq "));
    expect_status(tiny_run_resume(folder, 5, NULL), STATUS_BAD_INPUT, "less than the 6 steps already done");
    temp_write_text(run.data, "not the data of the run");
    expect_status(tiny_run_resume(folder, 7, NULL), STATUS_BAD_INPUT, "data.bin");
    assert_int_equal(file_copy(run.valid, run.data), STATUS_OK);
    expect_status(tiny_run_resume(folder, 7, NULL), STATUS_BAD_INPUT, "not those of the run");
}

/* Lines of steps that are done cannot be recreated, and nothing else needs them. */
static void it_goes_on_without_metrics(void **state) {
    struct tiny_run run;
    char whole[512], folder[512], path[600];
    tiny_run_make(*state, "llama", &run);
    snprintf(whole, sizeof whole, "%s/whole-metrics", (const char *)*state);
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(whole, 8, NULL), STATUS_OK, NULL);
    static const char *const left[] = {NULL, "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 4}",
                                       "{\"step\": 1}\n{\"step\": false}\n{\"step\": 6}\n"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        snprintf(folder, sizeof folder, "%s/missing-%zu", (const char *)*state, i);
        snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
        expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
        if (left[i])
            temp_write_text(path, left[i]);
        else
            assert_int_equal(unlink(path), 0);
        expect_status(tiny_run_resume(folder, 8, NULL), STATUS_OK, NULL);
        assert_true(
            files_equal(temp_path(whole, "model/model.safetensors"), temp_path(folder, "model/model.safetensors")));
        char *x = tiny_run_metrics(whole), *y = tiny_run_metrics(folder);
        assert_string_equal(strstr(x, "\"step\": 7") ? strrchr(x, '{') : "", strrchr(y, '{'));
        assert_non_null(strstr(y, "\"step\": 7"));
        mem_free(x);
        mem_free(y);
    }
}

int main(void) {
    /* A shell's background and nohup start programs that ignore them. */
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_signal_ends_at_once), /* first: it forks */
        cmocka_unit_test(runs_are_extended_in_parts),
        cmocka_unit_test(the_number_of_threads_may_change),
        cmocka_unit_test(a_signal_stops_with_a_checkpoint),
        cmocka_unit_test(a_run_without_a_checkpoint_begins_again),
        cmocka_unit_test(mixtures_go_on),
        cmocka_unit_test(smaller_states_go_on),
        cmocka_unit_test(adapters_on_a_quantised_base_go_on),
        cmocka_unit_test(what_may_not_change_is_refused),
        cmocka_unit_test(it_goes_on_without_metrics),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
