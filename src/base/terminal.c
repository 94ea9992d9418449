#include "base/terminal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"

static pthread_mutex_t line_lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *line_stream; /* where a live line stands without its end; NULL: nowhere */

bool terminal_is_live(FILE *out) {
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && term && *term && strcmp(term, "dumb") != 0; /* "dumb" has no escapes */
}

bool terminal_has_colour(FILE *out) {
    const char *no_color = getenv("NO_COLOR");
    return terminal_is_live(out) && (!no_color || !no_color[0]);
}

int terminal_columns(FILE *out) {
    enum { USUAL = 80 };
    struct winsize size;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : USUAL;
}

/* C0, DEL, and C1 as UTF-8 has it: 0xC2 and 0x80 to 0x9F. */
void terminal_make_plain(char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        unsigned char here = (unsigned char)text[i], next = i + 1 < bytes ? (unsigned char)text[i + 1] : 0;
        if (here == 0xC2 && next >= 0x80 && next < 0xA0) text[i] = text[i + 1] = '?';
        if ((here < 0x20 && here != '\n' && here != '\t') || here == 0x7F) text[i] = '?';
    }
}

bool terminal_write(FILE *out, const char *text, size_t bytes) {
    char piece[512];
    if (!isatty(fileno(out))) return fwrite(text, 1, bytes, out) == bytes && fflush(out) == 0;
    for (size_t at = 0, here; at < bytes; at += here) {
        here = bytes - at < sizeof piece ? bytes - at : utf8_floor(text + at, sizeof piece);
        if (here == 0) here = sizeof piece;
        memcpy(piece, text + at, here);
        terminal_make_plain(piece, here);
        if (fwrite(piece, 1, here, out) != here) return false;
    }
    return fflush(out) == 0;
}

void live_line_draw(FILE *out, const char *text) {
    pthread_mutex_lock(&line_lock);
    fprintf(out, "\r%s\x1b[K", text);
    fflush(out);
    line_stream = out;
    pthread_mutex_unlock(&line_lock);
}

static void end_line(const char *ending) {
    pthread_mutex_lock(&line_lock);
    if (line_stream) {
        fputs(ending, line_stream);
        fflush(line_stream);
    }
    line_stream = NULL;
    pthread_mutex_unlock(&line_lock);
}

void live_line_wipe(void) { end_line("\r\x1b[K"); }
void live_line_keep(void) { end_line("\n"); }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    progress_listener *listener;
    void *payload;
    struct progress work;
    int depth; /* nesting of work; only the outermost is reported */
} state;
static _Thread_local bool muted;

/* Under the lock. */
static void notify(enum progress_moment moment) {
    if (state.listener && state.depth == 1) state.listener(state.payload, moment, &state.work);
}

void progress_listen(progress_listener *listener, void *payload) {
    pthread_mutex_lock(&lock);
    state.listener = listener;
    state.payload = payload;
    pthread_mutex_unlock(&lock);
}

void progress_mute_thread(void) { muted = true; }

void progress_begin(enum progress_unit unit, int64_t total, const char *what, ...) {
    va_list arguments;
    if (muted) return;
    pthread_mutex_lock(&lock);
    if (state.depth++ == 0) {
        state.work = (struct progress){.unit = unit, .total = total};
        va_start(arguments, what);
        vsnprintf(state.work.what, sizeof state.work.what, what, arguments);
        va_end(arguments);
        notify(PROGRESS_BEGINS);
    }
    pthread_mutex_unlock(&lock);
}

void progress_add(int64_t done) {
    if (muted) return;
    pthread_mutex_lock(&lock);
    if (state.depth == 1) state.work.done += done;
    notify(PROGRESS_MOVES);
    pthread_mutex_unlock(&lock);
}

void progress_end(void) {
    if (muted) return;
    pthread_mutex_lock(&lock);
    notify(PROGRESS_ENDS);
    if (state.depth > 0) state.depth--;
    pthread_mutex_unlock(&lock);
}

static atomic_bool quiet_notes;

static _Atomic(log_listener *) listening;

static void put_line(bool warning, const char *format, va_list arguments) {
    char text[2048];
    log_listener *listener = atomic_load(&listening);
    if (!listener && !warning && atomic_load(&quiet_notes)) return;
    vsnprintf(text, sizeof text, format, arguments);
    terminal_make_plain(text, strlen(text));
    if (listener) {
        listener(warning, text);
        return;
    }
    live_line_wipe();
    fprintf(stderr, "%s%s\n", warning ? "warning: " : "", text);
}

void log_set_quiet(bool quiet) { atomic_store(&quiet_notes, quiet); }
void log_listen(log_listener *listener) { atomic_store(&listening, listener); }

void log_note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    put_line(false, format, arguments);
    va_end(arguments);
}

void log_warning(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    put_line(true, format, arguments);
    va_end(arguments);
}

/* Without O_CLOEXEC: it holds the number for programs that are started from here too. */
static enum status hold_descriptor(int number) {
    if (fcntl(number, F_GETFD) != -1) return STATUS_OK;
    int opened = open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened == number) return STATUS_OK; /* those below it are open, so it is the lowest that is free */
    return status_set(STATUS_FAILED, "/dev/null: cannot open: %s", strerror(errno));
}

enum status process_begin(void) {
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++)
        TRY(hold_descriptor(number));
    signal(SIGXFSZ, SIG_IGN);
    return STATUS_OK;
}
