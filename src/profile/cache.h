/* Measurements of a machine, kept between processes: one file for each machine (processor, cores, device, instruction
 * set, threads, measurements at once, version of the kernels), values by text keys.
 *
 * Noisy values (measurement.h, rates_noisy) were taken while other programs ran. They are found like the rest, and the
 * caller measures again; of two values of one key the lower is kept (rates_lower).
 *
 * A file that is damaged or of another machine is ignored. Before the file is replaced, values that other processes
 * wrote meanwhile are read in, so processes may share a directory. A failure to write is logged and is no error: the
 * values are measured again next time. */
#pragma once

#include <jansson.h>

#include "backend/backend.h"
#include "base/base.h"
#include "ir/tensor.h"
#include "machine/cluster.h"
#include "profile/measurement.h"

struct profile_cache {
    char *path;           /* NULL: nothing is kept */
    char *machine;        /* text */
    json_t *values;       /* {"operators": {KEY: [SECONDS, SPREAD]}, "products": {DTYPE: [SECONDS a GFLOP, SPREAD]},
                             "rates": {KEY: {…}}, "links": {MESH: {"way", "noise", "links", "slowdown"}}} */
    int64_t memory_bytes; /* for measuring, of each member: PROFILE_MEMORY_BYTES or a lower power of two */
    struct contention contention; /* the members that measure at once, */
    int threads;                  /* each with so many */
    bool crowded;                 /* more threads at once than the processor has: their waiting is no noise */
    bool changed;
};

/* The most memory that measuring takes. With less there are fewer copies that make operands cold, and times differ:
 * they are kept apart, by the memory rounded down to a power of two, and times measured with enough memory come first.
 */
#define PROFILE_MEMORY_BYTES ((int64_t)512 << 20)
#define PROFILE_MEMORY_BYTES_MIN ((int64_t)16 << 20)

/* `memory_bytes`: how much available memory each member may take; 0: all. Without a directory in the options the cache
 * begins empty and is not written; `anew`: it begins empty. FAILED without memory. Close in any case. */
struct profile_options;
enum status profile_cache_open(const struct backend *backend, const struct profile_options *options,
                               int64_t memory_bytes, struct profile_cache *out);
/* Writes new values. An earlier failure's message stays. */
void profile_cache_close(struct profile_cache *cache);

/* False when the cache lacks it. */
bool profile_cache_find(const struct profile_cache *cache, const char *key, struct measurement *out);
/* *measurement becomes the lower of the new and the old value; products' too. */
enum status profile_cache_put(struct profile_cache *cache, const char *key, struct measurement *measurement);
bool profile_cache_find_rates(const struct profile_cache *cache, const char *key, struct cluster_rates *out);
enum status profile_cache_put_rates(struct profile_cache *cache, const char *key, const struct cluster_rates *rates);
/* Seconds of a GFLOP of GEMMs. */
bool profile_cache_find_product(const struct profile_cache *cache, enum dtype dtype, struct measurement *out);
enum status profile_cache_put_product(struct profile_cache *cache, enum dtype dtype, struct measurement *measurement);
/* Finds the last measurement between ranks on this mesh: `rates` gets links, and slowdowns of and by messages. With a
 * `way` (link_rates.h) only if that was its way and it was not noisy. */
bool profile_cache_find_links(const struct profile_cache *cache, const struct mesh *mesh, const char *way,
                              struct cluster_rates *rates);
enum status profile_cache_put_links(struct profile_cache *cache, const char *way, const struct cluster_rates *rates);
/* Whether the rates' noise is above a half. */
bool rates_noisy(const struct cluster_rates *rates);
