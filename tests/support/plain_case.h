/* An operator case whose values a test compares with plain loops in double. */
#pragma once

#include "support/op_instance.h"

/* The case of that name, which there must be. */
const struct op_case *plain_case_find(const char *name);
/* Made ready at the case's own sizes, and filled; op_instance_free. */
struct op_instance plain_case_make(const char *name, enum dtype dtype);
/* Values of a tensor by name, zeros when the case has none; mem_free. */
double *plain_case_values(const struct op_instance *instance, const char *name);
/* Ends the test where the norm of the differences is more than `max` times that of the expected values. */
void plain_case_expect(const char *what, const double *found, const double *expected, int64_t count, double max);
