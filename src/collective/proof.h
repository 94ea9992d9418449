/* The proof that the schedules of an operation, one a rank, fit together, in all groups that execute it at once. They
 * are walked side by side with vector clocks. In each group all ranks have the same operation; nobody waits for ever;
 * each transfer meets the one that it is for; what ranks read of each other's data in place is neither read before its
 * owner has it nor written until it was read; no byte that is on its way in a message is used; and at the end each rank
 * has, of every byte, what the operation says: an owner's value, or the sum by the tree, to the order and the rounding
 * of each addition. It knows the operation's definition alone, none of the algorithms. */
#pragma once

#include "collective/schedule.h"

/* What two ranks must have alike of an operation. NULL: each block is its position's, and no rank is empty. */
bool comm_same_group(const struct comm_group *a, const struct comm_group *b);
bool comm_same_owners(const int *a, const int *b, int blocks);
bool comm_same_empty(const bool *a, const bool *b, int ranks);

/* By rank of the mesh: the specification that each has, whose group has the rank, and its schedule; a group of no
 * ranks: the rank takes no part. Of addresses only that `mine` is not NULL counts. FAILED naming the rank, its step and
 * the rule that is broken. */
enum status comm_schedules_verify(const struct comm_spec *specs, const struct comm_schedule *schedules, int ranks);
