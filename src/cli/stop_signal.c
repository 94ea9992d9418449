#include "cli/stop_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static const int64_t same_request_ns = 100000000;

static atomic_int received;
static atomic_llong received_ns, step_now, step_saved;
static struct {
    bool installed;
    struct sigaction interrupt, terminate, hang_up; /* what was set before */
} handlers;

/* A handler may call nothing that is not async-signal-safe: no printf. */
struct text {
    char bytes[256];
    size_t used;
};

static void put(struct text *text, const char *words) {
    for (; *words && text->used < sizeof text->bytes; words++)
        text->bytes[text->used++] = *words;
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

/* Below a live line. */
static void say(struct text *text) {
    put(text, "\n");
    if (isatty(STDERR_FILENO)) (void)!write(STDERR_FILENO, "\n", 1);
    (void)!write(STDERR_FILENO, text->bytes, text->used);
}

static void say_stopping(void) {
    struct text text = {0};
    bool saves = atomic_load(&step_saved) >= 0;
    put(&text, "ballast: finishing step ");
    put_number(&text, atomic_load(&step_now));
    put(&text,
        saves ? ", then saving; again: quit and lose " : "; nothing is saved, as --save-every is 0; again: lose ");
    put_lost(&text);
    say(&text);
}

_Noreturn static void quit(void) {
    struct text text = {0};
    put(&text, "ballast: quit by a second signal: ");
    put_lost(&text);
    put(&text, " are lost");
    say(&text);
    _exit(STATUS_QUIT);
}

static void note_signal(int number) {
    int before = 0, kept = errno;
    int64_t now_ns = clock_now_ns();
    if (atomic_compare_exchange_strong(&received, &before, number)) {
        atomic_store(&received_ns, now_ns);
        say_stopping();
    } else if (number != SIGHUP && now_ns - atomic_load(&received_ns) >= same_request_ns) {
        quit();
    }
    errno = kept;
}

static void install(int number, struct sigaction *saved) {
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, NULL, saved);
    if (saved->sa_handler != SIG_IGN) sigaction(number, &action, NULL);
}

static void install_all(void) {
    atomic_store(&received, 0);
    install(SIGINT, &handlers.interrupt);
    install(SIGTERM, &handlers.terminate);
    install(SIGHUP, &handlers.hang_up);
    handlers.installed = true;
}

enum status stop_signal_poll(void *payload, int64_t step, int64_t saved_step) {
    (void)payload;
    atomic_store(&step_now, step);
    atomic_store(&step_saved, saved_step);
    if (!handlers.installed) install_all();
    switch (atomic_load(&received)) {
    case SIGINT: return STATUS_INTERRUPTED;
    case SIGTERM: return STATUS_TERMINATED;
    case SIGHUP: return STATUS_HUNG_UP;
    default: return STATUS_OK;
    }
}

void stop_signal_end(void) {
    if (!handlers.installed) return;
    sigaction(SIGINT, &handlers.interrupt, NULL);
    sigaction(SIGTERM, &handlers.terminate, NULL);
    sigaction(SIGHUP, &handlers.hang_up, NULL);
    handlers.installed = false;
}
