/* Whether numbers are finite. */
#ifndef BALLAST_IR_FINITE_H
#define BALLAST_IR_FINITE_H

#include <stdint.h>

#include "ir/tensor.h"

/* Index of the first of `count` contiguous values that is infinite or no number; -1 when all are finite, as whole
 * numbers always are. */
int64_t values_find_nonfinite(enum dtype dtype, const void *values, int64_t count);

#endif
