/* Ranks under MPI: one job for each number of ranks, started by launch_ranks. BALLAST_TEST_MPI names the MPI. The
 * test starts itself as the ranks: test_ranks rank MODE MARK VICTIM NODES windows|messages. */
/* ctest: TIMEOUT 300 LABELS long */
/* ctest-again: mpich BALLAST_TEST_MPI=mpich */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/terminal.h"
#include "comm/comm.h"
#include "comm/launch.h"
#include "support/comm_check.h"
#include "support/mpi_job.h"
#include "support/temp_folder.h"
#include "support/unit.h"

/* ---- A rank ---- */

struct rank_arguments {
    const char *mode;
    int victim, nodes;
    bool messages_only;
};

static int64_t resident_bytes(void) {
    long pages = 0, all;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static enum status check_all(struct comm *comm) {
    int ranks = mesh_ranks(&comm->mesh);
    for (uint64_t seed = 1; seed <= (ranks > 4 ? 10 : 25); seed++)
        TRY(comm_check_random(comm, seed * 77, 2));
    TRY(comm_check_together(comm, 5, 12));
    TRY(comm_check_partitions(comm, 7, ranks > 4 ? 1 : 2));
    return comm_check_lanes(comm, 3);
}

/* What a step does: a gather and a reduction of some MiB each, and one of a few bytes. */
struct steps {
    struct comm *comm;
    struct comm_shared_segment shared_segment;
    void *staging[3];
    struct comm_operation *operation[3];
};

static enum status make_steps(struct comm *comm, bool in_place, struct steps *out) {
    static const enum comm_kind kinds[] = {COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE};
    static const int64_t bytes[] = {1 << 20, 1 << 20, 64};
    *out = (struct steps){.comm = comm};
    TRY(comm_shared_segment_open(comm, 4 << 20, &out->shared_segment));
    memset(out->shared_segment.base, 0, 4 << 20);
    for (int i = 0; i < 3; i++) {
        struct comm_spec spec = {.kind = kinds[i],
                                 .group = comm_group_all(comm),
                                 .bytes = bytes[i],
                                 .data = (char *)out->shared_segment.base + (i << 20),
                                 .in_place = in_place && out->shared_segment.shared};
        int64_t staging;
        TRY(comm_staging_bytes(comm, &spec, &staging));
        spec.staging = out->staging[i] = mem_aligned(64, (size_t)(staging + 64) / 64 * 64);
        TRY(comm_create(comm, &spec, &out->operation[i]));
    }
    return STATUS_OK;
}

static enum status step(struct steps *steps) {
    for (int i = 0; i < 3; i++)
        comm_start(steps->operation[i]);
    for (int i = 0; i < 3; i++)
        TRY(comm_wait(steps->operation[i]));
    return STATUS_OK;
}

static void end_steps(struct steps *steps) {
    for (int i = 0; i < 3; i++) {
        comm_free(steps->operation[i]);
        mem_free(steps->staging[i]);
    }
    comm_shared_segment_close(steps->comm, &steps->shared_segment);
}

static enum status check_growth(struct comm *comm, bool in_place) {
    struct steps steps;
    int64_t after_third = 0, allocations = 0;
    TRY(make_steps(comm, in_place, &steps));
    for (int i = 0; i < 1003; i++) {
        TRY(step(&steps));
        if (i != 2) continue;
        after_third = resident_bytes();
        allocations = fault_count(FAULT_ALLOCATE);
    }
    int64_t grown = resident_bytes() - after_third;
    allocations = fault_count(FAULT_ALLOCATE) - allocations;
    end_steps(&steps);
    if (comm->rank == 0)
        printf("%s, %d ranks, %s: grown by %lld bytes in 1000 steps, %lld allocations\n", comm->library,
               mesh_ranks(&comm->mesh), in_place ? "in place" : "messages", (long long)grown, (long long)allocations);
    if (allocations > 0) return status_set(STATUS_FAILED, "%lld allocations in steps", (long long)allocations);
    if (grown > 1 << 20) return status_set(STATUS_FAILED, "grown by %lld bytes in 1000 steps", (long long)grown);
    return STATUS_OK;
}

static void compute_for(double seconds) {
    int64_t until = clock_now_ns() + (int64_t)(seconds * 1e9);
    while (clock_now_ns() < until)
        continue;
}

/* A step with an instruction that never ends. */
static _Noreturn void spin(struct comm *comm) {
    step_watch_begin(&comm->watch, 0);
    compute_for(1000);
    abort();
}

/* Steps without end, in which the victim comes to its. */
static enum status suffer(struct comm *comm, const struct rank_arguments *arguments) {
    struct steps steps;
    int at = getenv("AT_STEP") ? atoi(getenv("AT_STEP")) : 20;
    TRY(make_steps(comm, !arguments->messages_only, &steps));
    for (int i = 0;; i++) {
        TRY(step(&steps));
        if (i != at || comm->rank != arguments->victim) continue;
        if (strcmp(arguments->mode, "kill") == 0) raise(SIGKILL);
        if (strcmp(arguments->mode, "stop") == 0) raise(SIGSTOP);
        if (strcmp(arguments->mode, "sleep") == 0) sleep(1000);
        if (strcmp(arguments->mode, "spin") == 0) spin(comm);
        if (strcmp(arguments->mode, "fault") == 0) fault_arm(FAULT_COMM, 1, false);
        if (strcmp(arguments->mode, "fail") == 0)
            return status_hint(status_set(STATUS_FAILED, "no space on the disk of rank %d", comm->rank), "free some");
    }
}

/* A step whose instructions end in time, then one that may take as long. */
static void compute_watched(struct comm *comm, double seconds) {
    enum { INSTRUCTIONS = 20 };
    step_watch_begin(&comm->watch, 0);
    for (int i = 0; i < INSTRUCTIONS; i++) {
        compute_for(seconds / 2 / INSTRUCTIONS);
        step_watch_note(&comm->watch);
    }
    step_watch_begin(&comm->watch, seconds);
    compute_for(seconds / 2);
    step_watch_end(&comm->watch);
}

/* The victim computes for longer than the timeout, in a step and before a collective: the others wait. */
static enum status be_slow(struct comm *comm, const struct rank_arguments *arguments) {
    double timeout_s = atof(getenv("TIMEOUT_S"));
    struct steps steps;
    TRY(make_steps(comm, !arguments->messages_only, &steps));
    TRY(step(&steps));
    if (comm->rank == arguments->victim) compute_watched(comm, 2.4 * timeout_s);
    TRY(step(&steps));
    if (comm->rank == arguments->victim) compute_for(1.2 * timeout_s);
    TRY(comm_agree(comm, STATUS_OK));
    end_steps(&steps);
    return STATUS_OK;
}

/* The victim does nothing before a collective. */
static enum status keep_waiting(struct comm *comm, const struct rank_arguments *arguments) {
    if (comm->rank == arguments->victim) sleep(1000);
    return comm_agree(comm, STATUS_OK);
}

/* The victim has no memory left: it agrees all the same, and says so where it needs some. */
static enum status be_without_memory(struct comm *comm, const struct rank_arguments *arguments) {
    int value = 7;
    if (comm->rank == arguments->victim) fault_arm(FAULT_ALLOCATE, 1, true);
    enum status status = comm_agree(comm, STATUS_OK);
    if (status == STATUS_OK && strcmp(arguments->mode, "memory for one") == 0)
        status = comm_check_same(comm, "the value", &value, sizeof value);
    if (status == STATUS_OK && strcmp(arguments->mode, "memory for a text") == 0) {
        char mine[] = "a text of rank 0", *text = comm->rank == 0 ? mine : NULL;
        status = comm_share_text(comm, &text);
    }
    fault_arm(FAULT_ALLOCATE, 0, false);
    return status;
}

/* One directory, that of this job. */
static enum status check_directory(void) {
    struct names names = {0};
    TRY(folder_list(getenv("TMPDIR"), &names));
    bool own = names.count == 1 && strncmp(names.items[0], "ballast-", 8) == 0;
    enum status status = own ? STATUS_OK : status_set(STATUS_FAILED, "%zu directories", names.count);
    names_free(&names);
    return status;
}

static enum status rank_body(struct comm *comm, const struct rank_arguments *arguments) {
    if (strcmp(arguments->mode, "check") == 0) return check_all(comm);
    if (strcmp(arguments->mode, "grow") == 0) return check_growth(comm, !arguments->messages_only);
    if (strcmp(arguments->mode, "differ") == 0) {
        int value = comm->rank == arguments->victim;
        return comm_check_same(comm, "the value", &value, sizeof value);
    }
    if (strcmp(arguments->mode, "agree") == 0) {
        enum status mine = STATUS_OK;
        if (comm->rank >= arguments->victim) mine = status_set(STATUS_BAD_INPUT, "no file here");
        return comm_agree(comm, mine);
    }
    if (strncmp(arguments->mode, "memory", 6) == 0) return be_without_memory(comm, arguments);
    if (strcmp(arguments->mode, "slow") == 0) return be_slow(comm, arguments);
    if (strcmp(arguments->mode, "keep waiting") == 0) return keep_waiting(comm, arguments);
    if (strcmp(arguments->mode, "directory") == 0) return check_directory();
    return suffer(comm, arguments);
}

static int rank_main(int count, char **argument) {
    struct rank_arguments arguments = {argument[0], count > 2 ? atoi(argument[2]) : 0,
                                       count > 3 ? atoi(argument[3]) : 0,
                                       count > 4 && strcmp(argument[4], "messages") == 0};
    struct comm *comm = NULL;
    enum status status = launch_join();
    if (status == STATUS_OK)
        status =
            comm_open(&(struct comm_settings){.nodes = arguments.nodes,
                                              .messages_only = arguments.messages_only,
                                              .rank_timeout_s = getenv("TIMEOUT_S") ? atof(getenv("TIMEOUT_S")) : 20},
                      &comm);
    if (status == STATUS_OK) status = rank_body(comm, &arguments);
    if (status == STATUS_OK) status = comm_close(comm);
    if (status == STATUS_OK) {
        launch_report(STATUS_OK);
        return 0;
    }
    if (comm_speaks(comm)) launch_report(status);
    if (comm_speaks(comm) && !launch_joined()) fprintf(stderr, "rank: %s\n", status_message());
    comm_abort(comm, (int)status);
}

/* ---- The tests ---- */

static char own_path[PATH_MAX];

struct job {
    const char *mode;
    int ranks, victim, nodes;
    bool messages_only;
    char mark[40];
};

static enum status run_job(struct job *job) {
    static int number;
    snprintf(job->mark, sizeof job->mark, "mark-%d-%d", (int)getpid(), number++);
    char victim[16], nodes[16];
    snprintf(victim, sizeof victim, "%d", job->victim);
    snprintf(nodes, sizeof nodes, "%d", job->nodes);
    char *arguments[] = {
        own_path, "rank", (char *)job->mode, job->mark, victim, nodes, job->messages_only ? "messages" : "windows",
        NULL};
    int64_t begin = clock_now_ns();
    enum status status = launch_ranks(&(struct launch_settings){job->ranks, mpi_job_name(), arguments});
    print_message("%s, %d ranks on %d nodes, %s%s: %.1f s%s%s\n", mpi_job_name(), job->ranks, job->nodes, job->mode,
                  job->messages_only ? " by messages" : "", (double)(clock_now_ns() - begin) * 1e-9,
                  status == STATUS_OK ? "" : ": ", status == STATUS_OK ? "" : status_message());
    mpi_job_expect_none(job->mark);
    return status;
}

static void expect_ok(struct job job) {
    if (run_job(&job) != STATUS_OK) fail_msg("%s, %d ranks: %s", mpi_job_name(), job.ranks, status_message());
}

static void expect_failure(struct job job, enum status status, const char *message) {
    assert_int_equal(run_job(&job), status);
    if (!strstr(status_message(), message)) fail_msg("'%s' is not in '%s'", message, status_message());
}

/* The engine is the same whichever MPI carries its messages: make test shows all of it on one of them. */
static bool is_sampled(void) { return !mpi_job_is("openmpi") && !unit_sweep(0, 1); }

static void operations_equal_one_rank(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= (is_sampled() ? 4 : 8); ranks *= 2) {
        expect_ok((struct job){"check", ranks, 0, ranks > 2 ? 2 : 1, false, ""});
        if (ranks == 4) expect_ok((struct job){"check", ranks, 0, 0, true, ""});
    }
}

static void nothing_grows(void **state) {
    (void)state;
    expect_ok((struct job){"grow", 2, 0, 0, true, ""});
    expect_ok((struct job){"grow", 4, 0, 2, false, ""});
}

/* A rank that is only slow is under load from other programs, and must not be taken for one that hangs. */
#define TIMEOUT_S "3"

static void failures_are_named(void **state) {
    (void)state;
    expect_failure((struct job){"kill", 3, 1, 0, false, ""}, STATUS_FAILED, "rank 1 on ");
    expect_failure((struct job){"kill", 4, 0, 2, true, ""}, STATUS_FAILED, "rank 0 on ");
    expect_failure((struct job){"fail", 3, 2, 0, false, ""}, STATUS_FAILED, "no space on the disk of rank 2");
    assert_string_equal(status_hint_text(), "free some");
    expect_failure((struct job){"fault", 2, 1, 0, false, ""}, STATUS_FAILED, "was refused");
    setenv("TIMEOUT_S", TIMEOUT_S, 1);
    expect_failure((struct job){"stop", 4, 2, 2, false, ""}, STATUS_FAILED, "rank 2 on ");
    if (!is_sampled()) {
        expect_failure((struct job){"stop", 2, 0, 0, true, ""}, STATUS_FAILED, "rank 0 on ");
        expect_failure((struct job){"sleep", 3, 1, 0, true, ""}, STATUS_FAILED, "rank 1 on ");
        expect_failure((struct job){"spin", 3, 1, 0, false, ""}, STATUS_FAILED, "rank 1 on ");
    }
    unsetenv("TIMEOUT_S");
}

static void slow_ranks_are_waited_for_and_idle_ones_are_named(void **state) {
    (void)state;
    setenv("TIMEOUT_S", TIMEOUT_S, 1);
    if (!is_sampled()) expect_ok((struct job){"slow", 3, 1, 0, false, ""});
    expect_failure((struct job){"keep waiting", 3, 1, 0, false, ""}, STATUS_FAILED, "rank 1 on ");
    unsetenv("TIMEOUT_S");
}

static void disagreement_is_one_message(void **state) {
    (void)state;
    expect_failure((struct job){"differ", 4, 3, 0, false, ""}, STATUS_BAD_INPUT, "ranks differ in the value: rank 3");
    expect_failure((struct job){"agree", 4, 2, 0, false, ""}, STATUS_BAD_INPUT, "no file here");
    if (!strstr(status_message(), "rank 2")) fail_msg("'%s' names another than rank 2", status_message());
    expect_failure((struct job){"check", 4, 0, 3, false, ""}, STATUS_BAD_INPUT, "4 ranks are not the same number");
}

static void a_rank_without_memory_reports_it(void **state) {
    (void)state;
    expect_ok((struct job){"memory", 3, 1, 0, false, ""});
    expect_failure((struct job){"memory for one", 3, 1, 0, false, ""}, STATUS_FAILED, "rank 1 on ");
    expect_failure((struct job){"memory for a text", 2, 0, 0, false, ""}, STATUS_FAILED, "rank 0 on ");
}

/* A parent that is stopped by a signal, or killed: its ranks end with it. */
static void ranks_end_with_their_parent(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGKILL};
    for (int i = 0; i < 2; i++) {
        struct job job = {"endless", 2, -1, 0, false, ""};
        int wait_status;
        snprintf(job.mark, sizeof job.mark, "mark-%d-%d", (int)getpid(), 1000 + i);
        char *arguments[] = {own_path, "rank", (char *)job.mode, job.mark, "-1", "0", "windows", NULL};
        pid_t parent = fork();
        if (parent == 0) _exit((int)launch_ranks(&(struct launch_settings){job.ranks, mpi_job_name(), arguments}));
        while (mpi_job_count(job.mark) < job.ranks + 1) /* mpirun and the ranks */
            usleep(10000);
        usleep(300000); /* in their steps, or on the way there: either must end */
        assert_true(mpi_job_count(job.mark) >= job.ranks);
        kill(parent, signals[i]);
        waitpid(parent, &wait_status, 0);
        if (signals[i] == SIGTERM) assert_int_equal(WEXITSTATUS(wait_status), STATUS_FAILED); /* ranks died of it */
        mpi_job_expect_none(job.mark);
    }
}

/* ---- mpirun itself ---- */

static char heard[8192];
static void hear(bool warning, const char *text) {
    size_t length = strlen(heard);
    (void)warning;
    snprintf(heard + length, sizeof heard - length, "%s\n", text);
}

static void an_mpirun_that_fails_is_quoted(void **state) {
    (void)state;
    struct job job = {"check", 2, 0, 0, false, ""};
    if (!mpi_job_is("openmpi")) return; /* only of this one the test knows how to make it fail */
    setenv("OMPI_MCA_orte_top_session_dir", "/dev/null/no-directory", 1);
    log_listen(hear);
    enum status status = run_job(&job);
    log_listen(NULL);
    unsetenv("OMPI_MCA_orte_top_session_dir");
    assert_int_equal(status, STATUS_FAILED);
    if (!strstr(status_message(), "mpirun.openmpi ended with status 1")) fail_msg("%s", status_message());
    if (!strstr(heard, "Directory: /dev/null") || !strstr(heard, "Not a directory")) fail_msg("%s", heard);
}

/* Jobs that begin and end at once must not remove each other's directory. */
static void each_job_has_a_directory_of_its_own(void **state) {
    char *before = mem_string(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (mpi_job_is("openmpi")) {
        setenv("TMPDIR", *state, 1);
        expect_ok((struct job){"directory", 2, 0, 0, false, ""});
        setenv("TMPDIR", before, 1);
    }
    assert_int_equal(temp_count(*state), 0);
    mem_free(before);
}

/* Without a parent of ours: mpirun's own banner and status, and our message from one rank. */
static void a_users_own_mpirun_ends_too(void **state) {
    (void)state;
    char command[PATH_MAX + 300], line[1000];
    struct job job = {.mode = "stop"};
    int reports = 0;
    snprintf(job.mark, sizeof job.mark, "mark-%d-own", (int)getpid());
    snprintf(command, sizeof command, "TIMEOUT_S=" TIMEOUT_S " $MPIRUN -n 4 '%s' rank stop %s 1 2 windows 2>&1",
             own_path, job.mark);
    FILE *output = popen(command, "r");
    while (output && fgets(line, sizeof line, output)) {
        print_message("%s", line);
        reports += strncmp(line, "rank: rank 1 on ", 16) == 0;
    }
    assert_int_not_equal(pclose(output), 0);
    assert_int_equal(reports, 1);
    mpi_job_expect_none(job.mark);
}

/* Whenever and whichever: the first that died is named, and nothing is left. */
static void any_rank_may_die(void **state) {
    (void)state;
    enum { SEED = 16 };
    uint64_t kills = unit_sweep(3, 100), stops = unit_sweep(0, 20); /* failures_are_named stops two */
    print_message("seed %d\n", SEED);
    for (uint64_t i = 0; i < kills + stops; i++) {
        uint32_t bits[4];
        char message[40], at[20];
        random_block(SEED, RANDOM_TEST, 0, i, bits);
        int ranks = 2 + (int)(bits[0] % 3), victim = (int)(bits[1] % (uint32_t)ranks);
        snprintf(message, sizeof message, "rank %d on ", victim);
        snprintf(at, sizeof at, "%u", bits[2] % 300);
        setenv("AT_STEP", at, 1);
        if (i >= kills) setenv("TIMEOUT_S", TIMEOUT_S, 1);
        expect_failure((struct job){i < kills ? "kill" : "stop", ranks, victim, 0, bits[3] & 1, ""}, STATUS_FAILED,
                       message);
    }
    unsetenv("AT_STEP");
    unsetenv("TIMEOUT_S");
}

int main(int count, char **argument) {
    if (count > 2 && strcmp(argument[1], "rank") == 0) return rank_main(count - 2, argument + 2);
    ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    if (length <= 0) return 1;
    mpi_job_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_equal_one_rank),
        cmocka_unit_test(nothing_grows),
        cmocka_unit_test(failures_are_named),
        cmocka_unit_test(any_rank_may_die),
        cmocka_unit_test(slow_ranks_are_waited_for_and_idle_ones_are_named),
        cmocka_unit_test(disagreement_is_one_message),
        cmocka_unit_test(a_rank_without_memory_reports_it),
        cmocka_unit_test(an_mpirun_that_fails_is_quoted),
        cmocka_unit_test_setup_teardown(each_job_has_a_directory_of_its_own, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(ranks_end_with_their_parent),
        cmocka_unit_test(a_users_own_mpirun_ends_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
