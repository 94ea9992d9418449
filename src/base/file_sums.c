#include "base/file_sums.h"

#include <errno.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"

enum status file_sums_begin(struct file_sums *out) {
    *out = (struct file_sums){.block_bytes = FILE_BLOCK_BYTES, .unfinished = XXH3_createState()};
    if (!out->unfinished) return status_no_memory(0, "checksums");
    XXH3_64bits_reset(out->unfinished);
    return STATUS_OK;
}

static void end_block(struct file_sums *sums) {
    if (sums->status == STATUS_OK) sums->status = vec_push(&sums->blocks, XXH3_64bits_digest(sums->unfinished));
    XXH3_64bits_reset(sums->unfinished);
}

void file_sums_add(struct file_sums *sums, const void *data, size_t bytes) {
    for (const unsigned char *from = data; bytes > 0;) {
        uint64_t space = sums->block_bytes - sums->bytes % sums->block_bytes;
        size_t now = bytes < space ? bytes : (size_t)space;
        XXH3_64bits_update(sums->unfinished, from, now);
        sums->bytes += now;
        from += now;
        bytes -= now;
        if (sums->bytes % sums->block_bytes == 0) end_block(sums);
    }
}

enum status file_sums_append(struct file_sums *sums, const uint64_t *blocks, size_t count, uint64_t bytes) {
    for (size_t i = 0; i < count; i++)
        TRY(vec_push(&sums->blocks, blocks[i]));
    sums->bytes += bytes;
    return STATUS_OK;
}

enum status file_sums_end(struct file_sums *sums) {
    if (sums->blocks.count < file_blocks(sums->bytes, sums->block_bytes)) end_block(sums);
    return sums->status;
}

void file_sums_free(struct file_sums *sums) {
    XXH3_freeState(sums->unfinished);
    vec_free(&sums->blocks);
    *sums = (struct file_sums){0};
}

static ssize_t read_at(int descriptor, void *buffer, size_t bytes, uint64_t offset) {
    for (;;) {
        ssize_t got = fault_point(FAULT_READ) ? -1 : pread(descriptor, buffer, bytes, (off_t)offset);
        if (got >= 0 || errno != EINTR) return got;
    }
}

enum file_block file_sums_compare(const struct file_sums *sums, int descriptor, size_t block, void *buffer,
                                  size_t buffer_bytes) {
    uint64_t at = (uint64_t)block * sums->block_bytes, end = at + sums->block_bytes;
    ssize_t got = 1;
    XXH3_state_t *state = XXH3_createState();
    if (!state) return FILE_BLOCK_UNREADABLE;
    XXH3_64bits_reset(state);
    if (end > sums->bytes) end = sums->bytes;
    for (; at < end && got > 0; at += (uint64_t)got) {
        got = read_at(descriptor, buffer, end - at < buffer_bytes ? (size_t)(end - at) : buffer_bytes, at);
        if (got <= 0) break;
        XXH3_64bits_update(state, buffer, (size_t)got);
    }
    uint64_t sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    if (at < end) return FILE_BLOCK_UNREADABLE;
    return sum == sums->blocks.items[block] ? FILE_BLOCK_SAME : FILE_BLOCK_OTHER;
}
