/* Which algorithm a device's library chose for each matrix product, as lines "PRODUCT ALGORITHM\n": names of the
 * backend's without blanks, and the library's own description of the algorithm in hexadecimal.
 *
 * Recipes are copied as values, and the lines can be long: so each text is kept once, never changes, and all recipes
 * with these lines point to it. */
#ifndef BALLAST_PLAN_PRODUCTS_H
#define BALLAST_PLAN_PRODUCTS_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* The one text with these lines, valid until products_forget; NULL where there are no lines. By any thread. FAILED
 * without memory. */
enum status products_keep(const char *lines, const char **out);
/* Frees all texts: for who makes recipes without end. None of them is used afterwards, and no thread keeps one now. */
void products_forget(void);

/* {PRODUCT: ALGORITHM, …}; NULL when out of memory. */
json_t *products_to_json(const char *lines);
/* NULL for `object`: no lines. BAD_INPUT "FILE: products: …" where it is no such object. */
enum status products_from_json(const char *file, const json_t *object, const char **out);

#endif
