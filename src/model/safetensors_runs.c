/* Writes a safetensors file of which each of several processes has runs of the tensors' elements. */
#include <inttypes.h>
#include <xxhash.h>

#include "base/progress.h"
#include "model/safetensors_layout.h"

/* ---- Writing ---- */

struct run_writer {
    struct file_writer file;
    uint64_t at;  /* of the file, where the next byte goes */
    char *buffer; /* BYTE_STORE_PIECE */
};

static int64_t element_bytes(const struct safetensors_item *item) {
    return item->carried ? 1 : dtype_bytes(item->shape.dtype);
}

static int64_t run_bytes(const struct safetensors_item *item, const struct safetensors_run *run) {
    return run->elements * element_bytes(item);
}

static void write_at(struct run_writer *writer, uint64_t place, const char *data, size_t bytes) {
    if (writer->at != place) file_writer_seek(&writer->file, place);
    file_writer_write(&writer->file, data, bytes);
    writer->at = place + bytes;
    progress_add((int64_t)bytes);
}

/* Of a part, bytes from `at` on, which are not always side by side in the file. */
static void write_part(struct run_writer *writer, const struct safetensors_item *item, uint64_t place, int64_t at,
                       int64_t bytes) {
    int64_t element = element_bytes(item), run;
    for (int64_t done = 0; done < bytes; done += run) {
        int64_t whole = tensor_part_find(item->part, (at + done) / element, &run);
        run = run * element < bytes - done ? run * element : bytes - done;
        if (whole == TENSOR_NOWHERE) continue;
        write_at(writer, place + (uint64_t)(whole * element), writer->buffer + done, (size_t)run);
    }
}

/* The bytes of an item, whose data begin at `place` of the file, that are in its run. */
static void write_run(struct run_writer *writer, const struct safetensors_item *item, const struct safetensors_run *run,
                      uint64_t place) {
    int64_t begin = run->first * element_bytes(item), end = begin + run_bytes(item, run);
    for (int64_t at = begin; at < end && writer->file.status == STATUS_OK; at += BYTE_STORE_PIECE) {
        int64_t count = end - at < BYTE_STORE_PIECE ? end - at : BYTE_STORE_PIECE;
        enum status status = item_read(item, at, count, writer->buffer);
        if (status == STATUS_OK) status = item_check_finite(item, writer->buffer, at, (size_t)count);
        writer->file.status = status;
        if (status == STATUS_OK && item->part)
            write_part(writer, item, place, at, count);
        else if (status == STATUS_OK)
            write_at(writer, place + (uint64_t)at, writer->buffer, (size_t)count);
    }
}

static void write_runs(struct run_writer *writer, const struct layout *layout, const struct safetensors_runs *mine) {
    uint64_t place = layout->head_bytes;
    if (mine->head) write_at(writer, 0, layout->head, layout->head_bytes);
    for (size_t i = 0; i < layout->count && writer->file.status == STATUS_OK; i++) {
        const struct safetensors_item *item = layout->sorted[i];
        write_run(writer, item, &mine->of[item - mine->items], place);
        place += (uint64_t)item_bytes(item);
    }
}

static enum status write_opened(const char *path, const struct layout *layout, const struct safetensors_runs *mine,
                                struct run_writer *writer) {
    int64_t bytes = mine->head ? (int64_t)layout->head_bytes : 0;
    for (size_t i = 0; i < mine->count; i++)
        bytes += run_bytes(&mine->items[i], &mine->of[i]);
    progress_begin(PROGRESS_BYTES, bytes, "writing %s", path_name(path));
    write_runs(writer, layout, mine);
    progress_end();
    return file_writer_close(&writer->file);
}

enum status safetensors_write_runs(const char *path, const struct safetensors_runs *mine) {
    struct layout layout;
    TRY(layout_make(mine->items, mine->count, &layout));
    struct run_writer writer = {.buffer = mem_array(BYTE_STORE_PIECE, 1)};
    enum status status = writer.buffer ? file_writer_open_part(path, 0, &writer.file) : STATUS_FAILED;
    if (status == STATUS_OK) status = write_opened(path, &layout, mine, &writer);
    mem_free(writer.buffer);
    layout_free(&layout);
    return status;
}

/* ---- Checksums ---- */

struct run_reader {
    struct file_input file;
    struct file_range range;
    struct file_sums *sums;
    XXH3_state_t *hash;
    char *buffer; /* BYTE_STORE_PIECE */
};

/* Bytes [from, to) of the file: those in the range go to the checksums, all to the hash where `hashed`. */
static enum status take_bytes(struct run_reader *reader, uint64_t from, uint64_t to, bool hashed) {
    for (uint64_t at = from; at < to; at += BYTE_STORE_PIECE) {
        size_t count = (size_t)(to - at < BYTE_STORE_PIECE ? to - at : BYTE_STORE_PIECE);
        TRY(file_input_read(&reader->file, at, count, reader->buffer));
        if (hashed) XXH3_64bits_update(reader->hash, reader->buffer, count);
        if (at >= reader->range.end) continue;
        size_t left = (size_t)(reader->range.end - at), summed = count < left ? count : left;
        file_sums_add(reader->sums, reader->buffer, summed);
        progress_add((int64_t)summed);
    }
    return STATUS_OK;
}

static enum status take_item(struct run_reader *reader, const struct safetensors_item *item, uint64_t place) {
    uint64_t begin = reader->range.begin, end = reader->range.end, item_end = place + (uint64_t)item_bytes(item);
    if (place >= end || item_end <= begin) return STATUS_OK;
    bool hashed = item->hash && place >= begin;
    XXH3_64bits_reset(reader->hash);
    TRY(take_bytes(reader, place > begin ? place : begin, hashed || item_end < end ? item_end : end, hashed));
    if (hashed) *item->hash = XXH3_64bits_digest(reader->hash);
    return STATUS_OK;
}

static enum status take_range(struct run_reader *reader, const struct layout *layout) {
    uint64_t place = layout->head_bytes, end = reader->range.end;
    TRY(take_bytes(reader, reader->range.begin, place < end ? place : end, false));
    for (size_t i = 0; i < layout->count; i++) {
        TRY(take_item(reader, layout->sorted[i], place));
        place += (uint64_t)item_bytes(layout->sorted[i]);
    }
    return STATUS_OK;
}

static enum status sum_opened(const char *path, const struct layout *layout, struct run_reader *reader) {
    if (reader->file.bytes != layout->bytes)
        return status_set(STATUS_FAILED, "%s: has %zu bytes, and %" PRIu64 " were written", path, reader->file.bytes,
                          layout->bytes);
    progress_begin(PROGRESS_BYTES, (int64_t)(reader->range.end - reader->range.begin), "checking %s", path_name(path));
    enum status status = take_range(reader, layout);
    progress_end();
    return status == STATUS_OK ? STATUS_OK : STATUS_FAILED;
}

enum status safetensors_sum_range(const char *path, const struct safetensors_item *items, size_t count,
                                  const struct file_range *range, struct file_sums *sums) {
    struct layout layout;
    TRY(layout_make(items, count, &layout));
    struct run_reader reader = {
        .range = *range, .sums = sums, .hash = XXH3_createState(), .buffer = mem_array(BYTE_STORE_PIECE, 1)};
    enum status status = reader.hash && reader.buffer ? STATUS_OK : status_no_memory(BYTE_STORE_PIECE, "checksums");
    bool opened = status == STATUS_OK && file_input_open(path, &reader.file) == STATUS_OK;
    if (opened) status = sum_opened(path, &layout, &reader);
    if (opened) file_input_close(&reader.file);
    XXH3_freeState(reader.hash);
    mem_free(reader.buffer);
    layout_free(&layout);
    return opened ? status : STATUS_FAILED;
}
