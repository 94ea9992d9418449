/* Measures the machine, through the backend that will compute: seconds of operators, rates, slowdowns.
 *
 * Files, in the order to read them:
 *   profile: this file;
 *   model: the costs of a model's operators;
 *   measurement: repeated times, their spread, and several measurements at once;
 *   cache: measurements kept in a file;
 *   operator_bench: an operator, its operands and their values, timed alone;
 *   points: measurements that a graph needs, updates by size and large operators by parts;
 *   graph_walk: points measured in the graph's order;
 *   machine_rates: GEMMs, copies between tiers and the cost of an instruction;
 *   rate_work: repeated work of each activity, and how activities slow each other down;
 *   link_rates: messages between ranks;
 *   described_device: costs without measuring. */
#pragma once

#include "backend/backend.h"
#include "profile/measurement.h"

struct profile_cache;

struct profile_options {
    const char *disk_folder;  /* where the disk tier will be; NULL: it is not measured */
    bool host_tier;           /* whether there is one */
    const char *cache_folder; /* measurements are kept here and found again; NULL: neither */
    bool anew;                /* measure everything again */
    int threads;
    double budget_s; /* seconds for operators, about; each distinct one is called at least once. 0: PROFILE_BUDGET_S */
    int64_t memory_bytes; /* approximate maximum for measuring (cache.h). 0: profile_memory_of the model, or without a
                           * model the available memory */
    const struct contention *contention; /* borrowed. NULL: one measurement at a time. A device's are always that */
};
#define PROFILE_BUDGET_S 3.0

/* Seconds of a GFLOP of GEMMs in this dtype with the backend's present number of threads: the yardstick of
 * MFU. It times several undisturbed calls (measurement.h) of the backend's `linear`, on 512 x 768 x 3072 or 512 x 3072
 * x 768, whichever is faster; about 0.2 s. Takes about 27 MiB for that time. With f times the CPU's tokens in a
 * micro-batch, a device has f^2 times the rows and f times the columns: a GPU's take 0.7 GiB. FAILED when the backend
 * has no such kernel or there is no memory. */
enum status profile_measure_matrix_rate(const struct backend *backend, enum dtype dtype, struct measurement *out);
/* The rate from the cache, or measured when the cache has none or a noisy one; *measured counts the measurements. */
enum status profile_find_matrix_rate(const struct backend *backend, enum dtype dtype, struct profile_cache *cache,
                                     double *flops_per_s, int32_t *measured);
/* The same from the cache of these options, whose threads, contention and memory_bytes it is for. */
enum status profile_matrix_rate_kept(const struct backend *backend, enum dtype dtype,
                                     const struct profile_options *options, double *flops_per_s);
