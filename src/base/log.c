#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>

#include "base/terminal.h"

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
