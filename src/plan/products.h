/* Which algorithm a device's library chose for each matrix product, as lines "PRODUCT ALGORITHM\n": names of the
 * backend's without blanks, and the library's own description of the algorithm in hexadecimal. */
#ifndef BALLAST_PLAN_PRODUCTS_H
#define BALLAST_PLAN_PRODUCTS_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* {PRODUCT: ALGORITHM, …}; NULL when out of memory. */
json_t *products_to_json(const char *lines);
/* NULL for `object`: no lines. BAD_INPUT "FILE: products: …" where it is no such object, or too long for `bytes`. */
enum status products_from_json(const char *file, const json_t *object, char *lines, size_t bytes);

#endif
