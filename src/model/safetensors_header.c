#include "model/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { LENGTH_BYTES = 8, HEADER_LIMIT_BYTES = 100000000 }; /* the limit is the safetensors library's */

/* A tensor of this file together with its place in it. */
struct entry {
    struct safetensors_tensor tensor;
    size_t begin, end; /* bytes from the data's first */
};

struct reader {
    struct safetensors *set;
    const char *file;
    size_t data_offset; /* of what is after the header */
    size_t data_bytes;
    VEC(struct entry) entries;
};

static enum status parse_dtype(const struct reader *reader, const json_t *info, struct safetensors_tensor *tensor) {
    const char *name = json_string_value(json_object_get(info, "dtype"));
    if (!name)
        return status_set(STATUS_BAD_INPUT, "%s: %s: dtype: missing or not a string", reader->file, tensor->name);
    tensor->dtype = safetensors_dtype_find(name);
    tensor->dtype_name = scratch_format(&reader->set->memory, "%s", name);
    return tensor->dtype_name ? STATUS_OK : STATUS_FAILED;
}

static enum status parse_shape(const struct reader *reader, const json_t *info, struct safetensors_tensor *tensor) {
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return status_set(STATUS_BAD_INPUT, "%s: %s: shape: missing or not an array", reader->file, tensor->name);
    size_t rank = json_array_size(shape);
    int64_t *dims = scratch_alloc(&reader->set->memory, rank, sizeof *dims);
    if (!dims) return STATUS_FAILED;
    size_t elements = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *item = json_array_get(shape, i);
        dims[i] = json_integer_value(item);
        if (!json_is_integer(item) || dims[i] < 0)
            return status_set(STATUS_BAD_INPUT, "%s: %s: shape: dimension %zu is not a size", reader->file,
                              tensor->name, i);
        if (!mem_multiply(elements, (size_t)dims[i], &elements))
            return status_set(STATUS_BAD_INPUT, "%s: %s: shape: more elements than 64 bits count", reader->file,
                              tensor->name);
    }
    tensor->rank = (int)rank;
    tensor->dims = dims;
    tensor->elements = elements;
    return STATUS_OK;
}

static enum status parse_offsets(const struct reader *reader, const json_t *info, struct entry *entry) {
    const struct safetensors_tensor *tensor = &entry->tensor;
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return status_set(STATUS_BAD_INPUT, "%s: %s: data_offsets: must be two byte positions, begin and end",
                          reader->file, tensor->name);
    entry->begin = (size_t)json_integer_value(begin);
    entry->end = (size_t)json_integer_value(end);
    if (entry->end > reader->data_bytes) {
        status_set(STATUS_BAD_INPUT, "%s: %s: data_offsets: ends at byte %zu of the data, but the file holds %zu",
                   reader->file, tensor->name, entry->end, reader->data_bytes);
        return status_hint(STATUS_BAD_INPUT, "the file may be truncated");
    }
    return STATUS_OK;
}

static enum status check_size(const struct reader *reader, const struct entry *entry) {
    const struct safetensors_tensor *tensor = &entry->tensor;
    if (tensor->dtype == SAFETENSORS_UNKNOWN) return STATUS_OK;
    char dims[SHAPE_TEXT];
    size_t bits;
    if (!mem_multiply(tensor->elements, safetensors_dtype_bits(tensor->dtype), &bits))
        return status_set(STATUS_BAD_INPUT, "%s: %s: shape: more bits than 64 bits count", reader->file, tensor->name);
    if (bits % 8 != 0 || bits / 8 != entry->end - entry->begin)
        return status_set(STATUS_BAD_INPUT, "%s: %s: data_offsets: %zu bytes, but %s %s takes %zu", reader->file,
                          tensor->name, entry->end - entry->begin, tensor->dtype_name,
                          safetensors_print_dims(tensor, dims), bits / 8 + (bits % 8 != 0));
    return STATUS_OK;
}

static enum status parse_tensor(struct reader *reader, const char *name, const json_t *info) {
    struct entry entry = {.tensor = {.file = reader->file}};
    entry.tensor.name = scratch_format(&reader->set->memory, "%s", name);
    if (!entry.tensor.name) return STATUS_FAILED;
    if (!json_is_object(info))
        return status_set(STATUS_BAD_INPUT, "%s: %s: must be an object with dtype, shape and data_offsets",
                          reader->file, name);
    TRY(parse_dtype(reader, info, &entry.tensor));
    TRY(parse_shape(reader, info, &entry.tensor));
    TRY(parse_offsets(reader, info, &entry));
    TRY(check_size(reader, &entry));
    entry.tensor.bytes = entry.end - entry.begin;
    entry.tensor.input = reader->set->inputs.count - 1;
    entry.tensor.offset = reader->data_offset + entry.begin;
    return vec_push(&reader->entries, entry);
}

static enum status check_metadata(const struct reader *reader, json_t *metadata) {
    if (!json_is_object(metadata))
        return status_set(STATUS_BAD_INPUT, "%s: __metadata__: must be an object", reader->file);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return status_set(STATUS_BAD_INPUT, "%s: __metadata__: %s: must be a string", reader->file, key);
    }
    return STATUS_OK;
}

static int compare_places(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* Each tensor must begin where the one before it ended, and the last end where the file does. */
static enum status check_cover(const struct reader *reader) {
    size_t covered = 0;
    for (size_t i = 0; i < reader->entries.count; i++) {
        const struct entry *entry = &reader->entries.items[i];
        if (entry->begin < covered)
            return status_set(STATUS_BAD_INPUT, "%s: %s: data_offsets: overlaps the data of %s", reader->file,
                              entry->tensor.name, entry[-1].tensor.name);
        if (entry->begin > covered)
            return status_set(STATUS_BAD_INPUT, "%s: %s: data_offsets: leaves a hole of %zu bytes before it",
                              reader->file, entry->tensor.name, entry->begin - covered);
        covered = entry->end;
    }
    if (covered == reader->data_bytes) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: the last %zu bytes belong to no tensor", reader->file,
                      reader->data_bytes - covered);
}

static enum status parse_header(struct reader *reader, json_t *header) {
    const char *name;
    json_t *info;
    json_object_foreach(header, name, info) {
        if (strcmp(name, "__metadata__") == 0)
            TRY(check_metadata(reader, info));
        else
            TRY(parse_tensor(reader, name, info));
    }
    if (reader->entries.count > 0)
        qsort(reader->entries.items, reader->entries.count, sizeof *reader->entries.items, compare_places);
    TRY(check_cover(reader));
    for (size_t i = 0; i < reader->entries.count; i++)
        TRY(vec_push(&reader->set->tensors, reader->entries.items[i].tensor));
    return STATUS_OK;
}

static enum status header_length(const char *file, const struct file_input *input, size_t *out) {
    unsigned char first[LENGTH_BYTES + 1];
    size_t bytes = input->bytes;
    if (bytes < LENGTH_BYTES)
        return status_set(STATUS_BAD_INPUT, "%s: %zu bytes are too few for a safetensors file", file, bytes);
    TRY(file_input_read(input, 0, bytes > LENGTH_BYTES ? sizeof first : LENGTH_BYTES, first));
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | first[i];
    if (length > HEADER_LIMIT_BYTES)
        return status_set(STATUS_BAD_INPUT, "%s: header length: %llu bytes are more than the limit of %d", file,
                          (unsigned long long)length, HEADER_LIMIT_BYTES);
    if (length > bytes - LENGTH_BYTES)
        return status_set(STATUS_BAD_INPUT, "%s: header length: %llu bytes, but the file holds only %zu after it", file,
                          (unsigned long long)length, bytes - LENGTH_BYTES);
    if (length == 0 || first[LENGTH_BYTES] != '{')
        return status_set(STATUS_BAD_INPUT, "%s: the header does not begin with '{'", file);
    *out = (size_t)length;
    return STATUS_OK;
}

static enum status read_header(const char *file, const struct file_input *input, size_t length, json_t **out) {
    char *text = mem_array(length, 1);
    if (!text) return STATUS_FAILED;
    enum status status = file_input_read(input, LENGTH_BYTES, length, text);
    if (status == STATUS_OK) status = json_parse_object(file, text, length, out);
    mem_free(text);
    return status;
}

enum status safetensors_parse(struct safetensors *set, const char *file) {
    size_t length = 0;
    json_t *header;
    const struct file_input *input = &set->inputs.items[set->inputs.count - 1];
    TRY(header_length(file, input, &length));
    TRY(read_header(file, input, length, &header));
    struct reader reader = {
        .set = set,
        .file = file,
        .data_offset = LENGTH_BYTES + length,
        .data_bytes = input->bytes - LENGTH_BYTES - length,
    };
    enum status status = parse_header(&reader, header);
    vec_free(&reader.entries);
    json_decref(header);
    return status;
}
