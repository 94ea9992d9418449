
#include <signal.h>
#include <stdarg.h>

#include "base/base.h"

enum { MESSAGE_BYTES = 1024 };
static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local char hint[MESSAGE_BYTES];

/* Keeps the message one line without control characters, whatever a quoted name contains. */
static void store(char target[MESSAGE_BYTES], const char *text) {
    size_t length = 0;
    for (; text[length] != '\0' && length < MESSAGE_BYTES - 1; length++) {
        unsigned char byte = (unsigned char)text[length];
        target[length] = byte < 0x20 || byte == 0x7f ? '?' : text[length];
    }
    target[length] = '\0';
}

enum status status_set(enum status code, const char *format, ...) {
    /* Formatted aside first: an argument may be the current message. */
    char text[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    store(message, text);
    hint[0] = '\0';
    return code;
}

enum status status_hint(enum status code, const char *format, ...) {
    char text[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    store(hint, text);
    return code;
}

enum status status_prefix(enum status code, const char *format, ...) {
    char prefix[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    char text[2 * MESSAGE_BYTES + 2];
    snprintf(text, sizeof text, "%s: %s", prefix, message);
    store(message, text);
    return code;
}

enum status status_no_memory(unsigned long long bytes, const char *what) {
    return status_set(STATUS_FAILED, "out of memory (%llu bytes for %s)", bytes, what);
}

const char *status_message(void) { return message; }
const char *status_hint_text(void) { return hint; }

const char *status_name(enum status code) {
    switch (code) {
#define STATUS_CASE(name, value, text)                                                                                 \
    case STATUS_##name: return text;
        STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

bool status_is_stop(enum status code) {
    return code == STATUS_HUNG_UP || code == STATUS_INTERRUPTED || code == STATUS_TERMINATED;
}

enum status status_of_signal(int signal) {
    switch (signal) {
    case SIGHUP: return STATUS_HUNG_UP;
    case SIGINT: return STATUS_INTERRUPTED;
    default: return STATUS_TERMINATED;
    }
}

void status_clear(void) { message[0] = hint[0] = '\0'; }

void bug_report(const char *file, int line, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "ballast: defect at %s:%d: ", file, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nballast: this is a defect in Ballast, not in your input; please report it with this line\n");
    abort();
}
