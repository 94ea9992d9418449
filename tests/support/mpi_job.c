#include "support/mpi_job.h"

#include <ctype.h>
#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/mem.h"
#include "comm/launch.h"
#include "comm/mpi_comm.h"
#include "support/unit.h"

const char *mpi_job_name(void) {
    const char *name = getenv("BALLAST_TEST_MPI");
    return name ? name : "openmpi";
}

bool mpi_job_is(const char *name) { return strcmp(mpi_job_name(), name) == 0; }

static char own_cache[PATH_MAX];
static pid_t cache_owner;

static void drop_own_cache(void) {
    if (getpid() == cache_owner) (void)folder_remove(own_cache);
}

/* What ranks measure of each other is kept from one of this program's jobs to the next, and not in the user's
 * directory.
 */
static void keep_own_cache(void) {
    const char *parent = getenv("TMPDIR");
    snprintf(own_cache, sizeof own_cache, "%s/ballast-test-XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(own_cache)) unit_skip_all("%s cannot be made", own_cache);
    cache_owner = getpid();
    setenv("XDG_CACHE_HOME", own_cache, 1);
    atexit(drop_own_cache);
}

/* MPI libraries leak, and would end each rank with a report. */
static void let_mpi_leak(void) {
    const char *given = getenv("ASAN_OPTIONS");
    char *options = mem_format("%s:detect_leaks=0", given ? given : "");
    setenv("ASAN_OPTIONS", options ? options : "", 1);
    mem_free(options);
}

/* Jobs of other test programs do not share Open MPI's directory, which each job removes (src/comm/launch.c). */
static void set_mpirun(void) {
    char mpirun[PATH_MAX + 128] = "mpirun.mpich -bind-to none";
    if (mpi_job_is("openmpi"))
        snprintf(mpirun, sizeof mpirun,
                 "mpirun.openmpi --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 "
                 "--mca orte_top_session_dir %s/mpi",
                 own_cache);
    setenv("MPIRUN", mpirun, 1);
}

void mpi_job_require(void) {
    char program[] = BALLAST_PROGRAM, command[64];
    const char *name = mpi_job_name();
    setenv("BALLAST_PLUGINS", dirname(program), 0);
    char *plugin = mpi_library_path(name);
    snprintf(command, sizeof command, "command -v mpirun.%s >/dev/null", name);
    if (!plugin || system(command) != 0)
        unit_skip_all("%s is not installed with its plugin; needs lib%s-dev and its mpirun", name, name);
    mem_free(plugin);
    keep_own_cache();
    set_mpirun();
    setenv("BALLAST", BALLAST_PROGRAM, 1);
    setenv("BALLAST_MPI", name, 1); /* for --ranks; a user's own mpirun is found out */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    let_mpi_leak();
}

static pid_t start(const char *folder, const char *format, va_list arguments) {
    char command[8192] = "unset BALLAST_MPI; ";
    size_t begun = strlen(command);
    int length = vsnprintf(command + begun, sizeof command - begun, format, arguments);
    assert_true(length > 0 && (size_t)length < sizeof command - begun);
    return program_start_shell(folder, command);
}

pid_t mpi_job_start(const char *folder, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pid_t process = start(folder, format, arguments);
    va_end(arguments);
    return process;
}

struct program_run mpi_job_run(const char *folder, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pid_t process = start(folder, format, arguments);
    va_end(arguments);
    return program_finish(folder, process);
}

int count_lines_with(const char *text, const char *part) {
    int count = 0;
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        count += memmem(line, length, part, strlen(part)) != NULL;
        line += length + (line[length] == '\n');
    }
    return count;
}

/* ---- Processes ---- */

static size_t read_process(const char *process, const char *file, char *out, size_t max) {
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/%s", process, file);
    FILE *stream = fopen(path, "r");
    size_t bytes = stream ? fread(out, 1, max - 1, stream) : 0;
    if (stream) fclose(stream);
    out[bytes] = '\0';
    return bytes;
}

static bool has_mark(const char *process, const char *mark) {
    char line[8192];
    size_t bytes = read_process(process, "cmdline", line, sizeof line);
    return bytes > 0 && memmem(line, bytes, mark, strlen(mark));
}

static bool is_program(const char *process) {
    char path[300], program[PATH_MAX] = "", own[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%s/exe", process);
    return readlink(path, program, sizeof program - 1) > 0 && realpath(BALLAST_PROGRAM, own) &&
           strcmp(own, program) == 0;
}

/* By what the launcher left in its environment; -1: it is no rank. */
static int rank_of(const char *process) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK="};
    static char all[1 << 18];
    size_t bytes = read_process(process, "environ", all, sizeof all);
    for (size_t at = 0; at < bytes; at += strlen(all + at) + 1)
        for (int i = 0; i < 3; i++)
            if (strncmp(all + at, variables[i], strlen(variables[i])) == 0)
                return atoi(all + at + strlen(variables[i]));
    return -1;
}

static int find(const char *mark, bool ranks_only, int ranks[MPI_JOB_RANKS]) {
    int count = 0;
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !has_mark(entry->d_name, mark)) continue;
        int rank = is_program(entry->d_name) ? rank_of(entry->d_name) : -1;
        bool counts = !ranks_only || (rank >= 0 && rank < MPI_JOB_RANKS);
        if (counts && rank >= 0 && rank < MPI_JOB_RANKS) ranks[rank] = atoi(entry->d_name);
        count += counts;
    }
    if (folder) closedir(folder);
    return count;
}

int mpi_job_find(const char *mark, int ranks[MPI_JOB_RANKS]) {
    memset(ranks, 0, MPI_JOB_RANKS * sizeof *ranks);
    return find(mark, true, ranks);
}

void mpi_job_await(const char *folder, pid_t process, const char *mark, int count, int ranks[MPI_JOB_RANKS]) {
    for (; mpi_job_find(mark, ranks) != count; usleep(10000))
        program_expect_running(folder, process);
}

int mpi_job_count(const char *mark) {
    int ranks[MPI_JOB_RANKS];
    return find(mark, false, ranks);
}

void mpi_job_expect_none(const char *mark) {
    int left = 1;
    for (int i = 0; i < 6000 && (left = mpi_job_count(mark)) > 0; i++)
        usleep(10000);
    if (left > 0) fail_msg("%d processes of '%s' are left", left, mark);
}

/* ---- Jobs of the test program ---- */

/* Of a rank's arguments: program, RANK_ARGUMENT, nodes, windows or messages, those of the job. */
#define RANK_ARGUMENT "a-rank-of-this-test"

static _Noreturn void be_rank(char **argument, rank_job_body *body) {
    const char *arguments[RANK_JOB_ARGUMENTS];
    struct comm *comm = NULL;
    for (int i = 0; i < RANK_JOB_ARGUMENTS; i++)
        arguments[i] = argument[2 + i];
    const char *timeout = getenv("RANK_JOB_TIMEOUT_S");
    const struct comm_settings settings = {.nodes = atoi(argument[0]),
                                           .messages_only = strcmp(argument[1], "messages") == 0,
                                           .rank_timeout_s = timeout ? atof(timeout) : 60};
    enum status status = launch_join();
    if (status == STATUS_OK) status = comm_open(&settings, &comm);
    if (status == STATUS_OK) status = body(comm, arguments);
    if (status == STATUS_OK) status = comm_close(comm);
    if (status != STATUS_OK && !comm_speaks(comm)) comm_abort(comm, (int)status);
    launch_report(status);
    if (status != STATUS_OK) comm_abort(comm, (int)status);
    exit(0);
}

void rank_job_enter(int count, char **argument, rank_job_body *body) {
    if (count == 4 + RANK_JOB_ARGUMENTS && strcmp(argument[1], RANK_ARGUMENT) == 0) be_rank(argument + 2, body);
    mpi_job_require();
}

enum status rank_job_run(const struct rank_job *job) {
    char own[PATH_MAX], nodes[16];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(length > 0);
    own[length] = '\0';
    snprintf(nodes, sizeof nodes, "%d", job->nodes);
    const char *arguments[4 + RANK_JOB_ARGUMENTS + 1] = {own, RANK_ARGUMENT, nodes,
                                                         job->messages ? "messages" : "windows"};
    for (int i = 0; i < RANK_JOB_ARGUMENTS; i++)
        arguments[4 + i] = job->arguments[i] ? job->arguments[i] : "";
    int64_t begin = clock_now_ns();
    enum status status =
        launch_ranks(&(struct launch_settings){job->ranks, mpi_job_name(), (char *const *)(uintptr_t)arguments});
    print_message("%s, %d ranks on %d nodes, by %s: %.1f s\n", mpi_job_name(), job->ranks, job->nodes, arguments[3],
                  (double)(clock_now_ns() - begin) * 1e-9);
    return status;
}
