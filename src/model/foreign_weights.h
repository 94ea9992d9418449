/* Recognises weights in formats that Ballast does not read, by their first bytes or names, and says what to do. */
#ifndef BALLAST_MODEL_FOREIGN_WEIGHTS_H
#define BALLAST_MODEL_FOREIGN_WEIGHTS_H

#include "base/file_input.h"
#include "base/status.h"

/* BAD_INPUT with a hint where the file begins with the bytes of such a format; else OK. `path` is for the message. */
enum status foreign_weights_refuse_content(const char *path, const struct file_input *file);
/* The same; opens the file. */
enum status foreign_weights_refuse_file(const char *path);
/* BAD_INPUT where the name is of such a format, which other files may have too (.bin). */
enum status foreign_weights_refuse_name(const char *path);
/* BAD_INPUT where a file in the directory has the name of such a format. */
enum status foreign_weights_refuse_folder(const char *folder);

#endif
