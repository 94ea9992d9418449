/* Measures a model's operators, so that its programs can be simulated. */
#pragma once

#include "backend/backend.h"
#include "machine/cluster.h"
#include "profile/profile.h"
#include "search/sim/costs.h"

/* The most memory that measuring takes for a graph: the bytes of its tensors in a micro-batch, since training needs
 * them too. 0, meaning all, on a device with memory of its own. */
int64_t profile_memory_of(const struct backend *backend, const struct graph *graph);

/* All equal nodes of a graph. */
struct profiled_operator {
    const struct node *node; /* the first of them */
    double seconds;          /* of a call */
    double noise;            /* relative spread of the calls */
    enum activity activity;
    bool extrapolated; /* from parts of it (points.h) */
};

struct profile_report {
    int32_t operators, measured; /* distinct ones of the graph; measurements made, for values that the cache lacked */
    double seconds;              /* taken */
    const char *noisiest;        /* operator with the largest spread, in the graph's memory; NULL */
    double noise;                /* its relative spread */
    struct profiled_operator *list; /* `operators` of them, in the order of the graph */
    int32_t *of_node; /* index in the list, by node id; -1: an operator without a kernel (op.collective) */
};
void profile_report_free(struct profile_report *report);

/* Measures what `cluster` lacks, or finds it in the cache: the rates of GEMMs in both dtypes, zeros, copies
 * between the tiers that options name, issue and slowdowns (machine_rates.h). Under a second, 1.4 with a
 * disk. *measured (may be NULL): how many measurements were made. FAILED without memory or when the disk fails;
 * BAD_INPUT when the directory is none. */
enum status profile_machine(const struct backend *backend, const struct profile_options *options,
                            struct cluster *cluster, int32_t *measured);

/* Fills costs for every node of the graph: nodes equal in operator, shapes, dtypes, attributes, rows and coldness are
 * measured once; updates and norms of parameters, whose cost follows their size, at three sizes whatever the model has;
 * on a processor large GEMMs, attention and heads on a part of their tokens or vocabulary (points.h).
 * Noisy values in the cache (cache.h) are measured again, and the lower time is kept.
 * Of a device with memory of its own, updates are measured in the host tier too, where policies may have them.
 * On a processor they are measured in the order of the graph (graph_walk.h), by PROFILE_MEMORY_BYTES of memory at most
 * or what one operator takes; others one at a time: operands and up to 256 MiB of copies (operator_bench.h), fewer
 * where there is less, on the device and, while values are made, for one operand next to it. Begins with
 * profile_machine. Sets the backend's threads. The caller frees with costs_free and, where it gave one (not NULL),
 * profile_report_free. */
enum status profile_model(const struct backend *backend, const struct graph *graph, struct cluster *cluster,
                          const struct profile_options *options, struct costs *out, struct profile_report *report);

/* The same from the cache alone: `found` is false, and `out` empty, where the cache lacks something. */
enum status profile_model_kept(const struct backend *backend, const struct graph *graph, struct cluster *cluster,
                               const struct profile_options *options, struct costs *out, bool *found);
