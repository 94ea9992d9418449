/* What `inspect` shows of a directory: a model, a checkpoint, a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/inspect.h"
#include "model/model.h"
#include "session/checkpoint/checkpoint.h"

enum { RUN_FILE_LIMIT_BYTES = 1 << 24 };

/* A checkpoint is a model with its position and plan next to the weights. */
static enum status add_state(const char *folder, json_t *summary) {
    char *path = path_join(folder, "state.json");
    json_t *state = NULL;
    enum status status = path ? STATUS_OK : STATUS_FAILED;
    if (path && file_exists(path)) status = json_read_object(path, RUN_FILE_LIMIT_BYTES, &state);
    if (state && (json_object_set_new(summary, "state", state) != 0 ||
                  json_object_set_new(summary, "kind", json_string("checkpoint")) != 0))
        status = status_no_memory(0, "a summary");
    mem_free(path);
    return status;
}

enum status inspect_model(const char *folder, json_t **out) {
    struct model *model;
    json_t *summary;
    TRY(model_open(folder, &model));
    enum status status = model_summarise(model, &summary);
    model_free(model);
    TRY(status);
    status = add_state(folder, summary);
    if (status != STATUS_OK) {
        json_decref(summary);
        return status;
    }
    *out = summary;
    return STATUS_OK;
}

/* The last whole line of metrics.jsonl that has a loss; NULL when there is none. */
static json_t *last_step(const char *folder) {
    json_t *last = NULL;
    char *path = path_join(folder, "metrics.jsonl");
    FILE *file = path ? fopen(path, "r") : NULL;
    char *line = NULL;
    size_t capacity = 0;
    while (file && getline(&line, &capacity, file) > 0) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_object_get(object, "loss")) {
            json_decref(last);
            last = json_incref(object);
        }
        json_decref(object);
    }
    free(line);
    if (file) fclose(file);
    mem_free(path);
    return last;
}

static json_t *checkpoint_names(const char *folder) {
    struct names names = {0};
    json_t *list = json_array();
    if (checkpoint_list(folder, &names) == STATUS_OK)
        for (size_t i = 0; i < names.count; i++)
            json_array_append_new(list, json_pack("{s:s}", "name", names.items[i]));
    names_free(&names);
    return list;
}

enum status inspect_run(const char *folder, json_t **out) {
    json_t *settings;
    char *path = path_join(folder, "run.json"), *model = path_join(folder, "model");
    enum status status = path && model ? json_read_object(path, RUN_FILE_LIMIT_BYTES, &settings) : STATUS_FAILED;
    if (status == STATUS_OK) {
        json_t *last = last_step(folder);
        *out = json_pack("{s:s, s:s, s:o, s:o, s:b, s:o}", "kind", "run", "folder", folder, "last_step",
                         last ? last : json_null(), "checkpoints", checkpoint_names(folder), "has_model",
                         file_is_folder(model), "settings", settings);
        if (!*out) status = status_no_memory(0, "a summary");
    }
    mem_free(path);
    mem_free(model);
    return status;
}
