/* The tokens that end a text, in what is written of a model. */
#include "base/folder.h"
#include "base/json.h"
#include "model/model_weights.h"

static const char ends_key[] = "eos_token_id";
enum { FILE_LIMIT_BYTES = 1 << 20 };

enum status model_set_ends(struct model *model, const uint32_t *ids, size_t count, bool of_config) {
    json_t *list = json_array();
    int failed = !list;
    for (size_t i = 0; i < count; i++)
        failed |= json_array_append_new(list, json_integer((json_int_t)ids[i]));
    json_decref(model->ends);
    model->ends = list;
    model->ends_config = of_config;
    return failed ? status_no_memory(0, "the tokens that end a text") : STATUS_OK;
}

bool model_put_end(const struct model *model, json_t *config) {
    return !model->ends_config || json_object_set(config, ends_key, json_array_get(model->ends, 0)) == 0;
}

/* Without a file transformers takes these from config.json. */
static json_t *begin_config(const struct model *model) {
    static const char *const keys[] = {"bos_token_id", "pad_token_id"};
    json_t *object = json_object();
    for (size_t i = 0; object && i < sizeof keys / sizeof *keys; i++) {
        json_t *id = json_object_get(model->config_json, keys[i]);
        if (json_is_integer(id)) (void)json_object_set(object, keys[i], id);
    }
    return object;
}

static enum status read_config(const struct model *model, const char *name, json_t **out) {
    char *path = path_join(model_companion_folder(model, name), name);
    if (!path) return STATUS_FAILED;
    enum status status = STATUS_OK;
    if (file_exists(path))
        status = json_read_object(path, FILE_LIMIT_BYTES, out);
    else if (!(*out = begin_config(model)))
        status = status_no_memory(0, name);
    mem_free(path);
    return status;
}

enum status model_write_ends(const struct model *model, const char *folder, const char *name,
                             struct manifest *manifest) {
    struct file_sums *sums;
    json_t *object = NULL;
    char *path = path_join(folder, name);
    enum status status = path ? read_config(model, name, &object) : STATUS_FAILED;
    if (status == STATUS_OK && json_object_set(object, ends_key, model->ends) != 0) status = status_no_memory(0, name);
    if (status == STATUS_OK) (void)json_object_del(object, "_from_model_config"); /* it is more than that now */
    if (status == STATUS_OK) status = manifest_add_named(manifest, name, &sums);
    if (status == STATUS_OK) status = json_write_summed(path, object, sums);
    json_decref(object);
    mem_free(path);
    return status == STATUS_OK ? STATUS_OK : STATUS_FAILED; /* the file was read at the start */
}
