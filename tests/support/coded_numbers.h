/* The numbers of a weight in a format of fewer bits, one by one by the definition of graph/weight_format.h. */
#ifndef BALLAST_TESTS_CODED_NUMBERS_H
#define BALLAST_TESTS_CODED_NUMBERS_H

#include "graph/weight_format.h"

/* Number `index` of the weight whose sections begin at `bytes`. */
float coded_number(const struct weight_layout *layout, const void *bytes, int64_t index);

#endif
