#include "model/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/json.h"
#include "model/foreign_weights.h"

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
            return status_set(STATUS_BAD_INPUT, "%s: %s: is also in %s", tensor->file, tensor->name, tensor[-1].file);
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
    return set ? finish(add_file(set, path), set, out) : STATUS_FAILED;
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

/* An index must not lead out of its directory. */
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

/* The index and the files' own headers must say the same. The set's tensors are sorted. */
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
        if (!shard)
            return status_set(STATUS_BAD_INPUT, "%s: %s: is not in the weight_map of %s", tensor->file, tensor->name,
                              index_name);
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
    json_t *object = NULL, *shards = json_object();
    if (!shards) return status_no_memory(0, "a list of weight files");
    enum status status;
    TRY_GOTO(status, json_read_object(index, INDEX_LIMIT_BYTES, &object), done);
    json_t *weight_map = json_object_get(object, "weight_map");
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0)
        TRY_GOTO(status, status_set(STATUS_BAD_INPUT, "%s: weight_map: missing, empty or not an object", index), done);
    TRY_GOTO(status, collect_shards(index, weight_map, shards), done);
    TRY_GOTO(status, add_shards(set, folder, index, shards), done);
    TRY_GOTO(status, check_index(index, weight_map, set), done);
done:
    json_decref(object);
    json_decref(shards);
    return status;
}

static enum status open_found(const char *folder, const char *single, const char *index, struct safetensors **out) {
    if (file_exists(single)) return safetensors_open(single, out);
    if (!file_exists(index)) {
        TRY(foreign_weights_refuse_folder(folder));
        status_set(STATUS_BAD_INPUT, "%s: holds neither model.safetensors nor %s", folder, index_name);
        return status_hint(STATUS_BAD_INPUT, "weights in other formats can be saved again with transformers: "
                                             "model.save_pretrained(directory)");
    }
    struct safetensors *set = mem_array(1, sizeof *set);
    return set ? finish(add_indexed(set, folder, index), set, out) : STATUS_FAILED;
}

enum status safetensors_open_folder(const char *folder, struct safetensors **out) {
    char *single = path_join(folder, "model.safetensors"), *index = path_join(folder, index_name);
    enum status status = single && index ? open_found(folder, single, index, out) : STATUS_FAILED;
    mem_free(single);
    mem_free(index);
    return status;
}

/* Whether the directory holds every shard that the index names. Opening the weights refuses bad names. */
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
    char *single = path_join(folder, "model.safetensors"), *index = path_join(folder, index_name);
    json_t *object = NULL;
    enum status status = single && index ? STATUS_OK : STATUS_FAILED;
    *out = single && file_exists(single);
    if (status == STATUS_OK && !*out && file_exists(index)) {
        status = json_read_object(index, INDEX_LIMIT_BYTES, &object);
        *out = status == STATUS_OK && has_shards(folder, json_object_get(object, "weight_map"));
        json_decref(object);
    }
    mem_free(single);
    mem_free(index);
    return status;
}

static int64_t cuts_of(const struct tensor_stack *stack) { return stack->cuts > 0 ? stack->cuts : 1; }

static enum status check_stack(const struct safetensors_tensor *whole, const struct tensor_stack *stack) {
    char dims[SHAPE_TEXT];
    int64_t cuts = cuts_of(stack), count = stack->count;
    bool fits = whole->rank > 1 && whole->dims[0] == count / cuts && (cuts == 1 || whole->dims[1] % cuts == 0);
    if (fits || count == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: shape is %s, but config.json asks for %lld parts", whole->file,
                      whole->name, safetensors_print_dims(whole, dims), (long long)count);
}

/* Dimensions of its own, the first of them cut. */
static enum status cut_rows(struct safetensors *set, int64_t cuts, struct safetensors_tensor *part) {
    int64_t *dims = scratch_alloc(&set->memory, (size_t)part->rank, sizeof *dims);
    if (!dims) return STATUS_FAILED;
    memcpy(dims, part->dims, (size_t)part->rank * sizeof *dims);
    dims[0] /= cuts;
    part->dims = dims;
    return STATUS_OK;
}

/* The part, to be sorted in later. */
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
    return cuts_of(&part->stack) > 1 ? cut_rows(set, cuts_of(&part->stack), out) : STATUS_OK;
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
        if (whole) set->tensors.items[whole - set->tensors.items].file = NULL; /* it goes */
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
