#include "machine/tier.h"
#include "base/base.h"

static const char *const names[] = {[TIER_DEVICE] = "device", [TIER_HOST] = "host", [TIER_DISK] = "disk"};

const char *tier_name(enum tier tier) { return names[tier]; }

enum tier tier_find(const char *name) {
    enum tier tier = 0;
    while (tier < TIER_COUNT && strcmp(names[tier], name) != 0)
        tier++;
    return tier;
}
