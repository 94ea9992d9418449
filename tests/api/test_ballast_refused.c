/* Public calls of include/ballast.h refuse wrong arguments: the message names the field, and nothing is written. */
/* ctest: PROCESSORS 2 */
#include <fenv.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BALLAST_EXPERIMENTAL
#include "base/file.h"
#include "support/library_place.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)

/* One wrong setting in an otherwise good call, and the field that the message has to name. */
#define REFUSED_PLAN(message, ...)                                                                                     \
    do {                                                                                                               \
        struct library_place wrong = *place;                                                                           \
        struct ballast_plan_options *plan = &wrong.plan;                                                               \
        __VA_ARGS__;                                                                                                   \
        EXPECT_BAD(library_train(&wrong, wrong.run), message);                                                         \
        assert_false(file_exists(wrong.run));                                                                          \
    } while (0)
#define REFUSED_TRAIN(message, ...)                                                                                    \
    do {                                                                                                               \
        struct library_place wrong = *place;                                                                           \
        struct ballast_train_options *options = &wrong.train;                                                          \
        wrong.train.data_paths = place->data_paths;                                                                    \
        __VA_ARGS__;                                                                                                   \
        EXPECT_BAD(library_train(&wrong, wrong.run), message);                                                         \
        assert_false(file_exists(wrong.run));                                                                          \
    } while (0)

static void refuse_plan_options(const struct library_place *place) {
    static const char *const holes[] = {"embed*", NULL};
    REFUSED_PLAN("plan.version", plan->version = 0);
    REFUSED_PLAN("plan.version", plan->version = BALLAST_PLAN_OPTIONS_VERSION + 1);
    REFUSED_PLAN("plan.batch", plan->batch = 0);
    REFUSED_PLAN("plan.batch", plan->batch = INT64_MAX);
    REFUSED_PLAN("plan.sequence_length", plan->sequence_length = 0);
    REFUSED_PLAN("plan.sequence_length", plan->sequence_length = INT64_MAX);
    REFUSED_PLAN("plan.micro_batch_sequences", plan->micro_batch_sequences = 0);
    REFUSED_PLAN("plan.micro_batch_sequences", plan->micro_batch_sequences = INT64_MAX);
    REFUSED_PLAN("plan.micro_batches_per_wave", plan->micro_batches_per_wave = 0);
    REFUSED_PLAN("plan.micro_batches_per_wave", plan->micro_batches_per_wave = INT64_MAX);
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
    REFUSED_PLAN("plan.master_weights", plan->master_weights = "bf16");
    REFUSED_PLAN("plan.quantize_base", plan->quantize_base = "nf8");
    REFUSED_PLAN("plan.document_attention", plan->document_attention = "sometimes");
    REFUSED_PLAN("plan.packing", plan->packing = "rows-held");
    REFUSED_PLAN("device: 'abacus'", plan->device = "abacus");
    REFUSED_PLAN("lora", plan->lora = "none");
    REFUSED_PLAN("plan.lora: is empty", plan->lora = "");
    REFUSED_PLAN("plan.freeze: is NULL", plan->freeze_count = 1);
    REFUSED_PLAN("plan.freeze[1]", plan->freeze = holes; plan->freeze_count = 2);
    REFUSED_PLAN("plan.disk_bytes", plan->disk_bytes = 1 << 20);
    REFUSED_PLAN("plan.disk_bytes", plan->disk_bytes = 0);
    REFUSED_PLAN("plan.disk_folder", plan->disk_folder = "");
    REFUSED_PLAN("plan.lanes", plan->lanes = "2x");
    REFUSED_PLAN("partition: unknown partition 'zero4'", plan->partition = "zero4");
    REFUSED_PLAN("plan.pipeline_parallel", plan->pipeline_parallel = 0);
    REFUSED_PLAN("policy.pipeline_parallel: 2", plan->pipeline_parallel = 2);
    REFUSED_PLAN("plan.virtual_stages", plan->virtual_stages = 65);
    REFUSED_PLAN("plan.collectives", plan->collectives = "round");
    REFUSED_PLAN("plan.round_micro_batches", plan->round_micro_batches = INT64_MAX);
    REFUSED_PLAN("plan.device_memory_bytes", plan->device_memory_bytes = 0);
    REFUSED_PLAN("/nowhere", plan->plan_path = "/nowhere/plan.json");
    REFUSED_PLAN("/nowhere", plan->cluster_path = "/nowhere/cluster.json");
}

static void refuse_train_options(const struct library_place *place) {
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
    REFUSED_TRAIN("options.epochs", options->epochs = 2); /* during steps */
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

static void refuse_texts(const struct library_place *place) {
    struct ballast_text done = BALLAST_TEXT_INIT;
    struct library_text_kept piece = {.used = 0};
#define REFUSED_TEXT(message, ...)                                                                                     \
    do {                                                                                                               \
        struct ballast_generate_options options = BALLAST_GENERATE_OPTIONS_INIT;                                       \
        __VA_ARGS__;                                                                                                   \
        EXPECT_BAD(ballast_generate(place->model, &place->plan, &options, "the", library_keep_text, &piece, &done),    \
                   message);                                                                                           \
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

static void refuse_nothing_given(const struct library_place *place) {
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
    resume = (struct ballast_resume_options)BALLAST_RESUME_OPTIONS_INIT;
    resume.replan = "on";
    EXPECT_BAD(ballast_resume(place->run, NULL, &resume, NULL), "options.replan");
    resume = (struct ballast_resume_options)BALLAST_RESUME_OPTIONS_INIT;
    resume.learning_rate = 0;
    EXPECT_BAD(ballast_resume(place->run, NULL, &resume, NULL), "options.learning_rate");
    EXPECT_BAD(ballast_plan(NULL, NULL, NULL, &result), "model: is NULL");
    EXPECT_BAD(ballast_plan(place->model, NULL, NULL, NULL), "out: is NULL");
    result.version = 0;
    EXPECT_BAD(ballast_plan(place->model, NULL, NULL, &result), "out.version");
    EXPECT_BAD(ballast_evaluate(place->model, plan, NULL, &evaluation, NULL, NULL), "options: is NULL");
    EXPECT_BAD(ballast_evaluate(place->model, plan, &evaluate, &evaluation, NULL, NULL), "options.data_paths");
    EXPECT_BAD(ballast_evaluate(place->model, plan, &evaluate, NULL, NULL, NULL), "out: is NULL");
    EXPECT_BAD(ballast_generate(place->model, plan, NULL, NULL, library_keep_text, NULL, NULL), "prompt: is NULL");
    EXPECT_BAD(ballast_generate(place->model, plan, NULL, "the", NULL, NULL, NULL), "piece: is NULL");
    EXPECT_BAD(ballast_writer_open(place->model, plan, NULL), "out: is NULL");
    EXPECT_BAD(ballast_writer_write(NULL, NULL, "the", library_keep_text, NULL, NULL), "writer: is NULL");
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

static void other_processes_are_refused(void **state) {
    struct library_place place;
    struct ballast_plan_result result = BALLAST_PLAN_RESULT_INIT;
    enum ballast_status inside = BALLAST_OK;
    library_place_make(*state, &place);
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

static void a_process_alone_is_rank_0_of_1(void **state) {
    struct library_place place;
    struct ballast_ranks_options options = BALLAST_RANKS_OPTIONS_INIT;
    int rank = -1, ranks = -1;
    library_place_make(*state, &place);
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
    EXPECT_OK(library_train(&place, place.run));
    assert_int_equal(ballast_ranks_should_report(), 1);
    assert_int_equal(ballast_ranks_close(BALLAST_FAILED), BALLAST_FAILED); /* and ends nothing */
    EXPECT_OK(ballast_ranks_open(NULL, &rank, &ranks));
    EXPECT_OK(ballast_ranks_close(BALLAST_OK));
}

static void bad_input_names_the_field(void **state) {
    struct library_place place;
    library_place_make(*state, &place);
    refuse_plan_options(&place);
    refuse_train_options(&place);
    refuse_texts(&place);
    refuse_nothing_given(&place);
    EXPECT_OK(library_train(&place, place.run)); /* and what was refused left nothing behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(other_processes_are_refused),
        CASE(a_process_alone_is_rank_0_of_1),
        CASE(bad_input_names_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
