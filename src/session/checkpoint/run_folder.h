/* The directory of a run: its settings, its lock, and the atomic creation of its subdirectories.
 *
 *     run.json                    all settings; resume reads changeable ones from here
 *     plan.json                   session/plan.h
 *     reference.safetensors       train/reference.h
 *     metrics.jsonl               train/metrics.h
 *     events.out.tfevents.*       train/metrics.h
 *     samples.jsonl               train/metrics.h
 *     timeline.json               train/metrics.h
 *     checkpoints/step-00000100   session/checkpoint/checkpoint.h
 *     end.json                    train/run_state.h
 *     model                       the result
 *     .tmp-…                      being written or removed; cleared at start and on resume */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "plan/plan.h"
#include "session/options.h"

/* Settings of a run that `ballast resume` changed, in run.json. There are two kinds:
 * - fields of the recipe, if --allow-recipe-change moves a run to another machine, version or number of ranks;
 * - training options, such as the learning rate, the number of steps and the intervals. */

enum { RUN_CHANGE_BYTES = 64 };
/* The version of run.json. RUN_FIRST_CHANGES added changes of options, RUN_FIRST_TERMS the current field names. */
enum { RUN_VERSION = 3, RUN_FIRST_CHANGES = 2, RUN_FIRST_TERMS = 3 };

struct run_change {
    int64_t step; /* the last one with the old value */
    char field[RUN_CHANGE_BYTES], from[RUN_CHANGE_BYTES], to[RUN_CHANGE_BYTES];
};
/* In the order in which they were made. Zero-initialize. */
struct run_changes {
    VEC(struct run_change) items;
};

/* Adds a change for each of the fields isa, kernels_version, lanes, reduce_dtype, tensor_parallel, sequence_parallel
 * and round_micro_batches that differs in `to`. */
enum status run_changes_add_recipe(struct run_changes *changes, int64_t step, const struct recipe *from,
                                   const struct recipe *to);
/* Turns a checkpoint's recipe, of `step`, into the one that the run continues with. Changes made at its step or later
 * are missing from the checkpoint; they apply from `step` on. */
void run_changes_apply(struct run_changes *changes, int64_t step, struct recipe *recipe);

/* Removes the changes of options that were made at `step` or later: no step of the run was trained with them. */
void run_changes_drop_options(struct run_changes *changes, int64_t step);
/* Adds a change for each training option whose value differs between `from` (a checkpoint's options, of `step`) and
 * `to`, both as train_options_to_json writes them. */
enum status run_changes_add_options(struct run_changes *changes, int64_t step, const json_t *from, const json_t *to);

/* [{"step": 120, "field": "learning_rate", "from": "0.0003", "to": "0.0001"}, ...]; NULL without memory. */
json_t *run_changes_to_json(const struct run_changes *changes);
/* The key of the list in that version of run.json. */
const char *run_changes_key(int64_t version);

struct run_settings {
    const char *model_folder; /* absolute */
    struct train_options options;
    struct plan plan;
    struct memory_options limits; /* the last ones; the disk's directory is absolute */
    struct run_changes changes;
    struct scratch memory; /* of all strings */
};

/* BAD_INPUT unless the path is a missing or empty directory. A directory with only the remains of a killed start counts
 * as empty. */
enum status run_folder_check_new(const char *path);
/* Creates the directory and locks it. BAD_INPUT if another process has it, or if it is no longer empty. */
enum status run_folder_take_new(const char *path, int *lock);
/* Does the same, then writes run.json as the last file of a new run. */
enum status run_folder_create(const char *path, const struct run_settings *settings, int *lock);
/* BAD_INPUT if the directory is not a run's. The caller calls run_settings_free. */
enum status run_folder_read(const char *path, struct run_settings *out);
/* Reads settings from a run.json; `file` is its name in messages. The caller calls run_settings_free, also after an
 * error. */
enum status run_settings_from_json(const char *file, const json_t *object, struct run_settings *out);
/* Writes run.json again. */
enum status run_folder_write(const char *path, const struct run_settings *settings);
void run_settings_free(struct run_settings *settings);

/* Locks the directory for this process until the lock is closed. BAD_INPUT if another process has it. */
enum status run_folder_lock(const char *path, int *lock);
void run_folder_unlock(int lock);
/* Whether a process has locked it. Briefly takes the lock, shared with other readers. */
enum status run_folder_is_held(const char *path, bool *held);
/* Removes the remains of an interrupted process in `folder` (RUN_DIR or its checkpoints), and restores a model whose
 * replacement was interrupted. A missing directory is success. */
enum status run_folder_clear(const char *folder);

enum { RUN_PATH_BYTES = 4096 };
/* Sets `out` to folder/name. BAD_INPUT if it is longer than paths may be. */
enum status run_path(const char *folder, const char *name, char out[RUN_PATH_BYTES]);
/* The temporary path of folder/name: folder/.tmp-name, in fresh memory; NULL without. */
char *run_folder_temporary(const char *folder, const char *name);
/* Makes the temporary an empty directory. FAILED if `folder` does not exist. */
enum status run_folder_begin(const char *temporary);
/* Renames the temporary to folder/name, replacing an older one. On failure it is removed and the older one stays. */
enum status run_folder_publish(const char *folder, const char *name, const char *temporary);
/* Removes the temporary as far as possible, and keeps the message. */
void run_folder_abandon(const char *temporary);
/* Removes folder/name so that it is never seen half removed. */
enum status run_folder_drop(const char *folder, const char *name);

/* The path without links, in `memory`. BAD_INPUT if it does not exist. */
enum status path_make_absolute(const char *path, struct scratch *memory, const char **out);
