/* What operators cost on a device that is only described (cluster_limits): a node's shape, by the kernels of
 * machine/kernel_cost.h. An estimate, to plan with and to hold the first measurement against. */
#pragma once

#include "machine/kernel_cost.h"

struct roofline {
    const char *class_name; /* "GEMMs", "attention", … */
    double seconds;         /* of a call, expected, its launch not counted */
    double limit_s;         /* of a call at the data sheet's rates: FLOPs and bytes of op_cost, the slower of the two */
};

struct roofline roofline_of(const struct node *node, const struct cluster_device *device, enum roofline_case which);

/* Whether the class is bound by its products, which have kernels of their own in the slowdowns. */
bool roofline_is_product(enum op_work work);
