/* The best shape of a plan's ranks; private to the session module. */
#ifndef BALLAST_SESSION_SHAPE_SEARCH_H
#define BALLAST_SESSION_SHAPE_SEARCH_H

#include "session/session_plan.h"

/* Chooses among plan->shapes: `chosen`, `programs`, `search` and `costs` become those of the fastest plan of
 * any of them, and each shape gets its outcome. All shapes are bounded before one is compiled; those that cannot be
 * faster than the best found are not. Where none fits, the plan is that of the shape that needs least of the device. */
enum status shape_search(struct session_plan *plan);

#endif
