/* How fast a machine is, and how much concurrent activities slow each other down: the measured part of a cluster, the
 * same for every model. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "machine/links.h"

/* The memory tiers of a machine, from the fastest, on which kernels work, to the largest. */

/* On a CPU the device tier is RAM within the budget, the host tier (if it is given one) a second block of RAM. */
enum tier { TIER_DEVICE, TIER_HOST, TIER_DISK, TIER_COUNT };
const char *tier_name(enum tier tier);
/* TIER_COUNT when there is none of that name. */
enum tier tier_find(const char *name);

/* The resource that an instruction keeps busy. Two concurrent instructions slow each other down by an amount that
 * depends only on their activities. */
#define ACTIVITY_LIST(X)                                                                                               \
    X(PRODUCT, "matrix products")                                                                                      \
    X(STREAMING, "streaming kernels")                                                                                  \
    X(COPY, "copies in memory")                                                                                        \
    X(DISK_READ, "disk reads")                                                                                         \
    X(DISK_WRITE, "disk writes")                                                                                       \
    X(MESSAGE, "messages")
enum activity {
#define ACTIVITY_ENUM(name, text) ACTIVITY_##name,
    ACTIVITY_LIST(ACTIVITY_ENUM) ACTIVITY_COUNT
#undef ACTIVITY_ENUM
};
const char *activity_name(enum activity activity);

struct cluster_rates {
    bool measured;
    double issue_s; /* of an instruction next to its work: checking its waits, telling other streams that it ended */
    double wake_s;  /* from then until a stream that slept for it goes on */
    struct transfer_rate zero;
    struct transfer_rate copy[TIER_COUNT][TIER_COUNT]; /* from, to */
    /* slowdown[a][b], at least 1: the time of a concurrent with b, over its time alone. slowdown[a][a]: two of one kind
     * on two streams. */
    double slowdown[ACTIVITY_COUNT][ACTIVITY_COUNT];
    struct cluster_links links; /* between ranks */
    /* Relative spread of the repeated measurements, the worst of them: 0.1: 10% of the times is noise. */
    double noise;
};
/* Merges two measurements of one machine: the faster of each transfer, since other programs can only slow them down;
 * the slowdowns, which are quotients, of the less noisy measurement. */
struct cluster_rates rates_lower(const struct cluster_rates *a, const struct cluster_rates *b);

/* --- in JSON: a part of cluster files, and of profiles that src/profile keeps (cluster.c) --- */

/* Without `links`, which cluster files have besides the rates. A file of before version 3 has no slowdown by messages
 * or of them: they are then 1.
 * {"issue_s", "wake_s", "noise", "zero": {"latency_s", "bytes_per_s"},
 *  "copies": [{"from", "to", "latency_s", "bytes_per_s"}], "slowdown": {ACTIVITY: {BESIDE: FACTOR}}}; copies between
 * tiers that were not measured are left out. NULL when out of memory. */
json_t *rates_to_json(const struct cluster_rates *rates);
/* BAD_INPUT "FILE: rates…: what is wrong"; `out` is then as it was. */
enum status rates_from_json(const char *file, const json_t *object, struct cluster_rates *out);
/* Only the slowdowns. */
json_t *rates_slowdown_to_json(const struct cluster_rates *rates);
enum status rates_slowdown_from_json(const char *file, const json_t *rows, struct cluster_rates *out);
