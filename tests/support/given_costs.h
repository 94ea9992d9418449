/* Fixed costs instead of measured ones, for every test program of a module with sessions whose source lacks the
 * comment `measures` (tests/CMakeLists.txt). No plan then depends on the machine or on its load. The linker replaces
 * the functions of session/machine_costs.h with these. Before the first "measurement" nothing is known, as with an
 * empty cache directory. A described device keeps the costs of its data sheet. */
#pragma once

#include "session/machine_costs.h"

/* By FLOPs and bytes: a call of an operator takes the same in every graph. Copies are slower than kernels, the disk is
 * slower than copies, messages between ranks take time. Ends the test when out of memory. Free with costs_free. */
struct costs given_costs(const struct graph *graph, const struct mesh *mesh);
