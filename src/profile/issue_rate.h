/* The cost of an instruction apart from its work: on its own stream, and until other streams notice its end. */
#pragma once

#include "backend/backend.h"

/* issue_s: seconds that an instruction without work takes on its stream. wake_s: seconds from its end until a stream
 * that waited for it goes on.
 *
 * On a processor, streams are the runner's workers (runtime/runner.c), and issue_s is taking the lock, checking the
 * waits and waking the others. The stream computes for some microseconds before each, so that the other worker is
 * asleep again. On a device, streams and events are the backend's: issue_s is a wait that is already met and a record,
 * wake_s the wait for a record that another stream has just made. */
enum status issue_measure(const struct backend *backend, double *issue_s, double *wake_s);
