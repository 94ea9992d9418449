
#include <signal.h>
#include <stdarg.h>

#include "base/base.h"

enum { MESSAGE_BYTES = 1024 };
static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local char hint[MESSAGE_BYTES];

/* One line without control characters, whatever a quoted name contains. */
static void store_line(char target[MESSAGE_BYTES], const char *text) {
    snprintf(target, MESSAGE_BYTES, "%.*s", MESSAGE_BYTES - 1, text);
    for (char *byte = target; *byte; byte++)
        if ((unsigned char)*byte < 0x20 || *byte == 0x7f) *byte = '?';
}

static void store(char target[MESSAGE_BYTES], const char *format, va_list arguments) {
    char text[MESSAGE_BYTES]; /* formatted aside first: an argument may be the current message */
    vsnprintf(text, sizeof text, format, arguments);
    store_line(target, text);
}

enum status status_set(enum status code, const char *format, ...) {
    char text[2 * MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *second = strstr(format, HINT) ? strstr(text, HINT) : NULL;
    if (second) *second++ = '\0';
    store_line(message, text);
    store_line(hint, second ? second : "");
    return code;
}

enum status status_hint(enum status code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    store(hint, format, arguments);
    va_end(arguments);
    return code;
}

enum status status_hint_else(enum status code, const char *text) {
    return code == STATUS_OK || hint[0] ? code : status_hint(code, "%s", text);
}

enum status status_prefix(enum status code, const char *format, ...) {
    char prefix[MESSAGE_BYTES], whole[MESSAGE_BYTES];
    va_list arguments;
    if (code == STATUS_OK) return code;
    va_start(arguments, format);
    store(prefix, format, arguments);
    va_end(arguments);
    if (snprintf(whole, sizeof whole, "%s: %s", prefix, message) > 0) memcpy(message, whole, sizeof message);
    return code;
}

void status_save(enum status code, struct status_copy *out) {
    out->status = code;
    snprintf(out->message, sizeof out->message, "%.*s", (int)sizeof out->message - 1, code == STATUS_OK ? "" : message);
    snprintf(out->hint, sizeof out->hint, "%.*s", (int)sizeof out->hint - 1, code == STATUS_OK ? "" : hint);
}

enum status status_restore(const struct status_copy *copy) {
    if (copy->status == STATUS_OK) return STATUS_OK;
    (void)status_set(copy->status, "%s", copy->message);
    return copy->hint[0] ? status_hint(copy->status, "%s", copy->hint) : copy->status;
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
