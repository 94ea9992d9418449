#include "session/train_options.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

static const int64_t COUNT_MAX = (int64_t)1 << 40;
static const double EPOCHS_MAX = 1e6;

static const char *const schedule_names[] = {
#define LR_SCHEDULE_NAME(name, text) [LR_SCHEDULE_##name] = text,
    LR_SCHEDULE_LIST(LR_SCHEDULE_NAME)
#undef LR_SCHEDULE_NAME
};

const char *lr_schedule_name(enum lr_schedule schedule) { return schedule_names[schedule]; }

enum lr_schedule lr_schedule_find(const char *name) {
    enum lr_schedule schedule = 0;
    while (schedule < LR_SCHEDULE_COUNT && strcmp(schedule_names[schedule], name) != 0)
        schedule++;
    return schedule;
}

void train_options_init(struct train_options *out) {
    *out = (struct train_options){
        .steps = 1000,
        .learning_rate = 3e-4,
        .schedule = LR_SCHEDULE_COSINE,
        .warmup_steps = -1,
        .min_lr_fraction = 0.1,
        .wsd_decay_fraction = 0.2,
        .beta1 = -1,
        .beta2 = -1,
        .epsilon = -1,
        .weight_decay = -1,
        .clip_norm = -1,
        .save_every = 100,
        .keep = 2,
        .valid_every = 100,
        .sample_tokens = 64,
        .sample_prompt = "",
        .columns = "",
    };
}

/* field, name on the command line, least */
#define TRAIN_INTEGERS(X)                                                                                              \
    X(steps, "steps", 1)                                                                                               \
    X(schedule_steps, "schedule-steps", 0)                                                                             \
    X(warmup_steps, "warmup-steps", -1)                                                                                \
    X(save_every, "save-every", 0)                                                                                     \
    X(keep, "keep", 0)                                                                                                 \
    X(valid_every, "valid-every", 0)                                                                                   \
    X(valid_batches, "valid-batches", 0)                                                                               \
    X(chat_time_s, "chat-date", 0)                                                                                     \
    X(sample_every, "sample-every", 0)                                                                                 \
    X(sample_tokens, "sample-tokens", 1)
/* field, name, most (all from 0) */
#define TRAIN_FRACTIONS(X)                                                                                             \
    X(min_lr_fraction, "min-lr-fraction", 1.0)                                                                         \
    X(wsd_decay_fraction, "wsd-decay-fraction", 1.0)                                                                   \
    X(valid_fraction, "valid-fraction", 0.999999)

enum status train_options_check(const struct train_options *options) {
#define CHECK_INTEGER(field, name, least)                                                                              \
    if (options->field < (least) || options->field > COUNT_MAX)                                                        \
        return status_set(STATUS_BAD_INPUT, "%s: %lld is not in %d to 2^40", name, (long long)options->field, least);
    TRAIN_INTEGERS(CHECK_INTEGER)
#define CHECK_FRACTION(field, name, most)                                                                              \
    if (!(options->field >= 0 && options->field <= (most)))                                                            \
        return status_set(STATUS_BAD_INPUT, "%s: %g is not in 0 to %g", name, options->field, most);
    TRAIN_FRACTIONS(CHECK_FRACTION)
    if (!(options->epochs >= 0 && options->epochs <= EPOCHS_MAX))
        return status_set(STATUS_BAD_INPUT, "epochs: %g is not in 0 to %g", options->epochs, EPOCHS_MAX);
    if (!(options->learning_rate > 0 && options->learning_rate <= 1e6))
        return status_set(STATUS_BAD_INPUT, "lr: %g is not above 0 and at most 1e6", options->learning_rate);
    if (options->schedule >= LR_SCHEDULE_COUNT) return status_set(STATUS_BAD_INPUT, "schedule: unknown");
    if (options->data_path_count == 0) return status_set(STATUS_BAD_INPUT, "no data to train on");
    return STATUS_OK;
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
#define SET_INTEGER(field, name, least) failed |= json_object_set_new(object, #field, json_integer(options->field));
    TRAIN_INTEGERS(SET_INTEGER)
#define SET_DOUBLE(field, name, most) failed |= json_object_set_new(object, #field, json_real(options->field));
    TRAIN_FRACTIONS(SET_DOUBLE)
    SET_DOUBLE(learning_rate, , )
    SET_DOUBLE(epochs, , )
    failed |= json_object_set_new(object, "schedule", json_string(lr_schedule_name(options->schedule)));
    failed |= json_object_set_new(object, "sample_prompt", json_string(options->sample_prompt));
    failed |= json_object_set_new(object, "columns", json_string(options->columns));
    failed |= json_object_set_new(object, "loss_on_all", json_boolean(options->loss_on_all));
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

enum status train_options_from_json(const char *file, const json_t *object, struct scratch *memory,
                                    struct train_options *out) {
    struct train_options options;
    train_options_init(&options);
    const char *schedule = NULL;
#define READ_INTEGER(field, name, least)                                                                               \
    TRY(json_require(file, object, #field));                                                                           \
    TRY(json_read_int(file, object, #field, least, COUNT_MAX, &options.field));
    TRAIN_INTEGERS(READ_INTEGER)
#define READ_DOUBLE(field, name, most)                                                                                 \
    TRY(json_require(file, object, #field));                                                                           \
    TRY(json_read_double(file, object, #field, 0, most, &options.field));
    TRAIN_FRACTIONS(READ_DOUBLE)
    READ_DOUBLE(learning_rate, , 1e6)
    TRY(json_read_double(file, object, "epochs", 0, EPOCHS_MAX,
                         &options.epochs)); /* runs of older versions have none */
    TRY(json_require(file, object, "schedule"));
    TRY(json_read_string(file, object, "schedule", &schedule));
    options.schedule = lr_schedule_find(schedule);
    if (options.schedule == LR_SCHEDULE_COUNT)
        return status_set(STATUS_BAD_INPUT, "%s: schedule: '%s' is unknown", file, schedule);
    TRY(json_require(file, object, "sample_prompt"));
    TRY(json_read_string(file, object, "sample_prompt", &options.sample_prompt));
    options.sample_prompt = scratch_format(memory, "%s", options.sample_prompt);
    if (!options.sample_prompt) return STATUS_FAILED;
    TRY(json_read_string(file, object, "columns", &options.columns)); /* likewise */
    options.columns = scratch_format(memory, "%s", options.columns);
    if (!options.columns) return STATUS_FAILED;
    TRY(json_require(file, object, "loss_on_all"));
    TRY(json_read_bool(file, object, "loss_on_all", &options.loss_on_all));
    TRY(paths_from_json(file, object, "data", memory, &options.data_paths, &options.data_path_count));
    TRY(paths_from_json(file, object, "valid", memory, &options.valid_paths, &options.valid_path_count));
    *out = options;
    return STATUS_OK;
}
