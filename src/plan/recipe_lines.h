/* What a recipe says by name, as lines "NAME VALUE\n": which algorithm a device's library chose for each GEMM, and how
 * ranks that share tensors share each node's work. Names and values have no blanks.
 *
 * Recipes are copied as values, and the lines can be long: so each text is kept once, never changes, and all recipes
 * with these lines point to it. */
#pragma once

#include <jansson.h>

#include "base/base.h"

struct recipe_lines {
    const char *field;      /* of a recipe in JSON */
    const char *characters; /* that values are made of */
    const char *trouble;    /* with a name whose value is made of others */
};
/* Names of GEMMs are the backend's, and values the library's own description of the algorithm in hexadecimal. Names
 * of strategies are those of nodes, and values as plan/layout/tensor_layout.h has them. */
extern const struct recipe_lines recipe_products, recipe_strategies;

/* The one text with these lines, valid until recipe_lines_forget; NULL where there are no lines. By any thread. FAILED
 * without memory. */
enum status recipe_lines_keep(const char *lines, const char **out);
/* Frees all texts: for who makes recipes without end. None of them is used afterwards, and no thread keeps one now. */
void recipe_lines_forget(void);

/* {NAME: VALUE, …}; NULL when out of memory. */
json_t *recipe_lines_to_json(const char *lines);
/* NULL for `object`: no lines. BAD_INPUT "FILE: FIELD: …" where it is no such object. */
enum status recipe_lines_from_json(const char *file, const struct recipe_lines *kind, const json_t *object,
                                   const char **out);
