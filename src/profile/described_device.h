/* A device that is not here, as a cluster file describes it: programs are compiled for it and their time is predicted,
 * but nothing is executed. */
#ifndef BALLAST_PROFILE_DESCRIBED_DEVICE_H
#define BALLAST_PROFILE_DESCRIBED_DEVICE_H

#include "backend/backend.h"

/* The device that described_device_find was last given; its kernels cannot be called. Costs: profile/roofline.h. */
extern const struct backend backend_described;

/* Whether plans for this cluster are made without its device: it is of another kind or instruction set than what
 * `here` uses. Sets *out to backend_described then, and to `here` otherwise. BAD_INPUT where the file (`file` stands
 * for it in messages) then lacks what a plan needs: limits and rates. Called once, before other threads are started. */
enum status described_device_find(const char *file, const struct cluster *cluster, const struct backend *here,
                                  const struct backend **out);

#endif
