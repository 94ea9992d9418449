#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/terminal.h"

static atomic_bool quiet_notes;

static void print_line(const char *lead, const char *format, va_list arguments) {
    char text[2048];
    vsnprintf(text, sizeof text, format, arguments);
    live_line_wipe();
    fprintf(stderr, "%s%s\n", lead, text);
}

void log_set_quiet(bool quiet) { atomic_store(&quiet_notes, quiet); }

void log_note(const char *format, ...) {
    if (atomic_load(&quiet_notes)) return;
    va_list arguments;
    va_start(arguments, format);
    print_line("", format, arguments);
    va_end(arguments);
}

void log_warning(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_line("warning: ", format, arguments);
    va_end(arguments);
}
