/* A run goes on by another plan: between two steps its states leave one engine and enter another one, bit for bit.
 *
 * At no time do two engines have memory. What becomes of an error depends on when it comes: before the old engine is
 * closed nothing has changed; after that the old plan's engine is opened again, and the run goes on as it was. Only
 * where that fails too is the run at its end: so where memory is short, a checkpoint comes first. What fails on one
 * rank fails on all. */
#ifndef BALLAST_TRAIN_PLAN_CHANGE_H
#define BALLAST_TRAIN_PLAN_CHANGE_H

#include "train/train_loop.h"

/* Between steps, on a run without a checkpoint that is being written; all ranks together, each to its own programs of
 * one plan. To `next`, which is taken over where
 * the run changes, and left to the caller where not. With `next` NULL, to the plan that is chosen for the machine as it
 * is now described while no engine has memory; states then wait on the disk. OK with *changed false: the plan stays,
 * and a note says why. Any other status: the run has no engine any more. */
enum status plan_change_make(struct train_run *run, struct session_plan *next, bool *changed);

/* After an error that all ranks have agreed on and that leaves the run as it was: says so once, and forgets it. */
void plan_change_report_stay(const struct train_run *run);

#endif
