/* Files: whole reads, and writes that leave either the old file or the new one. All with fault points. */
#pragma once

#include "base/base.h"
#include "base/folder.h"
#include "base/manifest.h"

/* Writing behind: a thread writes pieces of a file while their owner prepares the next ones. Private to src/base. */

struct file_behind;

/* Writes all, past the page cache while the descriptor has O_DIRECT, which it loses where the file system refuses a
 * write for its alignment. 0 or an errno. */
int file_write_fully(int descriptor, const void *data, size_t bytes);

/* The whole file in fresh memory with a NUL after it (the caller frees with mem_free); BAD_INPUT, naming the file, when
 * it cannot be opened, is not a regular file, or is larger than `limit_bytes`. No file is mapped (file.h says
 * why). */
enum status file_read(const char *path, size_t limit_bytes, char **text, size_t *bytes);

/* Buffered writing to a new file; errors stick and are reported by file_writer_close, which also syncs to disk.
 * Failure (disk full, permission) is STATUS_FAILED and names the file; the partial file is removed. Devices and pipes
 * (/dev/stdout, /dev/full) are written to, and neither synced nor removed; a link is not removed either. */
struct file_writer {
    char *path;
    int descriptor;
    bool regular; /* a file proper, no device or pipe */
    bool part;    /* others write the rest: it is not removed on failure */
    enum status status;
    size_t used;
    uint64_t written;               /* bytes, buffered ones included */
    unsigned char *memory, *buffer; /* the buffer is the memory, or lies in the memory of `behind` */
    struct file_behind *behind;     /* NULL: full buffers are written at once */
    struct file_sums *sums;         /* set after opening; takes all that is written. NULL: not wanted. Borrowed */
};
/* The file is made, or cut where it is there; FAILED where it is a symbolic link. */
enum status file_writer_open(const char *path, struct file_writer *out);
/* The same for a path that the user names, which may be a link: /dev/stdout is. */
enum status file_writer_open_named(const char *path, struct file_writer *out);
/* The same for the bytes from `offset` on of a file whose others are, or will be, written elsewhere, at the same time
 * too. The file is made where it is missing, never cut, and not removed on failure. With file_writer_pass_cache the
 * offset is a multiple of FILE_BLOCK_BYTES_MIN. */
enum status file_writer_open_part(const char *path, uint64_t offset, struct file_writer *out);
/* Has a new file written past the page cache (O_DIRECT), where its file system can, by a thread concurrent with the
 * caller: for gigabytes that are not read again soon. It takes a quarter of the processor's time (0.16 s, not 0.68 s a
 * GB on the machines of bench/RESULTS.md) and neither fills the cache nor leaves a long sync for the end. Call it
 * before the first write; without memory or a thread it fails as a write does. */
void file_writer_pass_cache(struct file_writer *writer);
void file_writer_write(struct file_writer *writer, const void *data, size_t bytes);
/* Continues writing at this offset of the file; for a part of a file, which is written through the page cache. */
void file_writer_seek(struct file_writer *writer, uint64_t offset);
void file_writer_print(struct file_writer *writer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Passes the buffered bytes to the file, so that readers see them. Returns the writer's status. */
enum status file_writer_flush(struct file_writer *writer);
enum status file_writer_close(struct file_writer *writer);
/* Closes and removes without an error. */
void file_writer_abandon(struct file_writer *writer);

/* Writes text next to `path` under a temporary name (this prefix and 16 hexadecimal digits), syncs, renames over it and
 * syncs the directory. The next write to the path replaces the temporary file of a killed process. A device or pipe is
 * written to directly. */
extern const char file_temporary_prefix[];
enum status file_replace(const char *path, const char *text, size_t bytes);
/* BAD_INPUT "PATH: cannot DOING: ..." for errno. The hint says where a relative path that is missing starts. */
enum status file_input_failed(const char *path, const char *doing);
/* BAD_INPUT when `from` cannot be read, FAILED when `to` cannot be written or is the same file. */
enum status file_copy(const char *from, const char *to);
/* The same; `sums`, begun and of no other bytes, takes those of the file. NULL: not wanted. */
enum status file_copy_summed(const char *from, const char *to, struct file_sums *sums);

/* Files that are read at places, by any number of threads. They are not mapped: where somebody shortens a
 * mapped file, reading the lost pages ends the process with SIGBUS; here such a read fails and names the file. */

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
