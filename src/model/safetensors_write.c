#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"

enum { HEADER_ALIGNMENT = 8 };

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

static int compare_items(const void *a, const void *b) {
    const struct safetensors_item *x = *(const struct safetensors_item *const *)a;
    const struct safetensors_item *y = *(const struct safetensors_item *const *)b;
    int64_t x_bytes = dtype_bytes(x->shape.dtype), y_bytes = dtype_bytes(y->shape.dtype);
    if (x_bytes != y_bytes) return x_bytes > y_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static json_t *item_info(const struct safetensors_item *item, int64_t begin) {
    json_t *dims = json_array();
    for (int i = 0; dims && i < item->shape.rank; i++) {
        if (json_array_append_new(dims, json_integer(item->shape.dims[i])) == 0) continue;
        json_decref(dims);
        return NULL;
    }
    /* "o" takes over `dims`, also on failure */
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", file_dtype(item->shape.dtype), "shape", dims, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + shape_bytes(&item->shape)));
}

static json_t *make_header(const struct safetensors_item *const *sorted, size_t count) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    int64_t begin = 0;
    for (size_t i = 0; header && i < count; i++) {
        if (json_object_set_new(header, sorted[i]->name, item_info(sorted[i], begin)) != 0) {
            json_decref(header);
            return NULL;
        }
        begin += shape_bytes(&sorted[i]->shape);
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

static void write_item(struct file_writer *writer, const struct safetensors_item *item, void *room) {
    int64_t bytes = shape_bytes(&item->shape);
    if (item->data) {
        file_writer_write(writer, item->data, (size_t)bytes);
        return;
    }
    for (int64_t at = 0; at < bytes && writer->status == STATUS_OK; at += BYTE_STORE_PIECE) {
        int64_t count = bytes - at < BYTE_STORE_PIECE ? bytes - at : BYTE_STORE_PIECE;
        writer->status = item->store->read(item->store->payload, item->key, at, count, room);
        if (writer->status == STATUS_OK) file_writer_write(writer, room, (size_t)count);
    }
}

static enum status write_items(struct file_writer *writer, const struct safetensors_item *const *sorted, size_t count) {
    void *room = mem_array(BYTE_STORE_PIECE, 1);
    if (!room) return STATUS_FAILED;
    for (size_t i = 0; i < count && writer->status == STATUS_OK; i++)
        write_item(writer, sorted[i], room);
    mem_free(room);
    return STATUS_OK;
}

static enum status write_sorted(const char *path, const struct safetensors_item *const *sorted, size_t count) {
    json_t *header = make_header(sorted, count);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text) return status_no_memory(0, "the header of a safetensors file");
    struct file_writer writer;
    enum status status = file_writer_open(path, &writer);
    if (status == STATUS_OK) {
        file_writer_pass_cache(&writer);
        write_header(&writer, text);
        if (write_items(&writer, sorted, count) != STATUS_OK && writer.status == STATUS_OK)
            writer.status = STATUS_FAILED;
        status = file_writer_close(&writer);
    }
    free(text);
    return status;
}

enum status safetensors_write(const char *path, const struct safetensors_item *items, size_t count) {
    const struct safetensors_item **sorted = mem_array(count, sizeof(const struct safetensors_item *));
    if (!sorted) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &items[i];
    if (count > 0) qsort(sorted, count, sizeof *sorted, compare_items);
    enum status status = write_sorted(path, sorted, count);
    mem_free(sorted);
    return status;
}
