/* Finds the state from which a run resumes. */
#pragma once

#include "session/checkpoint/checkpoint.h"
#include "session/checkpoint/run_folder.h"
#include "session/engine.h"

/* Checks that all ranks have read the same model: file names do not show it. */

/* Collective, after the weights are loaded. BAD_INPUT on all ranks, naming one whose weights differ. If each rank has
 * all weights, compares them. If ranks read only runs of them, compares files: each rank's part with its neighbor's
 * copy of that part. */
enum status same_weights_require(const struct engine *engine);

struct run_origin {
    char *checkpoint; /* the newest; NULL: none yet, the run starts with the model */
    struct checkpoint_state state;
    json_t *options;     /* of the steps up to the checkpoint; without one, run.json's */
    int64_t valid_every; /* of these options */
};
void run_origin_free(struct run_origin *origin);

/* Collective: finds the checkpoint, checks all its files (each rank a share), and checks run.json against it. The
 * policy is run.json's. BAD_INPUT "RUN/run.json: FIELD: …" for another recipe, or other settings that determine the
 * order of data. Notes other paths. If the newest checkpoint is damaged, BAD_INPUT hints at an older one. */
enum status run_origin_find(struct comm *comm, const char *run_folder, struct run_settings *settings,
                            struct run_origin *out);
/* The plan to resume with, under the given options. On another number of ranks (options->comm) the policy starts from
 * the plain one. BAD_INPUT, with the possible numbers, if that number of ranks cannot hold the lanes. Differences that
 * options->allow_recipe_change permits cause warnings and are added to settings->changes. */
enum status run_origin_resolve(struct run_origin *origin, const char *run_folder, const struct plan_options *options,
                               struct run_settings *settings, struct plan *out);
/* Compares the run's new options with those up to the checkpoint: prints each change and adds it to
 * settings->changes. */
enum status run_origin_record_options(const struct run_origin *origin, struct run_settings *settings);
