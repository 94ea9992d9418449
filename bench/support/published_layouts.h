/* Reimplements Colossal-Auto's conversion of layouts, from its paper and from its results on known cases: the prices
 * of steps, and the greedy walk that src/plan/layout must never be worse than. Only for comparison. */
#pragma once

#include "plan/layout/sharding.h"

/* Costs of collectives on x elements, in the paper's units: the costs of src/plan/layout plus a constant for each kind.
 * An all-to-all moves half of a device's elements. */
double published_all_gather(const struct device_mesh *mesh, unsigned axes, double x);
double published_reduce_scatter(const struct device_mesh *mesh, unsigned axes, double x);
double published_all_reduce(const struct device_mesh *mesh, unsigned axes, double x);
double published_all_to_all(const struct device_mesh *mesh, unsigned axes, double x);

/* A cut costs 100, on the way back too, where it is the gradient of a gather; a gather is priced by what each device
 * has before it, but as the gradient of a cut by what each has after. */
step_pricer published_step_price;

/* How far apart two ways of cutting one dimension are: 20 for each axis gathered, 5 for each that cuts, 6 between
 * steps. Axes are bits. */
int published_dimension_difference(unsigned from, unsigned to);

/* Steps of its walk: always the step to the layout that differs least from the target. The number of steps, or -1 where
 * it does not arrive. */
int published_walk(const struct device_mesh *mesh, const struct layout_shape *shape, const struct layout *from,
                   const struct layout *to, struct layout_step out[CONVERSION_STEPS_MAX]);
