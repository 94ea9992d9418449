/* What a run that goes on starts from. */
#pragma once

#include "session/checkpoint/checkpoint.h"
#include "session/checkpoint/run_folder.h"
#include "session/engine.h"

/* Whether all ranks read the same model: the files' names do not tell. */

/* Collective, when the weights are loaded. BAD_INPUT on all ranks, naming one that has others. Where each rank has all
 * weights these are compared; where it read but runs of them, the files, each rank's part with what its neighbour has
 * there. */
enum status same_weights_require(const struct engine *engine);

struct run_origin {
    char *checkpoint; /* the newest; NULL: none yet, it starts with the model */
    struct checkpoint_state state;
    json_t *options;     /* of the steps up to the checkpoint; without one, run.json's */
    int64_t valid_every; /* of these */
};
void run_origin_free(struct run_origin *origin);

/* Collective: finds it, checks all its files (each rank a share), and run.json against it. The policy is that of
 * run.json. BAD_INPUT "RUN/run.json: FIELD: …" for another recipe, or other settings that say which data come when;
 * notes for other paths. BAD_INPUT hints at an older checkpoint where the newest is damaged. */
enum status run_origin_find(struct comm *comm, const char *run_folder, struct run_settings *settings,
                            struct run_origin *out);
/* The plan to go on with, under the options that were given. On another number of ranks (options->comm) the policy is
 * the plain one, so that it is chosen anew; BAD_INPUT with the numbers that will do where so many cannot hold the
 * lanes. What is another than before, where options->allow_recipe_change admits that, is warned of and added to
 * settings->changes. */
enum status run_origin_resolve(struct run_origin *origin, const char *run_folder, const struct plan_options *options,
                               struct run_settings *settings, struct plan *out);
/* Compares the options that the run continues with with those up to the checkpoint: prints each that changed, and puts
 * them into settings->changes. */
enum status run_origin_record_options(const struct run_origin *origin, struct run_settings *settings);
