/* The measurements that a graph needs: each distinct operator once, operators over a whole parameter at the sizes of
 * their curve (size_curve.h), large ones on parts (part_node.h). */
#pragma once

#include "profile/operator_bench.h"
#include "profile/part_node.h"
#include "profile/profile_cache.h"
#include "profile/size_curve.h"

struct point {
    const char *key; /* operator_key */
    struct operands operands;
    int64_t elements; /* of the parameter, on a curve; 0: none */
    struct part part; /* that is measured; all zero: the operator as it is */
    double work;      /* bytes plus FLOPs of a call, by which measurements are ordered */
    struct measurement measurement;
};

/* Zero-initialise; points_free. */
struct points {
    const struct graph *graph; /* operators are measured in its order (walk_points.h); NULL: each by itself */
    bool on_host;              /* of kernels for the host tier of a device with memory of its own */
    double large_flops;        /* parts_of */
    VEC(struct point) list;
    struct scratch keys;
    bool evicts; /* cold operands are taken out of the caches (walk_points_measure tells) */
};
void points_free(struct points *points);

/* Where a node's points are in the list: one for the operator as it is, CURVE_POINTS, or one for each of its parts. */
struct point_set {
    int32_t at[CURVE_POINTS];
    struct parts parts;
};
/* Adds the points of a node that the list lacks. */
enum status points_add(struct points *points, const struct operands *operands, struct point_set *out);
/* Seconds and spread of a node with these points, when all were measured. */
struct measurement points_cost(const struct points *points, const struct operands *operands,
                               const struct point_set *set);

/* Whether a point has no time, or a noisy one. */
bool point_lacks(const struct point *point);

/* Measures the points that the cache lacks, or has noisy values of, and puts them there: first those that are measured
 * in the order of the graph, then others, small ones first, each with an equal share of the time until `end_ns`
 * (clock.h), but at least one call; then noisy ones again while time is left. Counts them in *measured. The backend's
 * threads must be set before. */
enum status points_measure(struct points *points, const struct backend *backend, struct profile_cache *cache,
                           int64_t end_ns, int32_t *measured);
