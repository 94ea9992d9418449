/* A conversion as nodes of a graph: each step of the way from one layout to another (layout/conversion.h) is what the
 * ranks of a group exchange (ops/group_exchange.c). Gradients go the other way round.
 *
 * Ranks exchange within one group, so the mesh has one axis of more than one device. */
#ifndef BALLAST_LAYOUT_CONVERSION_NODES_H
#define BALLAST_LAYOUT_CONVERSION_NODES_H

#include "layout/layout.h"
#include "ops/ops.h"

/* x as the device at the place `part` has it after the step. Gathered, each rank's gradient of the whole is a part of
 * its sum where `partial`; else it is the same on all. NULL is passed on. */
struct tensor *conversion_add_step(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                                   const struct layout_step *step, bool partial);

#endif
