#include "comm/launch.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/terminal.h"
#include "comm/mpi_comm.h"

static const char prefix[] = "ballast-";

void launch_print_name(pid_t process, uint64_t mark, char name[LAUNCH_NAME_BYTES]) {
    snprintf(name, LAUNCH_NAME_BYTES, "%s%d-%016" PRIx64, prefix, (int)process, mark);
}

/* False for a name that launch_print_name would not print. */
static bool read_name(const char *name, pid_t *process) {
    char again[LAUNCH_NAME_BYTES], *end;
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0 || !isdigit((unsigned char)name[length])) return false;
    long number = strtol(name + length, &end, 10);
    if (*end != '-' || number <= 0 || number > INT32_MAX) return false;
    *process = (pid_t)number;
    launch_print_name(*process, strtoull(end + 1, NULL, 16), again);
    return strcmp(name, again) == 0;
}

static const char *parent_of(enum launch_place place) {
    const char *temporary = getenv("TMPDIR");
    if (place == LAUNCH_SHARED) return "/dev/shm";
    return temporary && *temporary ? temporary : "/tmp";
}

/* If the file system has no locks, no launch removes another's directory as that of a dead launch. */
static enum status create(const char *name, enum launch_place place, struct launch_places *out) {
    char *path = path_join(parent_of(place), name);
    if (!path) return STATUS_FAILED;
    if (mkdir(path, 0700) != 0) {
        enum status status = status_set(STATUS_FAILED, "%s: cannot create: %s", path, strerror(errno));
        mem_free(path);
        return place == LAUNCH_SHARED ? STATUS_OK : status_hint(status, "TMPDIR names a directory to write to");
    }
    enum status status = folder_lock(path, &out->lock[place], NULL);
    if (status != STATUS_OK) {
        (void)rmdir(path);
        mem_free(path);
        return status;
    }
    out->path[place] = path;
    return STATUS_OK;
}

enum status launch_places_create(const char *name, struct launch_places *out) {
    *out = (struct launch_places){0};
    enum status status = STATUS_OK;
    for (enum launch_place place = 0; place < LAUNCH_PLACES && status == STATUS_OK; place++)
        status = create(name, place, out);
    if (status != STATUS_OK) launch_places_remove(out);
    return status;
}

void launch_places_remove(struct launch_places *places) {
    for (int i = 0; i < LAUNCH_PLACES; i++) {
        if (!places->path[i]) continue;
        (void)folder_remove(places->path[i]);
        close(places->lock[i]);
        mem_free(places->path[i]);
    }
    *places = (struct launch_places){0};
}

/* A process of another namespace has no number here, but holds its lock. */
static void remove_dead(const char *parent, const char *name) {
    pid_t process;
    if (!read_name(name, &process)) return;
    char *path = path_join(parent, name);
    struct stat info;
    int lock;
    bool locked = false, mine = path && lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
    bool dead = mine && kill(process, 0) != 0 && errno == ESRCH;
    if (dead && folder_lock(path, &lock, &locked) == STATUS_OK) {
        if (locked) (void)folder_remove(path);
        close(lock);
    }
    mem_free(path);
}

void launch_places_clear(void) {
    for (enum launch_place place = 0; place < LAUNCH_PLACES; place++) {
        struct names names = {0};
        if (folder_list(parent_of(place), &names) == STATUS_OK)
            for (size_t i = 0; i < names.count; i++)
                remove_dead(parent_of(place), names.items[i]);
        names_free(&names);
    }
    status_clear();
}

/* A rank and the process that launched it. */

static int parent_socket = -1;

/* Filled in when it joins: signal handlers send it too. */
static struct launch_record own;

static bool send_own(void) { return send(parent_socket, &own, sizeof own, MSG_NOSIGNAL) == (ssize_t)sizeof own; }

/* The parent's standard output and error in place of mpirun's pipes. */
static bool take_output(void) {
    enum { OUTPUTS = 2 };
    char byte, control[CMSG_SPACE(OUTPUTS * sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(parent_socket, &message, MSG_CMSG_CLOEXEC) != 1) return false;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int output[OUTPUTS];
    if (!header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof output)) return false;
    memcpy(output, CMSG_DATA(header), sizeof output);
    bool taken = dup2(output[0], STDOUT_FILENO) >= 0 && dup2(output[1], STDERR_FILENO) >= 0;
    close(output[0]);
    close(output[1]);
    return taken;
}

/* When a process dies, Linux closes the files with high numbers first. So the parent learns of the death before mpirun
 * does, which then kills the other ranks. */
static void close_first(int *descriptor) {
    int high = fcntl(*descriptor, F_DUPFD_CLOEXEC, 900); /* 1024 is the usual limit */
    if (high < 0) return;
    close(*descriptor);
    *descriptor = high;
}

bool launch_is_rank(void) { return getenv(LAUNCH_VARIABLE) != NULL; }

enum status launch_join(void) {
    const char *name = getenv(LAUNCH_VARIABLE);
    if (!name || parent_socket >= 0) return STATUS_OK;
    struct sockaddr_un address;
    socklen_t length = launch_address(name, &address);
    parent_socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (parent_socket >= 0) close_first(&parent_socket);
    own = (struct launch_record){.rank = mpi_library_launched_rank(), .process = getpid()};
    if (gethostname(own.host, sizeof own.host - 1) != 0) own.host[0] = '\0';
    bool joined = parent_socket >= 0 && connect(parent_socket, (struct sockaddr *)&address, length) == 0 &&
                  send_own() && take_output();
    return joined ? STATUS_OK
                  : status_set(STATUS_FAILED, "the process that launched this rank cannot be reached: %s",
                               strerror(errno));
}

bool launch_joined(void) { return parent_socket >= 0; }

void launch_expect_death(const char *hint) {
    if (parent_socket < 0) return;
    snprintf(own.hint, sizeof own.hint, "%s", hint);
    (void)send_own();
}

void launch_report(enum status status) {
    if (parent_socket < 0) return;
    own.ends = true;
    own.status = status;
    if (status != STATUS_OK) {
        snprintf(own.message, sizeof own.message, "%s", status_message());
        snprintf(own.hint, sizeof own.hint, "%s", status_hint_text());
    }
    (void)send_own();
}

void launch_report_signal(enum status status, const char *message) {
    if (parent_socket < 0) return;
    own.ends = true;
    own.status = status;
    size_t length = strlen(message), max = sizeof own.message - 1;
    memcpy(own.message, message, length < max ? length : max);
    own.message[length < max ? length : max] = own.hint[0] = '\0';
    (void)send_own();
}

void launch_hush(void) {
    int nothing = parent_socket >= 0 ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    if (nothing >= 0) dup2(nothing, STDERR_FILENO);
}

extern char **environ;

/* How each MPI starts ranks on this machine alone, more than it has cores, wherever they like; a batch system's nodes
 * are not asked for. Jobs of Open MPI 4 share one session directory, which each job removes at its end while another
 * one may be making it (open-mpi/ompi#8510), and leave their shared memory in /dev/shm when they are killed:
 * `place_variables` give each job directories of its own (launch.h). MPICH's have no names for long. */
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
    return status_set(STATUS_BAD_INPUT, "there is no MPI to start ranks with%s%s" HINT "on Debian: apt-get install %s",
                      wanted ? ": " : "", wanted ? wanted : "",
                      wanted && strcmp(wanted, "mpich") == 0 ? "mpich" : "openmpi-bin");
}

/* ---- Starting it ---- */

struct command {
    struct scratch scratch;
    char **arguments, **environment;
};

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
    for (int i = 0; i < LAUNCH_PLACES; i++) {
        if (!starter->place_variables[i] || !places->path[i]) continue;
        char *variable = scratch_format(&out->scratch, "%s=%s", starter->place_variables[i], places->path[i]);
        if (!variable) return STATUS_FAILED;
        out->environment[variables++] = variable;
    }
    return STATUS_OK;
}

/* Between fork and exec: calls that are allowed there alone. */
static _Noreturn void become_mpirun(const struct command *command, const struct launch_places *places, pid_t parent,
                                    int output, const sigset_t *mask) {
    setsid();
    for (int i = 0; i < LAUNCH_PLACES; i++) /* the locks are mpirun's too */
        if (places->path[i]) (void)fcntl(places->lock[i], F_SETFD, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int nothing = open("/dev/null", O_RDONLY);
    bool good = getppid() == parent && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
                dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0;
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (good) execve(command->arguments[0], command->arguments, command->environment);
    _exit(127);
}

/* `mask`: the signals as they were. */
static enum status start(const struct command *command, const struct launch_places *places, struct launch_started *out,
                         sigset_t *mask) {
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) return status_set(STATUS_FAILED, "no pipe: %s", strerror(errno));
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t passed;
    sigemptyset(&passed);
    /* nohup ignores SIGHUP, and a shell ignores SIGINT for processes that it starts in the background. A signalfd would
     * get them. */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action;
        bool ignored = sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler == SIG_IGN;
        if (!ignored) sigaddset(&passed, numbers[i]);
    }
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
    if (!strstr(launch_last_output(seen), "unable to find network interfaces")) return status;
    return status_hint(status, "Open MPI needs a network interface, such as the loopback: ip link set lo up");
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
