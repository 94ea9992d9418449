/* How much each activity slows down each other one. */
#pragma once

#include "profile/rate_work.h"

/* How often each activity alone and each pair is measured, apart in time, a pair of which two rounds agree within 5%
 * not again; the least counts. */
enum { SLOWDOWN_ROUNDS = 3 };
/* Fills rates->slowdown for a machine without concurrent streams: all are 1. */
void slowdown_none(struct cluster_rates *rates);
/* Measurements that slowdown_measure takes of the machine's allowance. */
int slowdown_races(const bool present[ACTIVITY_COUNT]);

/* Fills rates->slowdown and raises rates->noise, for the activities that are `present`; with others it is 1. Each pair
 * works for up to 7 ms in two threads, as the runner's workers do: each with compute threads of its own, and the
 * second at work half of the time. With t the time of a piece and f the part of the time that the other was at work,
 *     slowdown = 1 + (t_beside / t_alone - 1) / f.
 * Of two copies in memory one goes to the device and the other from it, as programs have them; that two reads or two
 * writes of the disk are concurrent no program has. Goes beyond the
 * machine's allowance only so far that each is measured once. */
enum status slowdown_measure(const struct rate_machine *machine, const bool present[ACTIVITY_COUNT],
                             struct cluster_rates *rates);
