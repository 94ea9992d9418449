/* What has to be measured for a graph: each distinct operator once, those that follow a parameter's size at the sizes
 * of their curve (size_curve.h). */
#ifndef BALLAST_PROFILE_POINTS_H
#define BALLAST_PROFILE_POINTS_H

#include "profile/operator_bench.h"
#include "profile/profile_cache.h"
#include "profile/size_curve.h"

struct point {
    const char *key; /* operator_key.h */
    struct operands operands;
    int64_t elements; /* of the parameter, on a curve; 0: the operator as it is */
    struct measurement measurement;
};

/* Zero-initialise; points_free. */
struct points {
    bool on_host; /* of kernels that run in the host tier of a device with memory of its own */
    VEC(struct point) list;
    struct scratch keys;
};
void points_free(struct points *points);

/* The node's own point, or all CURVE_POINTS of its curve, one after the other: `first` of them is its index. Equal
 * nodes have the same. */
enum status points_add(struct points *points, const struct operands *operands, int32_t *first);
/* Seconds and spread of a node whose first point is `first`, when all were measured. */
struct measurement points_cost(const struct points *points, const struct node *node, int32_t first);

/* Measures those that the cache has not, or has noisy ones of, and puts them there: the small ones first, each with an
 * equal part of the time that is left until `end_ns` (clock.h), but one call at least; then again what is still noisy
 * and fits in what is left of the time. Counts them in *measured. The backend's threads must be set before. */
enum status points_measure(struct points *points, const struct backend *backend, struct profile_cache *cache,
                           int64_t end_ns, int32_t *measured);

#endif
