/* Measurements of a machine, kept between processes: one file for each machine (processor, cores, device, instruction
 * set, threads, version of the kernels), values by text keys.
 *
 * Noisy values (measurement.h, rates_noisy) were taken beside other programs. They are found like the rest, and the
 * caller measures again; of two values of one key the lower is kept (rates_lower).
 *
 * A file that is damaged or of another machine is ignored. Before the file is replaced, values that other processes
 * wrote meanwhile are read in, so processes may share a folder. A failure to write is logged and is no error: the
 * values are measured again next time. */
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
    int64_t memory_bytes; /* memory for measuring: PROFILE_MEMORY_BYTES or a lower power of two */
    bool changed;
};

/* The most memory that measuring takes. With less there are fewer copies that make operands cold, and times differ:
 * they are kept apart, by the memory rounded down to a power of two, and times measured with enough memory come first.
 */
#define PROFILE_MEMORY_BYTES ((int64_t)512 << 20)
#define PROFILE_MEMORY_LEAST_BYTES ((int64_t)16 << 20)

/* `memory_bytes`: how much available memory measuring may take; 0: all. `folder` NULL: the cache begins empty and is
 * not written. `anew`: it begins empty. FAILED without memory. Close in any case. */
enum status profile_cache_open(const char *folder, const struct backend *backend, int threads, int64_t memory_bytes,
                               bool anew, struct profile_cache *out);
/* Writes new values. An earlier failure's message stays. */
void profile_cache_close(struct profile_cache *cache);

/* False when the cache lacks it. */
bool profile_cache_find(const struct profile_cache *cache, const char *key, struct measurement *out);
enum status profile_cache_put(struct profile_cache *cache, const char *key, const struct measurement *measurement);
bool profile_cache_find_rates(const struct profile_cache *cache, const char *key, struct cluster_rates *out);
enum status profile_cache_put_rates(struct profile_cache *cache, const char *key, const struct cluster_rates *rates);
/* Seconds of a GFLOP of matrix products. */
bool profile_cache_find_product(const struct profile_cache *cache, enum dtype dtype, struct measurement *out);
enum status profile_cache_put_product(struct profile_cache *cache, enum dtype dtype,
                                      const struct measurement *measurement);
/* Whether the rates' noise is above a half. */
bool rates_noisy(const struct cluster_rates *rates);

#endif
