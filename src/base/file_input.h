/* Files that are read at places, by any number of threads. They are not mapped: where somebody shortens a
 * mapped file, reading the lost pages ends the process with SIGBUS; here such a read fails and names the file. */
#ifndef BALLAST_BASE_FILE_INPUT_H
#define BALLAST_BASE_FILE_INPUT_H

#include <stddef.h>

#include "base/status.h"

struct file_input {
    char *path;                  /* NULL: closed, or bytes in memory */
    int descriptor;              /* where there is a path */
    const unsigned char *memory; /* else */
    size_t bytes;                /* at the time of opening */
};
/* BAD_INPUT, naming the file, when it cannot be opened or is not a regular file. */
enum status file_input_open(const char *path, struct file_input *out);
/* Bytes in memory, which must stay there, read the same way. Needs no closing. */
struct file_input file_input_of_memory(const void *data, size_t bytes);
void file_input_close(struct file_input *input);

/* Bytes [offset, offset + bytes), which must lie within input->bytes, into `out`. FAILED, naming the file, when it
 * cannot be read or has become shorter. */
enum status file_input_read(const struct file_input *input, size_t offset, size_t bytes, void *out);
/* Has the system begin to read them from the disk, without waiting. */
void file_input_expect(const struct file_input *input, size_t offset, size_t bytes);

#endif
