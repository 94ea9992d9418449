#include "session/train_options.h"

#include "base/json.h"

#define PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct plan_options, field),
const struct settings_holder plan_settings = {
    SETTINGS_GIVEN_AT(struct plan_options),
    .places = {SETTING_LIST_RECIPE(PLACE) SETTING_LIST_POLICY(PLACE) PLACE(lora) PLACE(gpu_collectives)}};
#undef PLACE

#define PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct train_options, field),
const struct settings_holder train_settings = {
    SETTINGS_GIVEN_AT(struct train_options),
    .places = {SETTING_LIST_OPTIMIZER(PLACE) SETTING_LIST_RUN(PLACE) SETTING_LIST_DATA(PLACE) PLACE(loss_on_all)}};
#undef PLACE

/* What run.json has as a training option. The recipe has the optimizer's numbers. */
static bool is_option(enum setting_id id) {
    return settings_have(&train_settings, id) && !settings_have(&recipe_settings, id);
}

void train_options_init(struct train_options *out) {
    *out = (struct train_options){.sample_prompt = "", .columns = ""};
    settings_init(&train_settings, out);
    /* Left open, since a plan file may have them. */
#define OPEN(field, ...) out->field = 0;
    SETTING_LIST_OPTIMIZER(OPEN)
#undef OPEN
}

/* Whether the field has a value: what has no default may be left open. */
static bool has_value(const struct train_options *options, enum setting_id id) {
    bool open = !setting_table[id].fallback || settings_have(&recipe_settings, id);
    return !open || options->given.of[id];
}

enum status train_options_check(const struct train_options *options) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &setting_table[id];
        struct setting_value value;
        if (!settings_have(&train_settings, id) || !has_value(options, id)) continue;
        settings_load(&train_settings, options, id, &value);
        if (setting->type == SETTING_FLOAT) TRY(setting_check_float(setting, setting->name, value.float_value));
        if (setting->type == SETTING_INT || setting->type == SETTING_DATE)
            TRY(setting_check_int(setting, setting->name, value.int_value));
    }
    if (options->schedule >= LR_SCHEDULE_COUNT) return status_set(STATUS_BAD_INPUT, "schedule: unknown");
    if (options->data_path_count == 0) return status_set(STATUS_BAD_INPUT, "no data to train on");
    return STATUS_OK;
}

static bool may_change(enum setting_id id) {
#define MAY_CHANGE(field, ...) [SETTING_##field] = true,
    static const bool changes[SETTING_COUNT] = {SETTING_LIST_RUN(MAY_CHANGE)};
#undef MAY_CHANGE
    return changes[id];
}

bool train_option_changes(const char *key) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if (may_change(id) && strcmp(setting_table[id].key, key) == 0) return true;
    return false;
}

void train_options_change(struct train_options *options, const struct train_options *changes) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        struct setting_value value;
        if (!may_change(id) || !changes->given.of[id]) continue;
        settings_load(&train_settings, changes, id, &value);
        (void)settings_store(&train_settings, options, id, "", &value);
    }
    if (SETTINGS_HAVE(changes, steps)) SETTINGS_DROP(options, epochs);
}

static json_t *paths_to_json(const char *const *paths, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(array, json_string(paths[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

json_t *train_options_to_json(const struct train_options *options) {
    json_t *object = json_object();
    int failed = !object;
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        struct setting_value value;
        if (!is_option(id)) continue;
        settings_load(&train_settings, options, id, &value);
        bool open = value.text == NULL && !has_value(options, id);
        failed |= json_object_set_new(object, setting_table[id].key,
                                      open ? json_null() : setting_to_json(&setting_table[id], &value));
    }
    failed |= json_object_set_new(object, "data", paths_to_json(options->data_paths, options->data_path_count));
    failed |= json_object_set_new(object, "valid", paths_to_json(options->valid_paths, options->valid_path_count));
    if (!failed) return object;
    json_decref(object);
    (void)status_set(STATUS_FAILED,
                     "the training options cannot be written as JSON: a path or text is not UTF-8, or no memory");
    return NULL;
}

static enum status paths_from_json(const char *file, const json_t *object, const char *field, struct scratch *memory,
                                   const char *const **paths, size_t *count) {
    const json_t *array = json_object_get(object, field);
    if (!json_is_array(array)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array of paths", file, field);
    const char **items = scratch_alloc(memory, json_array_size(array), sizeof *items);
    if (!items) return STATUS_FAILED;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *path = json_string_value(json_array_get(array, i));
        if (!path) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array of paths", file, field);
        items[i] = scratch_format(memory, "%s", path);
        if (!items[i]) return STATUS_FAILED;
    }
    *paths = items;
    *count = json_array_size(array);
    return STATUS_OK;
}

/* Whether a file gives a number that has no default: null says that it was not given, and so did 0 or -1 in earlier
 * versions. */
static bool is_given(const struct setting *setting, const json_t *value) {
    bool is_float = setting->type == SETTING_FLOAT;
    double min = is_float ? setting->float_min : (double)setting->min, number = json_number_value(value);
    bool old = json_is_number(value) && (number <= 0 && number >= -1) && (number < min || (is_float && number <= min));
    return value && !json_is_null(value) && !old;
}

static enum status option_from_json(const char *file, const json_t *object, enum setting_id id, struct scratch *memory,
                                    struct train_options *out) {
    const struct setting *setting = &setting_table[id];
    bool number = setting->type == SETTING_FLOAT || setting->type == SETTING_INT || setting->type == SETTING_DATE;
    bool must = setting->fallback || !number;
    struct setting_value value;
    if (!must && !is_given(setting, json_object_get(object, setting->key))) return STATUS_OK;
    if (must && !setting->later) TRY(json_require(file, object, setting->key));
    if (!json_present(object, setting->key)) return STATUS_OK;
    TRY(setting_from_json(file, object, setting, true, memory, &value));
    TRY(settings_store(&train_settings, out, id, "", &value));
    if (!number) out->given.of[id] = false;
    return STATUS_OK;
}

enum status train_options_from_json(const char *file, const json_t *object, struct scratch *memory,
                                    struct train_options *out) {
    struct train_options options;
    train_options_init(&options);
    for (enum setting_id id = 0; id < SETTING_COUNT; id++)
        if (is_option(id)) TRY(option_from_json(file, object, id, memory, &options));
    TRY(paths_from_json(file, object, "data", memory, &options.data_paths, &options.data_path_count));
    TRY(paths_from_json(file, object, "valid", memory, &options.valid_paths, &options.valid_path_count));
    *out = options;
    return STATUS_OK;
}

bool train_option_equal(const json_t *now, const json_t *before) {
    bool absent_in_both = json_is_null(now) && json_is_number(before) && json_number_value(before) <= 0;
    return absent_in_both || json_equal(now, before);
}
