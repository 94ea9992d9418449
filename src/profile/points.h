/* What has to be measured for a graph: each distinct operator once, those that follow a parameter's size at the sizes
 * of their curve (size_curve.h), large ones on parts of them (part_node.h). */
#ifndef BALLAST_PROFILE_POINTS_H
#define BALLAST_PROFILE_POINTS_H

#include "profile/operator_bench.h"
#include "profile/part_node.h"
#include "profile/profile_cache.h"
#include "profile/size_curve.h"

struct point {
    const char *key; /* operator_key.h */
    struct operands operands;
    int64_t elements; /* of the parameter, on a curve; 0: none */
    struct part part; /* that is measured; all zero: the operator as it is */
    double work;      /* bytes and arithmetic of a call, as if both took one time: good enough for an order */
    struct measurement measurement;
};

/* Zero-initialise; points_free. */
struct points {
    bool on_host;       /* of kernels that run in the host tier of a device with memory of its own */
    double large_flops; /* parts_of */
    VEC(struct point) list;
    struct scratch keys;
};
void points_free(struct points *points);

/* Where a node's points are in the list: one for the operator as it is, CURVE_POINTS, or one for each of its parts. */
struct point_set {
    int32_t at[CURVE_POINTS];
    struct parts parts;
};
/* Adds those that are not there yet. */
enum status points_add(struct points *points, const struct operands *operands, struct point_set *out);
/* Seconds and spread of a node with these points, when all were measured. */
struct measurement points_cost(const struct points *points, const struct operands *operands,
                               const struct point_set *set);

/* Measures those that the cache has not, or has noisy ones of, and puts them there: the small ones first, each with an
 * equal part of the time that is left until `end_ns` (clock.h), but one call at least; then again what is still noisy
 * and fits in what is left of the time. Counts them in *measured. The backend's threads must be set before. */
enum status points_measure(struct points *points, const struct backend *backend, struct profile_cache *cache,
                           int64_t end_ns, int32_t *measured);

#endif
