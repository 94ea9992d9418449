/* Rates in JSON: a part of cluster files, and of what src/profile keeps. */
#ifndef BALLAST_CLUSTER_RATES_JSON_H
#define BALLAST_CLUSTER_RATES_JSON_H

#include <jansson.h>

#include "base/status.h"
#include "cluster/rates.h"

/* {"issue_s", "wake_s", "noise", "zero": {"latency_s", "bytes_per_s"},
 *  "copies": [{"from", "to", "latency_s", "bytes_per_s"}], "slowdown": {ACTIVITY: {BESIDE: FACTOR}}}; copies between
 * tiers that were not measured are left out. NULL when out of memory. */
json_t *rates_to_json(const struct cluster_rates *rates);
/* BAD_INPUT "FILE: rates…: what is wrong"; `out` is then as it was. */
enum status rates_from_json(const char *file, const json_t *object, struct cluster_rates *out);

#endif
