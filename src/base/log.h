/* Progress, warnings and notes for the person at the terminal: always on stderr, one line each. */
#ifndef BALLAST_BASE_LOG_H
#define BALLAST_BASE_LOG_H

#include <stdbool.h>

/* Quiet keeps warnings and drops notes. */
void log_set_quiet(bool quiet);
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
