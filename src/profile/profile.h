/* Measures the machine, through the backend that will compute: seconds of operators, rates, slowdowns.
 *
 * Files, in the order to read them: profile (this), profile_model (a model's costs), measurement (repeated times and
 * their spread), profile_cache (what was measured, in a file); operators: operands (shared and cold ones, and the key
 * of equal operators), operator_values (operands' contents), operator_bench (timing), points (what is to be measured),
 * part_node (large ones on a part), size_curve (updates by size); rates: machine_rates (all of them), matrix_rate
 * (products), rate_work and work_clock (repeated work and its time), transfer_rates (copies), issue_rate (an
 * instruction without work), slowdown (concurrent activities); between ranks: link_rates, link_slowdown;
 * without measuring: described_device, roofline. */
#ifndef BALLAST_PROFILE_PROFILE_H
#define BALLAST_PROFILE_PROFILE_H

#include "backend/backend.h"

struct profile_cache;

/* The rate of matrix products in this dtype with the backend's present number of threads: the yardstick of MFU. That
 * of the lowest third of several calls of the backend's `linear`, on 512 x 768 x 3072 or 512 x 3072 x 768, whichever is
 * faster; about 0.2 s. Takes memory of its own for that time, about 40 MiB. With f times the CPU's tokens in a grain,
 * f^2 times the rows and f times the columns: a GPU's take 1.4 GiB. FAILED when the backend has no such kernel or there
 * is no memory. */
enum status profile_matrix_rate(const struct backend *backend, enum dtype dtype, double *flops_per_s);
/* The same from the cache, or measured when the cache has none or a noisy one; *measured counts the measurements. */
enum status profile_find_matrix_rate(const struct backend *backend, enum dtype dtype, struct profile_cache *cache,
                                     double *flops_per_s, int32_t *measured);
/* The same from the cache in a folder (profile_cache.h; NULL: none) for so much memory, with so many threads. */
enum status profile_matrix_rate_kept(const struct backend *backend, enum dtype dtype, int threads, int64_t memory_bytes,
                                     const char *cache_folder, double *flops_per_s);

#endif
