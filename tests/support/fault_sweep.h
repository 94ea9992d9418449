/* Makes each operation of a kind fail in turn, and checks the result. */
#pragma once

#include <stdbool.h>

#include "base/fault.h"
#include "base/status.h"

/* Runs `body` with the 1st, 2nd, … operation of `kind` failing (and all later ones too if `sticky`) until one run meets
 * no fault. A run that met its fault must return a status other than OK and leave a message; the last one must return
 * OK. `body` frees what it made in both cases: the sanitizers' build finds what it does not. Returns how many faults
 * were met; ends the cmocka test where a run broke the rule. */
int fault_sweep(enum fault_kind kind, bool sticky, enum status (*body)(void *payload), void *payload);
/* The same for kinds that are no failure (FAULT_SHORT, FAULT_SLOW): every run must return OK. */
int fault_sweep_harmless(enum fault_kind kind, bool sticky, enum status (*body)(void *payload), void *payload);

/* Runs `body` in processes of their own, of which the nth is killed (SIGKILL) in place of its nth operation of the
 * kind, until one gets to its end, which must be OK; after each kill `after` is called here. Neither may have run
 * OpenMP in this process before: its threads do not outlive a fork. Returns how many were killed. */
int fault_sweep_killed(enum fault_kind kind, enum status (*body)(void *payload), void (*after)(void *payload),
                       void *payload);
/* Runs `body` once in a process of its own; ends the cmocka test where it is not OK. */
void run_apart(enum status (*body)(void *payload), void *payload);

/* jansson allocates through fault points too, until called with false: for tests that make each allocation fail.
 * fault_sweep_bearable then also checks that none of its blocks is left. */
void json_faults(bool on);

/* Work of which not every failed operation may end it: what is kept for later and cannot be read is recreated. */
struct fault_subject {
    enum status (*body)(void *payload);
    /* Called with no fault armed after each run, whatever came of it: what must hold then. May be NULL. */
    void (*after)(void *payload, enum status status);
    void *payload;
};
struct fault_tally {
    int64_t operations; /* of a run without faults */
    int hit, reported;  /* runs that met their fault; those of them that did not return OK */
};
#define FAULT_EVERY UINT64_MAX
/* Runs it without a fault and then with some `wanted` of its operations failing one by one, evenly spread from the
 * first on; with FAULT_EVERY, or where there are no more, each. A run that is not OK must have met its fault and left a
 * message. Prints what came of each, and the tally; ends the cmocka test where a run broke the rule. */
struct fault_tally fault_sweep_bearable(enum fault_kind kind, bool sticky, uint64_t wanted,
                                        const struct fault_subject *subject);
