/* Costs in place of measured ones, in every test program of a module with sessions that does not say `measures`
 * (cmake/Tests.cmake): no plan then depends on the machine or on how busy it is.
 *
 * The linker calls these functions in place of those of session/machine_costs.h. Before it is "measured" nothing is
 * known, as with an empty cache directory. A described device keeps the costs of its data sheet. */
#pragma once

#include "session/machine_costs.h"

/* By FLOPs and bytes: a call of an operator takes the same in every graph. Copies are slower than kernels, the disk is
 * slower than copies, messages between ranks take time. Ends the test when out of memory. Free with costs_free. */
struct costs given_costs(const struct graph *graph, const struct mesh *mesh);
