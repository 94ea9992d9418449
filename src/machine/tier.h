/* The memory tiers of a machine, from the fastest, on which kernels work, to the largest. */
#pragma once

/* On a CPU the device tier is RAM within the budget, the host tier (if it is given one) a second block of RAM. */
enum tier { TIER_DEVICE, TIER_HOST, TIER_DISK, TIER_COUNT };
const char *tier_name(enum tier tier);
/* TIER_COUNT when there is none of that name. */
enum tier tier_find(const char *name);
