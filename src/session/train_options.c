#include "session/train_options.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

static const char *const schedule_names[] = {
#define LR_SCHEDULE_NAME(name, text) [LR_SCHEDULE_##name] = text,
    LR_SCHEDULE_LIST(LR_SCHEDULE_NAME)
#undef LR_SCHEDULE_NAME
};

static const char *lr_schedule_name(enum lr_schedule schedule) { return schedule_names[schedule]; }

enum lr_schedule lr_schedule_find(const char *name) {
    enum lr_schedule schedule = 0;
    while (schedule < LR_SCHEDULE_COUNT && strcmp(schedule_names[schedule], name) != 0)
        schedule++;
    return schedule;
}

/* The numbers that run.json holds. */
#define TRAIN_INTS(X)                                                                                                  \
    X(steps)                                                                                                           \
    X(schedule_steps)                                                                                                  \
    X(warmup_steps)                                                                                                    \
    X(save_every)                                                                                                      \
    X(keep)                                                                                                            \
    X(valid_every)                                                                                                     \
    X(valid_batches)                                                                                                   \
    X(chat_time_s)                                                                                                     \
    X(sample_every)                                                                                                    \
    X(sample_tokens)
#define TRAIN_FLOATS(X) X(epochs) X(learning_rate) X(min_lr_fraction) X(wsd_decay_fraction) X(valid_fraction)
/* The recipe holds these. */
#define TRAIN_RECIPE_FLOATS(X) X(beta1) X(beta2) X(epsilon) X(weight_decay) X(clip_norm)

void train_options_init(struct train_options *out) {
    *out = (struct train_options){.sample_prompt = "", .columns = "", .replan = true};
#define SET_INT(field) out->field = setting_table[SETTING_##field].int_value;
    TRAIN_INTS(SET_INT)
#define SET_FLOAT(field) out->field = setting_table[SETTING_##field].float_value;
    TRAIN_FLOATS(SET_FLOAT)
    out->schedule = lr_schedule_find(setting_table[SETTING_schedule].fallback);
}

/* Whether the field has a value: what has no default may be left open. */
#define HAS_VALUE(options, field) (setting_table[SETTING_##field].fallback || SETTINGS_HAVE(options, field))

enum status train_options_check(const struct train_options *options) {
#define CHECK(field, type)                                                                                             \
    if (HAS_VALUE(options, field))                                                                                     \
        TRY(setting_check_##type(&setting_table[SETTING_##field], setting_table[SETTING_##field].name, options->field));
#define CHECK_INT(field) CHECK(field, int)
    TRAIN_INTS(CHECK_INT)
#define CHECK_FLOAT(field) CHECK(field, float)
    TRAIN_FLOATS(CHECK_FLOAT)
#define CHECK_GIVEN(field)                                                                                             \
    if (SETTINGS_HAVE(options, field)) CHECK(field, float)
    TRAIN_RECIPE_FLOATS(CHECK_GIVEN)
    if (options->schedule >= LR_SCHEDULE_COUNT) return status_set(STATUS_BAD_INPUT, "schedule: unknown");
    if (options->data_path_count == 0) return status_set(STATUS_BAD_INPUT, "no data to train on");
    return STATUS_OK;
}

void train_options_change(struct train_options *options, const struct train_options *changes) {
#define CHANGE(field)                                                                                                  \
    if (SETTINGS_HAVE(changes, field)) SETTINGS_GIVE(options, field, changes->field);
    TRAIN_CHANGES(CHANGE)
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
#define WRITE_INT(field)                                                                                               \
    failed |= json_object_set_new(object, setting_table[SETTING_##field].key,                                          \
                                  HAS_VALUE(options, field) ? json_integer(options->field) : json_null());
    TRAIN_INTS(WRITE_INT)
#define WRITE_FLOAT(field)                                                                                             \
    failed |= json_object_set_new(object, setting_table[SETTING_##field].key,                                          \
                                  HAS_VALUE(options, field) ? json_real(options->field) : json_null());
    TRAIN_FLOATS(WRITE_FLOAT)
    failed |= json_object_set_new(object, "schedule", json_string(lr_schedule_name(options->schedule)));
    failed |= json_object_set_new(object, "sample_prompt", json_string(options->sample_prompt));
    failed |= json_object_set_new(object, "columns", json_string(options->columns));
    failed |= json_object_set_new(object, "loss_on_all", json_boolean(options->loss_on_all));
    failed |= json_object_set_new(object, "replan", json_boolean(options->replan));
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

/* Whether a file gives the setting. One with a default must be there; for the others null says that they were not
 * given, and so did 0 or -1 in earlier versions. */
static enum status find_number(const char *file, const json_t *object, const struct setting *setting, bool *given) {
    const json_t *value = json_object_get(object, setting->key);
    *given = true;
    if (setting->fallback) return json_require(file, object, setting->key);
    bool is_float = setting->type == SETTING_FLOAT;
    double min = is_float ? setting->float_min : (double)setting->min, number = json_number_value(value);
    bool old = json_is_number(value) && (number <= 0 && number >= -1) && (number < min || (is_float && number <= min));
    *given = value && !json_is_null(value) && !old;
    return STATUS_OK;
}

static enum status read_int(const char *file, const json_t *object, enum setting_id id, struct settings_given *given,
                            int64_t *out) {
    const struct setting *setting = &setting_table[id];
    bool there;
    TRY(find_number(file, object, setting, &there));
    if (!there) return STATUS_OK;
    given->of[id] = true;
    return json_read_int(file, object, setting->key, setting->min, setting->max, out);
}

static enum status read_float(const char *file, const json_t *object, enum setting_id id, struct settings_given *given,
                              double *out) {
    const struct setting *setting = &setting_table[id];
    bool there;
    TRY(find_number(file, object, setting, &there));
    if (!there) return STATUS_OK;
    given->of[id] = true;
    TRY(json_read_double(file, object, setting->key, setting->float_min, setting->float_max, out));
    if (setting->above && *out <= setting->float_min)
        return status_set(STATUS_BAD_INPUT, "%s: %s: must be above %g", file, setting->key, setting->float_min);
    return STATUS_OK;
}

enum status train_options_from_json(const char *file, const json_t *object, struct scratch *memory,
                                    struct train_options *out) {
    struct train_options options;
    train_options_init(&options);
    const char *schedule = NULL;
#define READ_INT(field) TRY(read_int(file, object, SETTING_##field, &options.given, &options.field));
    TRAIN_INTS(READ_INT)
#define READ_FLOAT(field) TRY(read_float(file, object, SETTING_##field, &options.given, &options.field));
    TRAIN_FLOATS(READ_FLOAT)
    TRY(json_require(file, object, "schedule"));
    TRY(json_read_string(file, object, "schedule", &schedule));
    options.schedule = lr_schedule_find(schedule);
    if (options.schedule == LR_SCHEDULE_COUNT)
        return status_set(STATUS_BAD_INPUT, "%s: schedule: '%s' is unknown", file, schedule);
    TRY(json_require(file, object, "sample_prompt"));
    TRY(json_read_string(file, object, "sample_prompt", &options.sample_prompt));
    options.sample_prompt = scratch_format(memory, "%s", options.sample_prompt);
    if (!options.sample_prompt) return STATUS_FAILED;
    TRY(json_read_string(file, object, "columns", &options.columns)); /* earlier versions wrote none */
    options.columns = scratch_format(memory, "%s", options.columns);
    if (!options.columns) return STATUS_FAILED;
    TRY(json_require(file, object, "loss_on_all"));
    TRY(json_read_bool(file, object, "loss_on_all", &options.loss_on_all));
    TRY(json_read_bool(file, object, "replan", &options.replan)); /* earlier versions wrote none */
    TRY(paths_from_json(file, object, "data", memory, &options.data_paths, &options.data_path_count));
    TRY(paths_from_json(file, object, "valid", memory, &options.valid_paths, &options.valid_path_count));
    *out = options;
    return STATUS_OK;
}

bool train_option_equal(const json_t *now, const json_t *before) {
    bool absent_in_both = json_is_null(now) && json_is_number(before) && json_number_value(before) <= 0;
    return absent_in_both || json_equal(now, before);
}
