/* Measures points in walks over their nodes (node_walk.h), each as long as the memory allows. */
#pragma once

#include "profile/points.h"

/* Whether a point is measured so: an operator as it is, of points that know their graph. */
bool walk_points_has(const struct points *points, const struct point *point);

struct walk_options {
    const struct backend *backend;
    struct profile_cache *cache;
    struct bench_memory *memory; /* of each member of the contention group */
    double budget_s;
    double left_s; /* walks that would take longer are left out; 0: none is */
};
/* Measures those that lack a time, or have a noisy one, and puts them into the cache. Before each node goes the one
 * before it in the graph, which is timed only where it lacks a time too. Adds the measurements to *measured.
 * Finds out whether a step leaves the caches (points->evicts). */
enum status walk_points_measure(struct points *points, const struct walk_options *options, int32_t *measured);
