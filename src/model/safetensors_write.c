/* Writes a safetensors file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/progress.h"
#include "graph/finite.h"
#include "model/safetensors.h"

enum { LENGTH_BYTES = 8, HEADER_ALIGNMENT = 8, BLOCK_BYTES = 1 << 17 };

static const char *file_dtype(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F64: return "F64";
    case DTYPE_F32: return "F32";
    case DTYPE_BF16: return "BF16";
    case DTYPE_I32: return "I32";
    case DTYPE_NONE: break;
    }
    BUG("no safetensors dtype for %s", dtype_name(dtype));
}

static int64_t item_bytes(const struct safetensors_item *item) {
    return item->carried ? (int64_t)item->carried->bytes : shape_bytes(&item->shape);
}

/* Of one element. */
static int64_t item_bits(const struct safetensors_item *item) {
    return item->carried ? (int64_t)safetensors_dtype_bits(item->carried->dtype) : 8 * dtype_bytes(item->shape.dtype);
}

static int compare_items(const void *a, const void *b) {
    const struct safetensors_item *x = *(const struct safetensors_item *const *)a;
    const struct safetensors_item *y = *(const struct safetensors_item *const *)b;
    int64_t x_bits = item_bits(x), y_bits = item_bits(y);
    if (x_bits != y_bits) return x_bits > y_bits ? -1 : 1;
    return strcmp(x->name, y->name);
}

static json_t *item_info(const struct safetensors_item *item, int64_t begin) {
    const struct safetensors_tensor *carried = item->carried;
    const char *dtype = carried ? carried->dtype_name : file_dtype(item->shape.dtype);
    json_t *dims = json_array();
    for (int i = 0; dims && i < (carried ? carried->rank : item->shape.rank); i++) {
        if (json_array_append_new(dims, json_integer(carried ? carried->dims[i] : item->shape.dims[i])) == 0) continue;
        json_decref(dims);
        return NULL;
    }
    /* "o" takes over `dims`, also on failure */
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", dims, "data_offsets", (json_int_t)begin,
                     (json_int_t)(begin + item_bytes(item)));
}

static json_t *make_header(const struct safetensors_item *const *sorted, size_t count) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    int64_t begin = 0;
    for (size_t i = 0; header && i < count; i++) {
        if (json_object_set_new(header, sorted[i]->name, item_info(sorted[i], begin)) != 0) {
            json_decref(header);
            return NULL;
        }
        begin += item_bytes(sorted[i]);
    }
    return header;
}

/* A file before it is written. */
struct layout {
    const struct safetensors_item **sorted; /* in the order of their data */
    size_t count;
    char *head; /* the length, the JSON, and spaces up to a multiple of 8 */
    uint64_t head_bytes, bytes;
};

static enum status set_head(struct layout *layout, const char *text) {
    size_t length = strlen(text), padding = (HEADER_ALIGNMENT - length % HEADER_ALIGNMENT) % HEADER_ALIGNMENT;
    layout->head_bytes = LENGTH_BYTES + length + padding;
    layout->head = mem_array(layout->head_bytes, 1);
    if (!layout->head) return STATUS_FAILED;
    for (int i = 0; i < LENGTH_BYTES; i++)
        layout->head[i] = (char)(unsigned char)((length + padding) >> (8 * i));
    memcpy(layout->head + LENGTH_BYTES, text, length);
    memset(layout->head + LENGTH_BYTES + length, ' ', padding);
    layout->bytes = layout->head_bytes;
    for (size_t i = 0; i < layout->count; i++)
        layout->bytes += (uint64_t)item_bytes(layout->sorted[i]);
    return STATUS_OK;
}

static void layout_free(struct layout *layout) {
    mem_free(layout->sorted);
    mem_free(layout->head);
}

static enum status layout_make(const struct safetensors_item *items, size_t count, struct layout *out) {
    struct layout layout = {.sorted = mem_array(count, sizeof(const struct safetensors_item *)), .count = count};
    if (!layout.sorted) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        layout.sorted[i] = &items[i];
    if (count > 0) qsort(layout.sorted, count, sizeof *layout.sorted, compare_items);
    json_t *header = make_header(layout.sorted, count);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    enum status status = text ? set_head(&layout, text) : status_no_memory(0, "the header of a safetensors file");
    json_text_free(text);
    if (status == STATUS_OK)
        *out = layout;
    else
        layout_free(&layout);
    return status;
}

/* The file being written, with the buffers that items pass through. */
struct stream {
    struct file_writer file;
    struct file_range range; /* of the file that is written */
    XXH3_state_t *hash;
    void *room; /* BYTE_STORE_PIECE bytes, of an item without an address */
};

/* What is carried is not ours to judge. */
static enum status check_finite(const struct safetensors_item *item, const char *data, int64_t offset, size_t bytes) {
    if (item->carried) return STATUS_OK;
    int64_t element = dtype_bytes(item->shape.dtype);
    int64_t found = values_find_nonfinite(item->shape.dtype, data, (int64_t)bytes / element);
    if (found < 0) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: value %" PRId64 " is not finite", item->name, offset / element + found);
}

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
    stream->file.status = check_finite(part->item, data + (from - offset), from, count);
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

static enum status read_piece(const struct safetensors_item *item, int64_t offset, int64_t bytes, void *out) {
    if (!item->carried) return item->store->read(item->store->payload, item->key, offset, bytes, out);
    return safetensors_read(item->carried_from, item->carried, (size_t)offset, (size_t)bytes, out);
}

static void take_stored(struct stream *stream, const struct item_part *part, int64_t from, int64_t to) {
    for (int64_t at = from; at < to && stream->file.status == STATUS_OK; at += BYTE_STORE_PIECE) {
        int64_t count = to - at < BYTE_STORE_PIECE ? to - at : BYTE_STORE_PIECE;
        stream->file.status = read_piece(part->item, at, count, stream->room);
        if (stream->file.status == STATUS_OK) take_block(stream, part, stream->room, at, count);
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
                            .room = mem_array(BYTE_STORE_PIECE, 1)};
    enum status status =
        stream.hash && stream.room ? STATUS_OK : status_no_memory(BYTE_STORE_PIECE, "writing a safetensors file");
    if (status == STATUS_OK)
        status = range ? file_writer_open_part(path, range->begin, &stream.file) : file_writer_open(path, &stream.file);
    if (status == STATUS_OK) status = write_opened(path, layout, sums, &stream);
    XXH3_freeState(stream.hash);
    mem_free(stream.room);
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

enum status safetensors_measure(const struct safetensors_item *items, size_t count, uint64_t *bytes) {
    struct layout layout;
    TRY(layout_make(items, count, &layout));
    *bytes = layout.bytes;
    layout_free(&layout);
    return STATUS_OK;
}

enum status safetensors_write_range(const char *path, const struct safetensors_item *items, size_t count,
                                    const struct file_range *range, struct file_sums *sums) {
    struct layout layout;
    TRY(layout_make(items, count, &layout));
    BUG_IF(range->begin % FILE_BLOCK_BYTES_LEAST != 0 || range->begin > range->end || range->end > layout.bytes,
           "%s: bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64, path, range->begin, range->end, layout.bytes);
    enum status status = write_file(path, &layout, range, sums);
    layout_free(&layout);
    return status;
}
