/* The rates of the machine apart from operators: zeros, copies between tiers, the cost of an instruction, slowdowns. */
#pragma once

#include "backend/backend.h"
#include "machine/rates.h"
#include "profile/measurement.h"
#include "profile/rate_work.h"

struct rates_options {
    const char *disk_folder; /* directory of the disk tier; NULL: none */
    bool host_tier;
    int threads;          /* of kernels */
    int64_t memory_bytes; /* the most that each member takes, about */
    const struct contention *contention;
};

/* Measures through the backend and src/runtime/store, as programs use them: about 0.1 s, 2 s with all tiers, and
 * hardly more than 1.2 s on a busy machine, where there are fewer repeats. With the device tier alone nothing is
 * concurrent, and slowdowns are 1. Takes up to 300 MiB (of a device whose micro-batches are four times the CPU's, 1
 * GiB) for that time and a file of 32 MiB without a name in the disk's directory. Missing tiers have rates of 0 and
 * slowdowns of 1. Under contention all members measure all of it at once, and the first one's values are taken. Sets
 * the backend's threads. BAD_INPUT and FAILED as arena_open for the directory. */
enum status machine_rates_measure(const struct backend *backend, const struct rates_options *options,
                                  struct cluster_rates *out);
