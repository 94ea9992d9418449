/* What an instruction costs beside its work. */
#ifndef BALLAST_PROFILE_ISSUE_RATE_H
#define BALLAST_PROFILE_ISSUE_RATE_H

#include "base/status.h"

/* Seconds of an instruction without work on a stream, while a worker of another stream sleeps and is woken after each,
 * as the runner's are (run/runner.c): the lock, the look at the waits, the word to all. */
enum status issue_measure(double *seconds);

#endif
