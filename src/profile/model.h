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

/* Fills the costs of every node of the graph. Begins with profile_machine and sets the backend's threads. The caller
 * frees with costs_free and, if `report` is not NULL, with profile_report_free.
 *
 * - Nodes that are equal in operator, shapes, dtypes, attributes, rows and coldness are measured once.
 * - Updates and norms of parameters cost time by their size, and are measured at three sizes for any model.
 * - On a processor, large GEMMs, attention and heads are measured on a part of their tokens or vocabulary (points.h).
 * - Noisy values in the cache (cache.h) are measured again, and the lower time is kept.
 * - On a device with memory of its own, updates are also measured in the host tier, if policies may place them there.
 * - On a processor, nodes are measured in the order of the graph (graph_walk.h), in at most PROFILE_MEMORY_BYTES of
 *   memory or one operator's, if that is larger.
 * - On other devices they are measured one at a time, with operands and up to 256 MiB of copies (operator_bench.h), or
 *   fewer if there is less memory. While values are made, one more operand is in memory. */
enum status profile_model(const struct backend *backend, const struct graph *graph, struct cluster *cluster,
                          const struct profile_options *options, struct costs *out, struct profile_report *report);

/* The same from the cache alone: `found` is false, and `out` empty, where the cache lacks something. */
enum status profile_model_kept(const struct backend *backend, const struct graph *graph, struct cluster *cluster,
                               const struct profile_options *options, struct costs *out, bool *found);
