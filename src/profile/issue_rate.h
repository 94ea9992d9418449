/* What an instruction costs beside its work, its own stream and others. */
#ifndef BALLAST_PROFILE_ISSUE_RATE_H
#define BALLAST_PROFILE_ISSUE_RATE_H

#include "base/status.h"

/* What an instruction without work costs its stream, and how long it then takes until the worker of another stream that
 * slept for it goes on, as the runner has it (run/runner.c): the lock, the look at the waits, the word to all. The
 * stream computes for some microseconds before each, so that the other one is asleep again. */
enum status issue_measure(double *issue_s, double *wake_s);

#endif
