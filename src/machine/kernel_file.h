/* Small text files that the kernel generates when they are read: /proc and /sys. Their size is not known in advance. */
#pragma once

#include "base/base.h"

/* Reads "root" "path" into `text` with a NUL after it, cut at `bytes` - 1; false when it cannot be read. */
bool kernel_file_read(const char *root, const char *path, char *text, size_t bytes);
/* The number after `key` at the start of a line ("MemTotal:  123"); false when there is none. */
bool kernel_file_number(const char *text, const char *key, int64_t *out);
