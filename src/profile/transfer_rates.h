/* Latency and rate of zeros and of copies between tiers, from the times of small and large ones. */
#pragma once

#include "profile/rate_work.h"

/* Fill rates->zero and rates->copy, and raise rates->noise; the last one does nothing on a machine without disk,
 * and makes its pieces smaller where that is slow. A device with memory of its own has each way between two tiers
 * measured by itself, the disk's to and from its memory through pinned places. */
enum status transfer_measure_zero(const struct rate_machine *machine, struct cluster_rates *rates);
enum status transfer_measure_host(const struct rate_machine *machine, struct cluster_rates *rates);
enum status transfer_measure_disk(struct rate_machine *machine, struct cluster_rates *rates);
/* Measurements that they take of the machine's allowance. */
int transfer_sizes(const struct rate_machine *machine, bool host);
