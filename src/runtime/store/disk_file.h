/* The disk tier's file: without a name, at its full size, past the page cache where that is possible. */
#ifndef BALLAST_RUNTIME_STORE_DISK_FILE_H
#define BALLAST_RUNTIME_STORE_DISK_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct disk_file {
    int descriptor;
    bool direct; /* transfers go past the page cache */
};

/* A file of `bytes` (a multiple of DISK_ALIGNMENT) in the directory, reserved and reading as zeros, that no name leads
 * to. `buffered` keeps to the page cache. Statuses as arena_open's. The caller closes the descriptor. */
enum status disk_file_open(const char *folder, int64_t bytes, bool buffered, struct disk_file *out);

/* Makes an unnamed file on filesystems without O_TMPFILE. Returns -1 with errno. */
int disk_file_create_unlinked(const char *folder);

/* Drops a range that was read from or written to a buffered file from the page cache, which a memory cgroup charges
 * for; written bytes are brought to the disk first. False with errno when that failed. Does nothing to a direct file.
 */
bool disk_file_forget(const struct disk_file *file, int64_t offset, int64_t bytes, bool written);

#endif
