/* What a machine does in a second, and how much slower it does it while it does something else: the measured part of a
 * cluster, the same for every model. */
#ifndef BALLAST_CLUSTER_RATES_H
#define BALLAST_CLUSTER_RATES_H

#include <stdbool.h>

#include "cluster/tier.h"

/* What an instruction keeps busy. Two that run at once slow each other down by what they are, not by who they are. */
#define ACTIVITY_LIST(X)                                                                                               \
    X(PRODUCT, "matrix products")                                                                                      \
    X(STREAMING, "streaming kernels")                                                                                  \
    X(COPY, "copies in memory")                                                                                        \
    X(DISK_READ, "disk reads")                                                                                         \
    X(DISK_WRITE, "disk writes")
enum activity {
#define ACTIVITY_ENUM(name, text) ACTIVITY_##name,
    ACTIVITY_LIST(ACTIVITY_ENUM) ACTIVITY_COUNT
#undef ACTIVITY_ENUM
};
const char *activity_name(enum activity activity);
/* ACTIVITY_COUNT when there is none of that name. */
enum activity activity_find(const char *name);

/* Seconds of a transfer of n bytes: latency_s + n / bytes_per_s. */
struct transfer_rate {
    double latency_s;
    double bytes_per_s; /* 0: not measured */
};

struct cluster_rates {
    bool measured;
    double issue_s; /* of an instruction beside its work: the look at its waits, the word to all that it ended */
    double wake_s;  /* from that word until a stream that slept for it goes on */
    struct transfer_rate zero;
    struct transfer_rate copy[TIER_COUNT][TIER_COUNT]; /* from, to */
    /* slowdown[a][b], at least 1: the time of a while b runs beside it, over its time alone. slowdown[a][a] is that of
     * two of one kind on two streams. */
    double slowdown[ACTIVITY_COUNT][ACTIVITY_COUNT];
    /* Relative spread of the repeated measurements, the worst of them: 0.1 says that 10% is noise. */
    double noise;
};
/* Of two measurements of one machine: what else ran can only have made transfers slower, so of each the faster one;
 * slowdowns, which are quotients, of the less noisy measurement. */
struct cluster_rates rates_lower(const struct cluster_rates *a, const struct cluster_rates *b);

#endif
