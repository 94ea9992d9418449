/* What operators cost on a device that is only described (cluster_limits): by class of operator, the part of the data
 * sheet's rates that its kernels are expected to reach. An estimate, to plan with and to hold the first measurement
 * against. */
#ifndef BALLAST_PROFILE_ROOFLINE_H
#define BALLAST_PROFILE_ROOFLINE_H

#include "machine/cluster.h"
#include "search/sim/costs.h"

/* Kernels reach other parts of those rates than expected: the ends of the range that published measurements of
 * comparable kernels allow. */
enum roofline_case { ROOFLINE_SLOW, ROOFLINE_EXPECTED, ROOFLINE_FAST, ROOFLINE_CASES };

struct roofline {
    const char *class_name; /* "products", "attention", ... */
    double seconds;         /* of a call, expected, its launch not counted */
    double limit_s;         /* of a call at the data sheet's rates: FLOPs and bytes of op_cost, the slower of the two */
};

struct roofline roofline_of(const struct node *node, const struct cluster_device *device, enum roofline_case which);

/* Costs of all nodes; updates in the host tier by the host's memory. The cluster has limits and rates. Frees with
 * costs_free. */
enum status roofline_costs(const struct graph *graph, const struct cluster *cluster, enum roofline_case which,
                           struct costs *out);

#endif
