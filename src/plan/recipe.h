/* What plan.c and recipe.c have of each other. */
#pragma once

#include "plan/plan.h"

/* The part of plan_check that is about the recipe. */
enum status recipe_check(const struct recipe *recipe);
/* BAD_INPUT for a field of another type, a key that is not known, or a number out of its range. */
enum status recipe_from_json(const char *file, const json_t *object, struct recipe *out);
/* A number of a plan's part, "recipe.", or "" for what stands in none; checked before it becomes a narrower type. */
enum status plan_read_int(const char *file, const json_t *object, const char *part, const char *field, int64_t min,
                          int64_t max, const char *rule, int64_t *out);
