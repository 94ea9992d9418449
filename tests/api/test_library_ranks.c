/* Public calls in a program that mpirun starts on two ranks give the bits of `ballast train` on one rank. A failure
 * ends all ranks with one message. The test starts itself as the ranks: test_library_ranks rank MODEL DATA RUN. */
/* ctest: TIMEOUT 120 PROCESSORS 2 LABELS long */
/* ctest-again: mpich BALLAST_TEST_MPI=mpich */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ballast.h"
#include "support/mpi_job.h"
#include "support/tiny_run.h"
#include "support/unit.h"

/* ---- A rank ---- */

static int rank, ranks;

/* One rank asks for a stop: all stop after that step. */
static int on_step(const struct ballast_step *step, void *payload) {
    const int *stopping = payload;
    if (rank == 0) printf("step %lld\n", (long long)step->step);
    return *stopping && rank == 1 && step->step == 3;
}

/* Model, text, run and number of stages. */
static enum ballast_status train(char *const *argument) {
    struct ballast_plan_options plan = BALLAST_PLAN_OPTIONS_INIT;
    struct ballast_train_options options = BALLAST_TRAIN_OPTIONS_INIT;
    struct ballast_train_events events = BALLAST_TRAIN_EVENTS_INIT;
    int stopping = 1;
    const char *data = argument[1];
    plan.batch = 8, plan.sequence_length = 16, plan.micro_batch_sequences = 1, plan.threads = 1, plan.dtype = "fp32";
    plan.lanes = "4", plan.round_micro_batches = 1;
    plan.pipeline_parallel = atoi(argument[3]), plan.virtual_stages = 1;
    options.data_paths = &data, options.data_path_count = 1;
    options.steps = 6, options.learning_rate = 1e-2;
    events.step = on_step, events.payload = &stopping;
    enum ballast_status status = ballast_train(argument[0], argument[2], &plan, &options, &events);
    if (status != BALLAST_STOPPED) return status;
    stopping = 0;
    return ballast_resume(argument[2], NULL, NULL, &events);
}

static int rank_main(char *const *argument) {
    enum ballast_status status = ballast_ranks_open(NULL, &rank, &ranks);
    if (status == BALLAST_OK) status = train(argument);
    if (status != BALLAST_OK && ballast_ranks_should_report()) fprintf(stderr, "told: %s\n", ballast_error_message());
    return (int)ballast_ranks_close(status);
}

/* ---- The tests ---- */

static struct program_place place;
static char own_path[PATH_MAX];

static void run_ranks(const char *run, int stages) {
    struct program_run done = mpi_job_run(place.folder, "$MPIRUN -n 2 '%s' rank '%s' '%s' '%s' %d", own_path,
                                          place.model, place.text, run, stages);
    if (done.status != 0) fail_msg("status %d: %s", done.status, done.err);
    assert_string_equal(done.out, "step 1\nstep 2\nstep 3\nstep 4\nstep 5\nstep 6\n");
    program_run_free(&done);
    mpi_job_expect_none(run);
}

/* Each with a batch of its own, and as the stages of a pipeline. */
static void ranks_of_the_library_have_the_programs_bits(void **state) {
    (void)state;
    char run[700], staged[700], weights[3][800];
    snprintf(run, sizeof run, "%s/by-program", place.folder);
    snprintf(staged, sizeof staged, "%s/staged", place.folder);
    run_ranks(place.run, 1);
    run_ranks(staged, 2);
    program_expect(place.folder, 0, NULL,
                   (const char *const[]){"train", place.model,     place.text, "-o",        run,    "--lanes",
                                         "4",     "--round",       "1",        "--batch",   "8",    "--seq",
                                         "16",    "--micro-batch", "1",        "--threads", "1",    "--dtype",
                                         "fp32",  "--steps",       "6",        "--lr",      "1e-2", NULL});
    const char *const folders[] = {place.run, staged, run};
    for (int i = 0; i < 3; i++)
        snprintf(weights[i], sizeof weights[i], "%s/model/model.safetensors", folders[i]);
    assert_true(files_equal(weights[0], weights[2]));
    assert_true(files_equal(weights[1], weights[2]));
}

static void a_failure_ends_all_with_one_message(void **state) {
    (void)state;
    struct program_run done = mpi_job_run(place.folder, "$MPIRUN -n 2 '%s' rank '%s/nothing' '%s' '%s/none' 1",
                                          own_path, place.folder, place.text, place.folder);
    assert_int_not_equal(done.status, 0);
    if (count_lines_with(done.err, "told: ") != 1 || !strstr(done.err, "nothing: no such directory"))
        fail_msg("not one message: %s", done.err);
    program_run_free(&done);
    mpi_job_expect_none("/nothing");
}

static int set_up(void **state) {
    (void)state;
    return program_place_make(&place, 20000);
}

static int tear_down(void **state) {
    (void)state;
    return program_place_drop(&place);
}

int main(int count, char **arguments) {
    if (count == 6 && strcmp(arguments[1], "rank") == 0) return rank_main(arguments + 2);
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) <= 0) return 1;
    mpi_job_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_the_library_have_the_programs_bits),
        cmocka_unit_test(a_failure_ends_all_with_one_message),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
