/* Weights in formats that are not read, known by their first bytes or their names: what they are and what to do. */
#ifndef BALLAST_MODEL_FOREIGN_WEIGHTS_H
#define BALLAST_MODEL_FOREIGN_WEIGHTS_H

#include "base/file_input.h"
#include "base/status.h"

/* BAD_INPUT with a hint where the file's bytes begin as such a format does; else OK. `path` is for the message. */
enum status foreign_weights_refuse_content(const char *path, const struct file_input *file);
/* The same of a file, which is opened. */
enum status foreign_weights_refuse_file(const char *path);
/* BAD_INPUT where a file in the folder has the name of such a format. */
enum status foreign_weights_refuse_folder(const char *folder);

#endif
