/* Warnings and notes for the person at the terminal, one line each: on stderr, or to who listens in its place. */
#ifndef BALLAST_BASE_LOG_H
#define BALLAST_BASE_LOG_H

#include <stdbool.h>

/* Quiet keeps warnings and drops notes. */
void log_set_quiet(bool quiet);
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whom lines go to, from any thread, without a newline; NULL, as at first: stderr. Notes come even where quiet. */
typedef void log_listener(bool warning, const char *text);
void log_listen(log_listener *listener);

#endif
