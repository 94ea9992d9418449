#include "cli/step_options.h"

#include <time.h>

#include "backend/backend.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands/command.h"
#include "cli/ranks.h"
#include "session/checkpoint/run_folder.h"

/* A run's run.json as a --config file: `ballast train --config RUN_DIR/run.json -o DIR` repeats the run. Its plan
 * counts as --plan, so the run either has the same bits or is refused. Its model and data replace missing arguments.
 * Its options and memory are settings like those of any config file. */

static enum option_id find_field(const char *field) {
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_table[i]->key && strcmp(option_table[i]->key, field) == 0) return (enum option_id)i;
    return OPT_COUNT;
}

/* Converts chat_time_s to the date of --chat-date. */
static json_t *date_of(const json_t *seconds) {
    char text[32];
    time_t time = (time_t)json_integer_value(seconds);
    struct tm date;
    if (!json_is_integer(seconds) || !gmtime_r(&time, &date)) return json_incref((json_t *)(uintptr_t)seconds);
    return strftime(text, sizeof text, "%Y-%m-%d", &date) > 0 ? json_string(text) : NULL;
}

/* Converts bytes to an exact number of KiB, because the parser refuses small sizes without a unit. */
static json_t *size_of(const json_t *bytes) {
    int64_t value = (int64_t)json_integer_value(bytes);
    if (value <= 0 || value >= (int64_t)1 << 40) return json_incref((json_t *)(uintptr_t)bytes);
    char text[32];
    snprintf(text, sizeof text, value % 1024 == 0 ? "%.0fK" : "%.10fK", (double)value / 1024);
    return json_string(text);
}

/* Returns the value of --disk: DIR or DIR:SIZE. */
static json_t *disk_of(const json_t *memory) {
    const json_t *bytes = json_object_get(memory, "disk_bytes");
    const char *folder = json_string_value(json_object_get(memory, "disk_folder"));
    if (!folder || !folder[0]) return json_null();
    if (json_integer_value(bytes) <= 0) return json_string(folder);
    json_t *size = size_of(bytes), *text = NULL;
    if (json_is_string(size)) text = json_sprintf("%s:%s", folder, json_string_value(size));
    if (json_is_integer(size)) text = json_sprintf("%s:%" PRId64, folder, (int64_t)json_integer_value(size));
    json_decref(size);
    return text;
}

/* Converts the value of a field to that of a config file. NULL when out of memory. */
static json_t *value_of(const json_t *object, const struct setting *setting, const json_t *value) {
    const char *field = setting->key;
    char name[SETTING_PRINT_BYTES];
    if (strcmp(field, "chat_time_s") == 0) return date_of(value);
    if (strcmp(field, "disk_folder") == 0) return disk_of(object);
    if (strcmp(field, "device_bytes") == 0 || strcmp(field, "host_bytes") == 0) return size_of(value);
    if (setting->flag_in_files && json_is_boolean(value))
        return json_string(setting_choice_name(setting, json_is_true(value), name));
    return json_incref((json_t *)(uintptr_t)value);
}

/* Whether the value means "not given". */
static bool is_open(const char *field, const json_t *value) {
    bool size = strcmp(field, "device_bytes") == 0 || strcmp(field, "host_bytes") == 0;
    return json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (size && json_is_integer(value) && json_integer_value(value) == 0);
}

static enum status take_field(const char *path, const char *part, const json_t *object, const char *field,
                              struct options *options) {
    enum option_id id = strcmp(field, "valid") == 0 ? OPT_valid_paths : find_field(field);
    if (id == OPT_COUNT) return status_set(STATUS_BAD_INPUT, "%s: %s.%s: unknown field", path, part, field);
    json_auto_t *value = value_of(object, option_table[id], json_object_get(object, field));
    if (!value) return status_no_memory(0, "a run's settings");
    const char *where = scratch_format(&options->memory, "%s: %s.%s", path, part, field);
    return !where                  ? STATUS_FAILED
           : is_open(field, value) ? STATUS_OK
                                   : options_set_json(where, id, value, SOURCE_RUN, options);
}

/* Whether it is the 0 or -1 that earlier versions wrote for "not given". */
static bool is_old_absence(const char *field, const json_t *value) {
    bool number =
        strcmp(field, "epochs") == 0 || strcmp(field, "schedule_steps") == 0 || strcmp(field, "chat_time_s") == 0;
    return (number && json_number_value(value) <= 0) ||
           (strcmp(field, "warmup_steps") == 0 && json_number_value(value) < 0);
}

/* Refuses a time within a day: the library takes seconds, the command line days. */
static enum status require_day(const char *path, const json_t *object, const struct options *options) {
    enum { DAY_S = 24 * 60 * 60 };
    int64_t time_s = (int64_t)json_integer_value(json_object_get(object, "chat_time_s"));
    if (time_s % DAY_S == 0 || options_given(options, OPT_chat_time_s)) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: options.chat_time_s: %" PRId64 " is a time within a day", path, time_s);
    return status_hint(STATUS_BAD_INPUT, "--chat-date names whole days: the run cannot be repeated bit for bit where "
                                         "its template asks for the time; give one");
}

static enum status take_options(const char *path, const json_t *object, struct options *options) {
    const char *field;
    json_t *value;
    TRY(require_day(path, object, options));
    bool by_epochs = json_number_value(json_object_get(object, "epochs")) > 0; /* steps then follow from them */
    json_object_foreach((json_t *)(uintptr_t)object, field, value) {
        if (strcmp(field, "data") == 0 || is_old_absence(field, value)) continue;
        if (strcmp(field, "steps") == 0 && by_epochs) continue;
        TRY(take_field(path, "options", object, field, options));
    }
    return STATUS_OK;
}

static enum status take_memory(const char *path, const json_t *object, struct options *options) {
    const char *field;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, field, value) {
        if (strcmp(field, "disk_bytes") == 0) continue; /* read with its directory */
        TRY(take_field(path, "memory", object, field, options));
    }
    return STATUS_OK;
}

static enum status add_argument(const char *path, const char *field, const json_t *value, struct options *options) {
    const char *text = json_string_value(value);
    if (!text) return status_set(STATUS_BAD_INPUT, "%s: %s: must be a text", path, field);
    const char *copy = scratch_format(&options->memory, "%s", text);
    return copy ? vec_push(&options->arguments, copy) : STATUS_FAILED;
}

/* Adds the model, then the data. */
static enum status take_arguments(const char *path, const json_t *object, struct options *options) {
    const json_t *data = json_object_get(json_object_get(object, "options"), "data"), *value;
    size_t i;
    if (options->arguments.count == 0) TRY(add_argument(path, "model", json_object_get(object, "model"), options));
    if (options->arguments.count > 1) return STATUS_OK;
    json_array_foreach((json_t *)(uintptr_t)data, i, value) TRY(add_argument(path, "options.data", value, options));
    return STATUS_OK;
}

/* Whether a changed field makes the run's bits differ from those of a run with the new value from its first step on.
 * An option on the command line replaces the run's value, so the change does not matter. */
static bool alters_bits(const char *field, const json_t *of_run, const struct options *options) {
    enum option_id id = find_field(field);
    if (id < OPT_COUNT && option_table[id]->same_bits) return false;
    bool length = strcmp(field, "steps") == 0 || strcmp(field, "epochs") == 0;
    if (length && json_is_integer(json_object_get(of_run, "schedule_steps"))) return false;
    return !train_option_changes(field) || !options_given(options, id);
}

static enum status refuse_changed(const char *path, const json_t *object, const struct options *options) {
    const char *key = run_changes_key(json_integer_value(json_object_get(object, "version")));
    const json_t *of_run = json_object_get(object, "options"), *change;
    size_t i;
    json_array_foreach(json_object_get(object, key), i, change) {
        const char *field = json_string_value(json_object_get(change, "field"));
        if (field && !alters_bits(field, of_run, options)) continue;
        (void)status_set(STATUS_BAD_INPUT, "%s: %s: %s changed after step %" PRId64 " of the run", path, key,
                         field ? field : "a setting", (int64_t)json_integer_value(json_object_get(change, "step")));
        return status_hint(STATUS_BAD_INPUT, "a new run uses one value from step 1, so its results would differ");
    }
    return STATUS_OK;
}

/* Refuses unknown fields. Fields that are not options are read elsewhere: the plan as --plan, model and changes
 * below. */
static enum status refuse_unknown(const char *path, const json_t *object) {
    static const char *const run[] = {"version", "model", "options", "plan", "changes", "recipe_changes", "memory"};
    static const char *const plan[] = {"version", "recipe", "policy", "threads"};
    TRY(json_refuse_unknown(path, "", object, run, sizeof run / sizeof *run));
    return json_refuse_unknown(path, "plan.", json_object_get(object, "plan"), plan, sizeof plan / sizeof *plan);
}

static enum status check_run(const char *path, const json_t *object, const struct options *options) {
    if (options->command->bit != COMMAND_TRAIN) {
        (void)status_set(STATUS_BAD_INPUT, "--config: %s: has the settings of a run, which only `ballast train` takes",
                         path);
        return status_hint(STATUS_BAD_INPUT, "`ballast resume RUN_DIR` goes on with a run");
    }
    int64_t version = 0;
    TRY(json_read_version(path, object, RUN_VERSION, &version));
    TRY(refuse_unknown(path, object));
    return refuse_changed(path, object, options);
}

/* Refuses what `ballast resume` would refuse, above all fields of the wrong type. */
static enum status check_fields(const char *path, const json_t *object) {
    AUTO(run_settings_free) struct run_settings settings = {0};
    return run_settings_from_json(path, object, &settings);
}

bool options_is_run(const json_t *object) {
    return json_is_object(json_object_get(object, "options")) && json_is_object(json_object_get(object, "plan"));
}

enum status options_read_run(const char *path, const json_t *object, struct options *options) {
    TRY(check_run(path, object, options));
    TRY(take_arguments(path, object, options));
    TRY(take_options(path, json_object_get(object, "options"), options));
    TRY(take_memory(path, json_object_get(object, "memory"), options));
    TRY(check_fields(path, object));
    struct option_value *plan = &options->values[OPT_plan_path];
    if (plan->source != SOURCE_NONE) return STATUS_OK;
    plan->value.text = scratch_format(&options->memory, "%s", path);
    plan->source = SOURCE_RUN;
    return plan->value.text ? STATUS_OK : STATUS_FAILED;
}

/* Parses "DIR" or "DIR:SIZE". If the text after the last colon is not a size, it belongs to the directory's name. */
static enum status read_disk(const char *text, struct memory_options *out) {
    const char *colon = strrchr(text, ':');
    int64_t bytes = 0;
    bool sized = colon && size_parse(colon + 1, &bytes) == STATUS_OK && bytes > 0;
    char folder[MEMORY_FOLDER_BYTES];
    if (sized) SETTINGS_GIVE(out, disk_bytes, bytes);
    snprintf(folder, sizeof folder, "%.*s", sized ? (int)(colon - text) : (int)strlen(text), text);
    memory_options_set_disk(out, folder);
    enum status status = sized ? size_refuse_bare(colon + 1) : STATUS_OK;
    return status == STATUS_OK ? STATUS_OK : status_prefix(status, "--disk");
}

static enum status read_memory(const struct options *options, struct memory_options *out) {
    if (options_given(options, OPT_device_bytes))
        SETTINGS_GIVE(out, device_bytes, options_int(options, OPT_device_bytes));
    if (options_given(options, OPT_host_bytes)) SETTINGS_GIVE(out, host_bytes, options_int(options, OPT_host_bytes));
    return options_given(options, OPT_disk_folder) ? read_disk(options_text(options, OPT_disk_folder), out) : STATUS_OK;
}

enum status step_options_read(const struct options *options, bool decided, struct plan_options *out) {
    plan_options_init(out);
    ranks_give(out);
    TRY(options_take(options, &plan_settings, out));
    TRY(read_memory(options, &out->memory));
    if (options_given(options, OPT_freeze)) SETTINGS_GIVE(out, freeze, options->values[OPT_freeze].texts.items);
    out->freeze_count = options->values[OPT_freeze].texts.count;
    return plan_options_choose_device(options_text(options, OPT_backend), decided, out);
}

enum status step_options_read_training(const struct options *options, struct train_options *out) {
    train_options_init(out);
    TRY(options_take(options, &train_settings, out));
    if (options_given(options, OPT_valid_paths))
        SETTINGS_GIVE(out, valid_paths, options->values[OPT_valid_paths].texts.items);
    out->valid_path_count = options->values[OPT_valid_paths].texts.count;
    return STATUS_OK;
}

void text_options_read(const struct options *options, bool answers, struct generate_options *out) {
    generate_options_init(out);
    if (answers) out->tokens = 0;
    (void)options_take(options, &text_settings, out); /* cannot fail: no setting of this struct is a list of lanes */
    out->ignore_end = options_flag(options, OPT_ignore_end);
    out->stops = options->values[OPT_stop].texts.items;
    out->stop_count = options->values[OPT_stop].texts.count;
}

void text_options_report(const struct writer *writer) {
    const struct session_plan *plan = writer->decoding.engine->plan;
    int64_t count = plan->request.set.texts;
    const struct memory_report *memory = &plan->memory[TIER_DEVICE];
    char all[SIZE_TEXT], parameters[SIZE_TEXT], cache[SIZE_TEXT], texts[32] = "";
    if (count > 1) snprintf(texts, sizeof texts, "%lld x ", (long long)count);
    log_note("memory: %s, of which parameters %s, caches of %s%lld tokens %s",
             size_print(plan->programs.tier_bytes[TIER_DEVICE], all),
             size_print(memory->by_kind[BUFFER_PARAMETERS], parameters), texts,
             (long long)plan->chosen.recipe.sequence_length, size_print(memory->by_kind[BUFFER_CACHE], cache));
    if (writer->note[0]) log_note("from generation_config.json: %s", writer->note);
}
