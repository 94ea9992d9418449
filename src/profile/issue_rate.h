/* The cost of an instruction beside its work: to its own stream, and until others notice its end. */
#ifndef BALLAST_PROFILE_ISSUE_RATE_H
#define BALLAST_PROFILE_ISSUE_RATE_H

#include "backend/backend.h"

/* Seconds of an instruction without work on its stream, and from its end until a stream that waited for it goes on.
 *
 * On a processor streams are the runner's workers (runtime/runner.c): the lock, checking the waits, waking the others;
 * the stream computes for some microseconds before each, so that the worker of the other one is asleep again. On a
 * device they are the backend's, and events the waits: the device's time for a wait that is met and a record, and for a
 * wait for what another stream has just recorded. */
enum status issue_measure(const struct backend *backend, double *issue_s, double *wake_s);

#endif
