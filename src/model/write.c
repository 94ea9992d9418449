/* Writes a model's Hugging Face directory. */
#include <limits.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "model/weights.h"

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

/* If the file is missing, transformers takes the tokens that begin and pad a text from config.json. */
static enum status read_config(const struct model *model, const char *name, json_t **out) {
    static const char *const keys[] = {"bos_token_id", "pad_token_id"};
    char *path = path_join(model_companion_folder(model, name), name);
    if (!path) return STATUS_FAILED;
    bool exists = file_exists(path);
    enum status status = exists ? json_read_object(path, FILE_LIMIT_BYTES, out) : STATUS_OK;
    mem_free(path);
    if (exists) return status;
    *out = json_object();
    for (size_t i = 0; *out && i < sizeof keys / sizeof *keys; i++) {
        json_t *id = json_object_get(model->config_json, keys[i]);
        if (json_is_integer(id)) (void)json_object_set(*out, keys[i], id);
    }
    return *out ? STATUS_OK : status_no_memory(0, name);
}

/* Writes generation_config.json (`name`) with model->ends, which must be set. */
static enum status model_write_ends(const struct model *model, const char *folder, const char *name,
                                    struct manifest *manifest) {
    struct file_sums *sums;
    json_t *object = NULL;
    char *path = path_join(folder, name);
    enum status status = path ? read_config(model, name, &object) : STATUS_FAILED;
    if (status == STATUS_OK && json_object_set(object, ends_key, model->ends) != 0) status = status_no_memory(0, name);
    if (status == STATUS_OK) (void)json_object_del(object, "_from_model_config"); /* it now has more than that */
    if (status == STATUS_OK) status = manifest_add_named(manifest, name, &sums);
    if (status == STATUS_OK) status = json_write_summed(path, object, sums);
    json_decref(object);
    mem_free(path);
    return status == STATUS_OK ? STATUS_OK : STATUS_FAILED; /* the file was readable at the start */
}

/* --- the directory --- */

static const char config_name[] = "config.json", weights_name[] = "model.safetensors",
                  generation_name[] = "generation_config.json";

/* The other files of a usable Hugging Face directory: first tokenizer and chat templates, then the independent settings
 * of generation and image preprocessing. */
static const char *const companions[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
};
enum { COMPANIONS = sizeof companions / sizeof *companions, STANDING_ALONE = 3 };
static const char templates_name[] = "additional_chat_templates";

const char *model_companion_folder(const struct model *model, const char *name) {
    const char *sign = companions[0];
    if (!model->adapter_folder) return model->folder;
    for (int i = COMPANIONS - STANDING_ALONE; i < COMPANIONS; i++)
        if (strcmp(companions[i], name) == 0) sign = name;
    return model_folder_has(model->adapter_folder, sign) ? model->adapter_folder : model->folder;
}

static enum status check_empty(const char *folder) {
    struct names names = {0};
    if (folder_list(folder, &names) != STATUS_OK) return STATUS_FAILED;
    bool empty = names.count == 0;
    names_free(&names);
    return empty ? STATUS_OK : status_set(STATUS_FAILED, "%s: is not empty", folder);
}

/* The dtype of weights that are not quantized. */
static const char *written_dtype(const struct weight_target *sources, int count) {
    for (int i = 0; i < count; i++)
        if (sources[i].tensor->kind == TENSOR_PARAMETER && sources[i].dtype == DTYPE_F32) return "float32";
    return "bfloat16";
}

/* The config as it was read, except the dtype of the weights: "dtype" in newer files, "torch_dtype" in older ones,
 * which all releases read. */
static enum status write_config(const struct model *model, const char *path, const char *dtype,
                                struct manifest *manifest) {
    struct file_sums *sums;
    TRY(manifest_add(manifest, path, &sums));
    json_auto_t *config = json_copy(model->config_json);
    bool newer = json_object_get(config, "dtype") != NULL, older = json_object_get(config, "torch_dtype") != NULL;
    bool good = config && (!newer || json_object_set_new(config, "dtype", json_string(dtype)) == 0) &&
                ((newer && !older) || json_object_set_new(config, "torch_dtype", json_string(dtype)) == 0) &&
                (!model->ends_config || json_object_set(config, ends_key, json_array_get(model->ends, 0)) == 0);
    return good ? json_write_summed(path, config, sums) : status_no_memory(0, "a config");
}

static enum status copy_companion(const char *from_folder, const char *to_folder, const char *name,
                                  struct manifest *manifest) {
    char *from = path_join(from_folder, name), *to = path_join(to_folder, name);
    struct file_sums *sums;
    enum status status = from && to ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK && file_exists(from)) {
        status = manifest_add_named(manifest, name, &sums);
        if (status == STATUS_OK) status = file_copy_summed(from, to, sums);
    }
    mem_free(from);
    mem_free(to);
    return status == STATUS_OK ? STATUS_OK : STATUS_FAILED; /* the inputs were accepted earlier */
}

/* Chat templates by name: additional_chat_templates/NAME.jinja. */
static enum status copy_templates(const char *from_folder, const char *to_folder, struct manifest *manifest) {
    enum { NAME_BYTES = 128 };
    struct names names = {0};
    char *from = path_join(from_folder, templates_name), *to = path_join(to_folder, templates_name);
    enum status status = from && to ? STATUS_OK : STATUS_FAILED;
    if (status != STATUS_OK || !file_is_folder(from)) goto done;
    TRY_GOTO(status, folder_create(to), done);
    TRY_GOTO(status, folder_list(from, &names), done);
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        if (!path_ends(names.items[i], ".jinja") || strlen(names.items[i]) > NAME_BYTES) continue;
        char *name = path_join(templates_name, names.items[i]);
        status = name ? copy_companion(from_folder, to_folder, name, manifest) : STATUS_FAILED;
        mem_free(name);
    }
done:
    names_free(&names);
    mem_free(from);
    mem_free(to);
    return status == STATUS_OK ? STATUS_OK : STATUS_FAILED;
}

/* Adds a wrapper's other parts, as they were read. */
static size_t add_carried(const struct model *model, struct safetensors_item *items) {
    size_t count = 0;
    for (size_t i = 0; i < model->weights->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &model->weights->tensors.items[i];
        if (weights_is_carried(model, tensor->name))
            items[count++] =
                (struct safetensors_item){.name = tensor->name, .carried = tensor, .carried_from = model->weights};
    }
    return count;
}

/* Allocates nothing, since memory may have run out. */
static void remove_file(const char *folder, const char *name) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path) unlink(path);
}

static void remove_files(const char *folder) {
    remove_file(folder, config_name);
    remove_file(folder, adapter_config_name);
    for (int i = 0; i < COMPANIONS; i++)
        remove_file(folder, companions[i]);
}

const char *model_weights_name(const struct model *model) {
    return model->config.adapter.rank > 0 ? adapter_weights_name : weights_name;
}

enum status model_list_items(const struct model *model, const struct weight_target *sources, int count,
                             struct safetensors_item **out, size_t *items) {
    bool adapter = model->config.adapter.rank > 0,
         carries = !adapter && model->weights && model->config.family->carried;
    size_t used = 0, max = (size_t)count + (carries ? model->weights->tensors.count : 0);
    struct safetensors_item *list = mem_array(max, sizeof *list);
    if (!list) return STATUS_FAILED;
    for (int i = 0; i < count; i++) {
        const struct weight_target *source = &sources[i];
        if (adapter && !adapter_owns(source->tensor->name)) continue;
        list[used] = (struct safetensors_item){.name = source->tensor->name,
                                               .shape = tensor_whole_shape(source->tensor),
                                               .stack = source->tensor->stack,
                                               .part = source->tensor->part ? source->tensor : NULL,
                                               .data = source->data,
                                               .store = source->store,
                                               .key = source->stored_as,
                                               .hash = source->hash,
                                               .group = source->group};
        list[used++].shape.dtype = source->dtype;
    }
    if (carries) used += add_carried(model, list + used);
    *out = list;
    *items = used;
    return STATUS_OK;
}

enum status model_write_settings(const struct model *model, const char *folder, const struct weight_target *sources,
                                 int count, struct manifest *manifest) {
    bool adapter = model->config.adapter.rank > 0;
    AUTO_FREE char *config = path_join(folder, adapter ? adapter_config_name : config_name);
    enum status status = config ? STATUS_OK : STATUS_FAILED;
    if (config && !adapter) status = write_config(model, config, written_dtype(sources, count), manifest);
    for (int i = 0; model->folder && i < COMPANIONS && status == STATUS_OK; i++) {
        const char *name = companions[i];
        if (model->ends && strcmp(name, generation_name) == 0)
            status = model_write_ends(model, folder, name, manifest);
        else
            status = copy_companion(model_companion_folder(model, name), folder, name, manifest);
    }
    if (model->folder && status == STATUS_OK)
        status = copy_templates(model_companion_folder(model, templates_name), folder, manifest);
    if (status == STATUS_OK && adapter) status = adapter_write_settings(model, config, manifest);
    return status;
}

static enum status write_weights(const struct model *model, const char *folder, const struct weight_target *sources,
                                 int count, struct manifest *manifest) {
    struct file_sums *sums;
    AUTO_FREE struct safetensors_item *items = NULL;
    size_t item_count;
    AUTO_FREE char *path = path_join(folder, model_weights_name(model));
    TRY(path ? manifest_add(manifest, path, &sums) : STATUS_FAILED);
    TRY(model_list_items(model, sources, count, &items, &item_count));
    return safetensors_write(path, items, item_count, sums);
}

enum status model_write(const struct model *model, const char *folder, const struct weight_target *sources, int count,
                        struct manifest *manifest) {
    TRY(check_empty(folder));
    enum status status = model_write_settings(model, folder, sources, count, manifest);
    if (status == STATUS_OK) status = write_weights(model, folder, sources, count, manifest);
    if (status != STATUS_OK) remove_files(folder);
    return status;
}
