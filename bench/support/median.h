/* The median of measurements. */
#pragma once

#include <stdint.h>

/* Of `count` values, at least one, which it puts into order; between the two in the middle when there are two. */
double median(double *values, int count);
/* The same of times in ns, in seconds. */
double median_s(int64_t *ns, int count);
