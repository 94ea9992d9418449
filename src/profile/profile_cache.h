/* What was measured on a machine, kept between runs: one file for each machine (processor, cores, device,
 * instruction set, threads, version of the kernels), by the texts that stand for what was measured.
 *
 * What is noisy (measurement.h, rates_noisy) was taken while something else ran. It is found like the rest, for the
 * caller to measure again; of it and of what is put in its place or found in the file, the lower is kept (rates_lower).
 *
 * A file that is damaged, or of another machine, is as if there were none. It is written beside and renamed, after what
 * other runs have put there meanwhile was read in, so that runs may share a folder. What cannot be written is noted and
 * is no error: it is measured again next time. */
#ifndef BALLAST_PROFILE_PROFILE_CACHE_H
#define BALLAST_PROFILE_PROFILE_CACHE_H

#include <jansson.h>
#include <stdbool.h>

#include "backend/backend.h"
#include "cluster/cluster.h"
#include "graph/tensor.h"
#include "profile/measurement.h"

struct profile_cache {
    char *path;           /* NULL: nothing is kept */
    char *machine;        /* text */
    json_t *values;       /* {"operators": {KEY: [SECONDS, SPREAD]}, "products": {DTYPE: [SECONDS a GFLOP, SPREAD]},
                             "rates": {KEY: {…}}} */
    int64_t memory_bytes; /* what measuring may take: PROFILE_MEMORY_BYTES or a lower power of two */
    bool changed;
};

/* What measuring takes at most. With less, copies that make operands cold are fewer, so that what is measured is
 * another thing: it is kept apart, by the memory rounded down to a power of two, and what was measured with enough
 * comes first. */
#define PROFILE_MEMORY_BYTES ((int64_t)512 << 20)
#define PROFILE_MEMORY_LEAST_BYTES ((int64_t)16 << 20)

/* `memory_bytes`: what measuring may take of what the system leaves; 0: all. `folder` NULL: nothing is found and
 * nothing kept, but what is put in is found again. `anew`: nothing is found at first. FAILED without memory. Close in
 * any case. */
enum status profile_cache_open(const char *folder, const struct backend *backend, int threads, int64_t memory_bytes,
                               bool anew, struct profile_cache *out);
/* Writes what is new. The message of a failure before it stays. */
void profile_cache_close(struct profile_cache *cache);

/* False when it is not there. */
bool profile_cache_find(const struct profile_cache *cache, const char *key, struct measurement *out);
enum status profile_cache_put(struct profile_cache *cache, const char *key, const struct measurement *measurement);
bool profile_cache_find_rates(const struct profile_cache *cache, const char *key, struct cluster_rates *out);
enum status profile_cache_put_rates(struct profile_cache *cache, const char *key, const struct cluster_rates *rates);
/* Seconds of a GFLOP of matrix products. */
bool profile_cache_find_product(const struct profile_cache *cache, enum dtype dtype, struct measurement *out);
enum status profile_cache_put_product(struct profile_cache *cache, enum dtype dtype,
                                      const struct measurement *measurement);
/* The measured activities were apart by more than half of their time. */
bool rates_noisy(const struct cluster_rates *rates);

#endif
