/* Writes the file or directory that -o names. It never overwrites a file of another kind. A directory appears
 * complete or not at all. */
#pragma once

#include <jansson.h>

#include "base/base.h"

/* Checks that a command may write `path`. Returns OK if the path does not exist, or is a device, a pipe, an empty
 * file (a killed command leaves one), or a file that `read` accepts. Returns BAD_INPUT for a file of another kind, a
 * dangling link, and the file to which standard output or standard error is redirected. `kind` names the expected
 * kind in the message ("a plan file"). */
enum status new_file_check(const char *path, const char *kind, enum status (*read)(const char *path));
/* OK where the file's text begins with `start`; else BAD_INPUT: it is no file of that kind. For `read` above. */
enum status file_check_start(const char *path, const char *start, const char *kind);
/* Replaces a file that passed the check (file_replace). If it is a link, replaces the file that it points to. */
enum status new_file_write(const char *path, const char *text, size_t bytes);
/* Writes JSON and a newline in the same way. `flags` are jansson's. */
enum status new_file_write_json(const char *path, const json_t *value, size_t flags);

/* Calls `write` with an empty directory next to `folder`, then renames it to `folder`. Returns BAD_INPUT, before
 * writing anything, if `folder` is not empty. On failure nothing is left. If the process is killed, the next call in
 * the same parent directory removes what it left. */
enum status new_folder_write(const char *folder, enum status (*write)(void *payload, const char *path), void *payload);
/* Checks only that `folder` does not exist or is empty. */
enum status new_folder_check(const char *folder);
