/* Measures what the machine does, through the backend that will do it. */
#ifndef BALLAST_PROFILE_PROFILE_H
#define BALLAST_PROFILE_PROFILE_H

#include "backend/backend.h"

struct profile_cache;

/* The rate of matrix products in this dtype with the backend's present number of threads: the yardstick of MFU. That
 * of the lowest third of several runs of the backend's `linear`, on 512 x 768 x 3072 or 512 x 3072 x 768, whichever is
 * faster; about 0.2 s. Takes memory of its own for that time, about 40 MiB. With f times the CPU's tokens in a grain,
 * f^2 times the rows and f times the columns: a GPU's take 1.4 GiB. FAILED when the backend has no such kernel or there
 * is no memory. */
enum status profile_matrix_rate(const struct backend *backend, enum dtype dtype, double *flops_per_s);
/* The same, but for what is kept and is not noisy. Counts one up in *measured when it was not there. */
enum status profile_find_matrix_rate(const struct backend *backend, enum dtype dtype, struct profile_cache *cache,
                                     double *flops_per_s, int32_t *measured);
/* The same from the cache in a folder (profile_cache.h; NULL: none) for so much memory, with so many threads. */
enum status profile_matrix_rate_kept(const struct backend *backend, enum dtype dtype, int threads, int64_t memory_bytes,
                                     const char *cache_folder, double *flops_per_s);

#endif
