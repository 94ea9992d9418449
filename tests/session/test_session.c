/* Sessions in one process: one after the other, and several plans of one. */
/* ctest: PROCESSORS 2 */
#include "session/engine.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/data.h"

struct outcome {
    double loss, grad_norm;
    uint64_t bits; /* of weights and state after two steps */
};

static struct outcome compute(const struct session_plan *plan, const struct dataset *dataset) {
    struct engine engine;
    struct step_numbers numbers = {0};
    struct outcome outcome;
    expect_status(engine_open(plan, &engine), STATUS_OK, NULL);
    expect_status(engine_load_weights(&engine), STATUS_OK, NULL);
    for (int64_t step = 0; step < 2; step++)
        expect_status(engine_step(&engine, dataset, step, 1e-2, &numbers), STATUS_OK, NULL);
    expect_status(engine_settle(&engine), STATUS_OK, NULL);
    expect_status(engine_hash(&engine, &outcome.bits), STATUS_OK, NULL);
    engine_close(&engine);
    outcome.loss = numbers.loss;
    outcome.grad_norm = numbers.grad_norm;
    return outcome;
}

static struct outcome train(const char *folder, const char *model, enum dtype dtype, int threads) {
    struct tiny_run run;
    struct session session;
    struct session_plan plan;
    struct train_data data;
    tiny_run_make(folder, model, &run);
    SETTINGS_GIVE(&run.plan, dtype, dtype);
    SETTINGS_GIVE(&run.plan, threads, threads);
    expect_status(session_begin(run.model, PROGRAMS_TO_TRAIN, &run.plan, &run.options, &session, &plan), STATUS_OK,
                  NULL);
    expect_status(train_data_open(session.comm, session.model, &plan.chosen.recipe, &run.options, true, &data),
                  STATUS_OK, NULL);
    struct outcome outcome = compute(&plan, data.dataset);
    train_data_close(&data);
    session_plan_free(&plan);
    session_close(&session);
    return outcome;
}

static void require_equal(const struct outcome *a, const struct outcome *b) {
    assert_memory_equal(&a->loss, &b->loss, sizeof a->loss);
    assert_memory_equal(&a->grad_norm, &b->grad_norm, sizeof a->grad_norm);
    assert_true(a->bits == b->bits);
}

/* Nothing of the one between them is left: neither its dtype nor its threads. */
static void one_after_the_other(void **state) {
    struct outcome first = train(*state, "llama", DTYPE_F32, 2);
    struct outcome other = train(*state, "gpt2", DTYPE_BF16, 1);
    struct outcome again = train(*state, "llama", DTYPE_F32, 2);
    assert_true(first.bits != other.bits);
    require_equal(&first, &again);
}

/* Plans of one session, made before any of them computes. */
static void several_plans(void **state) {
    struct tiny_run run;
    struct session session;
    struct session_plan plain, waves, writing;
    struct plan_request request;
    struct train_data data;
    tiny_run_make(*state, "llama", &run);
    expect_status(session_open(run.model, &run.plan, NULL, &session), STATUS_OK, NULL);
    expect_status(plan_request_make(&session, PROGRAMS_TO_TRAIN, &run.plan, &run.options, NULL, &request), STATUS_OK,
                  NULL);
    expect_status(session_plan_make(&session, &request, &plain), STATUS_OK, NULL);
    request.plan.policy.micro_batches_per_wave = 2;
    expect_status(session_plan_make(&session, &request, &waves), STATUS_OK, NULL);
    expect_status(plan_request_make(&session, PROGRAMS_TO_WRITE, &run.plan, NULL, NULL, &request), STATUS_OK, NULL);
    expect_status(session_plan_make(&session, &request, &writing), STATUS_OK, NULL);
    assert_null(writing.programs.of[PROGRAM_STEP]);
    assert_int_equal(programs_main_use(&writing.programs), PROGRAM_PREFILL);
    assert_true(programs_main(&waves.programs)->program->sections.count !=
                programs_main(&plain.programs)->program->sections.count);
    expect_status(train_data_open(session.comm, session.model, &plain.chosen.recipe, &run.options, true, &data),
                  STATUS_OK, NULL);
    struct outcome one = compute(&plain, data.dataset), two = compute(&waves, data.dataset);
    require_equal(&one, &two);
    train_data_close(&data);
    session_plan_free(&writing);
    session_plan_free(&waves);
    session_plan_free(&plain);
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(several_plans),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
