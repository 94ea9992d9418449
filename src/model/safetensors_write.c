/* Writes a safetensors file. */
#include <xxhash.h>

#include "base/json.h"
#include "base/terminal.h"
#include "ir/tensor.h"
#include "model/safetensors.h"

/* --- layout of the file --- */

struct layout {
    const struct safetensors_item **sorted; /* in the order of their data, which is contiguous */
    size_t count;
    char *head; /* the length, the JSON, and padding spaces to a multiple of 8 */
    uint64_t head_bytes, bytes;
};

enum { LENGTH_BYTES = 8, HEADER_ALIGNMENT = 8 };

static const char *file_dtype(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F64: return "F64";
    case DTYPE_F32: return "F32";
    case DTYPE_BF16: return "BF16";
    case DTYPE_I32: return "I32";
    case DTYPE_I8: return "I8";
    case DTYPE_U8: return "U8";
    case DTYPE_U16: return "U16";
    case DTYPE_NONE: break;
    }
    BUG("no safetensors dtype for %s", dtype_name(dtype));
}

/* Bytes of the whole item. */
static int64_t item_bytes(const struct safetensors_item *item) {
    return item->carried ? (int64_t)item->carried->bytes : shape_bytes(&item->shape);
}

/* Bits of one element. */
static int64_t item_bits(const struct safetensors_item *item) {
    return item->carried ? (int64_t)safetensors_dtype_bits(item->carried->dtype) : 8 * dtype_bytes(item->shape.dtype);
}

/* Name of the tensor in the file. */
static const char *written_name(const struct safetensors_item *item) {
    return item->stack.name ? item->stack.name : item->name;
}

static int compare_groups(const char *x, const char *y) {
    if (x && y) return strcmp(x, y);
    return x ? -1 : y ? 1 : 0;
}

static int compare_items(const void *a, const void *b) {
    const struct safetensors_item *x = *(const struct safetensors_item *const *)a;
    const struct safetensors_item *y = *(const struct safetensors_item *const *)b;
    int groups = compare_groups(x->group, y->group);
    if (groups != 0) return groups;
    int64_t x_bits = item_bits(x), y_bits = item_bits(y);
    if (x_bits != y_bits) return x_bits > y_bits ? -1 : 1;
    int names = strcmp(written_name(x), written_name(y));
    return names != 0 || !x->stack.name ? names : (x->stack.index > y->stack.index) - (x->stack.index < y->stack.index);
}

/* All parts of a stack are there, in order. */
static void check_stacks(const struct layout *layout) {
    for (size_t i = 0; i < layout->count; i++) {
        const struct tensor_stack *stack = &layout->sorted[i]->stack;
        int64_t last = stack->count - 1 - stack->index;
        BUG_IF(stack->name && (last < 0 || (int64_t)(layout->count - 1 - i) < last), "%s: a part of %s",
               layout->sorted[i]->name, stack->name);
        const struct tensor_stack *next = stack->name && last > 0 ? &layout->sorted[i + 1]->stack : NULL;
        BUG_IF(next && (!next->name || strcmp(next->name, stack->name) != 0 || next->index != stack->index + 1),
               "%s: parts are missing", stack->name);
    }
}

static void check_groups(const struct layout *layout) {
    int64_t bytes = 0;
    for (size_t i = 0; i < layout->count && layout->sorted[i]->group; i++) {
        const char *group = layout->sorted[i]->group,
                   *next = i + 1 < layout->count ? layout->sorted[i + 1]->group : NULL;
        bytes += item_bytes(layout->sorted[i]);
        BUG_IF(compare_groups(group, next) != 0 && bytes % SAFETENSORS_GROUP_BYTES != 0, "%s: %" PRId64 " bytes", group,
               bytes);
    }
}

static json_t *item_info(const struct safetensors_item *item, int64_t begin) {
    const struct safetensors_tensor *carried = item->carried;
    const char *dtype = carried ? carried->dtype_name : file_dtype(item->shape.dtype);
    int64_t parts = item->stack.name ? item->stack.count : 1;
    json_t *dims = json_array();
    int failed = !dims;
    if (item->stack.name) failed |= json_array_append_new(dims, json_integer(parts));
    for (int i = 0; i < (carried ? carried->rank : item->shape.rank); i++)
        failed |= json_array_append_new(dims, json_integer(carried ? carried->dims[i] : item->shape.dims[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", json_unless(failed, dims), "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + parts * item_bytes(item)));
}

static json_t *make_header(const struct safetensors_item *const *sorted, size_t count) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    int64_t begin = 0;
    int failed = !header;
    for (size_t i = 0; i < count && !failed; i++) {
        bool first = !sorted[i]->stack.name || sorted[i]->stack.index == 0; /* it represents its stack */
        failed = first && json_object_set_new(header, written_name(sorted[i]), item_info(sorted[i], begin)) != 0;
        begin += item_bytes(sorted[i]);
    }
    return json_unless(failed, header);
}

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

/* The items are borrowed. FAILED without memory; to be freed in any case. */
static enum status layout_make(const struct safetensors_item *items, size_t count, struct layout *out) {
    *out = (struct layout){.sorted = mem_array(count, sizeof(const struct safetensors_item *)), .count = count};
    if (!out->sorted) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        out->sorted[i] = &items[i];
    if (count > 0) qsort(out->sorted, count, sizeof *out->sorted, compare_items);
    check_groups(out);
    check_stacks(out);
    json_auto_t *header = make_header(out->sorted, count);
    AUTO_FREE char *text = header ? json_text(header, JSON_COMPACT) : NULL;
    return text ? set_head(out, text) : status_no_memory(0, "the header of a safetensors file");
}

/* FAILED, naming the item, if its bytes, from `offset` on, hold a value that is not finite. Carried tensors are not
 * checked. */
static enum status item_check_finite(const struct safetensors_item *item, const char *data, int64_t offset,
                                     size_t bytes) {
    if (item->carried) return STATUS_OK;
    int64_t element = dtype_bytes(item->shape.dtype);
    int64_t found = values_find_nonfinite(item->shape.dtype, data, (int64_t)bytes / element);
    if (found < 0) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: value %" PRId64 " is not finite", item->name, offset / element + found);
}

/* Bytes [offset, offset + bytes) of an item without data in memory. */
static enum status item_read(const struct safetensors_item *item, int64_t offset, int64_t bytes, void *out) {
    if (!item->carried) return item->store->read(item->store->payload, item->key, offset, bytes, out);
    return safetensors_read(item->carried_from, item->carried, (size_t)offset, (size_t)bytes, out);
}

enum status safetensors_measure(const struct safetensors_item *items, size_t count, uint64_t *bytes) {
    AUTO(layout_free) struct layout layout = {0};
    TRY(layout_make(items, count, &layout));
    *bytes = layout.bytes;
    return STATUS_OK;
}

enum { BLOCK_BYTES = 1 << 17 };

/* --- a pass over a range of the file --- */

struct stream {
    struct layout layout;
    struct file_range range;
    XXH3_state_t *hash;
    char *buffer;              /* BYTE_STORE_PIECE bytes, of the file, or of an item without an address */
    struct file_writer file;   /* written from whole items; */
    struct file_input written; /* or read again, for its checksums */
    struct file_sums *sums;
};

static void stream_close(struct stream *stream) {
    XXH3_freeState(stream->hash);
    mem_free(stream->buffer);
    layout_free(&stream->layout);
}

/* `range` NULL: all of the file. To be closed in any case. */
static enum status stream_open(const struct safetensors_item *items, size_t count, const struct file_range *range,
                               struct stream *out) {
    *out = (struct stream){.hash = NULL};
    TRY(layout_make(items, count, &out->layout));
    out->range = range ? *range : (struct file_range){0, out->layout.bytes};
    out->hash = XXH3_createState();
    out->buffer = mem_array(BYTE_STORE_PIECE, 1);
    return out->hash && out->buffer ? STATUS_OK : status_no_memory(BYTE_STORE_PIECE, "a pass over a safetensors file");
}

/* End of the part of the file's head in the range. */
static uint64_t stream_head_end(const struct stream *stream) {
    return stream->layout.head_bytes < stream->range.end ? stream->layout.head_bytes : stream->range.end;
}

/* The part of an item in the range: bytes [begin, end) of it. The item's data begin at `place` of the file. */
struct item_part {
    const struct safetensors_item *item;
    uint64_t place;
    int64_t begin, end;
    bool hashed; /* all its bytes are hashed, since it begins in the range */
};

static enum status stream_each_part(struct stream *stream,
                                    enum status (*take)(struct stream *stream, const struct item_part *part)) {
    uint64_t place = stream->layout.head_bytes, begin = stream->range.begin, end = stream->range.end, bytes;
    for (size_t i = 0; i < stream->layout.count && place < end; i++, place += bytes) {
        const struct safetensors_item *item = stream->layout.sorted[i];
        bytes = (uint64_t)item_bytes(item);
        if (place + bytes <= begin) continue;
        struct item_part part = {.item = item,
                                 .place = place,
                                 .begin = begin > place ? (int64_t)(begin - place) : 0,
                                 .end = (int64_t)(end - place < bytes ? end - place : bytes)};
        part.hashed = item->hash && part.begin == 0;
        XXH3_64bits_reset(stream->hash);
        TRY(take(stream, &part));
        if (part.hashed) *item->hash = XXH3_64bits_digest(stream->hash);
    }
    return STATUS_OK;
}

/* --- a file, or a range of it, from whole items --- */

/* Data, ranges and pieces are aligned to elements, so no value is split. */
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

/* Bytes from `offset` of the item on, in blocks that stay in the second-level cache between check, hash and copy. */
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

/* Writes the part of an item in the range, and makes its hash if it begins there. The item's data begin at `place` of
 * the file. */
static enum status write_item(struct stream *stream, const struct item_part *part) {
    int64_t to = part->hashed ? item_bytes(part->item) : part->end;
    if (part->item->data)
        take_block(stream, part, (const char *)part->item->data + part->begin, part->begin, to - part->begin);
    else
        take_stored(stream, part, part->begin, to);
    return stream->file.status;
}

static enum status write_opened(const char *path, struct file_sums *sums, struct stream *stream) {
    uint64_t begin = stream->range.begin, head_end = stream_head_end(stream);
    stream->file.sums = sums;
    file_writer_pass_cache(&stream->file);
    progress_begin(PROGRESS_BYTES, (int64_t)(stream->range.end - begin), "writing %s", path_name(path));
    if (begin < head_end) {
        file_writer_write(&stream->file, stream->layout.head + begin, head_end - begin);
        progress_add((int64_t)(head_end - begin));
    }
    if (stream->file.status == STATUS_OK) (void)stream_each_part(stream, write_item);
    progress_end();
    return file_writer_close(&stream->file);
}

enum status safetensors_write(const char *path, const struct safetensors_item *items, size_t count,
                              struct file_sums *sums) {
    return safetensors_write_range(path, items, count, NULL, sums);
}

enum status safetensors_write_range(const char *path, const struct safetensors_item *items, size_t count,
                                    const struct file_range *range, struct file_sums *sums) {
    AUTO(stream_close) struct stream stream = {0};
    TRY(stream_open(items, count, range, &stream));
    const struct file_range *own = &stream.range;
    BUG_IF(own->begin % FILE_BLOCK_BYTES_MIN != 0 || own->begin > own->end || own->end > stream.layout.bytes,
           "%s: bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64, path, own->begin, own->end, stream.layout.bytes);
    TRY(range ? file_writer_open_part(path, own->begin, &stream.file) : file_writer_open(path, &stream.file));
    return write_opened(path, sums, &stream);
}

/* --- a file of which each process has runs of the tensors' elements --- */

struct run_writer {
    struct file_writer file;
    uint64_t at;  /* place in the file of the next byte */
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

/* Writes bytes of a part from `at` on, which may not be contiguous in the file. */
static void write_run_part(struct run_writer *writer, const struct safetensors_item *item, uint64_t place, int64_t at,
                           int64_t bytes) {
    int64_t element = element_bytes(item), run;
    for (int64_t done = 0; done < bytes; done += run) {
        int64_t whole = tensor_part_find(item->part, (at + done) / element, &run);
        run = run * element < bytes - done ? run * element : bytes - done;
        if (whole == TENSOR_NOWHERE) continue;
        write_at(writer, place + (uint64_t)(whole * element), writer->buffer + done, (size_t)run);
    }
}

/* Writes the bytes of an item's run; its data begin at `place` of the file. */
static void write_run(struct run_writer *writer, const struct safetensors_item *item, const struct safetensors_run *run,
                      uint64_t place) {
    int64_t begin = run->first * element_bytes(item), end = begin + run_bytes(item, run);
    for (int64_t at = begin; at < end && writer->file.status == STATUS_OK; at += BYTE_STORE_PIECE) {
        int64_t count = end - at < BYTE_STORE_PIECE ? end - at : BYTE_STORE_PIECE;
        enum status status = item_read(item, at, count, writer->buffer);
        if (status == STATUS_OK) status = item_check_finite(item, writer->buffer, at, (size_t)count);
        writer->file.status = status;
        if (status == STATUS_OK && item->part)
            write_run_part(writer, item, place, at, count);
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

static enum status write_runs_opened(const char *path, const struct layout *layout, const struct safetensors_runs *mine,
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
    AUTO(layout_free) struct layout layout = {0};
    TRY(layout_make(mine->items, mine->count, &layout));
    struct run_writer writer = {.buffer = mem_array(BYTE_STORE_PIECE, 1)};
    enum status status = writer.buffer ? file_writer_open_part(path, 0, &writer.file) : STATUS_FAILED;
    if (status == STATUS_OK) status = write_runs_opened(path, &layout, mine, &writer);
    mem_free(writer.buffer);
    return status;
}

/* --- checksums --- */

/* Bytes [from, to) of the file: those in the range go to the checksums; all go to the hash if `hashed`. */
static enum status take_bytes(struct stream *stream, uint64_t from, uint64_t to, bool hashed) {
    for (uint64_t at = from; at < to; at += BYTE_STORE_PIECE) {
        size_t count = (size_t)(to - at < BYTE_STORE_PIECE ? to - at : BYTE_STORE_PIECE);
        TRY(file_input_read(&stream->written, at, count, stream->buffer));
        if (hashed) XXH3_64bits_update(stream->hash, stream->buffer, count);
        if (at >= stream->range.end) continue;
        size_t left = (size_t)(stream->range.end - at), summed = count < left ? count : left;
        file_sums_add(stream->sums, stream->buffer, summed);
        progress_add((int64_t)summed);
    }
    return STATUS_OK;
}

static enum status take_item(struct stream *stream, const struct item_part *part) {
    int64_t to = part->hashed ? item_bytes(part->item) : part->end;
    return take_bytes(stream, part->place + (uint64_t)part->begin, part->place + (uint64_t)to, part->hashed);
}

static enum status sum_opened(const char *path, struct stream *stream) {
    if (stream->written.bytes != stream->layout.bytes)
        return status_set(STATUS_FAILED, "%s: has %zu bytes, and %" PRIu64 " were written", path, stream->written.bytes,
                          stream->layout.bytes);
    progress_begin(PROGRESS_BYTES, (int64_t)(stream->range.end - stream->range.begin), "checking %s", path_name(path));
    enum status status = take_bytes(stream, stream->range.begin, stream_head_end(stream), false);
    if (status == STATUS_OK) status = stream_each_part(stream, take_item);
    progress_end();
    return status;
}

enum status safetensors_sum_range(const char *path, const struct safetensors_item *items, size_t count,
                                  const struct file_range *range, struct file_sums *sums) {
    AUTO(stream_close) struct stream stream = {0};
    TRY(stream_open(items, count, range, &stream));
    stream.sums = sums;
    enum status status = file_input_open(path, &stream.written);
    if (status == STATUS_OK) {
        status = sum_opened(path, &stream);
        file_input_close(&stream.written);
    }
    return status == STATUS_OK ? STATUS_OK : STATUS_FAILED;
}
