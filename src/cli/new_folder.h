/* Folders that a command makes: whole or not at all. */
#ifndef BALLAST_CLI_NEW_FOLDER_H
#define BALLAST_CLI_NEW_FOLDER_H

#include "base/status.h"

/* Calls `write` with an empty folder beside `folder`, which then takes its name. BAD_INPUT, before anything is written,
 * when `folder` holds something already. On failure nothing is left; what a killed
 * process left there, the next call in the same parent folder removes. */
enum status new_folder_write(const char *folder, enum status (*write)(void *payload, const char *path), void *payload);
/* The first of these checks alone. */
enum status new_folder_check(const char *folder);

#endif
