#include "comm/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "comm/launch_places.h"
#include "comm/launch_report.h"
#include "comm/mpi_library.h"

extern char **environ;

/* How each MPI starts ranks on this machine alone, more than it has cores, wherever they like; a batch system's nodes
 * are not asked for. Jobs of Open MPI 4 share one session directory, which each job removes at its end while another
 * one may be making it (open-mpi/ompi#8510), and leave their shared memory in /dev/shm when they are killed:
 * `place_variables` give each job directories of its own (launch_places.h). MPICH's have no names for long. */
static const struct starter {
    const char *mpi, *programs[3], *version_text, *package;
    const char *arguments[16];
    const char *environment[4], *place_variables[LAUNCH_PLACES];
} starters[] = {
    {"openmpi",
     {"mpirun.openmpi", "mpirun"},
     "Open",
     "openmpi-bin",
     {"--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated", "--mca", "ras", "^slurm", "--mca",
      "mpi_yield_when_idle", "1", "-n"},
     {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"},
     {[LAUNCH_SESSION] = "OMPI_MCA_orte_top_session_dir", [LAUNCH_SHARED] = "OMPI_MCA_btl_vader_backing_directory"}},
    {"mpich",
     {"mpirun.mpich", "mpirun"},
     "HYDRA",
     "mpich",
     {"-launcher", "fork", "-bind-to", "none", "-n"},
     {NULL},
     {NULL}},
};
enum { STARTERS = sizeof starters / sizeof *starters, ARGUMENTS_MAX = 32 };

/* ---- Which mpirun ---- */

static char *find_in_path(const char *program) {
    const char *folder = getenv("PATH");
    while (folder && *folder) {
        const char *end = strchrnul(folder, ':');
        char *path = mem_format("%.*s/%s", (int)(end - folder), folder, program);
        if (!path || access(path, X_OK) == 0) return path;
        mem_free(path);
        folder = *end ? end + 1 : end;
    }
    return NULL;
}

static bool mentions(const char *path, const char *text) {
    char *command = mem_format("'%s' --version 2>&1", path), line[512];
    FILE *stream = command ? popen(command, "re") : NULL;
    bool found = false;
    while (stream && fgets(line, sizeof line, stream))
        found = found || strstr(line, text);
    if (stream) pclose(stream);
    mem_free(command);
    return found;
}

static char *find_mpirun(const struct starter *starter) {
    for (int i = 0; i < 3 && starter->programs[i]; i++) {
        char *path = find_in_path(starter->programs[i]);
        if (path && mentions(path, starter->version_text)) return path;
        mem_free(path);
    }
    return NULL;
}

static enum status find_starter(const char *wanted, const struct starter **out, char **mpirun) {
    bool known = false;
    for (int i = 0; i < STARTERS; i++) {
        if (wanted && strcmp(wanted, starters[i].mpi) != 0) continue;
        known = true;
        char *plugin = mpi_library_path(starters[i].mpi);
        *mpirun = plugin ? find_mpirun(&starters[i]) : NULL;
        mem_free(plugin);
        if (*mpirun) {
            *out = &starters[i];
            return STATUS_OK;
        }
    }
    if (!known) return status_set(STATUS_BAD_INPUT, "'%s' is no MPI that starts ranks", wanted);
    return status_hint(status_set(STATUS_BAD_INPUT, "there is no MPI to start ranks with%s%s", wanted ? ": " : "",
                                  wanted ? wanted : ""),
                       "on Debian: apt-get install %s",
                       wanted && strcmp(wanted, "mpich") == 0 ? "mpich" : "openmpi-bin");
}

/* ---- Starting it ---- */

struct command {
    struct scratch scratch;
    char **arguments, **environment;
};

static enum status give_places(const struct starter *starter, const struct launch_places *places,
                               struct command *command, size_t *variables) {
    for (int i = 0; i < LAUNCH_PLACES; i++) {
        if (!starter->place_variables[i] || !places->path[i]) continue;
        char *variable = scratch_format(&command->scratch, "%s=%s", starter->place_variables[i], places->path[i]);
        if (!variable) return STATUS_FAILED;
        command->environment[(*variables)++] = variable;
    }
    return STATUS_OK;
}

static enum status make_command(const struct launch_settings *settings, const struct starter *starter, char *mpirun,
                                const char *name, const struct launch_places *places, struct command *out) {
    size_t count = 0, variables = 0, at = 0;
    while (settings->arguments[count])
        count++;
    while (environ[variables])
        variables++;
    out->arguments = scratch_alloc(&out->scratch, count + ARGUMENTS_MAX, sizeof *out->arguments);
    out->environment = scratch_alloc(&out->scratch, variables + ARGUMENTS_MAX, sizeof *out->environment);
    char *ranks = scratch_format(&out->scratch, "%d", settings->ranks);
    char *socket = scratch_format(&out->scratch, LAUNCH_VARIABLE "=%s", name);
    if (!out->arguments || !out->environment || !ranks || !socket) return STATUS_FAILED;
    out->arguments[at++] = mpirun;
    for (int i = 0; starter->arguments[i]; i++)
        out->arguments[at++] = (char *)starter->arguments[i];
    out->arguments[at++] = ranks;
    memcpy(out->arguments + at, settings->arguments, count * sizeof *out->arguments);
    memcpy(out->environment, environ, variables * sizeof *environ);
    out->environment[variables++] = socket;
    for (int i = 0; i < 4 && starter->environment[i]; i++)
        out->environment[variables++] = (char *)starter->environment[i];
    return give_places(starter, places, out, &variables);
}

/* Between fork and exec: calls that are allowed there alone. */
static _Noreturn void become_mpirun(const struct command *command, const struct launch_places *places, pid_t parent,
                                    int output, const sigset_t *mask) {
    setsid();
    launch_places_inherit(places);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int nothing = open("/dev/null", O_RDONLY);
    bool good = getppid() == parent && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
                dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0;
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (good) execve(command->arguments[0], command->arguments, command->environment);
    _exit(127);
}

/* nohup ignores SIGHUP, and a shell ignores SIGINT for what it starts in the background. A signalfd would get them. */
static bool is_ignored(int signal) {
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* `mask`: the signals as they were. */
static enum status start(const struct command *command, const struct launch_places *places, struct launch_started *out,
                         sigset_t *mask) {
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) return status_set(STATUS_FAILED, "no pipe: %s", strerror(errno));
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t passed;
    sigemptyset(&passed);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!is_ignored(numbers[i])) sigaddset(&passed, numbers[i]);
    sigprocmask(SIG_BLOCK, &passed, mask);
    pid_t parent = getpid();
    out->process = fork();
    if (out->process == 0) become_mpirun(command, places, parent, pipes[1], mask);
    close(pipes[1]);
    out->output = pipes[0];
    out->signals = signalfd(-1, &passed, SFD_CLOEXEC);
    out->handle = out->process > 0 ? (int)syscall(SYS_pidfd_open, out->process, 0) : -1;
    if (out->process > 0 && out->handle >= 0 && out->signals >= 0) return STATUS_OK;
    return status_set(STATUS_FAILED, "mpirun cannot be started: %s", strerror(errno));
}

static void end_started(const struct launch_started *started, const sigset_t *mask, int *wait_status) {
    if (started->process > 0) {
        while (waitpid(started->process, wait_status, 0) < 0 && errno == EINTR)
            continue;
    }
    if (started->output >= 0) close(started->output);
    if (started->handle >= 0) close(started->handle);
    if (started->signals >= 0) close(started->signals);
    sigprocmask(SIG_SETMASK, mask, NULL);
}

/* Causes that mpirun names, and what to do. */
static const struct {
    const char *mentions, *hint;
} known_causes[] = {
    {"unable to find network interfaces",
     "Open MPI needs a network interface, such as the loopback: ip link set lo up"},
};

static enum status hint_cause(enum status status, const char *output) {
    for (size_t i = 0; i < sizeof known_causes / sizeof *known_causes; i++)
        if (strstr(output, known_causes[i].mentions)) return status_hint(status, "%s", known_causes[i].hint);
    return status;
}

/* Prints all of mpirun's output: Open MPI names the cause first, and its last lines only report the failure. */
static enum status blame_mpirun(const struct launch_ranks_seen *seen, const char *mpirun, int wait_status) {
    bool speaks = false;
    for (const char *line = launch_last_output(seen); *line;) {
        int length = (int)strcspn(line, "\n");
        bool has_text = strspn(line, "-= \t\n") < (size_t)length;
        if (has_text) log_warning("mpirun: %.*s", length, line);
        speaks |= has_text;
        line += length + (line[length] == '\n');
    }
    int number = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : WTERMSIG(wait_status);
    enum status status = status_set(STATUS_FAILED, "%s %s %d%s", mpirun,
                                    WIFEXITED(wait_status) ? "ended with status" : "was killed by signal", number,
                                    speaks ? "; its messages are above" : "");
    return hint_cause(status, launch_last_output(seen));
}

/* When mpirun is killed, its ranks stop or die in any order; nobody asked for that stop. */
static enum status find_outcome(const struct launch_ranks_seen *seen, const char *mpirun, int wait_status,
                                bool killed) {
    bool all_joined;
    if (WIFSIGNALED(wait_status) && !killed && !launch_was_signalled(seen))
        return blame_mpirun(seen, mpirun, wait_status);
    TRY(launch_first_failure(seen, &all_joined));
    if (killed) return status_set(STATUS_FAILED, "%s did not end after its ranks, so it was killed", mpirun);
    return wait_status != 0 || !all_joined ? blame_mpirun(seen, mpirun, wait_status) : STATUS_OK;
}

enum status launch_ranks(const struct launch_settings *settings) {
    const struct starter *starter = NULL;
    char *mpirun;
    const char *wanted = settings->mpi ? settings->mpi : getenv("BALLAST_MPI"), *name;
    TRY(find_starter(wanted, &starter, &mpirun));
    struct launch_ranks_seen *seen = NULL;
    struct command command = {0};
    struct launch_places places = {0};
    struct launch_started started = {.process = -1, .handle = -1, .output = -1, .signals = -1};
    enum status status;
    TRY_GOTO(status, launch_listen(settings->ranks, &seen, &name), done);
    launch_places_clear();
    if (starter->place_variables[0]) TRY_GOTO(status, launch_places_create(name, &places), done);
    TRY_GOTO(status, make_command(settings, starter, mpirun, name, &places, &command), done);
    int wait_status = 0;
    bool killed = false;
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    status = start(&command, &places, &started, &mask);
    if (status == STATUS_OK)
        status = launch_watch(seen, &started, &killed);
    else if (started.process > 0)
        kill(started.process, SIGTERM);
    end_started(&started, &mask, &wait_status);
    if (status != STATUS_OK) goto done;
    status = find_outcome(seen, mpirun, wait_status, killed);
done:
    launch_places_remove(&places);
    launch_unlisten(seen);
    scratch_free(&command.scratch);
    mem_free(mpirun);
    return status;
}
