#include "session/checkpoint/run_folder.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "plan/settings.h"

enum { NUMBER_MAX = SETTING_SIZE_MAX };

/* Fields in runs before RUN_FIRST_TERMS. */
static const struct json_renamed renamed_fields[] = {
    {"tensor", "tensor_parallel"}, {"sequence", "sequence_parallel"}, {"round_grains", "round_micro_batches"}};

static void run_changes_free(struct run_changes *changes) { vec_free(&changes->items); }

static enum status add(struct run_changes *changes, int64_t step, const char *field, const char *from, const char *to) {
    struct run_change change = {.step = step};
    if (strcmp(from, to) == 0) return STATUS_OK;
    snprintf(change.field, sizeof change.field, "%s", field);
    snprintf(change.from, sizeof change.from, "%s", from);
    snprintf(change.to, sizeof change.to, "%s", to);
    return vec_push(&changes->items, change);
}

enum status run_changes_add_recipe(struct run_changes *changes, int64_t step, const struct recipe *from,
                                   const struct recipe *to) {
    char before[RUN_CHANGE_BYTES], after[RUN_CHANGE_BYTES];
    TRY(add(changes, step, "isa", from->isa, to->isa));
    snprintf(before, sizeof before, "%d", from->kernels_version);
    snprintf(after, sizeof after, "%d", to->kernels_version);
    TRY(add(changes, step, "kernels_version", before, after));
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &setting_table[id];
        struct setting_value was, is;
        if (!recipe_setting_moves(id)) continue;
        recipe_load_setting(from, id, &was);
        recipe_load_setting(to, id, &is);
        TRY(add(changes, step, setting->key, setting_print(setting, &was, before), setting_print(setting, &is, after)));
    }
    return STATUS_OK;
}

/* The setting of a recipe field that may change; NULL: it is not one. */
static const struct setting *find_movable(const char *field) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if (recipe_setting_moves(id) && strcmp(field, setting_table[id].key) == 0) return &setting_table[id];
    return NULL;
}

/* Recipes once had the number of threads. Its recorded changes are kept, without effect now. */
static bool is_number(const char *field) {
    return strcmp(field, "threads") == 0 || strcmp(field, "kernels_version") == 0;
}

static bool is_known(const char *field) {
    return find_movable(field) || is_number(field) || strcmp(field, "isa") == 0 || train_option_changes(field);
}

static void apply(const struct run_change *change, struct recipe *recipe) {
    const struct setting *setting = find_movable(change->field);
    struct setting_value value;
    if (strcmp(change->field, "isa") == 0) {
        memcpy(recipe->isa, change->to, sizeof recipe->isa);
        recipe->products = NULL; /* the other recipe owns them */
    }
    if (strcmp(change->field, "kernels_version") == 0) recipe->kernels_version = atoi(change->to);
    if (setting == &setting_table[SETTING_tensor_parallel]) recipe->strategies = NULL; /* depend on the ranks */
    if (setting && setting_parse(setting, "", change->to, &value) == STATUS_OK)        /* checked before */
        (void)settings_store(&recipe_settings, recipe, setting_id_of(setting), "", &value);
}

void run_changes_apply(struct run_changes *changes, int64_t step, struct recipe *recipe) {
    for (size_t i = 0; i < changes->items.count; i++) {
        if (changes->items.items[i].step < step) continue;
        changes->items.items[i].step = step;
        apply(&changes->items.items[i], recipe);
    }
}

void run_changes_drop_options(struct run_changes *changes, int64_t step) {
    size_t kept = 0;
    for (size_t i = 0; i < changes->items.count; i++) {
        const struct run_change change = changes->items.items[i];
        if (change.step < step || !train_option_changes(change.field)) changes->items.items[kept++] = change;
    }
    changes->items.count = kept;
}

static const char *print_option(const json_t *value, char text[RUN_CHANGE_BYTES]) {
    if (json_is_null(value)) return "not given";
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    if (json_is_integer(value))
        snprintf(text, RUN_CHANGE_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        snprintf(text, RUN_CHANGE_BYTES, "%.9g", json_real_value(value));
    return text;
}

enum status run_changes_add_options(struct run_changes *changes, int64_t step, const json_t *from, const json_t *to) {
    const char *field;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)to, field, value) {
        const json_t *old = json_object_get(from, field);
        char before[RUN_CHANGE_BYTES], after[RUN_CHANGE_BYTES];
        if (!old || !train_option_changes(field) || train_option_equal(value, old)) continue;
        TRY(add(changes, step, field, print_option(old, before), print_option(value, after)));
    }
    return STATUS_OK;
}

json_t *run_changes_to_json(const struct run_changes *changes) {
    json_t *array = json_array();
    for (size_t i = 0; i < changes->items.count; i++) {
        const struct run_change *change = &changes->items.items[i];
        json_push(&array, json_pack("{s:I, s:s, s:s, s:s}", "step", (json_int_t)change->step, "field", change->field,
                                    "from", change->from, "to", change->to));
    }
    if (!array) (void)status_no_memory(0, "the changes of a run");
    return array;
}

static enum status read_value(const char *where, const json_t *object, const char *key, const char *field,
                              char out[RUN_CHANGE_BYTES]) {
    const struct setting *setting = find_movable(field);
    struct setting_value value = {0};
    struct recipe tried = {0};
    char *end = out;
    TRY(json_require(where, object, key));
    TRY(json_read_text(where, object, key, RUN_CHANGE_BYTES, out));
    bool good = out[0] != '\0';
    if (setting && good) {
        good = setting_parse(setting, where, out, &value) == STATUS_OK &&
               !(setting->automatic && value.int_value == 0) &&
               settings_store(&recipe_settings, &tried, setting_id_of(setting), where, &value) == STATUS_OK;
        status_clear();
    } else if (is_number(field)) {
        long number = strtol(out, &end, 10);
        good = good && !*end && number >= 1 && number <= NUMBER_MAX;
    }
    return good ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: %s: '%s' is not legal", where, key, out);
}

static enum status read_change(const char *where, const json_t *object, int64_t version, struct run_change *out) {
    struct run_change change = {0};
    const char *field = "";
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(json_require(where, object, "step"));
    TRY(json_read_int(where, object, "step", 0, INT64_MAX, &change.step));
    TRY(json_require(where, object, "field"));
    TRY(json_read_string(where, object, "field", &field));
    if (version < RUN_FIRST_TERMS)
        field = json_name_now(renamed_fields, sizeof renamed_fields / sizeof *renamed_fields, field);
    if (!is_known(field)) return status_set(STATUS_BAD_INPUT, "%s: field: a run cannot change '%s'", where, field);
    snprintf(change.field, sizeof change.field, "%s", field);
    TRY(read_value(where, object, "from", change.field, change.from));
    TRY(read_value(where, object, "to", change.field, change.to));
    *out = change;
    return STATUS_OK;
}

const char *run_changes_key(int64_t version) { return version < RUN_FIRST_CHANGES ? "recipe_changes" : "changes"; }

/* Reads the list of a run.json, if there is one. BAD_INPUT naming the field. */
static enum status run_changes_from_json(const char *file, const json_t *object, int64_t version,
                                         struct run_changes *out) {
    const char *key = run_changes_key(version);
    const json_t *array = json_object_get(object, key);
    if (!array) return STATUS_OK;
    if (!json_is_array(array)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array", file, key);
    for (size_t i = 0; i < json_array_size(array); i++) {
        AUTO_FREE char *where = mem_format("%s: %s: number %zu", file, key, i);
        struct run_change change;
        TRY(where ? read_change(where, json_array_get(array, i), version, &change) : STATUS_FAILED);
        TRY(vec_push(&out->items, change));
    }
    return STATUS_OK;
}

enum { RUN_FILE_LIMIT_BYTES = 1 << 24 };
static const char temporary_prefix[] = ".tmp-", replaced_prefix[] = ".old-";

enum status run_path(const char *folder, const char *name, char out[RUN_PATH_BYTES]) {
    size_t length = strlen(folder);
    const char *between = length == 0 || folder[length - 1] == '/' ? "" : "/";
    if (snprintf(out, RUN_PATH_BYTES, "%s%s%s", folder, between, name) < RUN_PATH_BYTES) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s", folder, strerror(ENAMETOOLONG));
}

/* Remains of a killed start, before there is a run.json: a temporary one, or an empty directory of checkpoints, which
 * older versions made first. */
static bool is_unborn(const char *folder, const char *name) {
    char path[RUN_PATH_BYTES];
    AUTO(names_free) struct names names = {0};
    if (name_is_beside(name, file_temporary_prefix)) return true;
    if (strcmp(name, "checkpoints") != 0 || run_path(folder, name, path) != STATUS_OK) return false;
    return file_is_folder(path) && folder_list(path, &names) == STATUS_OK && names.count == 0;
}

enum status run_folder_check_new(const char *path) {
    if (!file_exists(path)) return STATUS_OK;
    if (!file_is_folder(path)) return status_set(STATUS_BAD_INPUT, "%s: exists and is not a directory", path);
    AUTO(names_free) struct names names = {0};
    char argument[PATH_SHELL_BYTES];
    bool empty = true, run = false;
    TRY(folder_list(path, &names));
    for (size_t i = 0; i < names.count; i++) {
        empty = empty && is_unborn(path, names.items[i]);
        run |= strcmp(names.items[i], "run.json") == 0;
    }
    if (empty) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: holds %s; it is left as it is", path,
                     run ? "a run already" : "something else");
    return run ? status_hint(STATUS_BAD_INPUT, "go on with: ballast resume %s; or give -o another directory",
                             path_for_shell(path, argument))
               : status_hint(STATUS_BAD_INPUT, "give -o a new or an empty directory");
}

static json_t *limits_to_json(const struct memory_options *limits) {
#define SIZE_OR_NULL(field) SETTINGS_HAVE(limits, field) ? json_integer(limits->field) : json_null()
    return json_pack("{s:o, s:o, s:o, s:s?}", "device_bytes", SIZE_OR_NULL(device_bytes), "host_bytes",
                     SIZE_OR_NULL(host_bytes), "disk_bytes", SIZE_OR_NULL(disk_bytes), "disk_folder",
                     SETTINGS_HAVE(limits, disk_folder) ? limits->disk_folder : NULL);
}

enum status run_folder_write(const char *path, const struct run_settings *settings) {
    char file[RUN_PATH_BYTES];
    TRY(run_path(path, "run.json", file));
    json_auto_t *options = train_options_to_json(&settings->options), *plan = plan_to_json(&settings->plan);
    json_auto_t *changes = run_changes_to_json(&settings->changes);
    if (!options || !plan || !changes) return STATUS_FAILED;
    json_auto_t *object =
        json_pack("{s:i, s:s, s:O, s:O, s:O, s:o}", "version", RUN_VERSION, "model", settings->model_folder, "options",
                  options, "plan", plan, "changes", changes, "memory", limits_to_json(&settings->limits));
    return object ? json_write(file, object)
                  : status_set(STATUS_FAILED, "%s: a path that is not UTF-8, or no memory", file);
}

static enum status remove_unborn(const char *folder) {
    char path[RUN_PATH_BYTES];
    AUTO(names_free) struct names names = {0};
    TRY(folder_list(folder, &names));
    for (size_t i = 0; i < names.count; i++) {
        if (!is_unborn(folder, names.items[i])) continue;
        TRY(run_path(folder, names.items[i], path));
        TRY(folder_remove(path));
    }
    return STATUS_OK;
}

/* Two processes may have found the directory empty. Its content counts once it is locked. */
enum status run_folder_take_new(const char *path, int *lock) {
    int held = -1;
    TRY(folder_create(path));
    TRY(run_folder_lock(path, &held));
    enum status status = run_folder_check_new(path);
    if (status == STATUS_OK) status = remove_unborn(path);
    if (status == STATUS_OK)
        *lock = held;
    else
        run_folder_unlock(held);
    return status;
}

enum status run_folder_create(const char *path, const struct run_settings *settings, int *lock) {
    TRY(run_folder_take_new(path, lock));
    enum status status = run_folder_write(path, settings);
    if (status != STATUS_OK) run_folder_unlock(*lock);
    return status;
}

/* Options that were not given are null; older versions wrote 0. */
static enum status read_size(const char *file, const json_t *object, enum setting_id id, struct settings_given *given,
                             int64_t *out) {
    const char *field = setting_table[id].key;
    if (json_is_null(json_object_get(object, field))) return STATUS_OK;
    TRY(json_read_int(file, object, field, 0, INT64_MAX, out));
    if (*out > 0) given->of[id] = true;
    return STATUS_OK;
}

/* Runs of older versions have none. */
static enum status read_limits(const char *file, const json_t *object, struct memory_options *out) {
    const char *folder = "";
    if (!object) return STATUS_OK;
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: memory: must be an object", file);
    TRY(read_size(file, object, SETTING_device_bytes, &out->given, &out->device_bytes));
    TRY(read_size(file, object, SETTING_host_bytes, &out->given, &out->host_bytes));
    TRY(read_size(file, object, SETTING_disk_bytes, &out->given, &out->disk_bytes));
    if (json_is_null(json_object_get(object, "disk_folder"))) return STATUS_OK;
    TRY(json_read_string(file, object, "disk_folder", &folder));
    if (strlen(folder) >= sizeof out->disk_folder)
        return status_set(STATUS_BAD_INPUT, "%s: disk_folder: is longer than %d bytes", file, MEMORY_FOLDER_BYTES - 1);
    memory_options_set_disk(out, folder);
    return STATUS_OK;
}

enum status run_settings_from_json(const char *file, const json_t *object, struct run_settings *out) {
    int64_t version = 0;
    const char *model = NULL;
    *out = (struct run_settings){0};
    TRY(json_read_version(file, object, RUN_VERSION, &version));
    TRY(json_require(file, object, "model"));
    TRY(json_read_string(file, object, "model", &model));
    out->model_folder = scratch_format(&out->memory, "%s", model);
    if (!out->model_folder) return STATUS_FAILED;
    TRY(json_require(file, object, "options"));
    TRY(json_require(file, object, "plan"));
    const json_t *options = json_object_get(object, "options"), *plan = json_object_get(object, "plan");
    if (!json_is_object(options)) return status_set(STATUS_BAD_INPUT, "%s: options: must be an object", file);
    if (!json_is_object(plan)) return status_set(STATUS_BAD_INPUT, "%s: plan: must be an object", file);
    TRY(train_options_from_json(file, options, &out->memory, &out->options));
    TRY(read_limits(file, json_object_get(object, "memory"), &out->limits));
    TRY(run_changes_from_json(file, object, version, &out->changes));
    return plan_from_json(file, plan, &out->plan);
}

/* A directory without run.json. */
static enum status refuse_other(const char *path) {
    bool unborn = run_folder_check_new(path) == STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: is not the directory of a run: it has no run.json" HINT "%s", path,
                      unborn ? "a run that ended before its first step is begun again: ballast train"
                             : "name the directory that `ballast train -o` made");
}

enum status run_folder_read(const char *path, struct run_settings *out) {
    char file[RUN_PATH_BYTES];
    json_auto_t *object = NULL;
    AUTO(run_settings_free) struct run_settings settings = {0};
    TRY(run_path(path, "run.json", file));
    if (!file_exists(file)) return refuse_other(path);
    TRY(json_read_object(file, RUN_FILE_LIMIT_BYTES, &object));
    TRY(run_settings_from_json(file, object, &settings));
    *out = TAKE(settings);
    return STATUS_OK;
}

void run_settings_free(struct run_settings *settings) {
    scratch_free(&settings->memory);
    run_changes_free(&settings->changes);
    *settings = (struct run_settings){0};
}

enum status run_folder_lock(const char *path, int *lock) {
    return folder_lock(path, lock, NULL); /* without lock support the run continues unlocked */
}

void run_folder_unlock(int lock) {
    if (lock >= 0) close(lock);
}

enum status run_folder_is_held(const char *path, bool *held) {
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return status_set(STATUS_BAD_INPUT, "%s: cannot open: %s", path, strerror(errno));
    *held = flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(descriptor);
    return STATUS_OK;
}

static bool has_prefix(const char *name, const char *prefix) { return strncmp(name, prefix, strlen(prefix)) == 0; }

static enum status clear_one(const char *folder, const char *name) {
    char path[RUN_PATH_BYTES], original[RUN_PATH_BYTES];
    bool replaced = has_prefix(name, replaced_prefix);
    if (!replaced && !has_prefix(name, temporary_prefix)) return STATUS_OK;
    TRY(run_path(folder, name, path));
    TRY(run_path(folder, name + strlen(replaced_prefix), original));
    return replaced && !file_exists(original) ? file_rename(path, original) : folder_remove(path);
}

enum status run_folder_clear(const char *folder) {
    if (!file_exists(folder)) return STATUS_OK;
    AUTO(names_free) struct names names = {0};
    TRY(folder_list(folder, &names));
    for (size_t i = 0; i < names.count; i++)
        TRY(clear_one(folder, names.items[i]));
    return STATUS_OK;
}

static char *prefixed(const char *folder, const char *prefix, const char *name) {
    return mem_format("%s/%s%s", folder, prefix, name);
}

char *run_folder_temporary(const char *folder, const char *name) { return prefixed(folder, temporary_prefix, name); }

enum status run_folder_begin(const char *temporary) {
    bool made = folder_remove(temporary) == STATUS_OK && folder_create_one(temporary) == STATUS_OK;
    return made ? STATUS_OK : STATUS_FAILED;
}

/* Between the two renames there is no folder/name. run_folder_clear restores the old one if the process ends there. */
static enum status replace(const char *temporary, const char *final, const char *old) {
    if (!file_exists(final)) return folder_publish(temporary, final);
    TRY(folder_remove(old));
    TRY(file_rename(final, old));
    enum status status = folder_publish(temporary, final);
    if (status == STATUS_OK) return folder_remove(old);
    if (!file_exists(final)) (void)rename(old, final);
    return status;
}

enum status run_folder_publish(const char *folder, const char *name, const char *temporary) {
    AUTO_FREE char *final = path_join(folder, name), *old = prefixed(folder, replaced_prefix, name);
    if (final && old && replace(temporary, final, old) == STATUS_OK) return STATUS_OK;
    run_folder_abandon(temporary);
    return STATUS_FAILED;
}

void run_folder_abandon(const char *temporary) {
    struct status_copy failure;
    status_save(STATUS_FAILED, &failure);
    /* A temporary that cannot be removed now is removed on resume. The first error is reported. */
    (void)folder_remove(temporary);
    (void)status_restore(&failure);
}

enum status run_folder_drop(const char *folder, const char *name) {
    AUTO_FREE char *path = path_join(folder, name), *aside = prefixed(folder, temporary_prefix, name);
    bool dropped = path && aside && folder_remove(aside) == STATUS_OK && file_rename(path, aside) == STATUS_OK &&
                   folder_remove(aside) == STATUS_OK;
    return dropped ? STATUS_OK : STATUS_FAILED;
}

enum status path_make_absolute(const char *path, struct scratch *memory, const char **out) {
    char absolute[PATH_MAX];
    if (!realpath(path, absolute)) return file_input_failed(path, "open");
    const char *copy = scratch_format(memory, "%s", absolute);
    if (!copy) return STATUS_FAILED;
    *out = copy;
    return STATUS_OK;
}
