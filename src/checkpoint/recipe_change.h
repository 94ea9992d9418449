/* What of a run's recipe was changed on purpose (`ballast resume --allow-recipe-change`): only what a machine,
 * a version of Ballast or a number of ranks gives, so that a run can move to another one. The bits differ from there
 * on; run.json says so. */
#ifndef BALLAST_CHECKPOINT_RECIPE_CHANGE_H
#define BALLAST_CHECKPOINT_RECIPE_CHANGE_H

#include <jansson.h>

#include "plan/plan.h"

struct recipe_change {
    int64_t step; /* the last that was made as before */
    char field[RECIPE_NAME_BYTES], from[RECIPE_NAME_BYTES], to[RECIPE_NAME_BYTES];
};
/* In the order in which they were made; zero-initialise. */
struct recipe_changes {
    VEC(struct recipe_change) items;
};
void recipe_changes_free(struct recipe_changes *changes);

/* Adds a change for each of the fields isa, kernels_version, lanes, reduce_dtype, tensor and round_grains that is
 * another in `to`. */
enum status recipe_changes_add(struct recipe_changes *changes, int64_t step, const struct recipe *from,
                               const struct recipe *to);
/* Makes a checkpoint's recipe, of `step`, the one that the run goes on with: the checkpoint knows nothing of changes
 * that were made at its step or after it. Those count from `step` then. */
void recipe_changes_apply(struct recipe_changes *changes, int64_t step, struct recipe *recipe);

/* [{"step": 120, "field": "isa", "from": "avx512+amx", "to": "avx2"}, ...]; NULL without memory. */
json_t *recipe_changes_to_json(const struct recipe_changes *changes);
/* BAD_INPUT naming the field. `array` NULL: none. */
enum status recipe_changes_from_json(const char *file, const json_t *array, struct recipe_changes *out);

#endif
