/* What a recipe says of pairs of sequences (TRAINING_DPO): its checks and its JSON. */
#ifndef BALLAST_PLAN_RECIPE_PAIRS_H
#define BALLAST_PLAN_RECIPE_PAIRS_H

#include "plan/plan.h"

/* BAD_INPUT naming the field and the rule; of other losses OK. */
enum status recipe_pairs_check(const struct recipe *recipe);
/* Adds the fields; not 0 without memory. */
int recipe_pairs_to_json(const struct recipe *recipe, json_t *object);
/* The loss is sigmoid, not smoothed, in files of versions that had no other. */
enum status recipe_pairs_from_json(const char *file, const json_t *object, struct recipe *out);
/* The first field of them in which two recipes differ; NULL: none. */
const char *recipe_pairs_differ(const struct recipe *a, const struct recipe *b);

#endif
