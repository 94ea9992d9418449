/* DPO on preference pairs: the margin rises. A run resumes to the bit without computing its reference again, and
 * evaluation equals validation. Several ranks give one rank's bits, or with tensor parallelism its numbers. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/terminal.h"
#include "session/engine.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/thread_ranks.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/loop.h"
#include "train/plan_watch.h"

enum { PAIRS = 12, VALID_PAIRS = 5, LENGTH = 48, BATCH = 8 };
static const char text[] =
    "the river runs under the bridge and the road goes over it. yes, it does so. no, never at all. "
    "who asks where it goes? so it is said: the bridge is old, the river older than the road.";

static void write_pairs(const char *path, int first, int count) {
    static const char *const subjects[] = {"the river", "the bridge", "the road", "it"};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = first; i < first + count; i++)
        fprintf(file,
                "{\"prompt\": \"where goes %s %d?\", \"chosen\": \" yes, %s does so.\", \"rejected\": \" no, never at "
                "all.%s\"}\n",
                subjects[i % 4], i, subjects[i % 3], i % 2 ? " so it is said." : "");
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state) {
    if (temp_folder_make(state) != 0 || setenv("XDG_CACHE_HOME", *state, 1) != 0) return -1;
    text_model_make(temp_path(*state, "model"), text, 280, 320, false);
    write_pairs(temp_path(*state, "train.jsonl"), 0, PAIRS);
    write_pairs(temp_path(*state, "valid.jsonl"), PAIRS, VALID_PAIRS);
    return 0;
}

struct preference_run {
    char model[512], data[512], valid[512];
    const char *data_paths[1], *valid_paths[1];
    struct plan_options plan;
    struct train_options options;
};

static void make_run(const char *folder, struct preference_run *out) {
    *out = (struct preference_run){.data_paths = {out->data}, .valid_paths = {out->valid}};
    snprintf(out->model, sizeof out->model, "%s/model", folder);
    snprintf(out->data, sizeof out->data, "%s/train.jsonl", folder);
    snprintf(out->valid, sizeof out->valid, "%s/valid.jsonl", folder);
    plan_options_init(&out->plan);
    train_options_init(&out->options);
    SETTINGS_GIVE(&out->plan, loss, TRAINING_DPO);
    SETTINGS_GIVE(&out->plan, batch, BATCH);
    SETTINGS_GIVE(&out->plan, micro_batch_sequences, 4);
    SETTINGS_GIVE(&out->plan, sequence_length, LENGTH);
    SETTINGS_GIVE(&out->plan, threads, 2);
    SETTINGS_GIVE(&out->plan.memory, device_bytes, 256 << 20);
    out->options.steps = 6;
    out->options.learning_rate = 3e-3;
    out->options.schedule = LR_SCHEDULE_CONSTANT;
    SETTINGS_GIVE(&out->options, warmup_steps, 0);
    SETTINGS_GIVE(&out->options, weight_decay, 0);
    out->options.save_every = 3;
    out->options.valid_every = 3;
    out->options.data_paths = out->data_paths;
    out->options.data_path_count = 1;
    out->options.valid_paths = out->valid_paths;
    out->options.valid_path_count = 1;
}

static enum status begin(const struct preference_run *run, const char *folder, const struct train_events *events) {
    return train_begin(run->model, folder, &run->plan, &run->options, events);
}

struct course {
    struct train_step first, last;
};

static void keep_steps(void *payload, const struct train_step *step) {
    struct course *course = payload;
    if (step->step == 1) course->first = *step;
    course->last = *step;
}

static struct course train(const struct preference_run *run, const char *folder) {
    struct course course = {.first.step = 0};
    struct train_events events = {.step = keep_steps, .payload = &course};
    expect_status(begin(run, folder, &events), STATUS_OK, NULL);
    return course;
}

/* A model is its own reference before it has learned. */
static void expect_rise(const struct course *course) {
    double before = preference_margin(course->first.preference), after = preference_margin(course->last.preference);
    print_message("loss %.6f to %.6f, margin %.6f to %.6f\n", course->first.loss, course->last.loss, before, after);
    assert_true(course->first.pairs && fabs(course->first.loss - log(2)) < 1e-5 && fabs(before) < 1e-5);
    assert_true(course->last.loss < 0.5 && after > 0.5);
    assert_true(!(course->last.preference[PREFERENCE_RIGHT] < 1));
}

static void training_raises_the_margin(void **state) {
    struct preference_run run;
    make_run(*state, &run);
    run.options.steps = 60;
    struct course course = train(&run, temp_path(*state, "rise"));
    expect_rise(&course);
    run.options.steps = 120;
    run.options.learning_rate = 1e-2;
    SETTINGS_GIVE(&run.plan, lora, "4,8,all-linear");
    course = train(&run, temp_path(*state, "rise-lora"));
    expect_rise(&course);
}

/* ---- going on ---- */

static enum status check_stop(void *payload, int64_t step, int64_t saved) {
    (void)saved;
    return step > *(const int64_t *)payload ? STATUS_INTERRUPTED : STATUS_OK;
}

static void begin_half(const struct preference_run *run, const char *folder) {
    int64_t half = 4;
    struct train_events events = {.stop = check_stop, .payload = &half};
    expect_status(begin(run, folder, &events), STATUS_INTERRUPTED, "stopped after step 4");
}

static void resumed_runs_are_the_same(void **state) {
    struct preference_run run;
    char whole[512], part[512], model[512];
    make_run(*state, &run);
    snprintf(whole, sizeof whole, "%s/whole", (const char *)*state);
    snprintf(part, sizeof part, "%s/part", (const char *)*state);
    snprintf(model, sizeof model, "%s/whole/model/model.safetensors", (const char *)*state);
    expect_status(begin(&run, whole, NULL), STATUS_OK, NULL);
    begin_half(&run, part);
    /* The model that it began with is not needed any more. */
    assert_int_equal(file_rename(run.model, temp_path(*state, "elsewhere")), STATUS_OK);
    enum status status = tiny_run_resume(part, 0, NULL);
    assert_int_equal(file_rename(temp_path(*state, "elsewhere"), run.model), STATUS_OK);
    expect_status(status, STATUS_OK, NULL);
    char *a = tiny_run_metrics(whole), *b = tiny_run_metrics(part);
    assert_string_equal(a, b);
    assert_non_null(strstr(a, "\"reward_chosen\""));
    assert_non_null(strstr(a, "\"val_accuracy\""));
    mem_free(a);
    mem_free(b);
    assert_true(files_equal(model, temp_path(part, "model/model.safetensors")));
}

static void count_replan(void *payload, const struct train_replan *replan, const struct session_plan *plan) {
    (void)replan, (void)plan;
    ++*(int *)payload;
}

/* After two steps there is less memory: the policy changes, and no bit. */
static void a_change_of_plan_leaves_the_bits(void **state) {
    struct preference_run run;
    struct train_run *other;
    char plain[512], changed[512], model[512];
    int changes = 0;
    bool complete = false;
    const struct train_events events = {.replanned = count_replan, .payload = &changes};
    make_run(*state, &run);
    memory_options_set_disk(&run.plan.memory, *state);
    snprintf(plain, sizeof plain, "%s/plain", (const char *)*state);
    snprintf(changed, sizeof changed, "%s/changed", (const char *)*state);
    snprintf(model, sizeof model, "%s/plain/model/model.safetensors", (const char *)*state);
    expect_status(begin(&run, plain, NULL), STATUS_OK, NULL);
    expect_status(train_open(run.model, changed, &run.plan, &run.options, &events, &other), STATUS_OK, NULL);
    for (int64_t step = 0; !complete; step++) {
        if (step == 2) {
            other->session.machine.limits.device_bytes = other->plan.programs.tier_bytes[TIER_DEVICE] * 4 / 5;
            other->watch.looked_ns = 0;
        }
        expect_status(train_turn(other, &complete), STATUS_OK, NULL);
    }
    expect_status(train_close(other), STATUS_OK, NULL);
    assert_true(changes >= 1);
    char *a = tiny_run_metrics(plain), *b = tiny_run_metrics(changed);
    assert_string_equal(a, b);
    mem_free(a);
    mem_free(b);
    assert_true(files_equal(model, temp_path(changed, "model/model.safetensors")));
}

static void damage(const char *path) {
    char *bytes;
    size_t count;
    assert_int_equal(file_read(path, 1 << 20, &bytes, &count), STATUS_OK);
    bytes[count - 20] ^= 1;
    temp_write(path, bytes, count);
    mem_free(bytes);
}

static void a_reference_that_is_damaged_or_gone_is_refused(void **state) {
    struct preference_run run;
    char folder[512], file[600];
    make_run(*state, &run);
    snprintf(folder, sizeof folder, "%s/damaged", (const char *)*state);
    snprintf(file, sizeof file, "%s/reference.safetensors", folder);
    begin_half(&run, folder);
    damage(file);
    expect_status(tiny_run_resume(folder, 0, NULL), STATUS_BAD_INPUT, "reference.safetensors: damaged");
    assert_int_equal(remove(file), 0);
    expect_status(tiny_run_resume(folder, 0, NULL), STATUS_BAD_INPUT, "reference.safetensors");
}

static enum status stop_at_once(void *payload, int64_t step, int64_t saved) {
    (void)payload, (void)step, (void)saved;
    return STATUS_INTERRUPTED;
}

static void a_stop_before_the_first_step_leaves_nothing(void **state) {
    struct preference_run run;
    make_run(*state, &run);
    struct train_events events = {.stop = stop_at_once};
    const char *folder = temp_path(*state, "stopped");
    expect_status(begin(&run, folder, &events), STATUS_INTERRUPTED, "before the first step");
    assert_false(file_exists(temp_path(*state, "stopped")));
}

/* ---- evaluation ---- */

static double number(const json_t *object, const char *field) {
    const json_t *value = json_object_get(object, field);
    if (!json_is_number(value)) fail_msg("no %s", field);
    return json_number_value(value);
}

/* The last validation of a run. */
static json_t *last_validation(const char *folder) {
    char *lines = NULL;
    size_t bytes;
    json_t *found = NULL;
    assert_int_equal(file_read(temp_path(folder, "metrics.jsonl"), 1 << 20, &lines, &bytes), STATUS_OK);
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_object_get(object, "val_loss")) {
            json_decref(found);
            found = json_incref(object);
        }
        json_decref(object);
    }
    mem_free(lines);
    assert_non_null(found);
    return found;
}

static void expect_bits(double found, double expected) { assert_memory_equal(&found, &expected, sizeof found); }

static void evaluation_gives_what_validation_gave(void **state) {
    struct preference_run run;
    char folder[512];
    make_run(*state, &run);
    snprintf(folder, sizeof folder, "%s/evaluated", (const char *)*state);
    expect_status(begin(&run, folder, NULL), STATUS_OK, NULL);
    json_t *metrics = last_validation(folder);
    struct eval_options options = {.data_paths = run.valid_paths, .data_path_count = 1, .reference = run.model};
    struct eval_result result;
    expect_status(evaluate_files(temp_path(folder, "model"), &run.plan, &options, &result), STATUS_OK, NULL);
    const struct eval_file *file = &result.files[0];
    assert_true(result.pairs && isnan(file->perplexity));
    assert_int_equal(file->tokens, VALID_PAIRS);
    assert_int_equal(file->sequences, 2 * VALID_PAIRS);
    expect_bits(file->loss, number(metrics, "val_loss"));
    expect_bits(file->preference[PREFERENCE_CHOSEN], number(metrics, "val_reward_chosen"));
    expect_bits(file->preference[PREFERENCE_REJECTED], number(metrics, "val_reward_rejected"));
    expect_bits(preference_margin(file->preference), number(metrics, "val_margin"));
    expect_bits(file->preference[PREFERENCE_RIGHT], number(metrics, "val_accuracy"));
    assert_true(file->loss < log(2));
    expect_bits(result.total.loss, file->loss);
    eval_result_free(&result);
    json_decref(metrics);
    options.reference = NULL;
    expect_status(evaluate_files(temp_path(folder, "model"), &run.plan, &options, &result), STATUS_BAD_INPUT,
                  "next to the model that training began with");
    options.reference = run.model;
    SETTINGS_DROP(&run.plan, loss);
    expect_status(evaluate_files(run.model, &run.plan, &options, &result), STATUS_BAD_INPUT, "preferences alone");
}

/* The run's directory says what it was compared with, and by which loss; what is given comes first. */
static void a_run_is_evaluated_as_it_was_trained(void **state) {
    struct preference_run run;
    char folder[512];
    make_run(*state, &run);
    SETTINGS_GIVE(&run.plan, dpo_loss, PAIR_LOSS_HINGE);
    SETTINGS_GIVE(&run.plan, dpo_beta, 0.3);
    snprintf(folder, sizeof folder, "%s/remembered", (const char *)*state);
    expect_status(begin(&run, folder, NULL), STATUS_OK, NULL);
    json_t *metrics = last_validation(folder);
    struct eval_options options = {.data_paths = run.valid_paths, .data_path_count = 1};
    struct eval_result result;
    SETTINGS_DROP(&run.plan, loss);
    SETTINGS_DROP(&run.plan, dpo_loss);
    SETTINGS_DROP(&run.plan, dpo_beta);
    expect_status(evaluate_files(folder, &run.plan, &options, &result), STATUS_OK, NULL);
    assert_true(result.pairs);
    expect_bits(result.total.loss, number(metrics, "val_loss"));
    expect_bits(preference_margin(result.total.preference), number(metrics, "val_margin"));
    eval_result_free(&result);
    SETTINGS_GIVE(&run.plan, dpo_beta, 0.6);
    expect_status(evaluate_files(folder, &run.plan, &options, &result), STATUS_OK, NULL);
    assert_true(fabs(preference_margin(result.total.preference) / number(metrics, "val_margin") - 2) < 1e-6);
    eval_result_free(&result);
    SETTINGS_DROP(&run.plan, dpo_beta);
    temp_write(temp_path(*state, "plain.txt"), text, strlen(text));
    snprintf(run.valid, sizeof run.valid, "%s/plain.txt", (const char *)*state);
    expect_status(evaluate_files(folder, &run.plan, &options, &result), STATUS_OK, NULL);
    assert_false(result.pairs);
    eval_result_free(&result);
    json_decref(metrics);
}

/* ---- ranks ---- */

struct job {
    const struct preference_run *run;
    const char *folder;
};

static enum status train_rank(struct comm *comm, void *payload) {
    const struct job *job = payload;
    struct plan_options plan = job->run->plan;
    plan.comm = comm;
    progress_mute_thread();
    return train_begin(job->run->model, job->folder, &plan, &job->run->options, NULL);
}

static char *train_ranks(const struct preference_run *run, const char *folder, int ranks) {
    struct job job = {run, folder};
    struct thread_ranks threads = {.ranks = ranks,
                                   .seed = 7,
                                   .settings = {.rank_timeout_s = 60, .message_bytes = 4096},
                                   .body = train_rank,
                                   .payload = &job,
                                   .may_fail = true};
    expect_status(thread_ranks_run(&threads), STATUS_OK, NULL);
    return tiny_run_metrics(folder);
}

/* Of data ranks, with a partition or without, and of stages, alone and with data ranks. */
static void ranks_have_the_bits_of_one(void **state) {
    static const struct {
        int ranks, stages;
        const char *partition;
    } shapes[] = {{1, 1, NULL}, {2, 1, "ddp"}, {2, 1, "zero3"}, {2, 2, NULL}, {4, 2, "zero3"}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    struct preference_run run;
    char *metrics[SHAPES];
    make_run(*state, &run);
    SETTINGS_GIVE(&run.options, replan, false);
    SETTINGS_GIVE(&run.plan, lanes, (struct lane_shape){1, 2});
    SETTINGS_GIVE(&run.plan, threads, 1);
    for (int i = 0; i < SHAPES; i++) {
        char folder[512];
        snprintf(folder, sizeof folder, "%s/ranks-%d", (const char *)*state, i);
        if (shapes[i].partition)
            SETTINGS_GIVE(&run.plan, partition, shapes[i].partition);
        else
            SETTINGS_DROP(&run.plan, partition);
        SETTINGS_GIVE(&run.plan, pipeline_parallel, shapes[i].stages);
        metrics[i] = train_ranks(&run, folder, shapes[i].ranks);
        assert_string_equal(metrics[0], metrics[i]);
    }
    for (int i = 0; i < SHAPES; i++)
        mem_free(metrics[i]);
}

static json_t *line_of(char **lines) {
    char *line = strtok_r(NULL, "\n", lines);
    return line ? json_loads(line, 0, NULL) : NULL;
}

/* All that a line of metrics says of a step or a validation, but for the time. */
static void expect_near(const char *what, const json_t *found, const json_t *expected) {
    static const char *const fields[] = {
        "loss",     "grad_norm", "reward_chosen",     "reward_rejected",     "margin",
        "accuracy", "val_loss",  "val_reward_chosen", "val_reward_rejected", "val_accuracy"};
    int compared = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *wanted = json_object_get(expected, fields[i]);
        if (!wanted) continue;
        double a = number(found, fields[i]), b = json_number_value(wanted);
        if (!(fabs(a - b) <= 1e-5 * fmax(1, fabs(b)))) fail_msg("%s: %s is %.9g, not %.9g", what, fields[i], a, b);
        compared++;
    }
    assert_true(compared >= 4);
}

static void expect_near_metrics(const char *what, const char *found, const char *expected) {
    char *a = mem_string(found), *b = mem_string(expected), *next_a = a, *next_b = b;
    int lines = 0;
    assert_true(a && b);
    for (char *line = strtok_r(a, "\n", &next_a); line; line = strtok_r(NULL, "\n", &next_a)) {
        json_t *own = json_loads(line, 0, NULL);
        json_t *wanted = lines++ == 0 ? json_loads(strtok_r(b, "\n", &next_b), 0, NULL) : line_of(&next_b);
        expect_near(what, own, wanted);
        json_decref(own);
        json_decref(wanted);
    }
    assert_int_equal(lines, 2 + 10);
    mem_free(a);
    mem_free(b);
}

/* The head's rows are cut, with data ranks; positions too, with stages; or what a solver says. */
static void ranks_that_share_tensors_learn_the_same(void **state) {
    static const struct {
        const char *name;
        int ranks, stages;
        bool sequence, solves;
    } shapes[] = {{"sequence in stages", 4, 2, true, false},
                  {"solver", 2, 1, false, true},
                  {"tensor next to data", 4, 1, false, false}};
    struct preference_run run;
    make_run(*state, &run);
    run.options.steps = 10;
    run.options.valid_every = 5;
    SETTINGS_GIVE(&run.options, replan, false);
    SETTINGS_GIVE(&run.plan, lanes, (struct lane_shape){1, 2});
    SETTINGS_GIVE(&run.plan, threads, 1);
    char *expected = train_ranks(&run, temp_path(*state, "alone"), 1);
    SETTINGS_GIVE(&run.plan, tensor_parallel, 2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char folder[512];
        snprintf(folder, sizeof folder, "%s/shared-%zu", (const char *)*state, i);
        SETTINGS_GIVE(&run.plan, pipeline_parallel, shapes[i].stages);
        SETTINGS_GIVE(&run.plan, sequence_parallel, shapes[i].sequence);
        SETTINGS_GIVE(&run.plan, layout, shapes[i].solves ? TENSOR_LAYOUT_SOLVER : TENSOR_LAYOUT_MEGATRON);
        char *found = train_ranks(&run, folder, shapes[i].ranks);
        expect_near_metrics(shapes[i].name, found, expected);
        mem_free(found);
    }
    mem_free(expected);
}

/* ---- what is wrong ---- */

static void data_of_the_other_kind_are_refused(void **state) {
    struct preference_run run;
    make_run(*state, &run);
    temp_write(temp_path(*state, "plain.txt"), text, strlen(text));
    snprintf(run.data, sizeof run.data, "%s/plain.txt", (const char *)*state);
    expect_status(begin(&run, temp_path(*state, "none"), NULL), STATUS_BAD_INPUT, "plain.txt: holds no preferences");
    make_run(*state, &run);
    SETTINGS_DROP(&run.plan, loss);
    expect_status(begin(&run, temp_path(*state, "none"), NULL), STATUS_BAD_INPUT, "train.jsonl: holds preferences");
    make_run(*state, &run);
    SETTINGS_GIVE(&run.plan, batch, 7);
    expect_status(begin(&run, temp_path(*state, "none"), NULL), STATUS_BAD_INPUT, "a pair lies in one micro-batch");
    make_run(*state, &run);
    SETTINGS_GIVE(&run.plan, micro_batch_sequences, 3);
    expect_status(begin(&run, temp_path(*state, "none"), NULL), STATUS_BAD_INPUT, "recipe.micro_batch: 3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_raises_the_margin),
        cmocka_unit_test(resumed_runs_are_the_same),
        cmocka_unit_test(a_change_of_plan_leaves_the_bits),
        cmocka_unit_test(a_reference_that_is_damaged_or_gone_is_refused),
        cmocka_unit_test(a_stop_before_the_first_step_leaves_nothing),
        cmocka_unit_test(evaluation_gives_what_validation_gave),
        cmocka_unit_test(a_run_is_evaluated_as_it_was_trained),
        cmocka_unit_test(ranks_have_the_bits_of_one),
        cmocka_unit_test(ranks_that_share_tensors_learn_the_same),
        cmocka_unit_test(data_of_the_other_kind_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
