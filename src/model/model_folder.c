#include "model/model.h"

#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "model/foreign_weights.h"
#include "model/model_preset.h"

static const char hub_url[] = "https://huggingface.co/";
static const char name_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

static enum status holds(const char *folder, const char *name, bool *out) {
    char *path = path_join(folder, name);
    if (!path) return STATUS_FAILED;
    *out = file_exists(path);
    mem_free(path);
    return STATUS_OK;
}

static enum status is_model(const char *folder, bool *out) {
    TRY(holds(folder, "config.json", out));
    return *out ? STATUS_OK : holds(folder, "adapter_config.json", out);
}

/* OWNER/NAME, where there is no directory of the owner's name that it could lie in. */
static bool is_hub_name(const char *text) {
    size_t owner = strspn(text, name_letters), name = text[owner] == '/' ? strspn(text + owner + 1, name_letters) : 0;
    if (owner == 0 || name == 0 || text[owner + 1 + name] != '\0' || text[0] == '.') return false;
    char *folder = mem_format("%.*s", (int)owner, text);
    bool there = folder && file_exists(folder);
    mem_free(folder);
    return !there;
}

/* Presets have dimensions only. */
static enum status refuse_missing(const char *given) {
    const char *name = strncmp(given, hub_url, strlen(hub_url)) == 0 ? given + strlen(hub_url) : given;
    const struct model_preset *preset = model_preset_find(name);
    if (!preset && !is_hub_name(name)) return status_set(STATUS_BAD_INPUT, "%s: no such directory", given);
    status_set(STATUS_BAD_INPUT, "%s: no such directory%s", given,
               preset ? "; the preset of that name has no weights, which this needs"
                      : "; a model of the Hugging Face hub has to be downloaded first");
    const char *hub = preset ? preset->hub : name, *own = path_name(hub);
    return status_hint(STATUS_BAD_INPUT,
                       "download it first: hf download %s --local-dir %s (before huggingface_hub 1.0: huggingface-cli "
                       "download), then give %s",
                       hub, own, own);
}

static enum status refuse_file(const char *given) {
    TRY(foreign_weights_refuse_file(given));
    TRY(foreign_weights_refuse_name(given));
    status_set(STATUS_BAD_INPUT, "%s: is a file; a model is a directory with config.json and its weights", given);
    const char *name = path_name(given);
    if (!strstr(name, ".safetensors") && strcmp(name, "config.json") != 0) return STATUS_BAD_INPUT;
    int length = name > given + 1 ? (int)(name - given) - 1 : 1;
    return status_hint(STATUS_BAD_INPUT, "give its directory, %.*s", length, name > given ? given : ".");
}

/* The last of step-00000100, step-00000200, … which are sorted; NULL where there is none. */
static char *newest_checkpoint(const char *run_folder) {
    struct names names = {0};
    char *folder = path_join(run_folder, "checkpoints"), *newest = NULL;
    if (folder && file_is_folder(folder) && folder_list(folder, &names) == STATUS_OK)
        for (size_t i = names.count; i > 0 && !newest; i--)
            if (strncmp(names.items[i - 1], "step-", 5) == 0) newest = path_join(folder, names.items[i - 1]);
    names_free(&names);
    mem_free(folder);
    return newest;
}

static enum status refuse_unfinished(const char *run_folder) {
    char *newest = newest_checkpoint(run_folder), word[PATH_SHELL_BYTES];
    const char *run = path_for_shell(run_folder, word);
    status_set(STATUS_BAD_INPUT, "%s: is a run that has no model yet: it is written at the end", run_folder);
    if (newest)
        status_hint(STATUS_BAD_INPUT, "go on with: ballast resume %s; or give its newest checkpoint, %s", run, newest);
    else
        status_hint(STATUS_BAD_INPUT, "go on with: ballast resume %s", run);
    mem_free(newest);
    return STATUS_BAD_INPUT;
}

/* A downloaded model may lie below: snapshots/REVISION in the cache of the hub's own library. */
static enum status refuse_folder(const char *given) {
    TRY(foreign_weights_refuse_folder(given));
    struct names names = {0};
    char *folder = path_join(given, "snapshots");
    status_set(STATUS_BAD_INPUT, "%s: is no model: it holds no config.json", given);
    if (folder && file_is_folder(folder) && folder_list(folder, &names) == STATUS_OK && names.count > 0)
        status_hint(STATUS_BAD_INPUT, "it is a download's cache; give %s/%s", folder, names.items[names.count - 1]);
    names_free(&names);
    mem_free(folder);
    return STATUS_BAD_INPUT;
}

static enum status find_run_model(const char *run_folder, char **out) {
    bool whole = false;
    char *folder = path_join(run_folder, "model");
    enum status status = folder ? is_model(folder, &whole) : STATUS_FAILED;
    if (status == STATUS_OK && !whole) status = refuse_unfinished(run_folder);
    if (status == STATUS_OK)
        *out = folder;
    else
        mem_free(folder);
    return status;
}

enum status model_folder_find(const char *given, char **out) {
    bool model, run;
    if (!file_exists(given)) return refuse_missing(given);
    if (!file_is_folder(given)) return refuse_file(given);
    TRY(is_model(given, &model));
    TRY(holds(given, "run.json", &run));
    if (!model) return run ? find_run_model(given, out) : refuse_folder(given);
    *out = mem_string(given);
    return *out ? STATUS_OK : STATUS_FAILED;
}
