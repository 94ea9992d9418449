/* Proves that the schedules of an operation, one a rank, fit together, in all groups that execute it at once. It walks
 * them in parallel with vector clocks. It knows only the operation's definition, none of the algorithms. The rules:
 *
 * - In each group all ranks have the same operation.
 * - No rank deadlocks, and each transfer meets its counterpart.
 * - Data that ranks read in place is not read before its owner has it, and not overwritten until it has been read.
 * - No byte of a message in flight is used.
 * - At the end, each byte on each rank has the operation's result: an owner's value, or the sum by the tree, to the
 *   order and the rounding of each addition. */
#pragma once

#include "collective/schedule.h"

/* Whether two ranks agree on an operation. NULL: each block is its position's, and no rank is empty. */
bool comm_same_group(const struct comm_group *a, const struct comm_group *b);
bool comm_same_owners(const int *a, const int *b, int blocks);
bool comm_same_empty(const bool *a, const bool *b, int ranks);

/* By rank of the mesh: the specification that each has, whose group has the rank, and its schedule; a group of no
 * ranks: the rank takes no part. Among addresses, only whether `mine` is NULL matters. FAILED naming the rank, its
 * step and the rule that is broken. */
enum status comm_schedules_verify(const struct comm_spec *specs, const struct comm_schedule *schedules, int ranks);
