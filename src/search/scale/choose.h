/* Chooses a layout and a number of devices. Layouts vary in tensor and pipeline parallelism, partition of states,
 * recomputation and micro-batch. Computes the Pareto front of peak memory against step time, and the curve over numbers
 * of devices. */
#pragma once

#include "base/base.h"
#include "search/scale/forecast.h"

struct choice_request {
    struct transformer model;
    struct cluster cluster;
    int64_t devices, batch, sequence_length; /* batch: sequences of a step */
};

struct choice {
    int64_t devices;
    struct layout layout;
    struct forecast forecast;
};

struct choices {
    VEC(struct choice) list;    /* the Pareto front: increasingly fast, with increasing bytes per device */
    int64_t layouts, simulated; /* number considered; number simulated: those that no bound ruled out */
};

/* Finds the layouts that fit the device tier and that no other beats in both time and bytes. NO_FIT, naming the minimum
 * bytes, if none fits. BAD_INPUT if the batch cannot be divided among the devices. The caller frees with
 * choices_free. */
enum status choose_layouts(const struct choice_request *request, const struct calibration *calibration,
                           struct choices *out);
void choices_free(struct choices *choices);
/* The fastest of the Pareto front. */
const struct choice *choices_fastest(const struct choices *choices);

/* The fastest layout on so many devices, instead of request->devices; *fits is false if there is none. FAILED without
 * memory. */
enum status choose_fastest(const struct choice_request *request, const struct calibration *calibration, int64_t devices,
                           struct choice *out, bool *fits);

enum { CHOICE_CURVE_MAX = 40 }; /* up to four million devices */
/* The fastest layout by number of devices, from `min` to `max`: a node times powers of two, and three times these.
 * Returns the number of entries; numbers for which nothing fits are omitted. FAILED without memory. */
enum status choose_curve(const struct choice_request *request, const struct calibration *calibration, int64_t min,
                         int64_t max, struct choice out[CHOICE_CURVE_MAX], int *count);
