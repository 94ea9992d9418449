/* Measures a model's operators, so that its programs can be simulated. */
#ifndef BALLAST_PROFILE_PROFILE_MODEL_H
#define BALLAST_PROFILE_PROFILE_MODEL_H

#include "backend/backend.h"
#include "cluster/cluster.h"
#include "sim/costs.h"

struct profile_options {
    const char *disk_folder;  /* where the disk tier will be; NULL: it is not measured */
    bool host_tier;           /* whether there is one */
    const char *cache_folder; /* what was measured is kept here and found again; NULL: neither */
    int threads;
    double budget_s; /* seconds in all, about; each distinct operator runs at least once */
};

struct profile_report {
    int32_t operators, measured; /* distinct ones of the graph; of these not found in the cache */
    double seconds;              /* taken */
    const char *noisiest;        /* operator with the largest spread, in the graph's memory; NULL */
    double noise;                /* its relative spread */
};

/* Fills costs for every node of the graph: nodes equal in operator, shapes, dtypes and attributes are measured once.
 * Takes memory for one operator at a time. rates: measured where options ask for more than `cluster` has. The caller
 * frees with costs_free. */
enum status profile_model(const struct backend *backend, const struct graph *graph, struct cluster *cluster,
                          const struct profile_options *options, struct costs *out, struct profile_report *report);

#endif
