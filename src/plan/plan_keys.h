/* The keys of plans in older versions of the format, in one table.
 *
 * Version 2 has the field's terms; version 1 is that of Ballast 0.1.0. */
#pragma once

#include <jansson.h>

#include "base/base.h"

/* A plan file, or the plan of a run or checkpoint, with the keys of PLAN_VERSION: recipe, policy and the candidates of
 * the search. The caller drops *out. BAD_INPUT for a version that is newer, and for keys that the version lacks. */
enum status plan_update_keys(const char *file, const json_t *object, json_t **out);
