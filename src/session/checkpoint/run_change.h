/* The settings of a run that `ballast resume` changed, in run.json. They are of two kinds: fields of the recipe, where
 * --allow-recipe-change moves a run to another machine, version or number of ranks; and training options, such as the
 * learning rate, the number of steps and the intervals. */
#pragma once

#include <jansson.h>

#include "plan/plan.h"

enum { RUN_CHANGE_BYTES = 64 };
/* The version of run.json, and the first that has the changes of options and the field's terms. */
enum { RUN_VERSION = 3, RUN_FIRST_CHANGES = 2, RUN_FIRST_TERMS = 3 };

struct run_change {
    int64_t step; /* the last one with the old value */
    char field[RUN_CHANGE_BYTES], from[RUN_CHANGE_BYTES], to[RUN_CHANGE_BYTES];
};
/* In the order in which they were made; zero-initialise. */
struct run_changes {
    VEC(struct run_change) items;
};
void run_changes_free(struct run_changes *changes);

/* Adds a change for each of the fields isa, kernels_version, lanes, reduce_dtype, tensor_parallel, sequence_parallel
 * and round_micro_batches that is another in `to`. */
enum status run_changes_add_recipe(struct run_changes *changes, int64_t step, const struct recipe *from,
                                   const struct recipe *to);
/* Makes a checkpoint's recipe, of `step`, the one that the run continues with. The checkpoint lacks the changes that
 * were made at its step or after it; those count from `step` then. */
void run_changes_apply(struct run_changes *changes, int64_t step, struct recipe *recipe);

/* Whether `resume` may change this training option. */
bool run_change_is_option(const char *field);
/* Removes the changes of options that were made at `step` or later: no step of the run was trained with them. */
void run_changes_drop_options(struct run_changes *changes, int64_t step);
/* Adds a change for each training option whose value differs between `from` (a checkpoint's options, of `step`) and
 * `to`, both as train_options_to_json writes them. */
enum status run_changes_add_options(struct run_changes *changes, int64_t step, const json_t *from, const json_t *to);

/* [{"step": 120, "field": "learning_rate", "from": "0.0003", "to": "0.0001"}, ...]; NULL without memory. */
json_t *run_changes_to_json(const struct run_changes *changes);
/* The key of the list in a run.json of that version. */
const char *run_changes_key(int64_t version);
/* Reads the list of a run.json; there may be none. BAD_INPUT naming the field. */
enum status run_changes_from_json(const char *file, const json_t *object, int64_t version, struct run_changes *out);
