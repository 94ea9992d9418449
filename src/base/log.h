/* Warnings and notes for the user, one line each: on stderr, or to a listener in its place. */
#pragma once

#include "base/base.h"

/* Quiet keeps warnings and drops notes. */
void log_set_quiet(bool quiet);
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sets the listener, which gets lines without a newline, from any thread; NULL (the default): stderr. It gets notes
 * even where quiet is set. */
typedef void log_listener(bool warning, const char *text);
void log_listen(log_listener *listener);
