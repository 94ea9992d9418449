/* The directory of a run: what it may be, its settings, its lock, and directories that appear whole or not at all.
 *
 *     run.json                    all settings; those that may change are read from here when it goes on
 *     plan.json                   session/plan.h
 *     reference.safetensors       train/reference.h
 *     metrics.jsonl               train/metrics.h
 *     events.out.tfevents.*       train/metrics.h
 *     samples.jsonl               train/metrics.h
 *     timeline.json               train/metrics.h
 *     checkpoints/step-00000100   session/checkpoint/checkpoint.h
 *     end.json                    train/run_state.h
 *     model                       the result
 *     .tmp-…                      being written or removed; cleared when a run begins or goes on */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "plan/plan.h"
#include "session/options.h"

/* The settings of a run that `ballast resume` changed, in run.json. They are of two kinds: fields of the recipe, where
 * --allow-recipe-change moves a run to another machine, version or number of ranks; and training options, such as the
 * learning rate, the number of steps and the intervals. */

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

/* Adds a change for each of the fields isa, kernels_version, lanes, reduce_dtype, tensor_parallel, sequence_parallel
 * and round_micro_batches that is another in `to`. */
enum status run_changes_add_recipe(struct run_changes *changes, int64_t step, const struct recipe *from,
                                   const struct recipe *to);
/* Makes a checkpoint's recipe, of `step`, the one that the run continues with. The checkpoint lacks the changes that
 * were made at its step or after it; those count from `step` then. */
void run_changes_apply(struct run_changes *changes, int64_t step, struct recipe *recipe);

/* Removes the changes of options that were made at `step` or later: no step of the run was trained with them. */
void run_changes_drop_options(struct run_changes *changes, int64_t step);
/* Adds a change for each training option whose value differs between `from` (a checkpoint's options, of `step`) and
 * `to`, both as train_options_to_json writes them. */
enum status run_changes_add_options(struct run_changes *changes, int64_t step, const json_t *from, const json_t *to);

/* [{"step": 120, "field": "learning_rate", "from": "0.0003", "to": "0.0001"}, ...]; NULL without memory. */
json_t *run_changes_to_json(const struct run_changes *changes);
/* The key of the list in a run.json of that version. */
const char *run_changes_key(int64_t version);

struct run_settings {
    const char *model_folder; /* absolute */
    struct train_options options;
    struct plan plan;
    struct memory_options limits; /* that it had last; the disk's directory is absolute */
    struct run_changes changes;
    struct scratch memory; /* of all strings */
};

/* BAD_INPUT when the path is something else than a missing or empty directory. One that holds nothing but what a killed
 * start left counts as empty. */
enum status run_folder_check_new(const char *path);
/* Creates the directory and takes its lock. BAD_INPUT when another process has the directory, or it has become
 * something else meanwhile. */
enum status run_folder_take_new(const char *path, int *lock);
/* The same, and then writes run.json, the last of what a new run needs. */
enum status run_folder_create(const char *path, const struct run_settings *settings, int *lock);
/* BAD_INPUT when the directory is not a run's. The caller calls run_settings_free. */
enum status run_folder_read(const char *path, struct run_settings *out);
/* What run.json holds; `file` is its name in messages. The caller calls run_settings_free, after an error too. */
enum status run_settings_from_json(const char *file, const json_t *object, struct run_settings *out);
/* Writes run.json again. */
enum status run_folder_write(const char *path, const struct run_settings *settings);
void run_settings_free(struct run_settings *settings);

/* Takes the directory for this process until the lock is closed; BAD_INPUT when another one has it. */
enum status run_folder_lock(const char *path, int *lock);
void run_folder_unlock(int lock);
/* Whether a process has it. Takes the lock for a moment to see, shared with others that look. */
enum status run_folder_is_held(const char *path, bool *held);
/* Removes what an interrupted process left in `folder` (RUN_DIR or its checkpoints), and puts back a model whose
 * replacement was interrupted. A missing directory is success. */
enum status run_folder_clear(const char *folder);

enum { RUN_PATH_BYTES = 4096 };
/* folder/name, in `out`. BAD_INPUT where it is longer than paths can be. */
enum status run_path(const char *folder, const char *name, char out[RUN_PATH_BYTES]);
/* Where folder/name is while it is written: folder/.tmp-name, in fresh memory; NULL without. */
char *run_folder_temporary(const char *folder, const char *name);
/* Makes that an empty directory. FAILED where `folder` is not there. */
enum status run_folder_begin(const char *temporary);
/* Makes it folder/name, in place of an older one; on failure it is removed and the older one stays. */
enum status run_folder_publish(const char *folder, const char *name, const char *temporary);
/* Removes it, as far as that is possible; the message stays. */
void run_folder_abandon(const char *temporary);
/* Removes folder/name so that it is never seen half removed. */
enum status run_folder_drop(const char *folder, const char *name);

/* The path without links, in `memory`. BAD_INPUT when it does not exist. */
enum status path_make_absolute(const char *path, struct scratch *memory, const char **out);
