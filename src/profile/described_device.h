/* A device that is not here, as a cluster file describes it: programs are compiled for it and their time is predicted,
 * but nothing is executed. */
#pragma once

#include "backend/backend.h"

/* The device that described_device_find was last given; its kernels cannot be called. Costs: machine/kernel_cost.h. */
extern const struct backend backend_described;

/* Sets *out to the backend to plan with: `here` where the cluster's device is the one that `here` uses, and
 * backend_described where its kind or instruction set is another. BAD_INPUT where a described device's file (named
 * `file` in messages) lacks the limits and rates that a plan needs. Called once, before other threads are started. */
enum status described_device_find(const char *file, const struct cluster *cluster, const struct backend *here,
                                  const struct backend **out);
