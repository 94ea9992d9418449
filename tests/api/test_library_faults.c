/* If an allocation, file operation or thread fails in a public call, the call returns a status with a message, never
 * crashes, and the next call works. */
/* ctest: PROCESSORS 2 */
#include <stdio.h>

#include "support/fault_sweep.h"
#include "support/library_place.h"
#include "support/temp_folder.h"
#include "support/unit.h"

struct swept {
    struct library_place place;
    struct ballast_evaluate_options evaluate;
    int runs;
};

static void make_swept(const char *folder, struct swept *out) {
    struct library_place *place = &out->place;
    library_place_make(folder, place);
    ballast_train_options_init(&place->train);
    ballast_evaluate_options_init(&out->evaluate);
    place->train.data_paths = place->data_paths, place->train.data_path_count = 1;
    place->train.steps = 2;
    out->evaluate.data_paths = place->data_paths, out->evaluate.data_path_count = 1, out->evaluate.batches = 1;
}

static int drop_piece(const char *bytes, size_t count, void *payload) {
    (void)bytes, (void)count, (void)payload;
    return 0;
}

static enum status plan_body(void *payload) {
    struct swept *swept = payload;
    struct ballast_session *session;
    const char *json;
    enum ballast_status status = ballast_session_open(swept->place.model, &swept->place.plan, NULL, &session);
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
    if (snprintf(run, sizeof run, "%s-%d", swept->place.run, swept->runs++) >= (int)sizeof run) return STATUS_FAILED;
    enum ballast_status status =
        ballast_trainer_open(swept->place.model, run, &swept->place.plan, &swept->place.train, NULL, &trainer);
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
    return (enum status)ballast_resume(swept->place.run, NULL, NULL, NULL);
}

static enum status evaluate_body(void *payload) {
    const struct swept *swept = payload;
    struct ballast_evaluation evaluation = BALLAST_EVALUATION_INIT;
    return (enum status)ballast_evaluate(swept->place.model, &swept->place.plan, &swept->evaluate, &evaluation, NULL,
                                         NULL);
}

static enum status text_body(void *payload) {
    const struct swept *swept = payload;
    struct ballast_generate_options options = BALLAST_GENERATE_OPTIONS_INIT;
    struct ballast_writer *writer;
    options.tokens = 3;
    enum ballast_status status =
        ballast_generate(swept->place.model, &swept->place.plan, &options, "the", drop_piece, NULL, NULL);
    if (status == BALLAST_OK) status = ballast_writer_open(swept->place.model, &swept->place.plan, &writer);
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
    status = ballast_evaluate(swept->place.model, &swept->place.plan, &swept->evaluate, &evaluation, NULL, NULL);
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

static void failed_allocations_and_files_are_reported(void **state) {
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SUBMIT};
    static enum status (*const bodies[])(void *) = {plan_body,     trainer_body, resume_body,
                                                    evaluate_body, text_body,    ranks_body};
    static struct swept swept;
    make_swept(*state, &swept);
    assert_int_equal(ballast_train(swept.place.model, swept.place.run, &swept.place.plan, &swept.place.train, NULL),
                     BALLAST_OK);
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
        cmocka_unit_test_setup_teardown(failed_allocations_and_files_are_reported, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
