/* Failed allocations, file operations and threads in each public call: a status with a message, never a crash, and the
 * next call works. */
/* ctest: PROCESSORS 2 */
#include <stdio.h>

#include "ballast.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/unit.h"

static const char text[] = "the river ran by the old mill and the river ran on to the sea, to the sea by the mill";

struct swept {
    char model[512], data[512], run[512];
    const char *data_paths[1];
    struct ballast_plan_options plan;
    struct ballast_train_options train;
    struct ballast_evaluate_options evaluate;
    int runs;
};

static void make_swept(const char *folder, struct swept *out) {
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
    ballast_evaluate_options_init(&out->evaluate);
    out->plan.batch = 3, out->plan.grain_sequences = 2, out->plan.sequence_length = 16;
    out->plan.threads = 2, out->plan.device_memory_bytes = 256 << 20;
    out->train.data_paths = out->data_paths, out->train.data_path_count = 1;
    out->train.steps = 2;
    out->evaluate.data_paths = out->data_paths, out->evaluate.data_path_count = 1, out->evaluate.batches = 1;
}

static int drop_piece(const char *bytes, size_t count, void *payload) {
    (void)bytes, (void)count, (void)payload;
    return 0;
}

static enum status plan_body(void *payload) {
    struct swept *swept = payload;
    struct ballast_session *session;
    const char *json;
    enum ballast_status status = ballast_session_open(swept->model, &swept->plan, NULL, &session);
    if (status != BALLAST_OK) return (enum status)status;
    status = ballast_session_plan_json(session, &json);
    ballast_session_close(session);
    return (enum status)status;
}

static enum status trainer_body(void *payload) {
    struct swept *swept = payload;
    struct ballast_trainer *trainer;
    const struct ballast_step *step = NULL;
    char run[700];
    if (snprintf(run, sizeof run, "%s-%d", swept->run, swept->runs++) >= (int)sizeof run) return STATUS_FAILED;
    enum ballast_status status = ballast_trainer_open(swept->model, run, &swept->plan, &swept->train, NULL, &trainer);
    if (status != BALLAST_OK) return (enum status)status;
    do
        status = ballast_trainer_step(trainer, &step);
    while (status == BALLAST_OK && step);
    /* Closing goes on to free, and keeps the error of a step that failed. */
    char message[300];
    snprintf(message, sizeof message, "%s", ballast_error_message());
    enum ballast_status closed = ballast_trainer_close(trainer);
    if (status != BALLAST_OK) (void)status_set((enum status)status, "%s", message);
    return (enum status)(status != BALLAST_OK ? status : closed);
}

static enum status resume_body(void *payload) {
    const struct swept *swept = payload;
    return (enum status)ballast_resume(swept->run, NULL, NULL, NULL);
}

static enum status evaluate_body(void *payload) {
    const struct swept *swept = payload;
    struct ballast_evaluation evaluation = BALLAST_EVALUATION_INIT;
    return (enum status)ballast_evaluate(swept->model, &swept->plan, &swept->evaluate, &evaluation, NULL, NULL);
}

static enum status text_body(void *payload) {
    const struct swept *swept = payload;
    struct ballast_generate_options options = BALLAST_GENERATE_OPTIONS_INIT;
    struct ballast_writer *writer;
    options.tokens = 3;
    enum ballast_status status = ballast_generate(swept->model, &swept->plan, &options, "the", drop_piece, NULL, NULL);
    if (status == BALLAST_OK) status = ballast_writer_open(swept->model, &swept->plan, &writer);
    if (status != BALLAST_OK) return (enum status)status;
    status = ballast_writer_write(writer, &options, "the", drop_piece, NULL, NULL);
    ballast_writer_close(writer);
    return (enum status)status;
}

static enum status ranks_body(void *payload) {
    const struct swept *swept = payload;
    struct ballast_evaluation evaluation = BALLAST_EVALUATION_INIT;
    int rank, ranks;
    enum ballast_status status = ballast_ranks_open(NULL, &rank, &ranks);
    if (status != BALLAST_OK) return (enum status)status;
    status = ballast_evaluate(swept->model, &swept->plan, &swept->evaluate, &evaluation, NULL, NULL);
    char message[300];
    snprintf(message, sizeof message, "%s", ballast_error_message());
    enum ballast_status closed = ballast_ranks_close(status);
    if (status != BALLAST_OK) (void)status_set((enum status)status, "%s", message);
    return (enum status)closed;
}

/* No call stays under way, and the process is as before. */
static void after_fault(void *payload, enum status status) {
    (void)payload, (void)status;
    assert_int_equal(ballast_session_require_fit(NULL), BALLAST_BAD_INPUT);
    assert_string_equal(ballast_error_message(), "session: is NULL");
}

static void failed_allocations_and_files_are_told(void **state) {
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SUBMIT};
    static enum status (*const bodies[])(void *) = {plan_body,     trainer_body, resume_body,
                                                    evaluate_body, text_body,    ranks_body};
    static struct swept swept;
    make_swept(*state, &swept);
    assert_int_equal(ballast_train(swept.model, swept.run, &swept.plan, &swept.train, NULL), BALLAST_OK);
    int reported = 0;
    for (size_t b = 0; b < sizeof bodies / sizeof *bodies; b++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const struct fault_subject subject = {bodies[b], after_fault, &swept};
            uint64_t usual = kinds[k] == FAULT_ALLOCATE ? 12 : 2;
            reported += fault_sweep_bearable(kinds[k], false, unit_sweep(usual, 1000), &subject).reported;
        }
    assert_true(reported > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(failed_allocations_and_files_are_told, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
