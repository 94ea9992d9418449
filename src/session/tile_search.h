/* Whether a step is faster, or fits at all, with the MLPs in tiles over a micro-batch's tokens (ir/token_tiles.h):
 * each size of a tile is a graph of its own, for which policies are searched as for any other. */
#ifndef BALLAST_SESSION_TILE_SEARCH_H
#define BALLAST_SESSION_TILE_SEARCH_H

#include "session/session_plan.h"

/* Where the plan, whose policy was chosen, does not fit or moves or computes again: the best of it and of plans with
 * tiles of a few sizes takes its place. Nothing is tried on several ranks, or where tiles are not possible. */
enum status tile_search(struct session_plan *plan);

#endif
