/* Which ranks are near each other, by what was measured between pairs. */
#pragma once

#include "machine/links.h"

/* A pair is far where another has at least so many times its bytes a second: less tells nothing of wires. */
static const double LINK_ROWS_FAR = 2;

/* The ranks in rows of near ones (mesh_rows_search of plan/layout/device_mesh.h). None, with out->rows 0, where not
 * every pair was measured, or no pair is far. FAILED without memory. */
enum status link_rows_find(const struct cluster_links *links, struct link_rows *out);
/* Whether links->rows are the nodes of the mesh. */
bool link_rows_are_nodes(const struct cluster_links *links);
