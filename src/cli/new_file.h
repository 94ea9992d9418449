/* Files that commands write where -o says. */
#ifndef BALLAST_CLI_NEW_FILE_H
#define BALLAST_CLI_NEW_FILE_H

#include "base/status.h"

/* OK when there is nothing of the name, a device or pipe, or a file that `read` accepts; else BAD_INPUT: a file of
 * another kind is not overwritten. `kind` stands for it in the message ("a plan file"). */
enum status new_file_check(const char *path, const char *kind, enum status (*read)(const char *path));

#endif
