/* Directories, paths, and the steps that make a rename durable. All with fault points. */
#pragma once

#include "base/base.h"

/* True for anything that has this name, a dangling link included. */
bool file_exists(const char *path);
bool file_is_folder(const char *path);
/* Whether folder/name exists. Allocates nothing. */
bool folder_holds(const char *folder, const char *name);

/* Creates the directory and its parents, each synced into the directory that holds it; an existing directory is
 * success. */
enum status folder_create(const char *path);
/* The same in a directory that must be there. An existing file of the name is success too. */
enum status folder_create_one(const char *path);
/* Syncs the directory that holds `path`, so that a new name in it lasts. */
enum status folder_sync_parent(const char *path);
/* Removes a directory and all below it; a missing one is success. Does not follow links. */
enum status folder_remove(const char *path);
/* Publishes a finished directory under its name in one step: syncs `from` and the directories below, renames it to `to`
 * and syncs the parent. `to` must not exist, or be an empty directory. Files have been synced by file_writer_close. On
 * failure both are unchanged, or, if only the last sync failed, the directory is at `to`. */
enum status folder_publish(const char *from, const char *to);

/* Locks an existing directory for this process until the descriptor is closed; a process that ends releases it.
 * BAD_INPUT if it cannot be opened or another process has it. If the file system has no locks, the directory is only
 * opened, and `*locked` (which may be NULL) becomes false. */
enum status folder_lock(const char *path, int *descriptor, bool *locked);
/* Whether a path leads to the directory that is open, and not to another one or to nothing. */
bool folder_is_at(const char *path, int descriptor);

/* Names in a directory, sorted, without "." and ".."; free with names_free. BAD_INPUT when it cannot be listed. */
struct names {
    char **items;
    size_t count, capacity;
};
enum status folder_list(const char *path, struct names *out);
void names_free(struct names *names);

/* "folder/name" in fresh memory ("name" where the directory is ""), NULL when out of memory. */
char *path_join(const char *folder, const char *name);
/* The path as one word of a shell's command line, for hints: `path` itself, or `text` with the path in quotes. A path
 * that does not fit is returned without quotes. */
enum { PATH_SHELL_BYTES = 1024 };
const char *path_for_shell(const char *path, char text[PATH_SHELL_BYTES]);
/* The part of a path after the last slash. */
const char *path_name(const char *path);
/* Whether it ends so: path_ends("a/b.txt", ".txt"). */
bool path_ends(const char *path, const char *suffix);

/* A path in the same directory that nobody else has: `prefix` and 16 random hexadecimal digits. In fresh memory; NULL,
 * with the message set, without memory or randomness. */
char *path_beside(const char *path, const char *prefix);
/* Whether a name is one of those. */
bool name_is_beside(const char *name, const char *prefix);

/* Renames over whatever file has the name `to`, and syncs the directory that holds it. The source must be synced
 * already.
 */
enum status file_rename(const char *from, const char *to);

/* The directory for caches: files that can be recreated. */

/* $XDG_CACHE_HOME/ballast, or ~/.cache/ballast, or .ballast-cache where the user has no home; the directory need not
 * exist. In fresh memory; NULL when out of memory. */
char *cache_folder(void);
