/* The proof that the schedules of one operation, one a rank, fit together: they are walked side by side with vector
 * clocks (Mattern, 1989). Nobody waits for ever, each transfer meets the one that it is for, and what ranks read of
 * each other's data in place is neither read before its owner has it nor written until it was read. */
#ifndef BALLAST_COLLECTIVE_SCHEDULE_PROOF_H
#define BALLAST_COLLECTIVE_SCHEDULE_PROOF_H

#include "collective/comm_schedule.h"

/* `schedules` of an operation of this kind, by position in the group. FAILED naming the rank, its step and the rule
 * that is broken. */
enum status comm_schedules_verify(enum comm_kind kind, const struct comm_schedule *schedules, int ranks);

#endif
