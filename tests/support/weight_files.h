/* safetensors files and models for tests, written without the code under test. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "model/model.h"

/* The bytes of a safetensors file with this header (JSON text, true or not) and `data_bytes` bytes of data 0, 1, 2, …;
 * the caller frees with free. */
unsigned char *weight_file_bytes(const char *header, size_t data_bytes, size_t *bytes);
void weight_file_write(const char *path, const char *header, size_t data_bytes);

/* A file taken apart, to be changed and put together again. */
struct weight_file {
    json_t *header;
    unsigned char *data; /* malloc */
    size_t data_bytes;
};
struct weight_file weight_file_load(const char *path);
/* Adds bytes at the end of the data and a tensor that has them. */
void weight_file_append(struct weight_file *file, const char *name, const char *dtype, json_t *shape, const void *data,
                        size_t bytes);
void weight_file_save(const struct weight_file *file, const char *path);
void weight_file_drop(struct weight_file *file);

/* The whole of BALLAST_FIXTURES/models/CASE/FILE as JSON; json_decref. */
json_t *fixture_json(const char *model_case, const char *file);
/* Path of BALLAST_FIXTURES/models/CASE, in one of temp_path's buffers. */
const char *fixture_model(const char *model_case);
/* Copies a regular file, or a fixture's config and weights. */
void copy_file(const char *from, const char *to);
void copy_model(const char *model_case, const char *folder);
/* Writes JSON text. */
void write_json(const char *path, const json_t *value);

/* Space for all parameters of a model, in `dtype`. */
struct model_targets {
    struct graph *graph;
    struct weight_target *items;
    int count;
};
struct model_targets model_targets_make(const struct model *model, enum dtype dtype);
void model_targets_drop(struct model_targets *targets);
/* The target whose name ends with `name`. */
const struct weight_target *model_target(const struct model_targets *targets, const char *name);
