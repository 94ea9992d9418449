#include "cli/ranks.h"

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/terminal.h"
#include "cli/commands/command.h"
#include "comm/launch.h"
#include "comm/mpi_comm.h"
#include "session/checkpoint/checkpoint.h"
#include "session/session.h"

static const int64_t same_request_ns = 100000000;

/* Signals that request a stop. A scheduler sends SIGUSR1 before a job's time limit, and mpirun forwards it. */
static const struct {
    int number;
    bool repeats; /* several signals are one request */
} stops[] = {{SIGINT, false}, {SIGTERM, false}, {SIGHUP, true}, {SIGUSR1, true}, {SIGUSR2, true}};
enum { STOPS = sizeof stops / sizeof *stops };

static atomic_int received; /* index in `stops`, plus 1; 0: none */
static atomic_llong received_ns, step_now, step_saved;
static bool installed;
static struct sigaction before[STOPS]; /* the handlers to restore */

/* A message that a signal handler builds. A handler may only call async-signal-safe functions, so not printf. */
struct text {
    char bytes[256]; /* NUL-terminated */
    size_t used;
};

static void put(struct text *text, const char *message) {
    for (; *message && text->used < sizeof text->bytes - 1; message++)
        text->bytes[text->used++] = *message;
}

static void put_number(struct text *text, long long number) {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    put(text, digits + at);
}

static void put_lost(struct text *text) {
    long long saved = atomic_load(&step_saved);
    put(text, saved > 0 ? "the steps since " : "all steps");
    if (saved > 0) put_number(text, saved);
}

/* Prints a line below the live line, on rank 0 only. */
static void print(const struct text *message) {
    struct text line = {0};
    if (!ranks_talk()) return;
    put(&line, isatty(STDERR_FILENO) ? "\nballast: " : "ballast: ");
    put(&line, message->bytes);
    put(&line, "\n");
    (void)!write(STDERR_FILENO, line.bytes, line.used);
}

static void print_stopping(void) {
    struct text text = {0};
    bool saves = atomic_load(&step_saved) >= 0;
    put(&text, "finishing step ");
    put_number(&text, atomic_load(&step_now));
    put(&text,
        saves ? ", then saving; again: quit and lose " : "; nothing is saved, as --save-every is 0; again: lose ");
    put_lost(&text);
    print(&text);
}

_Noreturn static void quit(void) {
    struct text text = {0};
    put(&text, "quit by a second signal: ");
    put_lost(&text);
    put(&text, " are lost");
    if (launch_joined())
        launch_report_signal(STATUS_QUIT, text.bytes);
    else
        print(&text);
    _exit(STATUS_QUIT);
}

static int find_stop(int number) {
    int i = 0;
    while (stops[i].number != number)
        i++;
    return i;
}

/* Whether mpirun sent the signal, which it does to end a job after the death of a rank. Nobody requested a stop, so
 * none is reported. */
static bool is_from_launcher(const siginfo_t *info) { return launch_joined() && info->si_pid == getppid(); }

static void note_signal(int number, siginfo_t *info, void *context) {
    int none = 0, kept = errno, stop = find_stop(number);
    int64_t now_ns = clock_now_ns();
    (void)context;
    if (atomic_compare_exchange_strong(&received, &none, stop + 1)) {
        atomic_store(&received_ns, now_ns);
        if (!is_from_launcher(info)) print_stopping();
    } else if (!stops[stop].repeats && !is_from_launcher(info) &&
               now_ns - atomic_load(&received_ns) >= same_request_ns) {
        quit();
    }
    errno = kept;
}

/* Ends the process before there is anything to save. A signal from mpirun is not a requested stop: mpirun itself is
 * ending. */
static void end_at_once(int number, siginfo_t *info, void *context) {
    (void)context;
    struct text text = {0};
    bool from_launcher = info->si_pid == getppid();
    put(&text, from_launcher ? "mpirun ended its ranks by signal " : "stopped by signal ");
    put_number(&text, number);
    put(&text, " before training began");
    launch_report_signal(from_launcher ? STATUS_FAILED : status_of_signal(number), text.bytes);
    _exit(from_launcher ? STATUS_FAILED : 128 + number);
}

static void install(void (*handler)(int number, siginfo_t *info, void *context), struct sigaction *saved) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < STOPS; i++) {
        sigaction(stops[i].number, NULL, &saved[i]);
        if (saved[i].sa_handler != SIG_IGN) sigaction(stops[i].number, &action, NULL);
    }
}

/* Prepares a rank of --ranks, before it joins its parent. Until the first step, a signal ends the rank with a
 * report. */
static void stop_signal_join(void) {
    struct sigaction ignored[STOPS];
    if (launch_is_rank()) install(end_at_once, ignored);
}

enum status stop_signal_poll(void *payload, int64_t step, int64_t saved_step) {
    (void)payload;
    atomic_store(&step_now, step);
    atomic_store(&step_saved, saved_step);
    if (!installed) {
        atomic_store(&received, 0);
        install(note_signal, before);
        installed = true;
    }
    int stop = atomic_load(&received);
    return stop ? status_of_signal(stops[stop - 1].number) : STATUS_OK;
}

void stop_signal_end(void) {
    for (int i = 0; installed && i < STOPS; i++)
        sigaction(stops[i].number, &before[i], NULL);
    installed = false;
}

/* This process's place in the job. A process can initialize MPI only once. */
static struct {
    int rank;          /* the launcher's number; -1: alone */
    struct comm *comm; /* NULL: alone, or not open */
    int core_sharers;
} job = {.rank = -1};

/* ---- Output of ranks ---- */

static void drop_line(bool warning, const char *text) { (void)warning, (void)text; }

static enum status fall_silent(void) {
    log_listen(drop_line);
    return freopen("/dev/null", "w", stdout) ? STATUS_OK : status_set(STATUS_FAILED, "/dev/null cannot be opened");
}

enum status ranks_join(void) {
    job.rank = mpi_library_launched_rank();
    stop_signal_join();
    TRY(launch_join());
    return job.rank > 0 ? fall_silent() : STATUS_OK;
}

bool ranks_talk(void) { return job.rank <= 0; }

struct comm *ranks_comm(void) {
    return job.comm;
}

void ranks_give(struct plan_options *out) {
    out->comm = job.comm;
    out->core_sharers = job.core_sharers;
}

/* Only srun's tasks have the first variable; a batch script has the others too. */
static void warn_of_lone_tasks(void) {
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *task = getenv("SLURM_PROCID");
    if (job.rank >= 0 || !tasks || atoi(tasks) < 2 || !task || atoi(task) != 0) return;
    log_warning(
        "srun started %s tasks without MPI, and each is alone: --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH) makes "
        "them ranks of one job",
        tasks);
}

enum ranks_part ranks_part(const struct options *options, enum status parsed) {
    bool together = options->command->bit & COMMANDS_RANKS;
    if (strcmp(mpi_library_chosen(), "self") != 0 && job.rank >= 0) {
        if (together) return RANKS_MEMBER;
        return job.rank == 0 ? RANKS_ALONE : RANKS_IDLE;
    }
    if (together) warn_of_lone_tasks();
    bool wanted = together && parsed == STATUS_OK && options_int(options, OPT_ranks) > 1;
    return wanted ? RANKS_PARENT : RANKS_ALONE;
}

/* ---- The parent ---- */

static const char *run_folder(const struct options *options) {
    if (options->command->bit == COMMAND_RESUME) return options->arguments.items[0];
    return options->command->bit == COMMAND_TRAIN ? options_text(options, OPT_output) : NULL;
}

/* Adds a hint about the newest checkpoint, unless a failed rank already reported one. */
static enum status hint_checkpoint(const struct options *options, enum status status) {
    const char *folder = run_folder(options);
    if (status != STATUS_FAILED || !folder || status_hint_text()[0]) return status;
    AUTO_FREE char *message = mem_string(status_message()), *newest = NULL;
    char argument[PATH_SHELL_BYTES];
    if (message && checkpoint_find_newest(folder, &newest) == STATUS_OK) {
        (void)status_set(status, "%s", message);
        if (newest)
            (void)status_hint(status, "the last good checkpoint is %s: ballast resume %s", newest,
                              path_for_shell(folder, argument));
        if (!newest) (void)status_hint(status, "no checkpoint was written yet");
    }
    return status;
}

enum status ranks_launch(const struct options *options, int count, char **given) {
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return status_set(STATUS_FAILED, "/proc/self/exe cannot be read");
    program[length] = '\0';
    AUTO_FREE char **arguments = mem_array((size_t)count + 3, sizeof *arguments);
    if (!arguments) return STATUS_FAILED;
    arguments[0] = program;
    arguments[1] = (char *)(uintptr_t)options->command->name;
    memcpy(arguments + 2, given, (size_t)count * sizeof *given);
    struct launch_settings settings = {.ranks = (int)options_int(options, OPT_ranks), .arguments = arguments};
    return hint_checkpoint(options, launch_ranks(&settings));
}

/* ---- A rank ---- */

/* Whether ranks may have different values of an option: device, memory, and options that only affect output. */
static bool is_of_a_rank(enum option_id id) {
    static const enum option_id own[] = {OPT_backend, OPT_device_bytes, OPT_host_bytes, OPT_disk_folder, OPT_config,
                                         OPT_json,    OPT_quiet,        OPT_serve,      OPT_compare};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i] == id) return true;
    return false;
}

static uint64_t add_text(uint64_t hash, const char *text) {
    return hash_mix(hash ^ (text ? hash_bytes(text, strlen(text)) : 1));
}

static uint64_t hash_value(const struct option_value *value) {
    uint64_t bits;
    memcpy(&bits, &value->value.float_value, sizeof bits);
    uint64_t hash = hash_mix(hash_mix(bits) ^ hash_mix((uint64_t)value->value.int_value));
    hash = add_text(hash, value->value.text);
    for (size_t i = 0; i < value->texts.count; i++)
        hash = add_text(hash, value->texts.items[i]);
    return hash;
}

/* Indices after those of the options. */
enum { COMPARED_ARGUMENTS = OPT_COUNT, COMPARED_COMMAND, COMPARED };

static void hash_options(const struct options *options, uint64_t hash[COMPARED]) {
    for (int i = 0; i < OPT_COUNT; i++)
        hash[i] = is_of_a_rank((enum option_id)i) ? 0 : hash_value(&options->values[i]);
    hash[COMPARED_ARGUMENTS] = 0;
    for (size_t i = 0; i < options->arguments.count; i++)
        hash[COMPARED_ARGUMENTS] = add_text(hash[COMPARED_ARGUMENTS], options->arguments.items[i]);
    hash[COMPARED_COMMAND] = add_text(0, options->command->name);
}

/* Compares all options at once, and one by one only if they differ. */
static enum status check_options(const struct options *options) {
    uint64_t hash[COMPARED];
    char what[80];
    hash_options(options, hash);
    enum status status = comm_check_same(job.comm, "their options", hash, sizeof hash);
    if (status != STATUS_BAD_INPUT) return status;
    status = comm_check_same(job.comm, "the command", &hash[COMPARED_COMMAND], sizeof *hash);
    for (int i = 0; i < OPT_COUNT && status == STATUS_OK; i++) {
        snprintf(what, sizeof what, "--%s", option_table[i]->name);
        status = comm_check_same(job.comm, what, &hash[i], sizeof hash[i]);
    }
    if (status != STATUS_OK) return status;
    return comm_check_same(job.comm, "the model or data that they are given", &hash[COMPARED_ARGUMENTS], sizeof *hash);
}

/* Reads the file in pieces: a program with debug information would take hundreds of MiB on every rank. */
static enum status hash_file(const char *path, uint64_t *hash) {
    enum { PIECE_BYTES = 1 << 16 };
    AUTO(file_input_close) struct file_input input = {0};
    AUTO_FREE char *piece = mem_array(PIECE_BYTES, 1);
    TRY(piece ? file_input_open(path, &input) : STATUS_FAILED);
    *hash = 0;
    for (size_t at = 0, bytes; at < input.bytes; at += bytes) {
        bytes = input.bytes - at < PIECE_BYTES ? input.bytes - at : PIECE_BYTES;
        TRY(file_input_read(&input, at, bytes, piece));
        *hash = hash_mix(*hash ^ hash_bytes(piece, bytes));
    }
    return STATUS_OK;
}

/* Compares the bytes of the program's file, because not every build has a build ID. */
static enum status check_program(void) {
    uint64_t hash;
    TRY(hash_file("/proc/self/exe", &hash));
    return comm_check_same(job.comm, "the program's file (another build of ballast)", &hash, sizeof hash);
}

static enum status check_count(const struct options *options) {
    int64_t wanted = options_int(options, OPT_ranks);
    int there = mesh_ranks(&job.comm->mesh);
    if (wanted == 0 || wanted == there) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "--ranks: is %lld, and this process was started as one of %d",
                                    (long long)wanted, there);
    return status_hint(status, "mpirun and srun say how many: leave --ranks out; or start ballast without them");
}

/* MPI_Init waits for all ranks without a timeout. */
static void give_up(int number) {
#define NOT_ALL "the ranks have not all begun: one hangs, or is another program"
    static const char line[] = "ballast: error: " NOT_ALL "\n";
    (void)number;
    launch_report_signal(STATUS_FAILED, NOT_ALL);
    if (!launch_joined() && ranks_talk()) (void)!write(STDERR_FILENO, line, sizeof line - 1);
    _exit(STATUS_FAILED);
}

static enum status open_in_time(const struct comm_settings *settings) {
    enum { PATIENCE = 4 }; /* a multiple of --rank-timeout: at the start, files are read and nodes set up */
    char hint[256];
    mpi_library_explain_start(hint, sizeof hint);
    launch_expect_death(hint);
    signal(SIGALRM, give_up);
    alarm((unsigned)(PATIENCE * settings->rank_timeout_s));
    enum status status = comm_open(settings, &job.comm);
    alarm(0);
    launch_expect_death("");
    signal(SIGALRM, SIG_DFL);
    return status;
}

static enum status open_comm(const struct options *options) {
    struct comm_settings settings = {.nodes = (int)options_int(options, OPT_nodes),
                                     .rank_timeout_s = options_float(options, OPT_rank_timeout)};
    TRY(open_in_time(&settings));
    int rank_before = job.rank;
    job.rank = job.comm->rank;
    return job.rank > 0 && rank_before <= 0 ? fall_silent() : STATUS_OK;
}

enum status ranks_open(const struct options *options, enum status parsed) {
    AUTO_FREE char *message = mem_string(status_message()), *hint = mem_string(status_hint_text());
    TRY(open_comm(options));
    if (parsed != STATUS_OK) (void)status_hint(status_set(parsed, "%s", message), "%s", hint);
    TRY(comm_agree(job.comm, parsed));
    TRY(check_program());
    TRY(check_options(options));
    TRY(comm_agree(job.comm, check_count(options)));
    return rank_cores_count_sharers(job.comm, &job.core_sharers);
}

/* ---- The end ---- */

enum status ranks_close(enum status status) {
    if (!job.comm || (status != STATUS_OK && !status_is_stop(status))) return status;
    AUTO_FREE char *message = mem_string(status_message()), *hint = mem_string(status_hint_text());
    enum status closed = message && hint ? comm_close(job.comm) : STATUS_FAILED;
    if (closed == STATUS_OK) {
        job.comm = NULL;
        if (status != STATUS_OK) (void)status_hint(status_set(status, "%s", message), "%s", hint);
    }
    return closed == STATUS_OK ? status : closed;
}

/* Delays the report by rank. Most errors occur on all ranks; the lowest reports first, and ends the others before
 * they report too. */
static void give_way(void) {
    enum { STEP_MS = 500, STEPS_MAX = 8 };
    long ms = STEP_MS * (job.rank < STEPS_MAX ? job.rank : STEPS_MAX);
    if (job.rank > 0) nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

bool ranks_should_report(enum status status) {
    bool fails = job.comm && status != STATUS_OK && !status_is_stop(status);
    bool speaks = fails ? comm_speaks(job.comm) : ranks_talk();
    if (fails && speaks) give_way();
    if (!launch_joined()) return speaks && status != STATUS_OK;
    if (speaks || status == STATUS_OK || status_is_stop(status)) launch_report(status);
    return false;
}

void ranks_leave(enum status status) {
    if (!job.comm) return;
    (void)fflush(NULL);
    comm_abort(job.comm, (int)status);
}
