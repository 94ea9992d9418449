/* Times nodes as a step meets them: one after the other in the graph's order, each on the memory that those before it
 * wrote. An operator that is called again and again on the same operands finds them in the first caches, and was
 * measured up to four times faster than it is in a step. For backends whose calls return when the work is done. */
#pragma once

#include "profile/operator_bench.h"
#include "profile/points.h"

enum { WALK_PASSES_MIN = 2, WALK_PASSES_MAX = 7 };

/* A node and its operands; the rest is the walk's. */
struct walk_call {
    struct operands operands;
    struct kernel *kernel;
    int64_t offset[OPERAND_COUNT]; /* by storage, in the walk's memory */
    uint32_t fills;                /* bits: storages that no call before it has filled */
    uint32_t evicts;               /* bits: storages that are taken out of the caches before the call (evict) */
    int64_t scalars_offset;
    bool settled; /* it is not called again, but before one that is */
    int count;    /* of the samples */
    struct sample samples[WALK_PASSES_MAX];
};

/* A pass calls all nodes. Before it, and where forward ends and backward begins, as many bytes are read as a step goes
 * through meanwhile. */
struct node_walk {
    const struct backend *backend;
    struct walk_call *calls;
    int count;
    char *base;
    int64_t workspace_offset;
    int64_t flush_offset, flush_bytes;
};

/* Lays out the calls' operands: their bytes, and their places. Calls share tensors. Integer tensors are not shared,
 * since each has values that are legal for its call. `places` has space for a number for each tensor of the graph. */
int64_t node_walk_lay_out(const struct graph *graph, struct walk_call *calls, int count, int64_t *places);

/* `calls` are of nodes of one graph, in its order, and have been laid out in `bytes`. Takes the memory for workspaces
 * and for reading `flush_bytes` too, and uses it until something else does. The backend's threads must be set. Close in
 * any case. FAILED without memory; what backend_kernel_create says. */
enum status node_walk_open(const struct backend *backend, struct walk_call *calls, int count, int64_t bytes,
                           int64_t flush_bytes, struct bench_memory *memory, struct node_walk *out);
void node_walk_close(struct node_walk *walk);
/* One pass that nobody times. FAILED when a kernel does. */
enum status node_walk_run(struct node_walk *walk);
/* Makes two passes, and others until `budget_s` are spent, WALK_PASSES_MAX in all. Later passes leave out calls whose
 * samples agree (measurement_settled). Calls over 0.15 s count once. Then each call has samples. */
enum status node_walk_measure(struct node_walk *walk, double budget_s);

/* Bytes of everything that a micro-batch's step touches. */
int64_t walk_step_bytes(const struct graph *graph);

/* Measures points in walks over their nodes, each as long as the memory allows. */

/* Whether a point is measured in the graph's order: an operator as it is, of points that know their graph. */
bool walk_points_has(const struct points *points, const struct point *point);

struct walk_options {
    const struct backend *backend;
    struct profile_cache *cache;
    struct bench_memory *memory; /* of each member of the contention group */
    double budget_s;
    double left_s; /* walks that would take longer are left out; 0: none is */
};
/* Measures points that lack a time or have a noisy one, and puts them into the cache. Each node is preceded by its
 * predecessor in the graph, which is timed only if it lacks a time too. Adds the measurements to *measured. Finds
 * whether a step leaves the caches (points->evicts). */
enum status walk_points_measure(struct points *points, const struct walk_options *options, int32_t *measured);
