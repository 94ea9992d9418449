/* Makes each operation of a kind fail in turn and checks what comes of it. */
#ifndef BALLAST_TESTS_FAULT_SWEEP_H
#define BALLAST_TESTS_FAULT_SWEEP_H

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

#endif
