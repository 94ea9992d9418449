/* The public calls of include/ballast.h give the same bits as the modules below, one after the other in a process,
 * step by step or at once. The header's promises about the process hold. */
/* ctest: PROCESSORS 2 */
#include <fcntl.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define BALLAST_EXPERIMENTAL
#include "base/file.h"
#include "base/mem.h"
#include "support/library_place.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/tiny_run.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"
#include "text/tokenizer/tokenizer.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)

/* ---- structs ---- */

#define EXPECT_SAME_INITIALISERS(name, MACRO)                                                                          \
    do {                                                                                                               \
        struct ballast_##name by_macro = BALLAST_##MACRO##_INIT, by_function;                                          \
        memset(&by_function, 0x55, sizeof by_function);                                                                \
        ballast_##name##_init(&by_function);                                                                           \
        assert_int_equal(by_macro.version, by_function.version);                                                       \
        assert_true(by_macro.version > 0);                                                                             \
    } while (0)

static void initialisers_leave_everything_not_given(void **state) {
    (void)state;
    EXPECT_SAME_INITIALISERS(plan_options, PLAN_OPTIONS);
    EXPECT_SAME_INITIALISERS(train_options, TRAIN_OPTIONS);
    EXPECT_SAME_INITIALISERS(train_events, TRAIN_EVENTS);
    EXPECT_SAME_INITIALISERS(plan_result, PLAN_RESULT);
    EXPECT_SAME_INITIALISERS(resume_options, RESUME_OPTIONS);
    EXPECT_SAME_INITIALISERS(evaluate_options, EVALUATE_OPTIONS);
    EXPECT_SAME_INITIALISERS(evaluation, EVALUATION);
    EXPECT_SAME_INITIALISERS(generate_options, GENERATE_OPTIONS);
    EXPECT_SAME_INITIALISERS(text, TEXT);
    EXPECT_SAME_INITIALISERS(tier_memory, TIER_MEMORY);
    const struct ballast_plan_options plan = BALLAST_PLAN_OPTIONS_INIT;
    const int64_t numbers[] = {
        plan.batch,     plan.sequence_length,        plan.micro_batch_sequences, plan.threads,
        plan.seed,      plan.micro_batches_per_wave, plan.device_memory_bytes,   plan.host_memory_bytes,
        plan.disk_bytes};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_int_equal(numbers[i], -1);
    assert_true(!plan.optimizer && !plan.optimizer_dtype && !plan.master_weights && !plan.quantize_base);
    assert_true(!plan.loss && plan.dpo_beta < 0 && plan.muon_momentum < 0);
    assert_true(!plan.dpo_loss && plan.dpo_label_smoothing < 0);
    assert_true(!plan.dtype && !plan.document_attention && !plan.packing && !plan.lora && !plan.freeze &&
                !plan.freeze_count && !plan.device && !plan.disk_folder && !plan.plan_path && !plan.cluster_path &&
                !plan.lanes && !plan.partition && !plan.collectives && plan.round_micro_batches == -1 &&
                plan.tensor_parallel == -1 && plan.pipeline_parallel == -1 && plan.virtual_stages == -1);
    const struct ballast_train_options train_given = BALLAST_TRAIN_OPTIONS_INIT;
    assert_true(train_given.steps == -1 && train_given.epochs < 0 && !train_given.schedule && train_given.keep == -1 &&
                train_given.clip_norm < 0 && train_given.sample_tokens == -1 && !train_given.sample_prompt &&
                train_given.min_lr_fraction < 0 && train_given.warmup_steps == -1 && !train_given.loss_on);
    const struct ballast_generate_options generate = BALLAST_GENERATE_OPTIONS_INIT;
    assert_true(generate.tokens == -1 && generate.top_p < 0 && generate.repetition_penalty < 0 && !generate.stops &&
                generate.chat == -1 && !generate.system && generate.chat_time_s == -1);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", BALLAST_VERSION_MAJOR, BALLAST_VERSION_MINOR, BALLAST_VERSION_PATCH);
    assert_string_equal(ballast_version(), version);
    assert_string_equal(ballast_status_name(BALLAST_NO_FIT), "NO_FIT");
    assert_string_equal(ballast_status_name((enum ballast_status)77), "unknown");
}

/* ---- bits ---- */

/* The calls below do what the modules do: the same run by src/train. */
static void train_has_the_bits_of_train_begin(void **state) {
    struct library_place place;
    char whole[700];
    struct plan_options plan;
    struct train_options options;
    library_place_make(*state, &place);
    EXPECT_OK(library_train(&place, place.run));
    plan_options_init(&plan);
    train_options_init(&options);
    SETTINGS_GIVE(&plan, batch, 3), SETTINGS_GIVE(&plan, micro_batch_sequences, 2),
        SETTINGS_GIVE(&plan, sequence_length, 16);
    SETTINGS_GIVE(&plan, threads, 2), SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    assert_int_equal(plan_options_choose_device(NULL, false, &plan), STATUS_OK);
    options.data_paths = place.data_paths, options.data_path_count = 1;
    SETTINGS_GIVE(&options, steps, 6), SETTINGS_GIVE(&options, learning_rate, 1e-3);
    SETTINGS_GIVE(&options, warmup_steps, 2), SETTINGS_GIVE(&options, save_every, 4);
    SETTINGS_GIVE(&options, valid_every, 3), SETTINGS_GIVE(&options, valid_fraction, 0.2);
    SETTINGS_GIVE(&options, sample_every, 3), SETTINGS_GIVE(&options, sample_tokens, 5);
    SETTINGS_GIVE(&options, sample_prompt, "the river");
    assert_int_equal(train_begin(place.model, name_in(*state, "whole", whole), &plan, &options, NULL), STATUS_OK);
    expect_same_runs(place.run, whole);
}

struct seen {
    int steps, validations, samples, checkpoints;
    int64_t stop_at;
    double last_loss;
    enum ballast_status nested;
    char nested_message[200];
};

static int see_step(const struct ballast_step *step, void *payload) {
    struct seen *seen = payload;
    struct ballast_plan_result result = BALLAST_PLAN_RESULT_INIT;
    assert_int_equal(step->step, ++seen->steps);
    assert_int_equal(step->steps, 6);
    assert_true(isfinite(step->loss) && step->loss > 0 && step->grad_norm > 0 && step->learning_rate > 0);
    assert_int_equal(step->tokens, step->step * 3 * 16);
    seen->last_loss = step->loss;
    seen->nested = ballast_plan("model", NULL, NULL, &result);
    snprintf(seen->nested_message, sizeof seen->nested_message, "%s", ballast_error_message());
    return step->step == seen->stop_at ? 7 : 0;
}

static void see_validation(int64_t step, double loss, void *payload) {
    assert_true(step % 3 == 0 && loss > 0);
    ((struct seen *)payload)->validations++;
}

static void see_sample(int64_t step, const char *prompt, const char *sample, void *payload) {
    assert_true(step % 3 == 0 && strcmp(prompt, "the river") == 0 && sample);
    ((struct seen *)payload)->samples++;
}

static void see_checkpoint(int64_t step, const char *folder, void *payload) {
    assert_true(step > 0 && file_is_folder(folder));
    ((struct seen *)payload)->checkpoints++;
}

static void watch(struct library_place *place, struct seen *seen) {
    *seen = (struct seen){.stop_at = -1};
    place->events.step = see_step;
    place->events.validated = see_validation;
    place->events.sampled = see_sample;
    place->events.saved = see_checkpoint;
    place->events.payload = seen;
}

/* Stopped by the callback, gone on with, and not stopped: the same. Calls from a callback are refused. */
static void a_stopped_run_is_resumed(void **state) {
    struct library_place place;
    struct seen seen;
    char whole[700];
    library_place_make(*state, &place);
    watch(&place, &seen);
    EXPECT_OK(library_train(&place, name_in(*state, "whole", whole)));
    assert_true(seen.steps == 6 && seen.validations == 2 && seen.samples == 2 && seen.checkpoints == 2);
    assert_int_equal(seen.nested, BALLAST_BAD_INPUT);
    assert_non_null(strstr(seen.nested_message, "ballast_plan: another call is under way"));
    watch(&place, &seen);
    seen.stop_at = 3;
    expect_public(library_train(&place, place.run), BALLAST_STOPPED, "stopped after step 3 of 6");
    assert_non_null(strstr(ballast_error_hint(), "resume"));
    assert_true(seen.steps == 3 && seen.checkpoints == 1 && seen.validations == 0);
    seen.stop_at = -1;
    EXPECT_OK(ballast_resume(place.run, NULL, NULL, &place.events));
    assert_int_equal(seen.steps, 6);
    expect_same_runs(whole, place.run);
    struct ballast_resume_options longer = BALLAST_RESUME_OPTIONS_INIT;
    longer.steps = 4;
    EXPECT_BAD(ballast_resume(place.run, NULL, &longer, NULL), "steps");
}

/* ---- trainer ---- */

static void step_to(struct ballast_trainer *trainer, int64_t from, int64_t to) {
    const struct ballast_step *step;
    for (int64_t i = from; i <= to; i++) {
        EXPECT_OK(ballast_trainer_step(trainer, &step));
        assert_non_null(step);
        assert_int_equal(step->step, i);
    }
}

static void expect_complete(struct ballast_trainer *trainer) {
    const struct ballast_step *step;
    EXPECT_OK(ballast_trainer_step(trainer, &step));
    assert_null(step);
    EXPECT_BAD(ballast_trainer_step(trainer, &step), "trainer: its run is at its end");
    EXPECT_OK(ballast_trainer_close(trainer));
}

struct other_thread {
    struct ballast_trainer *trainer;
    int threads_after;
};

static void *step_twice(void *payload) {
    struct other_thread *other = payload;
    omp_set_num_threads(5);
    step_to(other->trainer, 3, 4);
    other->threads_after = omp_get_max_threads();
    return NULL;
}

/* Steps on two threads, a checkpoint in between, closed before its end and opened again: the bits of ballast_train. */
static void a_trainer_steps_as_train_does(void **state) {
    struct library_place place;
    struct ballast_trainer *trainer;
    char whole[700], saved[700];
    uint64_t first, second;
    library_place_make(*state, &place);
    EXPECT_OK(library_train(&place, name_in(*state, "whole", whole)));
    EXPECT_OK(ballast_trainer_open(place.model, place.run, &place.plan, &place.train, NULL, &trainer));
    EXPECT_OK(ballast_trainer_save(trainer)); /* nothing yet */
    step_to(trainer, 1, 2);
    EXPECT_OK(ballast_trainer_save(trainer));
    EXPECT_OK(ballast_trainer_save(trainer)); /* it is there */
    assert_true(file_is_folder(name_in(place.run, "checkpoints/step-00000002", saved)));
    struct other_thread other = {.trainer = trainer};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, step_twice, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(other.threads_after, 5);
    step_to(trainer, 5, 5);
    EXPECT_OK(ballast_trainer_hash(trainer, &first));
    EXPECT_BAD(ballast_resume(place.run, NULL, NULL, NULL), "run"); /* it is locked */
    EXPECT_OK(ballast_trainer_close(trainer));
    assert_true(file_is_folder(name_in(place.run, "checkpoints/step-00000005", saved)));
    assert_false(file_exists(name_in(place.run, "model", saved)));
    EXPECT_OK(ballast_trainer_resume(place.run, NULL, NULL, NULL, &trainer));
    EXPECT_OK(ballast_trainer_hash(trainer, &second));
    assert_true(first == second);
    step_to(trainer, 6, 6);
    EXPECT_OK(ballast_trainer_hash(trainer, &second));
    assert_true(first != second);
    expect_complete(trainer);
    expect_same_runs(whole, place.run);
    EXPECT_OK(ballast_trainer_close(NULL));
}

/* run.json says whether the plan may change. */
static void a_run_keeps_its_plan_on_request(void **state) {
    static const struct {
        const char *given;
        bool may_change;
    } cases[] = {{NULL, true}, {"auto", true}, {"off", false}};
    struct library_place place;
    char run[700], path[700];
    library_place_make(*state, &place);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_error_t error;
        snprintf(run, sizeof run, "%s/replan-%zu", (const char *)*state, i);
        place.train.replan = cases[i].given;
        EXPECT_OK(library_train(&place, run));
        json_t *settings = json_load_file(name_in(run, "run.json", path), 0, &error);
        assert_int_equal(json_is_true(json_object_get(json_object_get(settings, "options"), "replan")),
                         cases[i].may_change);
        json_decref(settings);
    }
    struct ballast_resume_options resume = BALLAST_RESUME_OPTIONS_INIT;
    resume.replan = "auto"; /* the last of them, which was told to keep it */
    resume.learning_rate = 0.125;
    resume.schedule = "linear";
    resume.save_every = 7;
    EXPECT_OK(ballast_resume(run, NULL, &resume, NULL));
    json_t *settings = json_load_file(path, 0, NULL);
    const json_t *options = json_object_get(settings, "options");
    assert_true(json_is_true(json_object_get(options, "replan")));
    assert_true(json_number_value(json_object_get(options, "learning_rate")) == 0.125);
    assert_string_equal(json_string_value(json_object_get(options, "schedule")), "linear");
    assert_int_equal(json_integer_value(json_object_get(options, "save_every")), 7);
    json_decref(settings);
}

static void a_trainer_is_stopped(void **state) {
    struct library_place place;
    struct ballast_trainer *trainer;
    const struct ballast_step *step;
    char saved[700];
    library_place_make(*state, &place);
    place.train.save_every = 0;
    EXPECT_OK(ballast_trainer_open(place.model, place.run, &place.plan, &place.train, NULL, &trainer));
    step_to(trainer, 1, 1);
    EXPECT_OK(ballast_trainer_close(trainer)); /* a run that saves nothing */
    assert_false(file_exists(name_in(place.run, "checkpoints/step-00000001", saved)));
    place.train.save_every = 4;
    EXPECT_OK(ballast_trainer_open(place.model, name_in(*state, "second", place.run), &place.plan, &place.train, NULL,
                                   &trainer));
    step_to(trainer, 1, 2);
    ballast_stop();
    expect_public(ballast_trainer_step(trainer, &step), BALLAST_STOPPED, "after step 2 of 6");
    EXPECT_BAD(ballast_trainer_save(trainer), "at its end");
    EXPECT_OK(ballast_trainer_close(trainer));
    assert_true(file_is_folder(name_in(place.run, "checkpoints/step-00000002", saved)));
}

/* ---- texts ---- */

static void a_writer_writes_as_generate_does(void **state) {
    struct library_place place;
    struct ballast_writer *writer;
    struct ballast_generate_options options = BALLAST_GENERATE_OPTIONS_INIT;
    struct ballast_text done = BALLAST_TEXT_INIT;
    struct library_text_kept alone = {.used = 0}, first = {.used = 0}, other = {.used = 0}, again = {.used = 0};
    library_place_make(*state, &place);
    options.tokens = 12, options.ignore_end = 1;
    EXPECT_OK(ballast_generate(place.model, &place.plan, &options, "the river", library_keep_text, &alone, &done));
    assert_true(done.finish == BALLAST_FINISH_LENGTH && done.tokens == 12 && done.prompt_tokens > 0 && alone.used > 0);
    EXPECT_OK(ballast_writer_open(place.model, &place.plan, &writer));
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", library_keep_text, &first, NULL));
    EXPECT_OK(ballast_writer_write(writer, &options, "the sea by", library_keep_text, &other, NULL));
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", library_keep_text, &again, &done));
    assert_string_equal(first.bytes, alone.bytes);
    assert_string_equal(again.bytes, alone.bytes);
    assert_string_not_equal(other.bytes, alone.bytes);
    struct library_text_kept ended = {.end_after = 1}, stopped = {.stop = true};
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", library_keep_text, &ended, &done));
    assert_true(done.finish == BALLAST_FINISH_STOP && ended.calls == 1);
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", library_keep_text, &stopped, &done));
    assert_true(done.finish == BALLAST_FINISH_STOPPED && done.tokens < 12);
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", library_keep_text,
                                   &(struct library_text_kept){.used = 0}, &done));
    assert_int_equal(done.tokens, 12); /* a stop is for one text */
    ballast_writer_close(writer);
    ballast_writer_close(NULL);
}

static void write_seeded(struct ballast_writer *writer, bool chat, struct library_text_kept *out) {
    struct ballast_generate_options options = BALLAST_GENERATE_OPTIONS_INIT;
    options.tokens = 60, options.chat = chat;
    *out = (struct library_text_kept){.used = 0};
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", library_keep_text, out, NULL));
}

/* What ends an answer by the chat template ends no text after it. */
static void a_chat_leaves_no_trace_in_the_writer(void **state) {
    static const char *const special[] = {"<end>"};
    enum { SEEDS = 24 };
    struct library_place place;
    struct library_text_kept before, answer, after;
    char path[700];
    int answers_ended = 0;
    library_place_make(*state, &place);
    remove(name_in(place.model, "tokenizer.json", path));
    assert_int_equal(tokenizer_train(library_text, strlen(library_text), 270, special, 1, path), STATUS_OK);
    temp_write_text(name_in(place.model, "chat_template.jinja", path),
                    "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}<end>{% endfor %}"
                    "{% if add_generation_prompt %}[a]{% endif %}");
    place.plan.sequence_length = 64;
    for (place.plan.seed = 1; place.plan.seed <= SEEDS; place.plan.seed++) {
        struct ballast_writer *writer;
        EXPECT_OK(ballast_writer_open(place.model, &place.plan, &writer));
        write_seeded(writer, false, &before);
        write_seeded(writer, true, &answer);
        write_seeded(writer, false, &after);
        ballast_writer_close(writer);
        assert_string_equal(before.bytes, after.bytes);
        answers_ended += answer.calls < 40;
    }
    assert_true(answers_ended > 0);
}

/* Two runs of other dtypes and threads and a text, all open at once: each as if it were alone. */
static void open_objects_take_turns(void **state) {
    struct library_place place, other;
    struct ballast_trainer *first, *second;
    struct ballast_writer *writer;
    struct library_text_kept piece = {.used = 0};
    char alone[700], other_alone[700];
    library_place_make(*state, &place);
    place.plan.dtype = "fp32";
    other = place;
    other.plan.dtype = "bf16", other.plan.threads = 1, other.plan.batch = 2, other.plan.micro_batch_sequences = 1;
    other.train.data_paths = place.data_paths;
    name_in(*state, "other", other.run);
    EXPECT_OK(library_train(&place, name_in(*state, "alone", alone)));
    EXPECT_OK(library_train(&other, name_in(*state, "other-alone", other_alone)));
    EXPECT_OK(ballast_trainer_open(place.model, place.run, &place.plan, &place.train, NULL, &first));
    EXPECT_OK(ballast_trainer_open(other.model, other.run, &other.plan, &other.train, NULL, &second));
    EXPECT_OK(ballast_writer_open(place.model, &place.plan, &writer));
    for (int64_t step = 1; step <= 6; step++) {
        step_to(first, step, step);
        step_to(second, step, step);
        EXPECT_OK(ballast_writer_write(writer, NULL, "the", library_keep_text, &piece, NULL));
        piece.used = 0;
    }
    expect_complete(second);
    expect_complete(first);
    ballast_writer_close(writer);
    expect_same_runs(place.run, alone);
    expect_same_runs(other.run, other_alone);
}

/* ---- plans ---- */

static void a_session_reports_its_plan(void **state) {
    struct library_place place;
    struct ballast_session *session;
    struct ballast_plan_result result = BALLAST_PLAN_RESULT_INIT;
    struct ballast_tier_memory memory = BALLAST_TIER_MEMORY_INIT;
    const char *json;
    double step_s;
    library_place_make(*state, &place);
    EXPECT_OK(ballast_plan(place.model, &place.plan, NULL, &result));
    EXPECT_OK(ballast_session_open(place.model, &place.plan, NULL, &session));
    EXPECT_OK(ballast_session_require_fit(session));
    EXPECT_OK(ballast_session_memory(session, BALLAST_TIER_DEVICE, &memory));
    assert_int_equal(memory.parameter_bytes + memory.gradient_bytes + memory.optimizer_bytes + memory.activation_bytes +
                         memory.input_bytes + memory.result_bytes + memory.workspace_bytes + memory.cache_bytes +
                         memory.unused_bytes,
                     memory.arena_bytes);
    assert_int_equal(memory.capacity_bytes, 256 << 20);
    assert_int_equal(result.device_capacity_bytes, 256 << 20);
    assert_true(result.device_bytes >= memory.arena_bytes && memory.optimizer_bytes > 0 && result.host_bytes == 0);
    assert_true(result.parameters > 0 && result.trained_parameters == result.parameters && result.step_s > 0);
    EXPECT_OK(ballast_session_memory(session, BALLAST_TIER_HOST, &memory));
    assert_true(memory.arena_bytes == 0 && memory.capacity_bytes == 0);
    EXPECT_BAD(ballast_session_memory(session, (enum ballast_tier)9, &memory), "tier: 9");
    EXPECT_OK(ballast_session_predict(session, &step_s));
    EXPECT_OK(ballast_session_plan_json(session, &json));
    json_t *document = json_loads(json, 0, NULL);
    assert_true(fabs(json_real_value(json_object_get(document, "step_s")) - step_s) < 1e-12);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(document, "recipe"), "batch")), 3);
    json_decref(document);

    /* A plan file of it is what training takes. */
    char path[700];
    temp_write_text(name_in(*state, "plan.json", path), json);
    ballast_session_close(session);
    ballast_session_close(NULL);
    struct ballast_plan_options planned = BALLAST_PLAN_OPTIONS_INIT;
    planned.plan_path = path;
    planned.device_memory_bytes = 256 << 20;
    EXPECT_OK(ballast_train(place.model, place.run, &planned, &place.train, NULL));
    planned.batch = 5;
    EXPECT_BAD(ballast_train(place.model, name_in(*state, "other", place.run), &planned, &place.train, NULL), "batch");
    assert_false(file_exists(place.run));

    place.plan.device_memory_bytes = 1 << 14;
    expect_public(ballast_plan(place.model, &place.plan, NULL, &result), BALLAST_NO_FIT, "no plan fits");
    assert_non_null(strstr(ballast_error_hint(), "--device-memory"));
    expect_public(library_train(&place, place.run), BALLAST_NO_FIT, "no plan fits");
    assert_false(file_exists(place.run));
}

/* ---- one after the other ---- */

static void sum_file(const char *path, const struct ballast_evaluation *file, void *payload) {
    assert_non_null(strstr(path, "text.txt"));
    *(double *)payload += file->loss;
}

static void sessions_follow_each_other(void **state) {
    struct library_place place;
    struct ballast_evaluate_options evaluate = BALLAST_EVALUATE_OPTIONS_INIT;
    struct ballast_evaluation before = BALLAST_EVALUATION_INIT, after = BALLAST_EVALUATION_INIT;
    struct library_text_kept piece = {.used = 0};
    char second[700], again[700];
    double sum = 0;
    library_place_make(*state, &place);
    place.train.learning_rate = 1e-2;
    evaluate.data_paths = place.data_paths, evaluate.data_path_count = 1, evaluate.batches = 2;
    EXPECT_OK(ballast_evaluate(place.model, &place.plan, &evaluate, &before, sum_file, &sum));
    assert_true(sum > 0 && fabs(sum - before.loss) < 1e-12 && before.tokens > 0 && before.perplexity > 1);
    EXPECT_OK(library_train(&place, place.run));
    EXPECT_BAD(library_train(&place, place.run), "run");
    expect_public(ballast_generate(place.data, &place.plan, NULL, "the", library_keep_text, &piece, NULL),
                  BALLAST_BAD_INPUT, "text.txt");
    EXPECT_OK(ballast_evaluate(place.run, &place.plan, &evaluate, &after, NULL, NULL));
    assert_true(after.loss < before.loss);
    EXPECT_OK(ballast_generate(place.run, &place.plan, NULL, "the", library_keep_text, &piece, NULL));
    assert_true(piece.used > 0);
    /* The trained model trained on, and the first one as at first. */
    EXPECT_OK(ballast_train(place.run, name_in(*state, "second", second), &place.plan, &place.train, NULL));
    EXPECT_OK(library_train(&place, name_in(*state, "again", again)));
    expect_same_runs(place.run, again);
}

/* ---- the process ---- */

static int silence(const char *path) {
    fflush(NULL);
    int kept = dup(STDERR_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(kept >= 0 && file >= 0);
    assert_true(dup2(file, STDERR_FILENO) >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    close(file);
    return kept;
}

static void note_line(enum ballast_log_level level, const char *line, void *payload) {
    assert_null(strchr(line, '\n'));
    ((int *)payload)[level]++;
}

static void nothing_is_printed_and_no_signal_is_handled(void **state) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    struct library_place place;
    struct seen seen;
    struct sigaction before[sizeof signals / sizeof *signals], now;
    char stderr_path[700], *message, path[700];
    size_t bytes;
    int lines[2] = {0, 0}, out = dup(STDOUT_FILENO);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        assert_int_equal(sigaction(signals[i], NULL, &before[i]), 0);
    library_place_make(*state, &place);
    temp_write_text(name_in(place.model, "generation_config.json", path), "{\"no_such_key\": 1}"); /* a warning */
    watch(&place, &seen);
    seen.stop_at = 3;
    int kept = silence(name_in(*state, "printed", stderr_path));
    enum ballast_status status = library_train(&place, place.run);
    enum ballast_status resumed = ballast_resume(place.run, NULL, NULL, NULL);
    enum ballast_status written = ballast_generate(place.model, &place.plan, NULL, "the", library_keep_text,
                                                   &(struct library_text_kept){.used = 0}, NULL);
    ballast_set_log(note_line, lines);
    enum ballast_status logged = ballast_generate(place.model, &place.plan, NULL, "the", library_keep_text,
                                                  &(struct library_text_kept){.used = 0}, NULL);
    ballast_set_log(NULL, NULL);
    fflush(NULL);
    assert_true(dup2(kept, STDERR_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0);
    assert_true(status == BALLAST_STOPPED && resumed == BALLAST_OK && written == BALLAST_OK && logged == BALLAST_OK);
    assert_int_equal(file_read(stderr_path, 1 << 16, &message, &bytes), STATUS_OK);
    if (bytes > 0) fail_msg("printed: %s", message);
    mem_free(message);
    assert_true(lines[BALLAST_LOG_WARNING] == 1);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        assert_int_equal(sigaction(signals[i], NULL, &now), 0);
        assert_true(now.sa_handler == before[i].sa_handler);
    }
}

/* A locale whose numbers have a comma changes no file. */
static void numbers_are_written_as_in_c(void **state) {
    struct library_place place;
    char plain[700], command[1400], half[8];
    library_place_make(*state, &place);
    EXPECT_OK(library_train(&place, name_in(*state, "plain", plain)));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", (char *)*state);
    int made = system(command);
    assert_int_equal(setenv("LOCPATH", *state, 1), 0);
    bool comma = made == 0 && setlocale(LC_ALL, "de_DE.UTF-8");
    assert_int_equal(unsetenv("LOCPATH"), 0);
    if (!comma) unit_skip("localedef made no locale with a comma; needs the package locales");
    enum ballast_status status = library_train(&place, place.run);
    snprintf(half, sizeof half, "%.1f", 0.5);
    setlocale(LC_ALL, "C");
    assert_string_equal(half, "0,5"); /* it was the caller's all the time */
    EXPECT_OK(status);
    expect_same_runs(plain, place.run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(initialisers_leave_everything_not_given),
        CASE(train_has_the_bits_of_train_begin),
        CASE(a_stopped_run_is_resumed),
        CASE(a_trainer_steps_as_train_does),
        CASE(a_run_keeps_its_plan_on_request),
        CASE(a_trainer_is_stopped),
        CASE(a_writer_writes_as_generate_does),
        CASE(a_chat_leaves_no_trace_in_the_writer),
        CASE(open_objects_take_turns),
        CASE(a_session_reports_its_plan),
        CASE(sessions_follow_each_other),
        CASE(nothing_is_printed_and_no_signal_is_handled),
        CASE(numbers_are_written_as_in_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
