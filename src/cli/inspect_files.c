/* What `inspect` shows of one file: weights, tokens, a tokenizer, a plan, a cluster. */
#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/inspect.h"
#include "data/token_file.h"
#include "machine/cluster_preset.h"
#include "model/model.h"
#include "plan/plan.h"
#include "text/tokenizer/tokenizer.h"

static const size_t JSON_LIMIT_BYTES = (size_t)256 << 20;

static json_t *tensor_to_json(const struct safetensors_tensor *tensor) {
    json_t *dims = json_array();
    for (int i = 0; i < tensor->rank; i++)
        if (json_array_append_new(dims, json_integer((json_int_t)tensor->dims[i])) != 0) {
            json_decref(dims);
            return NULL;
        }
    return json_pack("{s:s, s:s, s:o, s:I}", "name", tensor->name, "dtype", tensor->dtype_name, "shape", dims, "bytes",
                     (json_int_t)tensor->bytes);
}

enum status inspect_weights(const char *path, json_t **out) {
    struct safetensors *set;
    TRY(safetensors_open(path, &set));
    json_t *tensors = json_array();
    size_t bytes = 0;
    bool good = tensors != NULL;
    for (size_t i = 0; good && i < set->tensors.count; i++) {
        good = json_array_append_new(tensors, tensor_to_json(&set->tensors.items[i])) == 0;
        bytes += set->tensors.items[i].bytes;
    }
    safetensors_close(set);
    if (!good) {
        json_decref(tensors);
        return status_no_memory(0, "a list of tensors");
    }
    *out = json_pack("{s:s, s:s, s:I, s:o}", "kind", "safetensors", "file", path, "bytes", (json_int_t)bytes, "tensors",
                     tensors);
    return *out ? STATUS_OK : status_no_memory(0, "a list of tensors");
}

static enum status find_largest_id(const struct token_view *view, int64_t *out) {
    enum { CHUNK = 4096 };
    int32_t ids[CHUNK], max = -1;
    for (int64_t first = 0; first < view->count; first += CHUNK) {
        int64_t count = view->count - first < CHUNK ? view->count - first : CHUNK;
        TRY(token_view_read(view, first, count, ids));
        for (int64_t i = 0; i < count; i++)
            if (ids[i] > max) max = ids[i];
    }
    *out = max;
    return STATUS_OK;
}

enum status inspect_tokens(const char *path, json_t **out) {
    struct file_input file;
    struct token_view view;
    int64_t largest = -1;
    TRY(file_input_open(path, &file));
    enum status status;
    TRY_GOTO(status, token_file_parse(path, &file, &view), done);
    TRY_GOTO(status, find_largest_id(&view, &largest), done);
    *out = json_pack("{s:s, s:s, s:I, s:i, s:I}", "kind", "tokens", "file", path, "tokens", (json_int_t)view.count,
                     "token_bytes", view.token_bytes, "largest_id", (json_int_t)largest);
    if (!*out) status = status_no_memory(0, "a summary");
done:
    file_input_close(&file);
    return status;
}

static enum status inspect_tokenizer(const char *path, json_t **out) {
    struct tokenizer *tokenizer;
    TRY(tokenizer_open(path, &tokenizer));
    int64_t vocab = tokenizer_vocab_size(tokenizer);
    json_int_t special = 0;
    for (int64_t id = 0; id < vocab; id++)
        special += tokenizer_is_special(tokenizer, (uint32_t)id);
    tokenizer_free(tokenizer);
    *out = json_pack("{s:s, s:s, s:I, s:I}", "kind", "tokenizer", "file", path, "vocab_size", (json_int_t)vocab,
                     "special_tokens", special);
    return *out ? STATUS_OK : status_no_memory(0, "a summary");
}

/* Checked as `train --plan` checks it; what else the file says of the plan is shown too. */
static enum status inspect_plan(const char *path, json_t *object, json_t **out) {
    struct plan plan;
    TRY(plan_from_json(path, object, &plan));
    json_t *summary = json_pack("{s:s, s:s}", "kind", "plan", "file", path);
    if (!summary || json_object_update(summary, object) != 0) {
        json_decref(summary);
        return status_no_memory(0, "a summary");
    }
    *out = summary;
    return STATUS_OK;
}

/* With the sources of its figures, where the file gives them. */
static enum status inspect_cluster(const char *path, const json_t *object, json_t **out) {
    struct cluster cluster;
    TRY(cluster_from_json(path, object, &cluster));
    json_t *whole = cluster_to_json(&cluster), *sources = json_object_get(object, "sources");
    if (!whole) return STATUS_FAILED;
    json_t *summary =
        json_pack("{s:s, s:s, s:O, s:O}", "kind", "cluster", "file", path, "device",
                  json_array_get(json_object_get(whole, "devices"), 0), "network", json_object_get(whole, "network"));
    json_decref(whole);
    if (summary && json_is_object(sources) && json_object_set(summary, "sources", sources) != 0) {
        json_decref(summary);
        summary = NULL;
    }
    *out = summary;
    return summary ? STATUS_OK : status_no_memory(0, "a summary");
}

enum status inspect_cluster_preset(const char *name, json_t **out) {
    json_t *object;
    TRY(cluster_preset_document(cluster_preset_find(name), &object));
    enum status status = inspect_cluster(name, object, out);
    json_decref(object);
    return status;
}

enum status inspect_json_file(const char *path, json_t **out) {
    json_t *object;
    TRY(json_read_object(path, JSON_LIMIT_BYTES, &object));
    enum status status;
    if (json_object_get(object, "recipe") && json_object_get(object, "policy"))
        status = inspect_plan(path, object, out);
    else if (json_object_get(object, "devices"))
        status = inspect_cluster(path, object, out);
    else if (json_object_get(object, "model") || json_object_get(object, "added_tokens"))
        status = inspect_tokenizer(path, out);
    else
        status = status_set(STATUS_BAD_INPUT, "%s: is no tokenizer, plan or cluster file", path);
    json_decref(object);
    return status;
}
