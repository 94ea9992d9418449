/* The program on several ranks: who starts them, which rank prints, one message for any error, and no MPI in a
 * single process. BALLAST_TEST_MPI names the MPI. */
/* ctest: TIMEOUT 300 PROCESSORS 2 LABELS long */
/* ctest-again: mpich BALLAST_TEST_MPI=mpich */
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "support/mpi_job.h"
#include "support/temp_folder.h"
#include "support/unit.h"

static struct program_place place;
#define EVAL "eval", place.model, place.text, "--seq", "16", "--batch", "4", "--batches", "4", "--dtype", "fp32"
#define EVAL_ARGUMENTS "eval '%s' '%s' --seq 16 --batch 4 --batches 4 --dtype fp32"

static void expect(const struct program_run *run, int status, const char *out, const char *err) {
    if (run->status != status) fail_msg("status %d, expected %d: %s%s", run->status, status, run->out, run->err);
    if (out && !strstr(run->out, out)) fail_msg("stdout lacks '%s': %s%s", out, run->out, run->err);
    if (err && !strstr(run->err, err)) fail_msg("stderr lacks '%s': %s", err, run->err);
}

/* One error, of this text, in one rank's words. */
static void expect_error(struct program_run run, int status, const char *text) {
    expect(&run, status, NULL, text);
    if (count_lines_with(run.err, "ballast: error:") != 1) fail_msg("not one message: %s", run.err);
    program_run_free(&run);
}

static char *evaluate_alone(void) {
    struct program_run run = PROGRAM(place.folder, EVAL);
    expect(&run, 0, "perplexity", NULL);
    free(run.err);
    return run.out;
}

/* ---- One process ---- */

static void one_process_touches_no_mpi(void **state) {
    (void)state;
    struct program_run run =
        mpi_job_run(place.folder,
                    "LD_DEBUG=libs LD_DEBUG_OUTPUT='%s/libraries' SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 "
                    "$BALLAST train '%s' '%s' -o '%s' --ranks 1 --steps 2 --batch 2 --seq 16",
                    place.folder, place.model, place.text, place.run);
    expect(&run, 0, NULL, "done: 2 steps");
    program_run_free(&run);
    run = mpi_job_run(place.folder,
                      "cat '%s'/libraries.* | grep -c libgomp; cat '%s'/libraries.* | grep -cE "
                      "'libmpi|libmpich|open-rte|open-pal|pmix|ballast-mpi'",
                      place.folder, place.folder);
    if (atoi(run.out) < 1 || !strstr(run.out, "\n0\n")) fail_msg("libraries that were looked for: %s", run.out);
    program_run_free(&run);
}

/* ---- Several ---- */

static void ranks_answer_once(void **state) {
    (void)state;
    char *alone = evaluate_alone();
    struct program_run run = PROGRAM(place.folder, EVAL, "--ranks", "3");
    expect(&run, 0, NULL, NULL);
    assert_string_equal(run.out, alone);
    program_run_free(&run);
    run = mpi_job_run(place.folder, "$MPIRUN -n 4 $BALLAST " EVAL_ARGUMENTS " --nodes 2", place.model, place.text);
    expect(&run, 0, NULL, NULL);
    assert_string_equal(run.out, alone);
    program_run_free(&run);
    free(alone);
}

static void json_is_one_document(void **state) {
    (void)state;
    struct program_run run = PROGRAM(place.folder, EVAL, "--ranks", "2", "--json");
    expect(&run, 0, "\"version\": 1", NULL);
    assert_int_equal(count_lines_with(run.out, "\"version\""), 1);
    assert_int_equal(run.out[0], '{');
    program_run_free(&run);
}

static void other_commands_are_rank_0s(void **state) {
    (void)state;
    struct program_run run = mpi_job_run(place.folder, "$MPIRUN -n 3 $BALLAST inspect '%s'", place.model);
    expect(&run, 0, "llama", NULL);
    assert_int_equal(count_lines_with(run.out, "family"), 1);
    program_run_free(&run);
    run = mpi_job_run(place.folder,
                      "$MPIRUN -n 3 $BALLAST init '%s/new' --arch llama --hidden 8 --layers 1 --heads 1 --vocab 8 "
                      "--context 8 && $MPIRUN -n 3 $BALLAST version",
                      place.folder);
    expect(&run, 0, "ballast ", "a llama model");
    assert_int_equal(count_lines_with(run.err, "a llama model"), 1);
    assert_int_equal(count_lines_with(run.out, "ballast "), 1);
    program_run_free(&run);
    expect_error(mpi_job_run(place.folder, "$MPIRUN -n 3 $BALLAST inspect '%s/nothing'", place.folder), 2, "nothing");
}

/* ---- What is wrong is said once ---- */

static void errors_are_reported_once(void **state) {
    (void)state;
    char nothing[700];
    snprintf(nothing, sizeof nothing, "%s/nothing", place.folder);
    expect_error(PROGRAM(place.folder, "eval", nothing, place.text, "--ranks", "3"), 2, "no such directory");
    expect_error(mpi_job_run(place.folder, "$MPIRUN -n 3 $BALLAST eval '%s' '%s'", nothing, place.text), 2,
                 "no such directory");
    expect_error(
        mpi_job_run(place.folder, "$MPIRUN -n 3 $BALLAST eval '%s' '%s' --sequences 3", place.model, place.text), 2,
        "error: --sequences: unknown option");
    expect_error(mpi_job_run(place.folder, "$MPIRUN -n 3 $BALLAST evil"), 2, "no command 'evil'");
    expect_error(
        mpi_job_run(place.folder, "$MPIRUN -n 3 $BALLAST " EVAL_ARGUMENTS " --ranks 4", place.model, place.text), 2,
        "--ranks: is 4, and this process was started as one of 3");
    expect_error(PROGRAM(place.folder, EVAL, "--ranks", "3", "--nodes", "2"), 2,
                 "3 ranks are not the same number on each of 2 nodes");
    expect_error(PROGRAM(place.folder, "init", nothing, "--ranks", "2"), 2, "--ranks: not an option of `ballast init`");
}

static void ranks_that_differ_are_reported(void **state) {
    (void)state;
    char other[700];
    snprintf(other, sizeof other, "%s/other-build", place.folder);
    expect_error(mpi_job_run(place.folder,
                             "$MPIRUN -n 1 $BALLAST " EVAL_ARGUMENTS " : -n 1 $BALLAST " EVAL_ARGUMENTS
                             " --loss-on all",
                             place.model, place.text, place.model, place.text),
                 2, "ranks differ in --loss-on: rank 1 on ");
    expect_error(mpi_job_run(place.folder, "$MPIRUN -n 1 $BALLAST eval '%s' '%s' : -n 1 $BALLAST eval '%s' '%s'",
                             place.model, place.text, place.model, place.model),
                 2, "ranks differ in the model or data that they are given");
    expect_error(mpi_job_run(place.folder,
                             "$MPIRUN -n 1 $BALLAST " EVAL_ARGUMENTS " : -n 1 $BALLAST " EVAL_ARGUMENTS " --batches=x",
                             place.model, place.text, place.model, place.text),
                 2, "rank 1 on ");
    expect_error(mpi_job_run(place.folder,
                             "cp $BALLAST '%s' && echo >>'%s' && $MPIRUN -n 1 $BALLAST " EVAL_ARGUMENTS
                             " : -n 1 '%s' " EVAL_ARGUMENTS,
                             other, other, place.model, place.text, other, place.model, place.text),
                 2, "ranks differ in the program's file");
}

static void a_rank_that_never_begins_is_not_waited_for(void **state) {
    (void)state;
    expect_error(mpi_job_run(place.folder,
                             "$MPIRUN -n 1 $BALLAST " EVAL_ARGUMENTS " --rank-timeout 1 : -n 1 sleep 1000", place.model,
                             place.text),
                 1, "the ranks have not all begun");
    mpi_job_expect_none(place.folder);
}

static void a_missing_mpi_is_reported_with_its_package(void **state) {
    (void)state;
    struct program_run run = mpi_job_run(place.folder, "BALLAST_PLUGINS='%s' $BALLAST " EVAL_ARGUMENTS " --ranks 2",
                                         place.folder, place.model, place.text);
    expect(&run, 2, NULL, "apt-get install");
    expect_error(run, 2, "there is no MPI to start ranks with");
}

static int set_up(void **state) {
    (void)state;
    return program_place_make(&place, 20000);
}

static int tear_down(void **state) {
    (void)state;
    return program_place_drop(&place);
}

int main(void) {
    mpi_job_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_touches_no_mpi),
        cmocka_unit_test(ranks_answer_once),
        cmocka_unit_test(json_is_one_document),
        cmocka_unit_test(other_commands_are_rank_0s),
        cmocka_unit_test(errors_are_reported_once),
        cmocka_unit_test(ranks_that_differ_are_reported),
        cmocka_unit_test(a_rank_that_never_begins_is_not_waited_for),
        cmocka_unit_test(a_missing_mpi_is_reported_with_its_package),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
