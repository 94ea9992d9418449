/* A curve of any length in bounded memory: neighbouring samples share a bucket, which keeps the least and the most of
 * them, so that no peak is lost however many there are. */
#ifndef BALLAST_REPORT_PAGE_CURVE_H
#define BALLAST_REPORT_PAGE_CURVE_H

#include <jansson.h>
#include <stdint.h>

enum { CURVE_BUCKETS = 1024 }; /* about as many as a wide screen has columns for */

struct curve_bucket {
    int64_t last_step; /* of its samples */
    int64_t samples;
    double sum, min, max;
};

/* All zero: empty. */
struct curve {
    struct curve_bucket buckets[CURVE_BUCKETS];
    int count;
    int64_t share; /* samples that fill a bucket: a power of two, doubled when all buckets are full; 0: nothing yet */
};

/* Steps must not go down. What is not finite is left out. Amortised time is constant. */
void curve_add(struct curve *curve, int64_t step, double value);
/* {"step": [last of each bucket], "mean": [], "low": [], "high": []}; low and high only where they differ from the mean
 * somewhere. NULL when out of memory. */
json_t *curve_to_json(const struct curve *curve);

#endif
