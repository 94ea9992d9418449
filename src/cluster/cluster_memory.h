/* The memory of a machine whose /proc and cgroups lie below a folder. */
#ifndef BALLAST_CLUSTER_CLUSTER_MEMORY_H
#define BALLAST_CLUSTER_CLUSTER_MEMORY_H

#include "cluster/cluster.h"

/* cluster_measure_memory with `root` before all paths: "" for this machine, a folder in tests. */
enum status cluster_measure_memory_at(const char *root, struct cluster_memory *out);

#endif
