/* The public calls of include/ballast.h: the same bits as the rooms below give, one after the other in a process,
 * stepped or whole; what the header promises about the process; what it refuses. */
/* ctest: PROCESSORS 2 */
#include <fcntl.h>
#include <fenv.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BALLAST_EXPERIMENTAL
#include "ballast.h"
#include "base/file.h"
#include "base/mem.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "tokenizer/tokenizer.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)

static const char text[] = "the river ran by the old mill and the river ran on to the sea, to the sea by the mill";

/* A model, a text and the options of a run of 6 steps: as support/tiny_run.h has them. */
struct place {
    char model[512], data[512], run[700];
    const char *data_paths[1];
    struct ballast_plan_options plan;
    struct ballast_train_options train;
    struct ballast_train_events events;
};

static void make_place(const char *folder, struct place *out) {
    static char longer[40 * sizeof text];
    snprintf(out->model, sizeof out->model, "%s/text-model", folder);
    snprintf(out->data, sizeof out->data, "%s/text.txt", folder);
    snprintf(out->run, sizeof out->run, "%s/run", folder);
    text_model_make(out->model, text, 270, 300, false);
    for (size_t i = 0; i < sizeof longer - 1; i++)
        longer[i] = text[i % (sizeof text - 1)];
    temp_write_text(out->data, longer);
    out->data_paths[0] = out->data;
    ballast_plan_options_init(&out->plan);
    ballast_train_options_init(&out->train);
    ballast_train_events_init(&out->events);
    out->plan.batch = 3, out->plan.grain_sequences = 2, out->plan.sequence_length = 16;
    out->plan.threads = 2, out->plan.device_memory_bytes = 256 << 20;
    out->train.data_paths = out->data_paths, out->train.data_path_count = 1;
    out->train.steps = 6, out->train.learning_rate = 1e-3, out->train.warmup_steps = 2;
    out->train.save_every = 4, out->train.valid_every = 3, out->train.valid_fraction = 0.2;
    out->train.sample_every = 3, out->train.sample_tokens = 5, out->train.sample_prompt = "the river";
}

static void expect_public(enum ballast_status status, enum ballast_status expected, const char *words) {
    if (status != expected)
        fail_msg("%s, expected %s: %s", ballast_status_name(status), ballast_status_name(expected),
                 ballast_error_message());
    if (words && !strstr(ballast_error_message(), words))
        fail_msg("'%s' does not say '%s'", ballast_error_message(), words);
    if (status == BALLAST_OK) assert_string_equal(ballast_error_message(), "");
}
#define EXPECT_OK(status) expect_public(status, BALLAST_OK, NULL)
#define EXPECT_BAD(status, words) expect_public(status, BALLAST_BAD_INPUT, words)

static enum ballast_status train(const struct place *place, const char *run) {
    return ballast_train(place->model, run, &place->plan, &place->train, &place->events);
}

static char *name_in(const char *folder, const char *name, char out[700]) {
    if (snprintf(out, 700, "%s/%s", folder, name) >= 700) fail_msg("%s is too long a path", folder);
    return out;
}

/* Metrics and weights. */
static void expect_same_runs(const char *a, const char *b) {
    char first[700], second[700], *left = tiny_run_metrics(a), *right = tiny_run_metrics(b);
    assert_string_equal(left, right);
    assert_non_null(strstr(left, "val_loss"));
    mem_free(left);
    mem_free(right);
    assert_true(
        files_equal(name_in(a, "model/model.safetensors", first), name_in(b, "model/model.safetensors", second)));
}

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
    const int64_t numbers[] = {plan.batch,     plan.sequence_length, plan.grain_sequences,     plan.threads,
                               plan.seed,      plan.grains_per_pass, plan.device_memory_bytes, plan.host_memory_bytes,
                               plan.disk_bytes};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_int_equal(numbers[i], -1);
    assert_true(!plan.optimizer && !plan.optimizer_dtype && !plan.master && !plan.base_dtype);
    assert_true(!plan.loss && plan.dpo_beta < 0 && plan.muon_momentum < 0);
    assert_true(!plan.dpo_loss && plan.dpo_label_smoothing < 0);
    assert_true(!plan.dtype && !plan.document_attention && !plan.lora && !plan.freeze && !plan.freeze_count &&
                !plan.device && !plan.disk_folder && !plan.plan_path && !plan.cluster_path && !plan.lanes &&
                !plan.partition && !plan.collectives && plan.round_grains == -1 && plan.tensor == -1 &&
                plan.stages == -1 && plan.interleave == -1);
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

/* The calls below do what the rooms do: the same run by src/train. */
static void train_has_the_bits_of_train_begin(void **state) {
    struct place place;
    char whole[700];
    struct plan_options plan;
    struct train_options options;
    make_place(*state, &place);
    EXPECT_OK(train(&place, place.run));
    plan_options_init(&plan);
    train_options_init(&options);
    SETTINGS_GIVE(&plan, batch, 3), SETTINGS_GIVE(&plan, grain_sequences, 2), SETTINGS_GIVE(&plan, sequence_length, 16);
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

static void watch(struct place *place, struct seen *seen) {
    *seen = (struct seen){.stop_at = -1};
    place->events.step = see_step;
    place->events.validated = see_validation;
    place->events.sampled = see_sample;
    place->events.saved = see_checkpoint;
    place->events.payload = seen;
}

/* Stopped by the callback, gone on with, and not stopped: the same. Calls from a callback are refused. */
static void a_stopped_run_is_resumed(void **state) {
    struct place place;
    struct seen seen;
    char whole[700];
    make_place(*state, &place);
    watch(&place, &seen);
    EXPECT_OK(train(&place, name_in(*state, "whole", whole)));
    assert_true(seen.steps == 6 && seen.validations == 2 && seen.samples == 2 && seen.checkpoints == 2);
    assert_int_equal(seen.nested, BALLAST_BAD_INPUT);
    assert_non_null(strstr(seen.nested_message, "ballast_plan: another call is under way"));
    watch(&place, &seen);
    seen.stop_at = 3;
    expect_public(train(&place, place.run), BALLAST_STOPPED, "stopped after step 3 of 6");
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
    struct place place;
    struct ballast_trainer *trainer;
    char whole[700], saved[700];
    uint64_t first, second;
    make_place(*state, &place);
    EXPECT_OK(train(&place, name_in(*state, "whole", whole)));
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
static void a_run_keeps_its_plan_where_told(void **state) {
    static const struct {
        const char *given;
        bool may_change;
    } cases[] = {{NULL, true}, {"auto", true}, {"off", false}};
    struct place place;
    char run[700], path[700];
    make_place(*state, &place);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_error_t error;
        snprintf(run, sizeof run, "%s/replan-%zu", (const char *)*state, i);
        place.train.replan = cases[i].given;
        EXPECT_OK(train(&place, run));
        json_t *settings = json_load_file(name_in(run, "run.json", path), 0, &error);
        assert_int_equal(json_is_true(json_object_get(json_object_get(settings, "options"), "replan")),
                         cases[i].may_change);
        json_decref(settings);
    }
}

static void a_trainer_is_stopped(void **state) {
    struct place place;
    struct ballast_trainer *trainer;
    const struct ballast_step *step;
    char saved[700];
    make_place(*state, &place);
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

struct piece {
    char bytes[1000];
    size_t used;
    int calls, end_after; /* 0: never */
    bool stop;
};

static int keep_piece(const char *bytes, size_t count, void *payload) {
    struct piece *piece = payload;
    assert_true(piece->used + count < sizeof piece->bytes);
    memcpy(piece->bytes + piece->used, bytes, count);
    piece->bytes[piece->used += count] = '\0';
    if (piece->stop) ballast_stop();
    return ++piece->calls == piece->end_after;
}

static void a_writer_writes_as_generate_does(void **state) {
    struct place place;
    struct ballast_writer *writer;
    struct ballast_generate_options options = BALLAST_GENERATE_OPTIONS_INIT;
    struct ballast_text done = BALLAST_TEXT_INIT;
    struct piece alone = {.used = 0}, first = {.used = 0}, other = {.used = 0}, again = {.used = 0};
    make_place(*state, &place);
    options.tokens = 12, options.ignore_end = 1;
    EXPECT_OK(ballast_generate(place.model, &place.plan, &options, "the river", keep_piece, &alone, &done));
    assert_true(done.finish == BALLAST_FINISH_LENGTH && done.tokens == 12 && done.prompt_tokens > 0 && alone.used > 0);
    EXPECT_OK(ballast_writer_open(place.model, &place.plan, &writer));
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", keep_piece, &first, NULL));
    EXPECT_OK(ballast_writer_write(writer, &options, "the sea by", keep_piece, &other, NULL));
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", keep_piece, &again, &done));
    assert_string_equal(first.bytes, alone.bytes);
    assert_string_equal(again.bytes, alone.bytes);
    assert_string_not_equal(other.bytes, alone.bytes);
    struct piece ended = {.end_after = 1}, stopped = {.stop = true};
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", keep_piece, &ended, &done));
    assert_true(done.finish == BALLAST_FINISH_STOP && ended.calls == 1);
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", keep_piece, &stopped, &done));
    assert_true(done.finish == BALLAST_FINISH_STOPPED && done.tokens < 12);
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", keep_piece, &(struct piece){.used = 0}, &done));
    assert_int_equal(done.tokens, 12); /* a stop is for one text */
    ballast_writer_close(writer);
    ballast_writer_close(NULL);
}

static void write_seeded(struct ballast_writer *writer, bool chat, struct piece *out) {
    struct ballast_generate_options options = BALLAST_GENERATE_OPTIONS_INIT;
    options.tokens = 60, options.chat = chat;
    *out = (struct piece){.used = 0};
    EXPECT_OK(ballast_writer_write(writer, &options, "the river", keep_piece, out, NULL));
}

/* What ends an answer by the chat template ends no text after it. */
static void a_chat_leaves_no_trace_in_the_writer(void **state) {
    static const char *const special[] = {"<end>"};
    enum { SEEDS = 24 };
    struct place place;
    struct piece before, answer, after;
    char path[700];
    int answers_ended = 0;
    make_place(*state, &place);
    remove(name_in(place.model, "tokenizer.json", path));
    assert_int_equal(tokenizer_train(text, strlen(text), 270, special, 1, path), STATUS_OK);
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
    struct place place, other;
    struct ballast_trainer *first, *second;
    struct ballast_writer *writer;
    struct piece piece = {.used = 0};
    char alone[700], other_alone[700];
    make_place(*state, &place);
    place.plan.dtype = "fp32";
    other = place;
    other.plan.dtype = "bf16", other.plan.threads = 1, other.plan.batch = 2, other.plan.grain_sequences = 1;
    other.train.data_paths = place.data_paths;
    name_in(*state, "other", other.run);
    EXPECT_OK(train(&place, name_in(*state, "alone", alone)));
    EXPECT_OK(train(&other, name_in(*state, "other-alone", other_alone)));
    EXPECT_OK(ballast_trainer_open(place.model, place.run, &place.plan, &place.train, NULL, &first));
    EXPECT_OK(ballast_trainer_open(other.model, other.run, &other.plan, &other.train, NULL, &second));
    EXPECT_OK(ballast_writer_open(place.model, &place.plan, &writer));
    for (int64_t step = 1; step <= 6; step++) {
        step_to(first, step, step);
        step_to(second, step, step);
        EXPECT_OK(ballast_writer_write(writer, NULL, "the", keep_piece, &piece, NULL));
        piece.used = 0;
    }
    expect_complete(second);
    expect_complete(first);
    ballast_writer_close(writer);
    expect_same_runs(place.run, alone);
    expect_same_runs(other.run, other_alone);
}

/* ---- plans ---- */

static void a_session_tells_its_plan(void **state) {
    struct place place;
    struct ballast_session *session;
    struct ballast_plan_result result = BALLAST_PLAN_RESULT_INIT;
    struct ballast_tier_memory memory = BALLAST_TIER_MEMORY_INIT;
    const char *json;
    double step_s;
    make_place(*state, &place);
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
    expect_public(train(&place, place.run), BALLAST_NO_FIT, "no plan fits");
    assert_false(file_exists(place.run));
}

/* ---- one after the other ---- */

static void sum_file(const char *path, const struct ballast_evaluation *file, void *payload) {
    assert_non_null(strstr(path, "text.txt"));
    *(double *)payload += file->loss;
}

static void sessions_follow_each_other(void **state) {
    struct place place;
    struct ballast_evaluate_options evaluate = BALLAST_EVALUATE_OPTIONS_INIT;
    struct ballast_evaluation before = BALLAST_EVALUATION_INIT, after = BALLAST_EVALUATION_INIT;
    struct piece piece = {.used = 0};
    char second[700], again[700];
    double sum = 0;
    make_place(*state, &place);
    place.train.learning_rate = 1e-2;
    evaluate.data_paths = place.data_paths, evaluate.data_path_count = 1, evaluate.batches = 2;
    EXPECT_OK(ballast_evaluate(place.model, &place.plan, &evaluate, &before, sum_file, &sum));
    assert_true(sum > 0 && fabs(sum - before.loss) < 1e-12 && before.tokens > 0 && before.perplexity > 1);
    EXPECT_OK(train(&place, place.run));
    EXPECT_BAD(train(&place, place.run), "run");
    expect_public(ballast_generate(place.data, &place.plan, NULL, "the", keep_piece, &piece, NULL), BALLAST_BAD_INPUT,
                  "text.txt");
    EXPECT_OK(ballast_evaluate(place.run, &place.plan, &evaluate, &after, NULL, NULL));
    assert_true(after.loss < before.loss);
    EXPECT_OK(ballast_generate(place.run, &place.plan, NULL, "the", keep_piece, &piece, NULL));
    assert_true(piece.used > 0);
    /* The trained model trained on, and the first one as at first. */
    EXPECT_OK(ballast_train(place.run, name_in(*state, "second", second), &place.plan, &place.train, NULL));
    EXPECT_OK(train(&place, name_in(*state, "again", again)));
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
    struct place place;
    struct seen seen;
    struct sigaction now;
    char said[700], *words, path[700];
    size_t bytes;
    int lines[2] = {0, 0}, out = dup(STDOUT_FILENO);
    make_place(*state, &place);
    temp_write_text(name_in(place.model, "generation_config.json", path), "{\"no_such_key\": 1}"); /* a warning */
    watch(&place, &seen);
    seen.stop_at = 3;
    int kept = silence(name_in(*state, "said", said));
    enum ballast_status status = train(&place, place.run);
    enum ballast_status resumed = ballast_resume(place.run, NULL, NULL, NULL);
    enum ballast_status written =
        ballast_generate(place.model, &place.plan, NULL, "the", keep_piece, &(struct piece){.used = 0}, NULL);
    ballast_set_log(note_line, lines);
    enum ballast_status logged =
        ballast_generate(place.model, &place.plan, NULL, "the", keep_piece, &(struct piece){.used = 0}, NULL);
    ballast_set_log(NULL, NULL);
    fflush(NULL);
    assert_true(dup2(kept, STDERR_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0);
    assert_true(status == BALLAST_STOPPED && resumed == BALLAST_OK && written == BALLAST_OK && logged == BALLAST_OK);
    assert_int_equal(file_read(said, 1 << 16, &words, &bytes), STATUS_OK);
    if (bytes > 0) fail_msg("printed: %s", words);
    mem_free(words);
    assert_true(lines[BALLAST_LOG_WARNING] == 1);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        assert_int_equal(sigaction(signals[i], NULL, &now), 0);
        assert_true(now.sa_handler == SIG_DFL);
    }
}

/* A locale whose numbers have a comma changes no file. */
static void numbers_are_written_as_in_c(void **state) {
    struct place place;
    char plain[700], command[1400], half[8];
    make_place(*state, &place);
    EXPECT_OK(train(&place, name_in(*state, "plain", plain)));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", (char *)*state);
    int made = system(command);
    assert_int_equal(setenv("LOCPATH", *state, 1), 0);
    bool comma = made == 0 && setlocale(LC_ALL, "de_DE.UTF-8");
    assert_int_equal(unsetenv("LOCPATH"), 0);
    if (!comma) unit_skip("localedef made no locale with a comma; needs the package locales");
    enum ballast_status status = train(&place, place.run);
    snprintf(half, sizeof half, "%.1f", 0.5);
    setlocale(LC_ALL, "C");
    assert_string_equal(half, "0,5"); /* it was the caller's all the time */
    EXPECT_OK(status);
    expect_same_runs(plain, place.run);
}

static void other_processes_are_refused(void **state) {
    struct place place;
    struct ballast_plan_result result = BALLAST_PLAN_RESULT_INIT;
    enum ballast_status inside = BALLAST_OK;
    make_place(*state, &place);
    omp_set_num_threads(3);
    EXPECT_OK(ballast_plan(place.model, &place.plan, NULL, &result));
    assert_int_equal(omp_get_max_threads(), 3);
#pragma omp parallel num_threads(2)
    {
#pragma omp master
        inside = ballast_plan(place.model, &place.plan, NULL, &result);
    }
    EXPECT_BAD(inside, "parallel region");
    assert_int_equal(fesetround(FE_UPWARD), 0);
    enum ballast_status rounded = ballast_plan(place.model, &place.plan, NULL, &result);
    assert_int_equal(fesetround(FE_TONEAREST), 0);
    EXPECT_BAD(rounded, "floating-point mode");
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(ballast_plan(place.model, &place.plan, NULL, &result) == BALLAST_BAD_INPUT ? 42 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    EXPECT_OK(ballast_plan(place.model, &place.plan, NULL, &result));
}

/* ---- what is refused ---- */

/* One wrong setting in an otherwise good call, and the field that the message has to name. */
#define REFUSED_PLAN(words, ...)                                                                                       \
    do {                                                                                                               \
        struct place wrong = *place;                                                                                   \
        struct ballast_plan_options *plan = &wrong.plan;                                                               \
        __VA_ARGS__;                                                                                                   \
        EXPECT_BAD(train(&wrong, wrong.run), words);                                                                   \
        assert_false(file_exists(wrong.run));                                                                          \
    } while (0)
#define REFUSED_TRAIN(words, ...)                                                                                      \
    do {                                                                                                               \
        struct place wrong = *place;                                                                                   \
        struct ballast_train_options *options = &wrong.train;                                                          \
        wrong.train.data_paths = place->data_paths;                                                                    \
        __VA_ARGS__;                                                                                                   \
        EXPECT_BAD(train(&wrong, wrong.run), words);                                                                   \
        assert_false(file_exists(wrong.run));                                                                          \
    } while (0)

static void refuse_plan_options(const struct place *place) {
    static const char *const holes[] = {"embed*", NULL};
    REFUSED_PLAN("plan.version", plan->version = 0);
    REFUSED_PLAN("plan.version", plan->version = BALLAST_PLAN_OPTIONS_VERSION + 1);
    REFUSED_PLAN("plan.batch", plan->batch = 0);
    REFUSED_PLAN("plan.batch", plan->batch = INT64_MAX);
    REFUSED_PLAN("plan.sequence_length", plan->sequence_length = 0);
    REFUSED_PLAN("plan.sequence_length", plan->sequence_length = INT64_MAX);
    REFUSED_PLAN("plan.grain_sequences", plan->grain_sequences = 0);
    REFUSED_PLAN("plan.grain_sequences", plan->grain_sequences = INT64_MAX);
    REFUSED_PLAN("plan.grains_per_pass", plan->grains_per_pass = 0);
    REFUSED_PLAN("plan.grains_per_pass", plan->grains_per_pass = INT64_MAX);
    REFUSED_PLAN("plan.threads", plan->threads = 0);
    REFUSED_PLAN("plan.threads", plan->threads = INT64_MAX);
    REFUSED_PLAN("plan.dtype", plan->dtype = "fp8");
    REFUSED_PLAN("plan.dtype", plan->dtype = "");
    REFUSED_PLAN("plan.loss", plan->loss = "ppo");
    REFUSED_PLAN("plan.dpo_beta", plan->loss = "dpo"; plan->dpo_beta = 0);
    REFUSED_PLAN("plan.dpo_loss", plan->loss = "dpo"; plan->dpo_loss = "sigmoidal");
    REFUSED_PLAN("plan.dpo_label_smoothing", plan->loss = "dpo"; plan->dpo_label_smoothing = 0.6);
    REFUSED_PLAN("plan.optimizer", plan->optimizer = "adam");
    REFUSED_PLAN("plan.optimizer_dtype", plan->optimizer_dtype = "fp8");
    REFUSED_PLAN("plan.master", plan->master = "bf16");
    REFUSED_PLAN("plan.base_dtype", plan->base_dtype = "nf8");
    REFUSED_PLAN("plan.document_attention", plan->document_attention = "sometimes");
    REFUSED_PLAN("device: 'abacus'", plan->device = "abacus");
    REFUSED_PLAN("lora", plan->lora = "none");
    REFUSED_PLAN("plan.lora: is empty", plan->lora = "");
    REFUSED_PLAN("plan.freeze: is NULL", plan->freeze_count = 1);
    REFUSED_PLAN("plan.freeze[1]", plan->freeze = holes; plan->freeze_count = 2);
    REFUSED_PLAN("plan.disk_bytes", plan->disk_bytes = 1 << 20);
    REFUSED_PLAN("plan.disk_bytes", plan->disk_bytes = 0);
    REFUSED_PLAN("plan.disk_folder", plan->disk_folder = "");
    REFUSED_PLAN("plan.lanes", plan->lanes = "2x");
    REFUSED_PLAN("partition: 'zero4'", plan->partition = "zero4");
    REFUSED_PLAN("plan.stages", plan->stages = 0);
    REFUSED_PLAN("policy.stages: 2", plan->stages = 2);
    REFUSED_PLAN("plan.interleave", plan->interleave = 65);
    REFUSED_PLAN("plan.collectives", plan->collectives = "round");
    REFUSED_PLAN("plan.round_grains", plan->round_grains = INT64_MAX);
    REFUSED_PLAN("plan.device_memory_bytes", plan->device_memory_bytes = 0);
    REFUSED_PLAN("/nowhere", plan->plan_path = "/nowhere/plan.json");
    REFUSED_PLAN("/nowhere", plan->cluster_path = "/nowhere/cluster.json");
}

static void refuse_train_options(const struct place *place) {
    static const char *const holes[] = {NULL};
    REFUSED_TRAIN("options.version", options->version = -1);
    REFUSED_TRAIN("data", options->data_path_count = 0);
    REFUSED_TRAIN("options.data_paths: is NULL", options->data_paths = NULL);
    REFUSED_TRAIN("options.data_paths[0]", options->data_paths = holes);
    REFUSED_TRAIN("options.valid_paths", options->valid_path_count = 3);
    REFUSED_TRAIN("options.valid_fraction", options->valid_fraction = 1);
    REFUSED_TRAIN("options.valid_fraction", options->valid_fraction = NAN);
    REFUSED_TRAIN("columns", options->columns = "nonsense");
    REFUSED_TRAIN("options.loss_on", options->loss_on = "prompts");
    REFUSED_TRAIN("options.chat_time_s", options->chat_time_s = 0);
    REFUSED_TRAIN("options.steps", options->steps = 0);
    REFUSED_TRAIN("options.steps", options->steps = INT64_MAX);
    REFUSED_TRAIN("options.epochs", options->epochs = 2); /* beside steps */
    REFUSED_TRAIN("options.epochs", options->steps = -1; options->epochs = INFINITY);
    REFUSED_TRAIN("options.learning_rate", options->learning_rate = 0);
    REFUSED_TRAIN("options.learning_rate", options->learning_rate = 1e300);
    REFUSED_TRAIN("options.learning_rate", options->learning_rate = NAN);
    REFUSED_TRAIN("options.schedule", options->schedule = "step");
    REFUSED_TRAIN("options.schedule_steps", options->schedule_steps = 0);
    REFUSED_TRAIN("options.warmup_steps", options->warmup_steps = INT64_MAX);
    REFUSED_TRAIN("options.min_lr_fraction", options->min_lr_fraction = 1.5);
    REFUSED_TRAIN("options.wsd_decay_fraction", options->wsd_decay_fraction = 2);
    REFUSED_TRAIN("options.beta1", options->beta1 = 1);
    REFUSED_TRAIN("options.beta2", options->beta2 = 5);
    REFUSED_TRAIN("options.epsilon", options->epsilon = 0);
    REFUSED_TRAIN("options.weight_decay", options->weight_decay = 1e9);
    REFUSED_TRAIN("options.clip_norm", options->clip_norm = 1e30);
    REFUSED_TRAIN("options.save_every", options->save_every = INT64_MAX);
    REFUSED_TRAIN("options.keep", options->keep = INT64_MAX);
    REFUSED_TRAIN("options.valid_every", options->valid_every = INT64_MAX);
    REFUSED_TRAIN("options.valid_batches", options->valid_batches = INT64_MAX);
    REFUSED_TRAIN("options.sample_every", options->sample_every = INT64_MAX);
    REFUSED_TRAIN("options.sample_tokens", options->sample_tokens = 0);
    REFUSED_TRAIN("options.replan", options->replan = "on");
}

static void refuse_texts(const struct place *place) {
    struct ballast_text done = BALLAST_TEXT_INIT;
    struct piece piece = {.used = 0};
#define REFUSED_TEXT(words, ...)                                                                                       \
    do {                                                                                                               \
        struct ballast_generate_options options = BALLAST_GENERATE_OPTIONS_INIT;                                       \
        __VA_ARGS__;                                                                                                   \
        EXPECT_BAD(ballast_generate(place->model, &place->plan, &options, "the", keep_piece, &piece, &done), words);   \
        assert_int_equal(piece.calls, 0);                                                                              \
    } while (0)
    static const char *const empty[] = {""};
    REFUSED_TEXT("options.version", options.version = 9);
    REFUSED_TEXT("options.tokens", options.tokens = 0);
    REFUSED_TEXT("options.temperature", options.temperature = 1e9);
    REFUSED_TEXT("options.temperature", options.temperature = NAN);
    REFUSED_TEXT("options.top_p", options.top_p = 1.5);
    REFUSED_TEXT("options.repetition_penalty", options.repetition_penalty = 0);
    REFUSED_TEXT("options.ignore_end", options.ignore_end = 2);
    REFUSED_TEXT("options.chat", options.chat = 3);
    REFUSED_TEXT("options.system", options.system = "Be brief.");
    REFUSED_TEXT("options.chat_time_s", options.chat = 1; options.chat_time_s = 0);
    REFUSED_TEXT("options.stops", options.stop_count = 1);
    REFUSED_TEXT("stop", options.stops = empty; options.stop_count = 1);
    REFUSED_TEXT("chat", options.chat = 1); /* the model has no template */
    done.version = 4;
    REFUSED_TEXT("out.version", (void)options);
#undef REFUSED_TEXT
}

static void refuse_nothing_given(const struct place *place) {
    const struct ballast_plan_options *plan = &place->plan;
    struct ballast_train_events events = BALLAST_TRAIN_EVENTS_INIT;
    struct ballast_evaluate_options evaluate = BALLAST_EVALUATE_OPTIONS_INIT;
    struct ballast_evaluation evaluation = BALLAST_EVALUATION_INIT;
    struct ballast_plan_result result = BALLAST_PLAN_RESULT_INIT;
    struct ballast_tier_memory memory = BALLAST_TIER_MEMORY_INIT;
    struct ballast_resume_options resume = BALLAST_RESUME_OPTIONS_INIT;
    struct ballast_trainer *trainer;
    struct ballast_session *session;
    const struct ballast_step *step;
    const char *json;
    double seconds;
    uint64_t hash;
    events.version = 3;
    EXPECT_BAD(ballast_train(place->model, place->run, plan, &place->train, &events), "events.version");
    EXPECT_BAD(ballast_train(NULL, place->run, plan, &place->train, NULL), "model: is NULL");
    EXPECT_BAD(ballast_train(place->model, NULL, plan, &place->train, NULL), "run: is NULL");
    EXPECT_BAD(ballast_train(place->model, place->run, plan, NULL, NULL), "options: is NULL");
    EXPECT_BAD(ballast_train("", place->run, plan, &place->train, NULL), "");
    EXPECT_BAD(ballast_resume(NULL, NULL, NULL, NULL), "run: is NULL");
    EXPECT_BAD(ballast_resume(place->run, NULL, NULL, NULL), "run");
    resume.version = 8;
    EXPECT_BAD(ballast_resume(place->run, NULL, &resume, NULL), "options.version");
    EXPECT_BAD(ballast_plan(NULL, NULL, NULL, &result), "model: is NULL");
    EXPECT_BAD(ballast_plan(place->model, NULL, NULL, NULL), "out: is NULL");
    result.version = 0;
    EXPECT_BAD(ballast_plan(place->model, NULL, NULL, &result), "out.version");
    EXPECT_BAD(ballast_evaluate(place->model, plan, NULL, &evaluation, NULL, NULL), "options: is NULL");
    EXPECT_BAD(ballast_evaluate(place->model, plan, &evaluate, &evaluation, NULL, NULL), "options.data_paths");
    EXPECT_BAD(ballast_evaluate(place->model, plan, &evaluate, NULL, NULL, NULL), "out: is NULL");
    EXPECT_BAD(ballast_generate(place->model, plan, NULL, NULL, keep_piece, NULL, NULL), "prompt: is NULL");
    EXPECT_BAD(ballast_generate(place->model, plan, NULL, "the", NULL, NULL, NULL), "piece: is NULL");
    EXPECT_BAD(ballast_writer_open(place->model, plan, NULL), "out: is NULL");
    EXPECT_BAD(ballast_writer_write(NULL, NULL, "the", keep_piece, NULL, NULL), "writer: is NULL");
    EXPECT_BAD(ballast_trainer_open(place->model, place->run, plan, &place->train, NULL, NULL), "out: is NULL");
    EXPECT_BAD(ballast_trainer_open(NULL, place->run, plan, &place->train, NULL, &trainer), "model: is NULL");
    EXPECT_BAD(ballast_trainer_resume(place->run, NULL, NULL, &events, &trainer), "events.version");
    EXPECT_BAD(ballast_trainer_step(NULL, &step), "trainer: is NULL");
    EXPECT_BAD(ballast_trainer_save(NULL), "trainer: is NULL");
    EXPECT_BAD(ballast_trainer_hash(NULL, &hash), "trainer: is NULL");
    EXPECT_BAD(ballast_session_open(place->model, plan, NULL, NULL), "out: is NULL");
    EXPECT_BAD(ballast_session_require_fit(NULL), "session: is NULL");
    EXPECT_BAD(ballast_session_memory(NULL, BALLAST_TIER_DEVICE, &memory), "session: is NULL");
    EXPECT_BAD(ballast_session_predict(NULL, &seconds), "session: is NULL");
    EXPECT_BAD(ballast_session_plan_json(NULL, &json), "session: is NULL");
    EXPECT_OK(ballast_session_open(place->model, plan, NULL, &session));
    EXPECT_BAD(ballast_session_memory(session, BALLAST_TIER_DEVICE, NULL), "out: is NULL");
    EXPECT_BAD(ballast_session_predict(session, NULL), "step_s: is NULL");
    EXPECT_BAD(ballast_session_plan_json(session, NULL), "out: is NULL");
    ballast_session_close(session);
}

static void a_process_alone_is_rank_0_of_1(void **state) {
    struct place place;
    struct ballast_ranks_options options = BALLAST_RANKS_OPTIONS_INIT;
    int rank = -1, ranks = -1;
    make_place(*state, &place);
    EXPECT_BAD(ballast_ranks_open(&options, NULL, &ranks), "rank: is NULL");
    EXPECT_BAD(ballast_ranks_open(&options, &rank, NULL), "ranks: is NULL");
    options.version = 7;
    EXPECT_BAD(ballast_ranks_open(&options, &rank, &ranks), "options.version: ");
    ballast_ranks_options_init(&options);
    options.nodes = 0;
    EXPECT_BAD(ballast_ranks_open(&options, &rank, &ranks), "options.nodes: must be from 1 on");
    options.nodes = 1, options.timeout_s = 0.5;
    EXPECT_BAD(ballast_ranks_open(&options, &rank, &ranks), "options.timeout_s: must be from 1");
    options.timeout_s = 60;
    EXPECT_OK(ballast_ranks_open(&options, &rank, &ranks));
    assert_int_equal(rank, 0);
    assert_int_equal(ranks, 1);
    EXPECT_BAD(ballast_ranks_open(&options, &rank, &ranks), "the ranks are open already");
    EXPECT_OK(train(&place, place.run));
    assert_int_equal(ballast_ranks_tell(), 1);
    assert_int_equal(ballast_ranks_close(BALLAST_FAILED), BALLAST_FAILED); /* and ends nothing */
    EXPECT_OK(ballast_ranks_open(NULL, &rank, &ranks));
    EXPECT_OK(ballast_ranks_close(BALLAST_OK));
}

static void bad_input_names_the_field(void **state) {
    struct place place;
    make_place(*state, &place);
    refuse_plan_options(&place);
    refuse_train_options(&place);
    refuse_texts(&place);
    refuse_nothing_given(&place);
    EXPECT_OK(train(&place, place.run)); /* and what was refused left nothing behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(initialisers_leave_everything_not_given),
        CASE(train_has_the_bits_of_train_begin),
        CASE(a_stopped_run_is_resumed),
        CASE(a_trainer_steps_as_train_does),
        CASE(a_run_keeps_its_plan_where_told),
        CASE(a_trainer_is_stopped),
        CASE(a_writer_writes_as_generate_does),
        CASE(a_chat_leaves_no_trace_in_the_writer),
        CASE(open_objects_take_turns),
        CASE(a_session_tells_its_plan),
        CASE(sessions_follow_each_other),
        CASE(nothing_is_printed_and_no_signal_is_handled),
        CASE(numbers_are_written_as_in_c),
        CASE(other_processes_are_refused),
        CASE(a_process_alone_is_rank_0_of_1),
        CASE(bad_input_names_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
