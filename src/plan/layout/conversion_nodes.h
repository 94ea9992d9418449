/* A conversion as nodes of a graph: each step of the way from one layout to another (plan/layout/conversion.h) is the
 * collectives of a group (ir/ops/group_collectives.c). Gradients go the other way round. A step is of one axis of the
 * mesh, among the ranks that stand apart along it alone. */
#ifndef BALLAST_PLAN_LAYOUT_CONVERSION_NODES_H
#define BALLAST_PLAN_LAYOUT_CONVERSION_NODES_H

#include "ir/ops/ops.h"
#include "plan/layout/layout.h"

/* The place of a device of the mesh on the axis of a step. */
struct group_part conversion_step_part(const struct device_mesh *mesh, const struct layout_step *step, int64_t device);

/* x as the device at the place `part` has it after the step. Gathered, each rank's gradient of the whole is a part of
 * its sum where `partial`; else it is the same on all. NULL is passed on. */
struct tensor *conversion_add_step(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                                   const struct layout_step *step, bool partial);

#endif
