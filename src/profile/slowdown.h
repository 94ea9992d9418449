/* How much slower each activity is beside each other one. */
#ifndef BALLAST_PROFILE_SLOWDOWN_H
#define BALLAST_PROFILE_SLOWDOWN_H

#include "profile/rate_work.h"

/* Fills rates->slowdown and raises rates->noise, for the activities that are `present`; with others it is 1. Each pair
 * runs for 50 ms in two threads, as the runner's workers do: each with compute threads of its own. About 0.2 s for two
 * activities, 1.3 s for all five. */
enum status slowdown_measure(const struct rate_machine *machine, const bool present[ACTIVITY_COUNT],
                             struct cluster_rates *rates);

#endif
