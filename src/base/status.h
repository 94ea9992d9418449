/* How functions report failure.
 *
 * Every function that can fail returns `enum status` and, when it is not STATUS_OK, leaves one message (what went
 * wrong, with file and field) and optionally one hint (what to try) in thread-local storage. Results come back through
 * out-parameters, which are written only on success. Nothing below src/cli ends the process; what cannot happen unless
 * Ballast itself is wrong calls BUG(). */
#pragma once

#include <stdbool.h>

#define STATUS_LIST(X)                                                                                                 \
    X(OK, 0, "done")                                                                                                   \
    X(FAILED, 1, "failed after the inputs were accepted")                                                              \
    X(BAD_INPUT, 2, "the command line or an input file is wrong")                                                      \
    X(NO_FIT, 3, "no plan fits the machine")                                                                           \
    X(QUIT, 4, "ended by a second signal, without a checkpoint")                                                       \
    X(HUNG_UP, 129, "stopped by SIGHUP after a checkpoint")                                                            \
    X(INTERRUPTED, 130, "stopped by SIGINT after a checkpoint")                                                        \
    X(TERMINATED, 143, "stopped by SIGTERM after a checkpoint")

/* The values are the exit statuses of the command line. */
enum status {
#define STATUS_ENUM(name, value, text) STATUS_##name = (value),
    STATUS_LIST(STATUS_ENUM)
#undef STATUS_ENUM
};

/* Separates the message from its hint in the format of status_set: "--%s: needs a value" HINT "for example %s". */
#define HINT "\x1e"
/* Records the message and the hint, if the format has one, and returns `code`. Each is one line, and control characters
 * become "?". */
enum status status_set(enum status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sets the hint of the current message and returns `code`. */
enum status status_hint(enum status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same unless the status is OK or the message has a hint: for callers that know what the whole file should be. */
enum status status_hint_else(enum status code, const char *text);
/* Puts "text: " before the current message; for callers that know the file or field, and returns `code`. Does nothing
 * where that is STATUS_OK. */
enum status status_prefix(enum status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* STATUS_FAILED with "out of memory (N bytes for WHAT)". */
enum status status_no_memory(unsigned long long bytes, const char *what);
/* The last message and hint of this thread; "" when there is none. Valid until the next call that sets them. */
const char *status_message(void);
const char *status_hint_text(void);
const char *status_name(enum status code);
/* A failure with its message and hint, for another thread or for later. */
struct status_copy {
    enum status status;
    char message[1024], hint[1024];
};
/* The status with this thread's message and hint, which are left out where it is OK. */
void status_save(enum status code, struct status_copy *out);
/* Sets them for this thread, unless the status is OK, and returns it. */
enum status status_restore(const struct status_copy *copy);
void status_clear(void);
/* Whether it stands for a signal that stopped a run after a checkpoint. */
bool status_is_stop(enum status code);
/* The status of a run that this signal stops; schedulers' signals (SIGUSR1, SIGUSR2) count as SIGTERM. */
enum status status_of_signal(int signal);

/* Returns the status of `expression` where it is not STATUS_OK. */
#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        enum status try_status_ = (expression);                                                                        \
        if (try_status_ != STATUS_OK) return try_status_;                                                              \
    } while (0)
/* On failure, sets `variable` and jumps. For variables that cannot free themselves (AUTO, base/mem.h). They start out
 * empty, so that the label can free them from any point.
 *
 *         struct vec words = {0};
 *         enum status status;
 *         TRY_GOTO(status, words_read(path, &words), done);
 *         TRY_GOTO(status, words_sort(&words), done);
 *     done:
 *         vec_free(&words);
 *         return status;
 *
 * Where the caller owns the result on success, the label is `failed` and `return STATUS_OK;` stands before it. */
#define TRY_GOTO(variable, expression, label)                                                                          \
    do {                                                                                                               \
        (variable) = (expression);                                                                                     \
        if ((variable) != STATUS_OK) goto label;                                                                       \
    } while (0)

/* Ends the process with a report: for states that only a defect in Ballast can reach. */
__attribute__((noreturn)) void bug_report(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define BUG(...) bug_report(__FILE__, __LINE__, __VA_ARGS__)
#define BUG_IF(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (condition) BUG(__VA_ARGS__);                                                                               \
    } while (0)
