#include "support/rank_job.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/launch.h"
#include "comm/mpi_library.h"
#include "support/unit.h"

/* Of a rank's arguments: program, RANK_WORD, nodes, windows or messages, words. */
#define RANK_WORD "a-rank-of-this-test"

static _Noreturn void be_rank(char **argument, rank_job_body *body) {
    const char *words[RANK_JOB_WORDS];
    struct comm *comm = NULL;
    for (int i = 0; i < RANK_JOB_WORDS; i++)
        words[i] = argument[2 + i];
    const struct comm_settings settings = {
        .nodes = atoi(argument[0]), .messages_only = strcmp(argument[1], "messages") == 0, .rank_timeout_s = 60};
    enum status status = launch_join();
    if (status == STATUS_OK) status = comm_open(&settings, &comm);
    if (status == STATUS_OK) status = body(comm, words);
    if (status == STATUS_OK) status = comm_close(comm);
    if (status != STATUS_OK && !comm_speaks(comm)) comm_abort(comm, (int)status);
    launch_report(status);
    if (status != STATUS_OK) comm_abort(comm, (int)status);
    exit(0);
}

const char *rank_job_mpi(void) {
    const char *given = getenv("BALLAST_TEST_MPI");
    return given ? given : "openmpi";
}

static void require_mpi(void) {
    char *plugin = mpi_library_path(rank_job_mpi()),
         *look = mem_format("command -v mpirun.%s >/dev/null", rank_job_mpi());
    bool there = plugin && look && system(look) == 0;
    mem_free(plugin);
    mem_free(look);
    if (!there)
        unit_skip_all("%s is not installed with its plugin; needs lib%s-dev and its mpirun", rank_job_mpi(),
                      rank_job_mpi());
}

void rank_job_enter(int count, char **argument, rank_job_body *body) {
    char program[] = BALLAST_PROGRAM;
    setenv("BALLAST_PLUGINS", dirname(program), 0);
    if (count == 4 + RANK_JOB_WORDS && strcmp(argument[1], RANK_WORD) == 0) be_rank(argument + 2, body);
    const char *sanitizer = getenv("ASAN_OPTIONS");
    char *options = mem_format("%s:detect_leaks=0", sanitizer ? sanitizer : ""); /* MPI's own are many */
    setenv("ASAN_OPTIONS", options ? options : "", 1);
    mem_free(options);
    require_mpi();
}

enum status rank_job_run(const struct rank_job *job) {
    char own[PATH_MAX], nodes[16];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(length > 0);
    own[length] = '\0';
    snprintf(nodes, sizeof nodes, "%d", job->nodes);
    const char *words[4 + RANK_JOB_WORDS + 1] = {own, RANK_WORD, nodes, job->messages ? "messages" : "windows"};
    for (int i = 0; i < RANK_JOB_WORDS; i++)
        words[4 + i] = job->words[i] ? job->words[i] : "";
    int64_t begin = clock_now_ns();
    enum status status =
        launch_ranks(&(struct launch_settings){job->ranks, rank_job_mpi(), (char *const *)(uintptr_t)words});
    print_message("%s, %d ranks on %d nodes, by %s: %.1f s\n", rank_job_mpi(), job->ranks, job->nodes, words[3],
                  (double)(clock_now_ns() - begin) * 1e-9);
    return status;
}
