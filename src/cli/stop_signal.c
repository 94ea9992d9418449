#include "cli/stop_signal.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/ranks.h"
#include "comm/launch.h"

static const int64_t same_request_ns = 100000000;

/* Those that ask for a stop. A scheduler sends SIGUSR1 before a job's time is over, and mpirun passes it on. */
static const struct {
    int number;
    bool repeats; /* several of it are one request */
} stops[] = {{SIGINT, false}, {SIGTERM, false}, {SIGHUP, true}, {SIGUSR1, true}, {SIGUSR2, true}};
enum { STOPS = sizeof stops / sizeof *stops };

static atomic_int received; /* which of them, from 1 */
static atomic_llong received_ns, step_now, step_saved;
static bool installed;
static struct sigaction before[STOPS]; /* what was set before */

/* A handler may call nothing that is not async-signal-safe: no printf. */
struct text {
    char bytes[256]; /* ends with a 0 */
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

/* Below a live line; of several ranks, one does. */
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

/* mpirun, which ends the ranks of a job whose rank has died: nobody asked for a stop, and nobody is to hear of one. */
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

/* Before there is anything to save. A signal from mpirun is no stop that somebody asked for: mpirun itself is ending.
 */
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

void stop_signal_join(void) {
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
