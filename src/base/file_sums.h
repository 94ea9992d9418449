/* Checksums of a file by blocks of 64 MiB, made while its bytes are written: XXH3 (64 bits) of each block. Blocks lie
 * at fixed places, so several processes may each write some blocks of a file and make the checksums of those. */
#ifndef BALLAST_BASE_FILE_SUMS_H
#define BALLAST_BASE_FILE_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* Of a block, and the least that a manifest may have (a page: tests cut small files into many blocks). */
enum { FILE_BLOCK_BYTES = 64 << 20, FILE_BLOCK_BYTES_MIN = 4096 };

/* Blocks that a file of so many bytes has; the last one may be shorter. */
static inline uint64_t file_blocks(uint64_t bytes, uint64_t block_bytes) {
    return bytes / block_bytes + (bytes % block_bytes != 0);
}

/* Bytes [begin, end) of a file. */
struct file_range {
    uint64_t begin, end;
};

struct file_sums {
    uint64_t block_bytes;            /* FILE_BLOCK_BYTES, unless set after file_sums_begin */
    uint64_t bytes;                  /* that were added */
    VEC(uint64_t) blocks;            /* those that are whole; after file_sums_end also the last one */
    struct XXH3_state_s *unfinished; /* of the block that is not whole */
    enum status status;              /* the first failure; sticks */
};

/* FAILED without memory. Free with file_sums_free in both cases. */
enum status file_sums_begin(struct file_sums *out);
void file_sums_add(struct file_sums *sums, const void *data, size_t bytes);
/* Adds whole blocks (the last one may be the file's last) that others have made, of so many bytes. FAILED without
 * memory. */
enum status file_sums_append(struct file_sums *sums, const uint64_t *blocks, size_t count, uint64_t bytes);
/* After the last byte: FAILED where an addition had no memory. */
enum status file_sums_end(struct file_sums *sums);
void file_sums_free(struct file_sums *sums);

/* Reads a block of an open file again, through `buffer` of `buffer_bytes`, and compares it. FILE_BLOCK_UNREADABLE: a
 * read failed, or the file ends too early. May be called by several threads, each with its own buffer. */
enum file_block { FILE_BLOCK_SAME, FILE_BLOCK_OTHER, FILE_BLOCK_UNREADABLE };
enum file_block file_sums_compare(const struct file_sums *sums, int descriptor, size_t block, void *buffer,
                                  size_t buffer_bytes);

#endif
