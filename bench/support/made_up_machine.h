/* Machines with invented costs, so that a search has the same result on every machine. */
#pragma once

#include "search/search.h"

struct made_up_machine {
    const char *name;
    double flops_per_s, memory_bytes_per_s, link_bytes_per_s, disk_bytes_per_s;
    double host_part; /* of the plain policy's bytes, as a host tier; 0: none */
};

/* Kernels take the time of their FLOPs and that of their bytes. The caller frees with costs_free, also after a failure.
 */
enum status made_up_costs(const struct graph *graph, const struct made_up_machine *machine, struct costs *out);

/* Device bytes of the input's graph with everything on the device and one micro-batch per wave. */
enum status search_plain_bytes(const struct search_input *input, int64_t *out);
