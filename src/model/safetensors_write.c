/* Writes a safetensors file. */
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/progress.h"
#include "graph/finite.h"
#include "model/safetensors.h"

enum { HEADER_ALIGNMENT = 8, BLOCK_BYTES = 1 << 17 };

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

static void write_header(struct file_writer *writer, const char *text) {
    static const char spaces[HEADER_ALIGNMENT + 1] = "        ";
    size_t bytes = strlen(text), padding = (HEADER_ALIGNMENT - bytes % HEADER_ALIGNMENT) % HEADER_ALIGNMENT;
    uint64_t length = bytes + padding;
    unsigned char little[8];
    for (int i = 0; i < 8; i++)
        little[i] = (unsigned char)(length >> (8 * i));
    file_writer_write(writer, little, sizeof little);
    file_writer_write(writer, text, bytes);
    file_writer_write(writer, spaces, padding);
}

/* The file being written, with the buffers that items pass through. */
struct stream {
    struct file_writer file;
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

/* Bytes from `offset` of the item on, in blocks that are still in the second-level cache when the writer copies what
 * was checked and hashed. */
static void write_block(struct stream *stream, const struct safetensors_item *item, const char *data, int64_t offset,
                        int64_t bytes) {
    for (int64_t at = 0; at < bytes && stream->file.status == STATUS_OK; at += BLOCK_BYTES) {
        size_t count = (size_t)(bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES);
        stream->file.status = check_finite(item, data + at, offset + at, count);
        if (item->hash) XXH3_64bits_update(stream->hash, data + at, count);
        file_writer_write(&stream->file, data + at, count);
        progress_add((int64_t)count);
    }
}

static enum status read_piece(const struct safetensors_item *item, int64_t offset, int64_t bytes, void *out) {
    if (!item->carried) return item->store->read(item->store->payload, item->key, offset, bytes, out);
    return safetensors_read(item->carried_from, item->carried, (size_t)offset, (size_t)bytes, out);
}

static void write_stored(struct stream *stream, const struct safetensors_item *item, int64_t bytes) {
    for (int64_t at = 0; at < bytes && stream->file.status == STATUS_OK; at += BYTE_STORE_PIECE) {
        int64_t count = bytes - at < BYTE_STORE_PIECE ? bytes - at : BYTE_STORE_PIECE;
        stream->file.status = read_piece(item, at, count, stream->room);
        if (stream->file.status == STATUS_OK) write_block(stream, item, stream->room, at, count);
    }
}

static void write_item(struct stream *stream, const struct safetensors_item *item) {
    int64_t bytes = item_bytes(item);
    XXH3_64bits_reset(stream->hash);
    if (item->data)
        write_block(stream, item, item->data, 0, bytes);
    else
        write_stored(stream, item, bytes);
    if (item->hash) *item->hash = XXH3_64bits_digest(stream->hash);
}

static int64_t sum_bytes(const struct safetensors_item *const *items, size_t count) {
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += item_bytes(items[i]);
    return bytes;
}

static enum status write_file(const char *path, const char *header, const struct safetensors_item *const *sorted,
                              size_t count, struct file_sums *sums, struct stream *stream) {
    TRY(file_writer_open(path, &stream->file));
    stream->file.sums = sums;
    file_writer_pass_cache(&stream->file);
    write_header(&stream->file, header);
    progress_begin(PROGRESS_BYTES, sum_bytes(sorted, count), "writing %s", path_name(path));
    for (size_t i = 0; i < count && stream->file.status == STATUS_OK; i++)
        write_item(stream, sorted[i]);
    progress_end();
    return file_writer_close(&stream->file);
}

static enum status write_sorted(const char *path, const struct safetensors_item *const *sorted, size_t count,
                                struct file_sums *sums) {
    json_t *header = make_header(sorted, count);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text) return status_no_memory(0, "the header of a safetensors file");
    struct stream stream = {.hash = XXH3_createState(), .room = mem_array(BYTE_STORE_PIECE, 1)};
    enum status status = stream.hash && stream.room ? write_file(path, text, sorted, count, sums, &stream)
                                                    : status_no_memory(BYTE_STORE_PIECE, "writing a safetensors file");
    XXH3_freeState(stream.hash);
    mem_free(stream.room);
    json_text_free(text);
    return status;
}

enum status safetensors_write(const char *path, const struct safetensors_item *items, size_t count,
                              struct file_sums *sums) {
    const struct safetensors_item **sorted = mem_array(count, sizeof(const struct safetensors_item *));
    if (!sorted) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &items[i];
    if (count > 0) qsort(sorted, count, sizeof *sorted, compare_items);
    enum status status = write_sorted(path, sorted, count, sums);
    mem_free(sorted);
    return status;
}
