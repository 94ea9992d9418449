/* Measures profiles for tests, and changes stored results as if they had been measured differently. */
#pragma once

#include "ir/graph.h"
#include "machine/cluster.h"

/* Two operators, which are measured in no time. */
struct graph *kept_profile_graph(void);
/* A machine whose rates are known, so that only operators are measured. */
struct cluster kept_profile_machine(void);
/* Gives every operator of a file that a profile was kept in this spread and, above 0, this time. */
void kept_profile_set(const char *path, double seconds, double spread);
/* Calls no measurement noisy that is kept under this cache directory, so that none is repeated. A busy machine would
 * have each start of the program measure again, for up to some seconds. */
void kept_profile_quieten(const char *cache);
