#include "model/safetensors.h"

#include <jansson.h>

#include "base/folder.h"
#include "base/json.h"

static const char convert_hint[] =
    "save it as safetensors, with what it was saved with; for transformers: "
    "AutoModelForCausalLM.from_pretrained(directory).save_pretrained(new_folder), of peft "
    "AutoPeftModelForCausalLM";

static const struct format {
    const char *what;
    const char *suffixes;  /* of names, separated by blanks */
    const char *begins[2]; /* first bytes of files; NULL: they do not identify the format */
    const char *hint;
} formats[] = {
    {"is GGUF, llama.cpp's format, mostly of quantised weights",
     ".gguf .ggml",
     {"GGUF", "lmgg"},
     "training needs what it was made from: the model's directory with config.json and *.safetensors"},
    {"is a pickle of PyTorch, which is a program and not only data; weights are read from safetensors",
     ".bin .pt .pth .ckpt .pkl",
     {"PK\3\4", "\x80\2\x8a\n"}, /* a zip archive; PyTorch's older form, which begins with its magic number */
     convert_hint},
    {"is of TensorFlow or Flax; weights are read from safetensors", ".h5 .msgpack", {"\x89HDF", NULL}, convert_hint},
    {"is ONNX; weights are read from safetensors", ".onnx", {NULL, NULL}, convert_hint},
    {"is a pointer of Git LFS, not the file itself",
     "",
     {"version https://git-lfs", NULL},
     "get the files themselves: git lfs pull, in their directory"},
};
enum { FORMATS = sizeof formats / sizeof *formats, FIRST_BYTES = 64 };

static bool ends_with_any(const char *name, const char *suffixes) {
    size_t length = strlen(name);
    while (*suffixes) {
        size_t here = strcspn(suffixes, " ");
        if (length > here && strncmp(name + length - here, suffixes, here) == 0) return true;
        suffixes += here + strspn(suffixes + here, " ");
    }
    return false;
}

static const struct format *find_by_name(const char *name) {
    for (int i = 0; i < FORMATS; i++)
        if (ends_with_any(name, formats[i].suffixes)) return &formats[i];
    return NULL;
}

static const struct format *find_by_content(const unsigned char *data, size_t bytes) {
    for (int i = 0; i < FORMATS; i++)
        for (int b = 0; b < 2; b++) {
            const char *begin = formats[i].begins[b];
            if (begin && bytes >= strlen(begin) && memcmp(data, begin, strlen(begin)) == 0) return &formats[i];
        }
    return NULL;
}

static enum status refuse(const char *path, const struct format *format) {
    if (!format) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "%s: %s", path, format->what), "%s", format->hint);
}

/* BAD_INPUT with a hint if the file begins with the bytes of such a format; otherwise OK. `path` is for the message. */
static enum status foreign_weights_refuse_content(const char *path, const struct file_input *file) {
    unsigned char first[FIRST_BYTES];
    size_t bytes = file->bytes < sizeof first ? file->bytes : sizeof first;
    TRY(file_input_read(file, 0, bytes, first));
    return refuse(path, find_by_content(first, bytes));
}

enum status foreign_weights_refuse_file(const char *path) {
    AUTO(file_input_close) struct file_input file = {0};
    TRY(file_input_open(path, &file));
    return foreign_weights_refuse_content(path, &file);
}

enum status foreign_weights_refuse_name(const char *path) { return refuse(path, find_by_name(path)); }

enum status foreign_weights_refuse_folder(const char *folder) {
    AUTO(names_free) struct names names = {0};
    TRY(folder_list(folder, &names));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        const struct format *format = find_by_name(names.items[i]);
        char *path = format ? path_join(folder, names.items[i]) : NULL;
        if (format) status = path ? refuse(path, format) : STATUS_FAILED;
        mem_free(path);
    }
    return status;
}

enum { LENGTH_BYTES = 8, HEADER_LIMIT_BYTES = 100000000 }; /* the safetensors library's limit */

/* A tensor of this file and its place in the file. */
struct entry {
    struct safetensors_tensor tensor;
    size_t begin, end; /* bytes from the data's first */
};

struct reader {
    struct safetensors *set;
    const char *file;
    size_t data_offset; /* size of the data after the header */
    size_t data_bytes;
    VEC(struct entry) entries;
};

static enum status parse_dtype(const struct reader *reader, const json_t *info, struct safetensors_tensor *tensor) {
    const char *name = json_string_value(json_object_get(info, "dtype"));
    if (!name) return SAFETENSORS_REFUSE(tensor, "dtype: missing or not a string");
    tensor->dtype = safetensors_dtype_find(name);
    tensor->dtype_name = scratch_format(&reader->set->memory, "%s", name);
    return tensor->dtype_name ? STATUS_OK : STATUS_FAILED;
}

static enum status parse_shape(const struct reader *reader, const json_t *info, struct safetensors_tensor *tensor) {
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape)) return SAFETENSORS_REFUSE(tensor, "shape: missing or not an array");
    size_t rank = json_array_size(shape);
    int64_t *dims = scratch_alloc(&reader->set->memory, rank, sizeof *dims);
    if (!dims) return STATUS_FAILED;
    size_t elements = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *item = json_array_get(shape, i);
        dims[i] = json_integer_value(item);
        if (!json_is_integer(item) || dims[i] < 0)
            return SAFETENSORS_REFUSE(tensor, "shape: dimension %zu is not a size", i);
        if (!mem_multiply(elements, (size_t)dims[i], &elements))
            return SAFETENSORS_REFUSE(tensor, "shape: more elements than 64 bits count");
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
        return SAFETENSORS_REFUSE(tensor, "data_offsets: must be two byte positions, begin and end");
    entry->begin = (size_t)json_integer_value(begin);
    entry->end = (size_t)json_integer_value(end);
    if (entry->end > reader->data_bytes) {
        SAFETENSORS_REFUSE(tensor, "data_offsets: ends at byte %zu of the data, but the file holds %zu", entry->end,
                           reader->data_bytes);
        return status_hint(STATUS_BAD_INPUT, "the file may be truncated");
    }
    return STATUS_OK;
}

static enum status check_size(const struct entry *entry) {
    const struct safetensors_tensor *tensor = &entry->tensor;
    if (tensor->dtype == SAFETENSORS_UNKNOWN) return STATUS_OK;
    char dims[SHAPE_TEXT];
    size_t bits;
    if (!mem_multiply(tensor->elements, safetensors_dtype_bits(tensor->dtype), &bits))
        return SAFETENSORS_REFUSE(tensor, "shape: more bits than 64 bits count");
    if (bits % 8 != 0 || bits / 8 != entry->end - entry->begin)
        return SAFETENSORS_REFUSE(tensor, "data_offsets: %zu bytes, but %s %s takes %zu", entry->end - entry->begin,
                                  tensor->dtype_name, safetensors_print_dims(tensor, dims), bits / 8 + (bits % 8 != 0));
    return STATUS_OK;
}

static enum status parse_tensor(struct reader *reader, const char *name, const json_t *info) {
    struct entry entry = {.tensor = {.file = reader->file}};
    entry.tensor.name = scratch_format(&reader->set->memory, "%s", name);
    if (!entry.tensor.name) return STATUS_FAILED;
    if (!json_is_object(info))
        return SAFETENSORS_REFUSE(&entry.tensor, "must be an object with dtype, shape and data_offsets");
    TRY(parse_dtype(reader, info, &entry.tensor));
    TRY(parse_shape(reader, info, &entry.tensor));
    TRY(parse_offsets(reader, info, &entry));
    TRY(check_size(&entry));
    entry.tensor.bytes = entry.end - entry.begin;
    entry.tensor.input = reader->set->inputs.count - 1;
    entry.tensor.offset = reader->data_offset + entry.begin;
    return vec_push(&reader->entries, entry);
}

static enum status check_metadata(const struct reader *reader, json_t *metadata) {
    const struct safetensors_tensor place = {.name = "__metadata__", .file = reader->file};
    if (!json_is_object(metadata)) return SAFETENSORS_REFUSE(&place, "must be an object");
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value)) return SAFETENSORS_REFUSE(&place, "%s: must be a string", key);
    }
    return STATUS_OK;
}

static int compare_places(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* Each tensor must begin at the end of the one before, and the last must end at the end of the file. */
static enum status check_cover(const struct reader *reader) {
    size_t covered = 0;
    for (size_t i = 0; i < reader->entries.count; i++) {
        const struct entry *entry = &reader->entries.items[i];
        if (entry->begin < covered)
            return SAFETENSORS_REFUSE(&entry->tensor, "data_offsets: overlaps the data of %s", entry[-1].tensor.name);
        if (entry->begin > covered)
            return SAFETENSORS_REFUSE(&entry->tensor, "data_offsets: leaves a hole of %zu bytes before it",
                                      entry->begin - covered);
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

/* For safetensors.c: checks the header of the set's last file in full and appends its tensors, unsorted. `file`, its
 * path, must live as long as the set. */
static enum status safetensors_parse(struct safetensors *set, const char *file) {
    size_t length = 0;
    json_auto_t *header = NULL;
    const struct file_input *input = &set->inputs.items[set->inputs.count - 1];
    TRY(header_length(file, input, &length));
    char *text = mem_array(length, 1);
    enum status status = text ? file_input_read(input, LENGTH_BYTES, length, text) : STATUS_FAILED;
    if (status == STATUS_OK) status = json_parse_object(file, text, length, &header);
    mem_free(text);
    TRY(status);
    struct reader reader = {
        .set = set,
        .file = file,
        .data_offset = LENGTH_BYTES + length,
        .data_bytes = input->bytes - LENGTH_BYTES - length,
    };
    status = parse_header(&reader, header);
    vec_free(&reader.entries);
    return status;
}

static const char index_name[] = "model.safetensors.index.json";
enum { INDEX_LIMIT_BYTES = 256 << 20 };

static int compare_tensors(const void *a, const void *b) {
    return strcmp(((const struct safetensors_tensor *)a)->name, ((const struct safetensors_tensor *)b)->name);
}

static enum status sort_tensors(struct safetensors *set) {
    if (set->tensors.count == 0) return STATUS_OK;
    qsort(set->tensors.items, set->tensors.count, sizeof *set->tensors.items, compare_tensors);
    for (size_t i = 1; i < set->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &set->tensors.items[i];
        if (compare_tensors(tensor - 1, tensor) == 0)
            return SAFETENSORS_REFUSE(tensor, "is also in %s", tensor[-1].file);
    }
    return STATUS_OK;
}

/* Opens and parses one more file; `path` is copied. */
static enum status add_file(struct safetensors *set, const char *path) {
    const char *file = scratch_format(&set->memory, "%s", path);
    struct file_input input;
    if (!file) return STATUS_FAILED;
    TRY(vec_reserve(&set->inputs, set->inputs.count + 1));
    TRY(file_input_open(file, &input));
    set->inputs.items[set->inputs.count++] = input;
    TRY(foreign_weights_refuse_content(file, &set->inputs.items[set->inputs.count - 1]));
    return safetensors_parse(set, file);
}

static enum status finish(enum status status, struct safetensors *set, struct safetensors **out) {
    if (status == STATUS_OK) status = sort_tensors(set);
    if (status != STATUS_OK) {
        safetensors_close(set);
        return status;
    }
    *out = set;
    return STATUS_OK;
}

enum status safetensors_open(const char *path, struct safetensors **out) {
    struct safetensors *set = mem_array(1, sizeof *set);
    if (!set) return STATUS_FAILED;
    enum status status = finish(add_file(set, path), set, out);
    if (status != STATUS_BAD_INPUT) return status;
    return status_hint_else(status, "the file may be incomplete: copy or download it again");
}

enum status safetensors_open_memory(const char *name, const void *data, size_t bytes, struct safetensors **out) {
    struct safetensors *set = mem_array(1, sizeof *set);
    if (!set) return STATUS_FAILED;
    const char *file = scratch_format(&set->memory, "%s", name);
    enum status status = file ? vec_push(&set->inputs, file_input_of_memory(data, bytes)) : STATUS_FAILED;
    return finish(status == STATUS_OK ? safetensors_parse(set, file) : status, set, out);
}

void safetensors_close(struct safetensors *set) {
    if (!set) return;
    for (size_t i = 0; i < set->inputs.count; i++)
        file_input_close(&set->inputs.items[i]);
    vec_free(&set->inputs);
    vec_free(&set->tensors);
    scratch_free(&set->memory);
    mem_free(set);
}

/* An index must not refer to files outside its directory. */
static bool plain_file_name(const char *name) {
    return name[0] != '\0' && !strchr(name, '/') && !strchr(name, '\\') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

/* The distinct file names of a weight map, as the keys of an object. */
static enum status collect_shards(const char *index, json_t *weight_map, json_t *shards) {
    const char *tensor;
    json_t *value;
    json_object_foreach(weight_map, tensor, value) {
        const char *shard = json_string_value(value);
        if (!shard || !plain_file_name(shard))
            return status_set(STATUS_BAD_INPUT, "%s: weight_map: %s: must name a file in the same directory", index,
                              tensor);
        if (json_object_set_new(shards, shard, json_true()) != 0) return status_no_memory(0, "a list of weight files");
    }
    return STATUS_OK;
}

/* The index and the files' own headers must agree. The set's tensors are sorted. */
static enum status check_index(const char *index, json_t *weight_map, const struct safetensors *set) {
    const char *name;
    json_t *value;
    json_object_foreach(weight_map, name, value) {
        if (!safetensors_find(set, name))
            return status_set(STATUS_BAD_INPUT, "%s: weight_map: %s: is not in %s", index, name,
                              json_string_value(value));
    }
    for (size_t i = 0; i < set->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &set->tensors.items[i];
        const char *shard = json_string_value(json_object_get(weight_map, tensor->name));
        if (!shard) return SAFETENSORS_REFUSE(tensor, "is not in the weight_map of %s", index_name);
        if (strcmp(shard, path_name(tensor->file)) != 0)
            return status_set(STATUS_BAD_INPUT, "%s: weight_map: %s: is in %s, not in %s", index, tensor->name,
                              path_name(tensor->file), shard);
    }
    return STATUS_OK;
}

static enum status add_shards(struct safetensors *set, const char *folder, const char *index, json_t *shards) {
    const char *shard;
    json_t *ignored;
    json_object_foreach(shards, shard, ignored) {
        char *path = path_join(folder, shard);
        if (!path) return STATUS_FAILED;
        enum status status = file_exists(path)
                                 ? add_file(set, path)
                                 : status_set(STATUS_BAD_INPUT, "%s: weight_map: %s: no such file", index, shard);
        mem_free(path);
        TRY(status);
    }
    return sort_tensors(set);
}

static enum status add_indexed(struct safetensors *set, const char *folder, const char *index) {
    json_auto_t *object = NULL, *shards = json_object();
    if (!shards) return status_no_memory(0, "a list of weight files");
    TRY(json_read_object(index, INDEX_LIMIT_BYTES, &object));
    json_t *weight_map = json_object_get(object, "weight_map");
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0)
        TRY(status_set(STATUS_BAD_INPUT, "%s: weight_map: missing, empty or not an object", index));
    TRY(collect_shards(index, weight_map, shards));
    TRY(add_shards(set, folder, index, shards));
    return check_index(index, weight_map, set);
}

enum status safetensors_open_folder(const char *folder, struct safetensors **out) {
    AUTO_FREE char *single = path_join(folder, "model.safetensors"), *index = path_join(folder, index_name);
    if (!single || !index) return STATUS_FAILED;
    if (file_exists(single)) return safetensors_open(single, out);
    if (file_exists(index)) {
        struct safetensors *set = mem_array(1, sizeof *set);
        return set ? finish(add_indexed(set, folder, index), set, out) : STATUS_FAILED;
    }
    TRY(foreign_weights_refuse_folder(folder));
    return status_hint(
        status_set(STATUS_BAD_INPUT, "%s: holds neither model.safetensors nor %s", folder, index_name),
        "weights in other formats can be saved again with transformers: model.save_pretrained(directory)");
}

/* Whether the directory holds every shard of the index. Opening the weights rejects bad names. */
static bool has_shards(const char *folder, const json_t *weight_map) {
    const char *tensor;
    json_t *shard;
    bool all = json_object_size(weight_map) > 0;
    json_object_foreach((json_t *)(uintptr_t)weight_map, tensor, shard) {
        char *path = json_is_string(shard) && all ? path_join(folder, json_string_value(shard)) : NULL;
        all = path && file_exists(path);
        mem_free(path);
    }
    return all;
}

enum status safetensors_folder_is_whole(const char *folder, bool *out) {
    AUTO_FREE char *single = path_join(folder, "model.safetensors"), *index = path_join(folder, index_name);
    json_t *object = NULL;
    enum status status = single && index ? STATUS_OK : STATUS_FAILED;
    *out = single && file_exists(single);
    if (status == STATUS_OK && !*out && file_exists(index)) {
        status = json_read_object(index, INDEX_LIMIT_BYTES, &object);
        *out = status == STATUS_OK && has_shards(folder, json_object_get(object, "weight_map"));
        json_decref(object);
    }
    return status;
}

static int64_t cuts_of(const struct tensor_stack *stack) { return stack->cuts > 0 ? stack->cuts : 1; }

static enum status check_stack(const struct safetensors_tensor *whole, const struct tensor_stack *stack) {
    char dims[SHAPE_TEXT];
    int64_t cuts = cuts_of(stack), count = stack->count;
    bool fits = whole->rank > 1 && whole->dims[0] == count / cuts && (cuts == 1 || whole->dims[1] % cuts == 0);
    if (fits || count == 0) return STATUS_OK;
    return SAFETENSORS_REFUSE(whole, "shape is %s, but config.json asks for %lld parts",
                              safetensors_print_dims(whole, dims), (long long)count);
}

/* Adds the part; the list is sorted later. */
static enum status add_part(struct safetensors *set, const struct safetensors_tensor *whole,
                            const struct safetensors_part *part, struct safetensors_tensor *out) {
    TRY(check_stack(whole, &part->stack));
    size_t count = (size_t)part->stack.count, index = (size_t)part->stack.index;
    *out = *whole;
    out->name = scratch_format(&set->memory, "%s", part->name);
    if (!out->name) return STATUS_FAILED;
    if (count == 0) return STATUS_OK;
    out->rank--, out->dims++;
    out->elements /= count, out->bytes /= count;
    out->offset += index * out->bytes;
    if (cuts_of(&part->stack) == 1) return STATUS_OK;
    int64_t *dims =
        scratch_alloc(&set->memory, (size_t)out->rank, sizeof *dims); /* of its own, the first of them cut */
    if (!dims) return STATUS_FAILED;
    memcpy(dims, out->dims, (size_t)out->rank * sizeof *dims);
    dims[0] /= cuts_of(&part->stack);
    out->dims = dims;
    return STATUS_OK;
}

enum status safetensors_unstack(struct safetensors *set, const struct safetensors_part *parts, size_t count) {
    size_t before = set->tensors.count, kept = 0;
    VEC(struct safetensors_tensor) made = {0};
    enum status status = vec_reserve(&made, count);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        const struct safetensors_tensor *whole = safetensors_find(set, parts[i].stack.name);
        if (whole) status = add_part(set, whole, &parts[i], &made.items[made.count++]);
    }
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        const struct safetensors_tensor *whole =
            parts[i].stack.index == 0 ? safetensors_find(set, parts[i].stack.name) : NULL;
        if (whole) set->tensors.items[whole - set->tensors.items].file = NULL; /* mark for removal */
    }
    for (size_t i = 0; i < before && status == STATUS_OK; i++)
        if (set->tensors.items[i].file) set->tensors.items[kept++] = set->tensors.items[i];
    if (status == STATUS_OK) set->tensors.count = kept;
    for (size_t i = 0; i < made.count && status == STATUS_OK; i++)
        status = vec_push(&set->tensors, made.items[i]);
    vec_free(&made);
    return status == STATUS_OK ? sort_tensors(set) : status;
}

enum status safetensors_rename(struct safetensors *set, const struct safetensors_tensor *tensor, const char *name) {
    const char *copy = scratch_format(&set->memory, "%s", name);
    if (!copy) return STATUS_FAILED;
    set->tensors.items[tensor - set->tensors.items].name = copy;
    return sort_tensors(set);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *set, const char *name) {
    struct safetensors_tensor key = {.name = name};
    if (set->tensors.count == 0) return NULL;
    return bsearch(&key, set->tensors.items, set->tensors.count, sizeof key, compare_tensors);
}

bool safetensors_has_shape(const struct safetensors_tensor *tensor, const struct shape *shape) {
    return tensor->rank == shape->rank &&
           (shape->rank == 0 || memcmp(tensor->dims, shape->dims, (size_t)shape->rank * sizeof *tensor->dims) == 0);
}

char *safetensors_print_dims(const struct safetensors_tensor *tensor, char text[SHAPE_TEXT]) {
    size_t used = 1;
    text[0] = '[';
    for (int i = 0; i < tensor->rank && used + 26 < SHAPE_TEXT; i++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%lld", i ? ", " : "", (long long)tensor->dims[i]);
    snprintf(text + used, SHAPE_TEXT - used, "]");
    return text;
}
