#include "support/weight_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "support/temp_folder.h"
#include "support/unit.h"

unsigned char *weight_file_bytes(const char *header, size_t data_bytes, size_t *bytes) {
    size_t length = strlen(header);
    unsigned char *file = malloc(8 + length + data_bytes);
    if (!file) fail_msg("no memory");
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)((unsigned long long)length >> (8 * i));
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + length + i] = (unsigned char)i;
    *bytes = 8 + length + data_bytes;
    return file;
}

void weight_file_write(const char *path, const char *header, size_t data_bytes) {
    size_t bytes;
    unsigned char *file = weight_file_bytes(header, data_bytes, &bytes);
    temp_write(path, file, bytes);
    free(file);
}

const char *fixture_model(const char *model_case) { return temp_path(BALLAST_FIXTURES "/models", model_case); }

static unsigned char *read_all(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) fail_msg("%s: cannot read", path);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes + 1);
    if (!data || fread(data, 1, *bytes, file) != *bytes) fail_msg("%s: cannot read", path);
    fclose(file);
    return data;
}

struct weight_file weight_file_load(const char *path) {
    size_t bytes, length = 0;
    unsigned char *whole = read_all(path, &bytes);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | whole[i];
    struct weight_file file = {.data_bytes = bytes - 8 - length};
    file.header = json_loadb((char *)whole + 8, length, 0, NULL);
    file.data = malloc(file.data_bytes + 1);
    if (!file.header || !file.data) fail_msg("%s: not as expected", path);
    memcpy(file.data, whole + 8 + length, file.data_bytes);
    free(whole);
    return file;
}

void weight_file_append(struct weight_file *file, const char *name, const char *dtype, json_t *shape, const void *data,
                        size_t bytes) {
    json_int_t begin = (json_int_t)file->data_bytes;
    unsigned char *grown = malloc(file->data_bytes + bytes);
    if (!grown) fail_msg("no memory");
    memcpy(grown, file->data, file->data_bytes);
    memcpy(grown + file->data_bytes, data, bytes); /* may lie in the old data */
    free(file->data);
    file->data = grown;
    file->data_bytes += bytes;
    json_object_set_new(file->header, name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape, "data_offsets", begin,
                                  begin + (json_int_t)bytes));
}

void weight_file_save(const struct weight_file *file, const char *path) {
    char *header = json_dumps(file->header, JSON_COMPACT);
    size_t bytes;
    unsigned char *whole = weight_file_bytes(header, file->data_bytes, &bytes);
    memcpy(whole + bytes - file->data_bytes, file->data, file->data_bytes);
    temp_write(path, whole, bytes);
    free(whole);
    free(header);
}

void weight_file_drop(struct weight_file *file) {
    json_decref(file->header);
    free(file->data);
}

json_t *fixture_json(const char *model_case, const char *file) {
    json_error_t error;
    json_t *value = json_load_file(temp_path(fixture_model(model_case), file), 0, &error);
    if (!value) fail_msg("%s/%s: %s", model_case, file, error.text);
    return value;
}

void copy_file(const char *from, const char *to) {
    size_t bytes;
    unsigned char *data = read_all(from, &bytes);
    temp_write(to, data, bytes);
    free(data);
}

void copy_model(const char *model_case, const char *folder) {
    static const char *const names[] = {"config.json", "model.safetensors", "model.safetensors.index.json",
                                        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *from = temp_path(fixture_model(model_case), names[i]), *to = temp_path(folder, names[i]);
        unlink(to);
        if (access(from, F_OK) == 0) copy_file(from, to);
    }
}

void write_json(const char *path, const json_t *value) {
    if (json_dump_file(value, path, JSON_INDENT(1)) != 0) fail_msg("%s: cannot write", path);
}

struct model_targets model_targets_make(const struct model *model, enum dtype dtype) {
    struct model_targets targets = {0};
    struct tensor *loss;
    if (model_build_graph(model, MODEL_LOSS, dtype, 1, 1, &targets.graph, &loss) != STATUS_OK)
        fail_msg("%s", status_message());
    targets.items = calloc(targets.graph->tensors.count, sizeof *targets.items);
    for (size_t i = 0; i < targets.graph->tensors.count; i++) {
        const struct tensor *tensor = targets.graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER) continue;
        void *data = calloc((size_t)shape_elements(&tensor->shape), (size_t)dtype_bytes(dtype));
        targets.items[targets.count++] = weight_whole(tensor, dtype, data);
    }
    return targets;
}

void model_targets_drop(struct model_targets *targets) {
    for (int i = 0; i < targets->count; i++)
        free(targets->items[i].data);
    free(targets->items);
    graph_free(targets->graph);
}

const struct weight_target *model_target(const struct model_targets *targets, const char *name) {
    for (int i = 0; i < targets->count; i++) {
        const char *found = targets->items[i].tensor->name;
        size_t length = strlen(found), wanted = strlen(name);
        if (length >= wanted && strcmp(found + length - wanted, name) == 0) return &targets->items[i];
    }
    fail_msg("no parameter %s", name);
    return NULL;
}
