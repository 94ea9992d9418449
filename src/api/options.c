/* The public option structs: their initialisers, and their fields as internal options. */

#include "api/library.h"

#define INITIALISER(name, MACRO)                                                                                       \
    void ballast_##name##_init(struct ballast_##name *out) { *out = (struct ballast_##name)BALLAST_##MACRO##_INIT; }

INITIALISER(plan_options, PLAN_OPTIONS)
INITIALISER(train_options, TRAIN_OPTIONS)
INITIALISER(train_events, TRAIN_EVENTS)
INITIALISER(plan_result, PLAN_RESULT)
INITIALISER(resume_options, RESUME_OPTIONS)
INITIALISER(evaluate_options, EVALUATE_OPTIONS)
INITIALISER(evaluation, EVALUATION)
INITIALISER(generate_options, GENERATE_OPTIONS)
INITIALISER(text, TEXT)
INITIALISER(ranks_options, RANKS_OPTIONS)
INITIALISER(tier_memory, TIER_MEMORY)

/* Where the public structs have settings (plan/settings.h). A number below 0 and a NULL text are not given. */
#define PLAN_PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct ballast_plan_options, field),
#define TRAIN_PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct ballast_train_options, field),
#define RESUME_PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct ballast_resume_options, field),
#define TEXT_PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct ballast_generate_options, field),
static const struct settings_holder public_plan = {
    .places = {SETTING_LIST_RECIPE(PLAN_PLACE) SETTING_LIST_POLICY(PLAN_PLACE) PLAN_PLACE(lora)}};
static const struct settings_holder public_training = {
    .places = {SETTING_LIST_OPTIMIZER(TRAIN_PLACE) SETTING_LIST_RUN(TRAIN_PLACE) SETTING_LIST_DATA(TRAIN_PLACE)}};
static const struct settings_holder public_resume = {
    .places = {SETTING_LIST_RUN(RESUME_PLACE) RESUME_PLACE(sample_prompt)}};
static const struct settings_holder public_text = {.places = {SETTING_LIST_TEXT(TEXT_PLACE)}};

static enum status require_text(const struct setting *setting, const char *name, const char *text) {
    if (text[0] || setting->may_be_empty) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: is empty", name);
}

/* Whether the field gives a value; then it is checked, and a choice's found. */
static enum status read_field(enum setting_storage storage, const struct setting *setting, const char *name,
                              struct setting_value *value, bool *given) {
    *given = storage == STORED_INT64    ? value->int_value >= 0
             : storage == STORED_DOUBLE ? !(value->float_value < 0)
                                        : value->text != NULL;
    if (!*given) return STATUS_OK;
    if (storage == STORED_INT64) return setting_check_int(setting, name, value->int_value);
    if (storage == STORED_DOUBLE) return setting_check_float(setting, name, value->float_value);
    if (setting->type != SETTING_CHOICE) return require_text(setting, name, value->text);
    value->int_value = setting_choice_value(setting, value->text);
    return setting_check_choice(setting, name, value->text);
}

/* Takes what a public struct gives, which messages call `where`, into an internal one. */
static enum status take(const struct settings_holder *from, const void *public, const char *where,
                        const struct settings_holder *to, void *out) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &setting_table[id];
        struct setting_value value;
        bool given;
        char name[64];
        if (!settings_have(from, id)) continue;
        snprintf(name, sizeof name, "%s.%s", where, setting->field);
        settings_load(from, public, id, &value);
        TRY(read_field(from->places[id].storage, setting, name, &value, &given));
        if (given) TRY(settings_store(to, out, id, name, &value));
    }
    return STATUS_OK;
}

static enum status require_bytes(const char *name, int64_t bytes) {
    return bytes > 0 ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: a size is at least 1", name);
}

static enum status read_flag(const char *name, int64_t given, bool *out) {
    if (given > 1) return status_set(STATUS_BAD_INPUT, "%s: %" PRId64 " is not 0 or 1", name, given);
    *out = given == 1;
    return STATUS_OK;
}

static enum status require_list(const char *name, const char *const *given, size_t count) {
    if (count > 0) TRY(library_require(given, name));
    for (size_t i = 0; i < count; i++)
        if (!given[i]) return status_set(STATUS_BAD_INPUT, "%s[%zu]: is NULL", name, i);
    return STATUS_OK;
}

static enum status read_loss_on(const char *given, bool *on_all) {
    if (!given) return STATUS_OK;
    *on_all = strcmp(given, "all") == 0;
    return setting_check_choice(&setting_table[SETTING_loss_on_all], "options.loss_on", given);
}

enum status library_read_time(const char *name, int64_t given, int64_t *out) {
    *out = 0;
    if (given < 0) return STATUS_OK;
    TRY(setting_check_int(&setting_table[SETTING_chat_time_s], name, given));
    *out = given;
    return STATUS_OK;
}

static enum status read_memory(const struct ballast_plan_options *given, struct memory_options *out) {
    if (given->device_memory_bytes >= 0) {
        TRY(require_bytes("plan.device_memory_bytes", given->device_memory_bytes));
        SETTINGS_GIVE(out, device_bytes, given->device_memory_bytes);
    }
    if (given->host_memory_bytes >= 0) {
        TRY(require_bytes("plan.host_memory_bytes", given->host_memory_bytes));
        SETTINGS_GIVE(out, host_bytes, given->host_memory_bytes);
    }
    if (given->disk_bytes >= 0) {
        TRY(require_bytes("plan.disk_bytes", given->disk_bytes));
        SETTINGS_GIVE(out, disk_bytes, given->disk_bytes);
    }
    if (!given->disk_folder && given->disk_bytes >= 0)
        return status_set(STATUS_BAD_INPUT, "plan.disk_bytes: is given without plan.disk_folder");
    if (!given->disk_folder) return STATUS_OK;
    TRY(require_text(&setting_table[SETTING_disk_folder], "plan.disk_folder", given->disk_folder));
    if (strlen(given->disk_folder) >= sizeof out->disk_folder)
        return status_set(STATUS_BAD_INPUT, "plan.disk_folder: is longer than %zu bytes", sizeof out->disk_folder - 1);
    memory_options_set_disk(out, given->disk_folder);
    return STATUS_OK;
}

enum status library_read_plan(const struct ballast_plan_options *given, bool decided, struct plan_options *out) {
    plan_options_init(out);
    library_give_ranks(out);
    if (!given) return plan_options_choose_device(NULL, decided, out);
    TRY(library_require_version(given->version, BALLAST_PLAN_OPTIONS_VERSION, "plan"));
    if (decided && given->plan_path)
        return status_set(STATUS_BAD_INPUT, "plan.plan_path: a run goes on with its own plan");
    TRY(take(&public_plan, given, "plan", &plan_settings, out));
    TRY(read_memory(given, &out->memory));
    if (given->freeze_count > 0) {
        TRY(require_list("plan.freeze", given->freeze, given->freeze_count));
        SETTINGS_GIVE(out, freeze, given->freeze);
        out->freeze_count = given->freeze_count;
    }
    return plan_options_choose_device(given->device, decided, out);
}

static enum status read_data(const struct ballast_train_options *given, struct train_options *out) {
    TRY(require_list("options.data_paths", given->data_paths, given->data_path_count));
    out->data_paths = given->data_paths;
    out->data_path_count = given->data_path_count;
    TRY(require_list("options.valid_paths", given->valid_paths, given->valid_path_count));
    if (given->valid_path_count > 0) SETTINGS_GIVE(out, valid_paths, given->valid_paths);
    out->valid_path_count = given->valid_path_count;
    if (given->loss_on) SETTINGS_MARK(out, loss_on_all);
    return read_loss_on(given->loss_on, &out->loss_on_all);
}

static enum status require_one_length(const struct train_options *options) {
    if (!SETTINGS_HAVE(options, steps) || !SETTINGS_HAVE(options, epochs)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "options.epochs: is given together with options.steps; give one of them");
}

enum status library_read_training(const struct ballast_train_options *given, struct train_options *out) {
    train_options_init(out);
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_TRAIN_OPTIONS_VERSION, "options"));
    TRY(read_data(given, out));
    TRY(take(&public_training, given, "options", &train_settings, out));
    return require_one_length(out);
}

enum status library_read_resume(const struct ballast_resume_options *given, struct plan_options *plan,
                                struct train_options *out) {
    *out = (struct train_options){.steps = 0};
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_RESUME_OPTIONS_VERSION, "options"));
    TRY(take(&public_resume, given, "options", &train_settings, out));
    TRY(require_one_length(out));
    return read_flag("options.allow_recipe_change", given->allow_recipe_change, &plan->allow_recipe_change);
}

enum status library_read_evaluation(const struct ballast_evaluate_options *given, struct eval_options *out) {
    *out = (struct eval_options){.columns = NULL};
    TRY(library_require(given, "options"));
    TRY(library_require_version(given->version, BALLAST_EVALUATE_OPTIONS_VERSION, "options"));
    TRY(require_list("options.data_paths", given->data_paths, given->data_path_count));
    if (given->data_path_count == 0) return status_set(STATUS_BAD_INPUT, "options.data_paths: none is given");
    out->data_paths = given->data_paths;
    out->data_path_count = given->data_path_count;
    if (given->batches > 0) out->max_batches = given->batches;
    out->columns = given->columns;
    out->reference = given->reference;
    TRY(read_loss_on(given->loss_on, &out->loss_on_all));
    return library_read_time("options.chat_time_s", given->chat_time_s, &out->chat_time_s);
}

enum status library_read_text(const struct ballast_generate_options *given, struct generate_options *out) {
    generate_options_init(out);
    out->interrupted = &library_stopped;
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_GENERATE_OPTIONS_VERSION, "options"));
    if (given->chat > 0) out->tokens = 0;
    TRY(take(&public_text, given, "options", &text_settings, out));
    TRY(read_flag("options.ignore_end", given->ignore_end, &out->ignore_end));
    TRY(require_list("options.stops", given->stops, given->stop_count));
    out->stops = given->stops;
    out->stop_count = given->stop_count;
    return STATUS_OK;
}
