/* Runs on several ranks that are stopped by signals, or whose ranks die or hang, resume on other numbers of ranks
 * with the bits of one undisturbed process. BALLAST_TEST_MPI names the MPI. */
/* ctest: TIMEOUT 3000 PROCESSORS 2 LABELS long */
/* ctest-again: mpich BALLAST_TEST_MPI=mpich */
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/random.h"
#include "support/mpi_job.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static struct program_place place;

static int set_up(void **state) {
    (void)state;
    return program_place_make(&place, 20000);
}

static int tear_down(void **state) {
    (void)state;
    return program_place_drop(&place);
}

static int begin_case(void **state) {
    (void)state;
    return program_case_begin(&place);
}

static int end_case(void **state) {
    (void)state;
    return program_case_end(&place);
}
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_case, end_case)

/* Steps that do not depend on how many there will be. A rank that is silent is given up after five seconds. */
#define ENDLESS "1000000"
#define SETTINGS(every)                                                                                                \
    "--lanes", "4", "--batch", "8", "--micro-batch", "1", "--seq", "16", "--threads", "1", "--dtype", "fp32", "--lr",  \
        "1e-2", "--schedule-steps", "40", "--save-every", every, "--rank-timeout", "5"
#define TRAIN(run, steps) "train", place.model, place.text, "-o", run, "--continue", "--steps", steps, SETTINGS("4")

static size_t count_steps(void) {
    FILE *file = fopen(temp_path(place.run, "metrics.jsonl"), "r");
    size_t lines = 0;
    for (int c; file && (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    if (file) fclose(file);
    return lines;
}

static void wait_for_steps(pid_t process, size_t before, size_t more) {
    for (; count_steps() < before + more; usleep(5000))
        program_expect_running(place.folder, process);
}

/* Of the newest checkpoint; 0: none. */
static int newest_step(void) {
    char *folder = path_join(place.run, "checkpoints");
    struct names names = {0};
    int newest = 0;
    if (file_is_folder(folder)) assert_int_equal(folder_list(folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++) {
        int step = 0;
        if (sscanf(names.items[i], "step-%d", &step) == 1 && step > newest) newest = step;
    }
    names_free(&names);
    mem_free(folder);
    return newest;
}

/* `status` -1: mpirun's own, of which nothing is expected. */
static void expect_ended(struct program_run run, int status, const char *message) {
    if (status >= 0 && run.status != status) fail_msg("status %d, expected %d: %s", run.status, status, run.err);
    if (count_lines_with(run.err, message) != 1) fail_msg("'%s' is not said once: %s", message, run.err);
    program_run_free(&run);
    mpi_job_expect_none(place.run);
}

/* Three more steps on so many ranks, and then all is as in one process that was never stopped. */
static void expect_whole_bits(const char *ranks) {
    char steps[32], whole[700], weights[2][800];
    snprintf(steps, sizeof steps, "%d", newest_step() + 3);
    snprintf(whole, sizeof whole, "%s/whole", place.here);
    program_expect(place.folder, 0, NULL,
                   (const char *const[]){"resume", place.run, "--steps", steps, "--ranks", ranks, NULL});
    program_expect(place.folder, 0, NULL, (const char *const[]){"inspect", "--verify", place.run, NULL});
    program_expect(place.folder, 0, NULL, (const char *const[]){TRAIN(whole, steps), NULL});
    snprintf(weights[0], sizeof weights[0], "%s/model/model.safetensors", place.run);
    snprintf(weights[1], sizeof weights[1], "%s/model/model.safetensors", whole);
    if (!files_equal(weights[0], weights[1])) fail_msg("%s steps on %s ranks have other weights", steps, ranks);
    char *metrics = tiny_run_metrics(place.run), *expected = tiny_run_metrics(whole);
    assert_string_equal(metrics, expected);
    mem_free(metrics);
    mem_free(expected);
}

/* ---- Stops ---- */

/* `victim` -1: the parent. */
static void stop_by(int signal, int victim, int status) {
    const char *const arguments[] = {TRAIN(place.run, ENDLESS), "--ranks", "2", NULL};
    int ranks[MPI_JOB_RANKS];
    char message[64];
    size_t before = count_steps();
    pid_t parent = program_start(place.folder, arguments);
    wait_for_steps(parent, before, 3);
    mpi_job_await(place.folder, parent, place.run, 2, ranks);
    assert_int_equal(kill(victim < 0 ? parent : ranks[victim], signal), 0);
    struct program_run run = program_finish(place.folder, parent);
    snprintf(message, sizeof message, "stopped after step %d of ", newest_step());
    if ((size_t)newest_step() < before + 3) fail_msg("nothing was saved: %s", run.err);
    expect_ended(run, status, message);
}

static void a_stop_at_any_rank_stops_all_after_one_step(void **state) {
    (void)state;
    static const struct {
        int signal, victim, status;
    } stops[] = {{SIGINT, -1, 130}, {SIGTERM, 1, 143}, {SIGUSR1, 0, 143}, {SIGTERM, -1, 143}, {SIGHUP, -1, 129}};
    for (size_t i = 0, count = unit_sweep(3, sizeof stops / sizeof *stops); i < count; i++)
        stop_by(stops[i].signal, stops[i].victim, stops[i].status);
    expect_whole_bits("2");
}

/* What mpirun passes on as it is. */
static void a_users_own_mpirun_passes_stops_on(void **state) {
    (void)state;
    static const int by_openmpi[] = {SIGUSR1, SIGUSR2, 0}, by_mpich[] = {SIGUSR1, SIGTERM, SIGINT, 0};
    const int *signals = mpi_job_is("openmpi") ? by_openmpi : by_mpich;
    for (int i = 0; signals[i] && i < (int)unit_sweep(2, 3); i++) {
        char message[64];
        size_t before = count_steps();
        pid_t mpirun = mpi_job_start(place.folder,
                                     "exec $MPIRUN -n 2 $BALLAST train '%s' '%s' -o '%s' --continue --steps " ENDLESS
                                     " --lanes 4 --batch 8 --micro-batch 1 --seq 16 --threads 1 --dtype fp32 --lr 1e-2 "
                                     "--schedule-steps 40 --save-every 4 --rank-timeout 5",
                                     place.model, place.text, place.run);
        wait_for_steps(mpirun, before, 3);
        assert_int_equal(kill(mpirun, signals[i]), 0);
        struct program_run run = program_finish(place.folder, mpirun);
        snprintf(message, sizeof message, "ballast: stopped after step %d of ", newest_step());
        expect_ended(run, -1, message);
    }
    expect_whole_bits("4");
}

static void await_message(pid_t process, const char *message) {
    for (bool there = false; !there; usleep(5000)) {
        char *text;
        size_t bytes;
        program_expect_running(place.folder, process);
        assert_int_equal(file_read(temp_path(place.folder, ".stderr"), 1 << 20, &text, &bytes), STATUS_OK);
        there = strstr(text, message) != NULL;
        mem_free(text);
    }
}

/* A rank that is stopped keeps the step from its end. */
static void a_second_signal_ends_at_once(void **state) {
    (void)state;
    const char *const arguments[] = {
        "train", place.model, place.text, "-o",      place.run, "--steps", ENDLESS, "--batch",        "8",  "--lanes",
        "2",     "--seq",     "16",       "--ranks", "2",       "--dtype", "fp32",  "--rank-timeout", "60", NULL};
    int ranks[MPI_JOB_RANKS];
    pid_t parent = program_start(place.folder, arguments);
    wait_for_steps(parent, 0, 1);
    mpi_job_await(place.folder, parent, place.run, 2, ranks);
    assert_int_equal(kill(ranks[1], SIGSTOP), 0);
    assert_int_equal(kill(parent, SIGINT), 0);
    await_message(parent, "finishing step");
    usleep(150000); /* within a tenth of a second both are one request */
    assert_int_equal(kill(parent, SIGINT), 0);
    struct program_run run = program_finish(place.folder, parent);
    expect_ended(run, 4, "quit by a second signal: all steps are lost");
}

static void signals_ignored_at_the_start_stop_nothing(void **state) {
    (void)state;
    char command[3072];
    snprintf(command, sizeof command,
             "trap '' HUP; exec '" BALLAST_PROGRAM "' train '%s' '%s' -o '%s' --steps " ENDLESS
             " --lanes 4 --batch 8 --micro-batch 1 --seq 16 --threads 1 --save-every 4 --ranks 2",
             place.model, place.text, place.run);
    pid_t parent = program_start_shell(place.folder, command); /* as nohup starts it */
    wait_for_steps(parent, 0, 3);
    assert_int_equal(kill(parent, SIGHUP), 0);
    wait_for_steps(parent, count_steps(), 6);
    assert_int_equal(kill(parent, SIGTERM), 0);
    expect_ended(program_finish(place.folder, parent), 143, "stopped after step ");
}

/* Once MPI is open: UCX would take SIGHUP. */
static void a_hangup_before_training_begins_stops(void **state) {
    (void)state;
    const char *const arguments[] = {TRAIN(place.run, ENDLESS), "--ranks", "2", NULL};
    pid_t parent = program_start(place.folder, arguments);
    await_message(parent, "a document ends with ");
    assert_int_equal(kill(parent, SIGHUP), 0);
    expect_ended(program_finish(place.folder, parent), 129, "stopped ");
}

/* An mpirun of this MPI's name that does what `script` says and then hangs, whatever SIGTERM asks; it names its process
 * in the file `started`. The program finds it first. "$REAL" is the MPI's own. */
static pid_t start_stuck_mpirun(const char *script, char mpirun[1400], const char *const *arguments) {
    char path[4096], *before = mem_string(getenv("PATH"));
    const char *name = mpi_job_is("openmpi") ? "mpirun.openmpi" : "mpirun.mpich";
    snprintf(mpirun, 1400, "%s/%s", place.here, name);
    FILE *file = fopen(mpirun, "w");
    assert_non_null(file);
    fprintf(file,
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'Open MPI, HYDRA' && exit\n"
            "trap '' TERM\nREAL=$(PATH='%s' command -v %s)\n%s\necho $$ >'%s/started'\nwhile :; do sleep 0.1; done\n",
            before, name, script, place.here);
    assert_int_equal(fchmod(fileno(file), 0700), 0);
    assert_int_equal(fclose(file), 0);
    snprintf(path, sizeof path, "%s:%s", place.here, before);
    setenv("PATH", path, 1);
    setenv("BALLAST_MPI", mpi_job_name(), 1);
    pid_t parent = program_start(place.folder, arguments);
    setenv("PATH", before, 1);
    unsetenv("BALLAST_MPI");
    mem_free(before);
    return parent;
}

static void a_signal_ends_an_mpirun_that_hangs_before_its_ranks_begin(void **state) {
    (void)state;
    const char *const arguments[] = {TRAIN(place.run, ENDLESS), "--ranks", "2", NULL};
    char mpirun[1400];
    pid_t parent = start_stuck_mpirun("", mpirun, arguments);
    for (; !file_exists(temp_path(place.here, "started")); usleep(5000))
        program_expect_running(place.folder, parent);
    assert_int_equal(kill(parent, SIGHUP), 0);
    expect_ended(program_finish(place.folder, parent), 129, "stopped by signal 1 before training began");
    mpi_job_expect_none(mpirun);
}

static void an_mpirun_that_hangs_after_its_ranks_is_ended(void **state) {
    (void)state;
    const char *const arguments[] = {TRAIN(place.run, "2"), "--ranks", "2", NULL};
    char mpirun[1400];
    pid_t parent = start_stuck_mpirun("\"$REAL\" \"$@\"", mpirun, arguments);
    expect_ended(program_finish(place.folder, parent), 1, "did not end after its ranks, so it was killed");
    assert_true(file_exists(temp_path(place.here, "started"))); /* it had come to hang */
    assert_int_equal(newest_step(), 2);
    mpi_job_expect_none(mpirun);
    expect_whole_bits("2");
}

/* The only process that the parent started. */
static pid_t child_of(pid_t parent) {
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &child), 1);
    fclose(file);
    return child;
}

static size_t count_places(const char *folder, pid_t parent) {
    char prefix[64];
    struct names names = {0};
    size_t count = 0;
    snprintf(prefix, sizeof prefix, "ballast-%d-", (int)parent);
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        count += strncmp(names.items[i], prefix, strlen(prefix)) == 0;
    names_free(&names);
    return count;
}

static void a_killed_mpirun_leaves_nothing_behind(void **state) {
    (void)state;
    const char *const arguments[] = {TRAIN(place.run, ENDLESS), "--ranks", "2", NULL};
    setenv("TMPDIR", place.here, 1);
    pid_t parent = program_start(place.folder, arguments);
    unsetenv("TMPDIR");
    for (; newest_step() == 0; usleep(5000))
        program_expect_running(place.folder, parent);
    if (mpi_job_is("openmpi")) {
        assert_int_equal(count_places(place.here, parent), 1);
        assert_int_equal(count_places("/dev/shm", parent), 1);
    }
    assert_int_equal(kill(child_of(parent), SIGKILL), 0);
    struct program_run run = program_finish(place.folder, parent);
    if (run.status != 1) fail_msg("status %d: %s", run.status, run.err);
    if (!strstr(run.err, "was killed by signal 9")) fail_msg("mpirun is not named: %s", run.err);
    if (!strstr(run.err, "the last good checkpoint is ")) fail_msg("no checkpoint is named: %s", run.err);
    program_run_free(&run);
    mpi_job_expect_none(place.run);
    assert_int_equal(count_places(place.here, parent), 0);
    assert_int_equal(count_places("/dev/shm", parent), 0);
    expect_whole_bits("1");
}

/* ---- Ranks that die or hang ---- */

static void lose_rank(uint64_t i, int seed, int signal) {
    uint32_t bits[4];
    random_block((uint64_t)seed, RANDOM_TEST, (uint32_t)signal, i, bits);
    int count = 2 << bits[0] % 2, victim = (int)(bits[1] % (uint32_t)count), ranks[MPI_JOB_RANKS];
    const char *const arguments[] = {TRAIN(place.run, ENDLESS), "--ranks", count == 2 ? "2" : "4", NULL};
    char message[64];
    size_t before = count_steps();
    print_message("signal %d: rank %d of %d\n", signal, victim, count);
    pid_t parent = program_start(place.folder, arguments);
    wait_for_steps(parent, before, 1 + bits[2] % 12);
    mpi_job_await(place.folder, parent, place.run, count, ranks);
    assert_int_equal(kill(ranks[victim], signal), 0);
    struct program_run run = program_finish(place.folder, parent);
    snprintf(message, sizeof message, "error: rank %d on ", victim);
    if (!strstr(run.err, "the last good checkpoint is ") && !strstr(run.err, "no checkpoint was written yet"))
        fail_msg("no checkpoint is named: %s", run.err);
    expect_ended(run, 1, message);
}

static void lose_ranks(int signal, uint64_t times) {
    enum { SEED = 1607 };
    print_message("seed %d\n", SEED);
    for (uint64_t i = 0; i < times; i++)
        lose_rank(i, SEED, signal);
    expect_whole_bits("1");
}

static void ranks_that_die_cost_no_more_than_steps(void **state) {
    (void)state;
    lose_ranks(SIGKILL, unit_sweep(2, 100));
}

static void ranks_that_hang_cost_no_more_than_steps(void **state) {
    (void)state;
    lose_ranks(SIGSTOP, unit_sweep(1, 20));
}

static void the_parents_death_leaves_no_rank(void **state) {
    (void)state;
    const char *const arguments[] = {TRAIN(place.run, ENDLESS), "--ranks", "2", NULL};
    pid_t parent = program_start(place.folder, arguments);
    wait_for_steps(parent, 0, 6);
    assert_int_equal(kill(parent, SIGKILL), 0);
    struct program_run run = program_finish(place.folder, parent);
    program_run_free(&run);
    mpi_job_expect_none(place.run);
    expect_whole_bits("2");
}

/* As on a full disk: of the second rank's files none may be longer than 4 KiB. */
static void a_rank_without_disk_ends_all_and_is_named(void **state) {
    (void)state;
    char settings[2560];
    snprintf(
        settings, sizeof settings,
        "train '%s' '%s' -o '%s' --steps 8 --lanes 4 --batch 8 --micro-batch 1 --seq 16 --threads 1 --save-every 4 "
        "--rank-timeout 5",
        place.model, place.text, place.run);
    struct program_run run = mpi_job_run(
        place.folder, "UCX_TLS=tcp,self $MPIRUN -n 1 $BALLAST %s : -n 1 sh -c \"ulimit -f 8; exec $BALLAST %s\"",
        settings, settings);
    if (!strstr(run.err, "File too large")) fail_msg("the cause is not said: %s", run.err);
    expect_ended(run, 1, "ballast: error: rank 1 on ");
    assert_int_equal(newest_step(), 0);
}

/* ---- The directory ---- */

/* All ranks save elsewhere, in a part each, and the run goes on from there. They stand still while it happens, so that
 * none finds half of it, and no checkpoint is due: one that is just begun would make the directory again. */
static void displace(bool removed) {
    const char *const arguments[] = {"train",   place.model, place.text,          "-o",      place.run, "--continue",
                                     "--steps", ENDLESS,     SETTINGS("1000000"), "--ranks", "2",       "--partition",
                                     "zero3",   NULL};
    char found[700];
    int ranks[MPI_JOB_RANKS];
    snprintf(found, sizeof found, "%s.%s", place.run, removed ? "rescued" : "moved");
    size_t before = count_steps();
    pid_t parent = program_start(place.folder, arguments);
    wait_for_steps(parent, before, 5);
    mpi_job_await(place.folder, parent, place.run, 2, ranks);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(kill(ranks[rank], SIGSTOP), 0);
    assert_int_equal(removed ? (int)folder_remove(place.run) : rename(place.run, found), 0);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(kill(ranks[rank], SIGCONT), 0);
    expect_ended(program_finish(place.folder, parent), 1, removed ? "was removed while" : "was renamed while");
    assert_false(file_exists(place.run));
    assert_int_equal(rename(found, place.run), 0);
}

static void ranks_whose_folder_goes_save_where_it_is(void **state) {
    (void)state;
    displace(true);
    displace(false);
    expect_whole_bits("1");
}

/* ---- What differs ---- */

static void ranks_with_other_data_are_reported(void **state) {
    (void)state;
    struct program_run run = mpi_job_run(
        place.folder,
        "cd '%s' && mkdir a b && cp ../text.txt a && sed 's/a/e/' ../text.txt >b/text.txt && $MPIRUN -n 1 -wdir "
        "'%s/a' $BALLAST "
        "train '%s' text.txt -o '%s' --steps 4 --batch 4 --seq 16 : -n 1 -wdir '%s/b' $BALLAST train '%s' text.txt -o "
        "'%s' --steps 4 --batch 4 --seq 16",
        place.here, place.here, place.model, place.run, place.here, place.model, place.run);
    expect_ended(run, 2, "ranks differ in the data file ");
}

/* One path, seen from two directories, is two: nothing is left in either. */
static void ranks_with_two_run_folders_leave_neither(void **state) {
    (void)state;
    char apart[2][700];
    for (int rank = 0; rank < 2; rank++) {
        snprintf(apart[rank], sizeof apart[rank], "%s/apart-%d", place.here, rank);
        assert_int_equal(folder_create(apart[rank]), STATUS_OK);
    }
    struct program_run run =
        mpi_job_run(place.folder,
                    "$MPIRUN -n 2 sh -c 'cd %s/apart-${OMPI_COMM_WORLD_RANK:-$PMI_RANK} && exec \"$0\" train %s %s "
                    "-o run --steps 1 --batch 4 --seq 16' \"$BALLAST\"",
                    place.here, place.model, place.text);
    if (run.status == 0 || !strstr(run.err, "does not see there what host")) fail_msg("%d: %s", run.status, run.err);
    program_run_free(&run);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(temp_count(apart[rank]), 0);
}

static void ranks_with_another_command_are_refused(void **state) {
    (void)state;
    struct program_run run =
        mpi_job_run(place.folder,
                    "$MPIRUN -n 1 $BALLAST train '%s' '%s' -o '%s' --steps 4 : -n 1 $BALLAST eval '%s' '%s' --batch 4",
                    place.model, place.text, place.run, place.model, place.text);
    expect_ended(run, 2, "ballast: error: ranks differ in the command");
}

static void ranks_with_another_model_are_reported(void **state) {
    (void)state;
    struct program_run run = mpi_job_run(
        place.folder,
        "cd '%s' && mkdir a b && cp -r ../model a/m && $BALLAST init b/m --arch llama --hidden 24 --layers 2 --heads 3 "
        "--kv-heads 1 --ffn 40 --vocab 300 --context 32 --tokenizer-data ../text.txt --seed 2 && $MPIRUN -n 1 -wdir "
        "'%s/a' "
        "$BALLAST train m '%s' -o '%s' --steps 4 --batch 4 --seq 16 : -n 1 -wdir '%s/b' $BALLAST train m '%s' -o '%s' "
        "--steps 4 --batch 4 --seq 16",
        place.here, place.here, place.text, place.run, place.here, place.text, place.run);
    expect_ended(run, 2, "ballast: error: ranks differ in ");
}

/* ---- The terminal ---- */

static void the_terminal_is_rank_0s(void **state) {
    (void)state;
    char *arguments[] = {(char *)(uintptr_t)BALLAST_PROGRAM,
                         "train",
                         place.model,
                         place.text,
                         "-o",
                         place.run,
                         "--ranks",
                         "2",
                         "--steps",
                         "30",
                         "--batch",
                         "4",
                         "--seq",
                         "16",
                         NULL};
    struct winsize size = {.ws_row = 24, .ws_col = 100};
    static char drawn[1 << 20];
    size_t used = 0;
    int terminal, status;
    setenv("TERM", "xterm", 1);
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    if (child == 0) {
        execv(arguments[0], arguments);
        _exit(99);
    }
    for (ssize_t got; (got = read(terminal, drawn + used, sizeof drawn - 1 - used)) > 0;)
        used += (size_t)got;
    close(terminal);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) fail_msg("status %d: %s", status, drawn);
    assert_non_null(strstr(drawn, "\x1b[K")); /* a live line */
    assert_int_equal(count_lines_with(drawn, "done: 30 steps"), 1);
}

int main(void) {
    mpi_job_require();
    const struct CMUnitTest tests[] = {
        CASE(a_stop_at_any_rank_stops_all_after_one_step),
        CASE(a_users_own_mpirun_passes_stops_on),
        CASE(a_second_signal_ends_at_once),
        CASE(signals_ignored_at_the_start_stop_nothing),
        CASE(a_hangup_before_training_begins_stops),
        CASE(a_signal_ends_an_mpirun_that_hangs_before_its_ranks_begin),
        CASE(an_mpirun_that_hangs_after_its_ranks_is_ended),
        CASE(a_killed_mpirun_leaves_nothing_behind),
        CASE(ranks_that_die_cost_no_more_than_steps),
        CASE(ranks_that_hang_cost_no_more_than_steps),
        CASE(the_parents_death_leaves_no_rank),
        CASE(a_rank_without_disk_ends_all_and_is_named),
        CASE(ranks_whose_folder_goes_save_where_it_is),
        CASE(ranks_with_other_data_are_reported),
        CASE(ranks_with_two_run_folders_leave_neither),
        CASE(ranks_with_another_command_are_refused),
        CASE(ranks_with_another_model_are_reported),
        CASE(the_terminal_is_rank_0s),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
