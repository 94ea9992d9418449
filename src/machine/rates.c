#include "machine/rates.h"

#include <math.h>

static const char *const tier_names[] = {[TIER_DEVICE] = "device", [TIER_HOST] = "host", [TIER_DISK] = "disk"};

const char *tier_name(enum tier tier) { return tier_names[tier]; }

enum tier tier_find(const char *name) {
    enum tier tier = 0;
    while (tier < TIER_COUNT && strcmp(tier_names[tier], name) != 0)
        tier++;
    return tier;
}

static const char *const names[] = {
#define ACTIVITY_ROW(name, text) [ACTIVITY_##name] = text,
    ACTIVITY_LIST(ACTIVITY_ROW)};

const char *activity_name(enum activity activity) { return names[activity]; }

static const double TYPICAL_BYTES = 4 << 20; /* of a chunk */

static double typical_s(const struct transfer_rate *rate) {
    return rate->bytes_per_s > 0 ? rate->latency_s + TYPICAL_BYTES / rate->bytes_per_s : INFINITY;
}

static void keep_faster(const struct transfer_rate *other, struct transfer_rate *kept) {
    if (typical_s(other) < typical_s(kept)) *kept = *other;
}

struct cluster_rates rates_lower(const struct cluster_rates *a, const struct cluster_rates *b) {
    const struct cluster_rates *other = a->noise <= b->noise ? b : a;
    struct cluster_rates lower = a->noise <= b->noise ? *a : *b;
    lower.issue_s = fmin(a->issue_s, b->issue_s);
    lower.wake_s = fmin(a->wake_s, b->wake_s);
    keep_faster(&other->zero, &lower.zero);
    for (int from = 0; from < TIER_COUNT; from++)
        for (int to = 0; to < TIER_COUNT; to++)
            keep_faster(&other->copy[from][to], &lower.copy[from][to]);
    return lower;
}
