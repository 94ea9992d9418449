/* Files and directories that a command makes where -o says: nothing of another kind is overwritten, and directories
 * appear whole or not at all. */
#pragma once

#include <jansson.h>

#include "base/base.h"

/* OK when there is nothing of the name, a device or pipe, an empty file (a killed command leaves one), or a file that
 * `read` accepts; else BAD_INPUT: a file of another kind is not overwritten. `kind` stands for it in the message ("a
 * plan file"). BAD_INPUT for a link to nothing, and for the file that standard output or standard error goes to. */
enum status new_file_check(const char *path, const char *kind, enum status (*read)(const char *path));
/* Replaces a file that passed the check (file_replace). A link stays: the file it leads to is replaced. */
enum status new_file_write(const char *path, const char *text, size_t bytes);
/* The same with JSON text and a newline; `flags` are jansson's. */
enum status new_file_write_json(const char *path, const json_t *value, size_t flags);

/* Calls `write` with an empty directory next to `folder`, which then takes its name. BAD_INPUT, before anything is
 * written, when `folder` holds something already. On failure nothing is left; what a killed process left there, the
 * next call in the same parent directory removes. */
enum status new_folder_write(const char *folder, enum status (*write)(void *payload, const char *path), void *payload);
/* The first of these checks alone. */
enum status new_folder_check(const char *folder);
