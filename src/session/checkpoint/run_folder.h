/* The directory of a run: what it may be, its settings, its lock, and directories that appear whole or not at all.
 *
 *     run.json                    all settings; those that may change are read from here when it goes on
 *     plan.json                   session/plan_document.h
 *     reference.safetensors       train/reference.h
 *     metrics.jsonl               train/metrics.h
 *     events.out.tfevents.*       train/event_file.h
 *     samples.jsonl               train/samples.h
 *     timeline.json               train/metrics.h
 *     checkpoints/step-00000100   session/checkpoint/checkpoint.h
 *     end.json                    train/run_end.h
 *     model                       the result
 *     .tmp-…                      being written or removed; cleared when a run begins or goes on */
#pragma once

#include "base/base.h"
#include "session/checkpoint/run_change.h"
#include "session/train_options.h"

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
