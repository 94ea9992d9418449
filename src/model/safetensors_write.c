/* Writes a safetensors file. */
#include <inttypes.h>
#include <xxhash.h>

#include "base/progress.h"
#include "model/safetensors_layout.h"

enum { BLOCK_BYTES = 1 << 17 };

/* The file being written, with the buffers that items pass through. */
struct stream {
    struct file_writer file;
    struct file_range range; /* of the file that is written */
    XXH3_state_t *hash;
    void *buffer; /* BYTE_STORE_PIECE bytes, of an item without an address */
};

/* A part of an item: bytes [begin, end) of it are written. */
struct item_part {
    const struct safetensors_item *item;
    int64_t begin, end;
    bool hashed; /* all its bytes are */
};

/* Data are aligned to their elements, and so are ranges and pieces: no value lies in two. */
static void write_part(struct stream *stream, const struct item_part *part, const char *data, int64_t offset,
                       size_t bytes) {
    int64_t from = part->begin > offset ? part->begin : offset, to = offset + (int64_t)bytes;
    if (to > part->end) to = part->end;
    if (from >= to) return;
    size_t count = (size_t)(to - from);
    stream->file.status = item_check_finite(part->item, data + (from - offset), from, count);
    file_writer_write(&stream->file, data + (from - offset), count);
    progress_add((int64_t)count);
}

/* Bytes from `offset` of the item on, in blocks that are still in the second-level cache when the writer copies what
 * was checked and hashed. */
static void take_block(struct stream *stream, const struct item_part *part, const char *data, int64_t offset,
                       int64_t bytes) {
    for (int64_t at = 0; at < bytes && stream->file.status == STATUS_OK; at += BLOCK_BYTES) {
        size_t count = (size_t)(bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES);
        if (part->hashed) XXH3_64bits_update(stream->hash, data + at, count);
        write_part(stream, part, data + at, offset + at, count);
    }
}

static void take_stored(struct stream *stream, const struct item_part *part, int64_t from, int64_t to) {
    for (int64_t at = from; at < to && stream->file.status == STATUS_OK; at += BYTE_STORE_PIECE) {
        int64_t count = to - at < BYTE_STORE_PIECE ? to - at : BYTE_STORE_PIECE;
        stream->file.status = item_read(part->item, at, count, stream->buffer);
        if (stream->file.status == STATUS_OK) take_block(stream, part, stream->buffer, at, count);
    }
}

/* What lies in the range of an item whose data begin at `place` of the file; and its hash, if it begins there. */
static void write_item(struct stream *stream, const struct safetensors_item *item, uint64_t place) {
    int64_t bytes = item_bytes(item);
    uint64_t begin = stream->range.begin, end = stream->range.end;
    if (place >= end || place + (uint64_t)bytes <= begin) return;
    struct item_part part = {.item = item, .end = bytes};
    if (begin > place) part.begin = (int64_t)(begin - place);
    if (end - place < (uint64_t)bytes) part.end = (int64_t)(end - place);
    part.hashed = item->hash && part.begin == 0;
    int64_t to = part.hashed ? bytes : part.end;
    XXH3_64bits_reset(stream->hash);
    if (item->data)
        take_block(stream, &part, (const char *)item->data + part.begin, part.begin, to - part.begin);
    else
        take_stored(stream, &part, part.begin, to);
    if (part.hashed) *item->hash = XXH3_64bits_digest(stream->hash);
}

static void write_layout(struct stream *stream, const struct layout *layout) {
    uint64_t place = layout->head_bytes, head_end = place < stream->range.end ? place : stream->range.end;
    if (stream->range.begin < head_end) {
        file_writer_write(&stream->file, layout->head + stream->range.begin, head_end - stream->range.begin);
        progress_add((int64_t)(head_end - stream->range.begin));
    }
    for (size_t i = 0; i < layout->count && stream->file.status == STATUS_OK; i++) {
        write_item(stream, layout->sorted[i], place);
        place += (uint64_t)item_bytes(layout->sorted[i]);
    }
}

static enum status write_opened(const char *path, const struct layout *layout, struct file_sums *sums,
                                struct stream *stream) {
    stream->file.sums = sums;
    file_writer_pass_cache(&stream->file);
    progress_begin(PROGRESS_BYTES, (int64_t)(stream->range.end - stream->range.begin), "writing %s", path_name(path));
    write_layout(stream, layout);
    progress_end();
    return file_writer_close(&stream->file);
}

/* `range` NULL: a new file as a whole. */
static enum status write_file(const char *path, const struct layout *layout, const struct file_range *range,
                              struct file_sums *sums) {
    struct stream stream = {.range = range ? *range : (struct file_range){0, layout->bytes},
                            .hash = XXH3_createState(),
                            .buffer = mem_array(BYTE_STORE_PIECE, 1)};
    enum status status =
        stream.hash && stream.buffer ? STATUS_OK : status_no_memory(BYTE_STORE_PIECE, "writing a safetensors file");
    if (status == STATUS_OK)
        status = range ? file_writer_open_part(path, range->begin, &stream.file) : file_writer_open(path, &stream.file);
    if (status == STATUS_OK) status = write_opened(path, layout, sums, &stream);
    XXH3_freeState(stream.hash);
    mem_free(stream.buffer);
    return status;
}

enum status safetensors_write(const char *path, const struct safetensors_item *items, size_t count,
                              struct file_sums *sums) {
    struct layout layout;
    TRY(layout_make(items, count, &layout));
    enum status status = write_file(path, &layout, NULL, sums);
    layout_free(&layout);
    return status;
}

enum status safetensors_write_range(const char *path, const struct safetensors_item *items, size_t count,
                                    const struct file_range *range, struct file_sums *sums) {
    struct layout layout;
    TRY(layout_make(items, count, &layout));
    BUG_IF(range->begin % FILE_BLOCK_BYTES_MIN != 0 || range->begin > range->end || range->end > layout.bytes,
           "%s: bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64, path, range->begin, range->end, layout.bytes);
    enum status status = write_file(path, &layout, range, sums);
    layout_free(&layout);
    return status;
}
