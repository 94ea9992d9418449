#include "train/run_state.h"

#include "base/file.h"
#include "base/json.h"
#include "session/checkpoint/run_folder.h"
#include "train/loop.h"

enum { RUN_END_VERSION = 1, RUN_END_LIMIT_BYTES = 1 << 16 };
static const char file_name[] = "end.json";

const char *run_state_name(enum run_state state) {
    static const char *const names[] = {[RUN_GOES_ON] = "goes on",
                                        [RUN_FINISHED] = "finished",
                                        [RUN_STOPPED] = "stopped",
                                        [RUN_FAILED] = "failed",
                                        [RUN_INTERRUPTED] = "interrupted"};
    return names[state];
}

enum run_state run_state_of(enum status status) {
    if (status == STATUS_OK) return RUN_FINISHED;
    return status_is_stop(status) ? RUN_STOPPED : RUN_FAILED;
}

static enum status write_end(const char *run_folder, enum run_state state, int64_t step, const char *message) {
    char path[RUN_PATH_BYTES];
    TRY(run_path(run_folder, file_name, path));
    json_auto_t *object = json_pack("{s:i, s:s, s:I, s:s}", "version", RUN_END_VERSION, "how", run_state_name(state),
                                    "step", (json_int_t)step, "message", message);
    return object ? json_write(path, object) : status_no_memory(0, "how a run ended");
}

enum status run_end_write(const char *run_folder, enum status status, int64_t step) {
    if (status == STATUS_OK) return write_end(run_folder, RUN_FINISHED, step, "");
    struct status_copy end;
    status_save(status, &end);
    (void)write_end(run_folder, run_state_of(status), step, end.message);
    return status_restore(&end);
}

enum status run_end_clear(const char *run_folder) {
    char path[RUN_PATH_BYTES];
    TRY(run_path(run_folder, file_name, path));
    bool gone = !file_exists(path) || remove(path) == 0;
    return gone ? STATUS_OK : status_set(STATUS_FAILED, "%s: cannot be removed", path);
}

static enum status read_end(const char *path, enum run_state *state, char **message) {
    json_auto_t *object = NULL;
    int64_t version = 0;
    const char *how = NULL, *text_read = "";
    TRY(json_read_object(path, RUN_END_LIMIT_BYTES, &object));
    enum run_state found = RUN_FINISHED;
    TRY(json_require(path, object, "how"));
    TRY(json_read_version(path, object, RUN_END_VERSION, &version));
    TRY(json_read_string(path, object, "how", &how));
    TRY(json_read_string(path, object, "message", &text_read));
    while (found < RUN_INTERRUPTED && strcmp(run_state_name(found), how) != 0)
        found++;
    if (found == RUN_INTERRUPTED) return status_set(STATUS_BAD_INPUT, "%s: how: '%s' is not known", path, how);
    *message = mem_string(text_read);
    *state = found;
    return *message ? STATUS_OK : STATUS_FAILED;
}

enum status run_end_read(const char *run_folder, enum run_state *state, char **message) {
    char path[RUN_PATH_BYTES];
    bool held;
    TRY(run_folder_is_held(run_folder, &held));
    TRY(run_path(run_folder, file_name, path));
    if (!held && file_exists(path)) return read_end(path, state, message);
    *message = mem_string("");
    *state = held ? RUN_GOES_ON : RUN_INTERRUPTED;
    return *message ? STATUS_OK : STATUS_FAILED;
}

/* ---- state of a run ---- */

static bool makes_longer(const struct train_options *options, const struct run_settings *settings) {
    if (SETTINGS_HAVE(options, steps) && options->steps > settings->options.steps) return true;
    return SETTINGS_HAVE(options, epochs) && options->epochs > settings->options.epochs;
}

static enum status has_ended_well(const char *run_folder, bool *out) {
    char model[RUN_PATH_BYTES];
    AUTO_FREE char *message = NULL;
    enum run_state state;
    TRY(run_path(run_folder, "model", model));
    TRY(run_end_read(run_folder, &state, &message));
    *out = state == RUN_FINISHED && file_is_folder(model);
    return STATUS_OK;
}

static enum status look(const char *run_folder, const struct train_options *options, struct run_continue *out) {
    char file[RUN_PATH_BYTES];
    AUTO(run_settings_free) struct run_settings settings = {0};
    bool ended = false;
    *out = (struct run_continue){.found = RUN_FOUND_NONE};
    TRY(run_path(run_folder, "run.json", file));
    if (!file_exists(file)) return run_folder_check_new(run_folder);
    TRY(run_folder_read(run_folder, &settings));
    TRY(has_ended_well(run_folder, &ended));
    bool whole = ended && !makes_longer(options, &settings);
    *out = (struct run_continue){whole ? RUN_FOUND_WHOLE : RUN_FOUND_PART, settings.options.steps};
    return STATUS_OK;
}

enum status run_continue_find(const char *run_folder, const struct train_options *options, struct comm *comm,
                              struct run_continue *out) {
    enum status status = look(run_folder, options, out);
    if (!comm) return status;
    TRY(comm_agree(comm, status));
    return comm_share(comm, out, sizeof *out);
}

/* ---- whether it is the requested run ---- */

static enum status refuse(const char *run_folder, const char *name, const json_t *now, const json_t *there) {
    AUTO_FREE char *given = json_text(now, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    AUTO_FREE char *kept = json_text(there, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    return status_set(STATUS_BAD_INPUT, "%s: is %s, and the run in %s has %s", name, given ? given : "?", run_folder,
                      kept ? kept : "?");
}

static enum status hint_same(enum status status, const char *run_folder) {
    char argument[PATH_SHELL_BYTES];
    return status_hint(status,
                       "--continue needs the settings of the run. Use `ballast resume %s` to continue with its "
                       "settings, or give -o another directory",
                       path_for_shell(run_folder, argument));
}

/* An option that `resume` may change. */
static bool may_change(const char *field) { return train_option_changes(field) || strcmp(field, "sample_prompt") == 0; }

static enum status hint_change(enum status status, const char *run_folder, const char *name, const json_t *value) {
    char folder[PATH_SHELL_BYTES], argument[PATH_SHELL_BYTES];
    AUTO_FREE char *text = json_text(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    const char *given = json_is_string(value) ? json_string_value(value) : text;
    return status_hint(status, "`ballast resume %s %s %s` changes it; or give -o another directory",
                       path_for_shell(run_folder, folder), name, given ? path_for_shell(given, argument) : "?");
}

/* The setting of an options field; NULL: it has no name on the command line. */
static const struct setting *find_setting(const char *field) {
    if (strcmp(field, "valid") == 0) return &setting_table[SETTING_valid_paths];
    for (int i = 0; i < SETTING_COUNT; i++)
        if (strcmp(setting_table[i].key, field) == 0) return &setting_table[i];
    return NULL;
}

/* Whether a resumed run may differ in this field. */
static bool may_differ(const char *field) {
    return strcmp(field, "steps") == 0 || strcmp(field, "epochs") == 0 || strcmp(field, "replan") == 0;
}

/* Data is a positional argument and always given. */
static enum status compare_options(const char *run_folder, const struct train_options *options, const json_t *now,
                                   const json_t *there) {
    const char *field;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, field, value) {
        const struct setting *setting = find_setting(field);
        bool given = !setting || options->given.of[setting - setting_table];
        const json_t *kept = json_object_get(there, field);
        if (!given || may_differ(field) || json_equal(value, kept)) continue;
        char name[64];
        snprintf(name, sizeof name, "%s%s", setting ? "--" : "", setting ? setting->name : field);
        enum status status = refuse(run_folder, name, value, kept);
        return may_change(field) ? hint_change(status, run_folder, name, value) : hint_same(status, run_folder);
    }
    return STATUS_OK;
}

static enum status compare_lengths(const char *run_folder, const struct train_options *options,
                                   const struct train_options *there, struct train_options *out) {
    bool by_epochs = SETTINGS_HAVE(there, epochs);
    *out = (struct train_options){0};
    bool is_given = SETTINGS_HAVE(options, steps) || SETTINGS_HAVE(options, epochs);
    if (is_given && SETTINGS_HAVE(options, epochs) != by_epochs)
        return status_hint(status_set(STATUS_BAD_INPUT, "--%s: is given, and the length of the run in %s is one of %s",
                                      by_epochs ? "steps" : "epochs", run_folder, by_epochs ? "epochs" : "steps"),
                           "`ballast resume %s --%s N` changes it", run_folder, by_epochs ? "steps" : "epochs");
    if (SETTINGS_HAVE(options, steps) && options->steps < there->steps)
        return status_set(STATUS_BAD_INPUT, "--steps: is %" PRId64 ", and the run in %s has %" PRId64, options->steps,
                          run_folder, there->steps);
    if (SETTINGS_HAVE(options, epochs) && options->epochs < there->epochs)
        return status_set(STATUS_BAD_INPUT, "--epochs: is %g, and the run in %s has %g", options->epochs, run_folder,
                          there->epochs);
    if (SETTINGS_HAVE(options, steps)) SETTINGS_GIVE(out, steps, options->steps);
    if (SETTINGS_HAVE(options, epochs)) SETTINGS_GIVE(out, epochs, options->epochs);
    if (SETTINGS_HAVE(options, replan)) SETTINGS_GIVE(out, replan, options->replan);
    return STATUS_OK;
}

static enum status compare_models(const char *run_folder, const char *given, const char *kept) {
    if (strcmp(given, kept) == 0) return STATUS_OK;
    json_auto_t *now = json_string(given), *there = json_string(kept);
    return hint_same(refuse(run_folder, "the model", now, there), run_folder);
}

static enum status compare_recipes(const char *run_folder, const char *plan_path, const struct plan *there) {
    struct plan given;
    TRY(plan_read(plan_path, &given));
    json_auto_t *now = recipe_to_json(&given.recipe), *kept = recipe_to_json(&there->recipe);
    if (!now || !kept) return STATUS_FAILED;
    const char *field;
    json_t *value;
    json_object_foreach(now, field, value) {
        char name[64];
        const json_t *old = json_object_get(kept, field);
        bool open = strcmp(field, "products") == 0 || (strcmp(field, "packing") == 0 && given.recipe.packing_auto);
        if (open || json_equal(value, old)) continue;
        snprintf(name, sizeof name, "--plan: recipe.%s", field);
        return hint_same(refuse(run_folder, name, value, old), run_folder);
    }
    return STATUS_OK;
}

/* A run's recipe has a list of layers in place of "all-linear". */
static enum status spell_adapter(const char *model_folder, const char *given, char out[ADAPTER_TEXT_BYTES]) {
    struct model *model;
    TRY(model_open_outline(model_folder, &model));
    enum status status = model_set_adapter(model, given, 0);
    if (status == STATUS_OK) adapter_print(&model->config.adapter, out);
    model_free(model);
    return status;
}

static enum status compare_plans(const char *run_folder, const struct plan_options *plan,
                                 const struct train_options *options, const struct run_settings *settings) {
    char lora[ADAPTER_TEXT_BYTES], file[RUN_PATH_BYTES];
    struct plan resolved;
    struct plan_options given = *plan;
    const struct backend *backend = plan_options_backend(plan, &settings->plan.recipe);
    SETTINGS_DROP(&given, plan_path);
    if (SETTINGS_HAVE(plan, lora)) {
        TRY(spell_adapter(settings->model_folder, plan->lora, lora));
        given.lora = lora;
    }
    TRY(run_path(run_folder, "run.json", file));
    TRY(plan_options_resolve(&given, options, backend, NULL, &settings->plan, file, &resolved));
    return SETTINGS_HAVE(plan, plan_path) ? compare_recipes(run_folder, plan->plan_path, &settings->plan) : STATUS_OK;
}

static enum status compare(const char *model_folder, const char *run_folder, const struct plan_options *plan,
                           const struct train_options *options, const struct run_settings *settings,
                           struct run_settings *requested, struct train_options *out) {
    TRY(run_settings_make(model_folder, options, requested));
    TRY(compare_models(run_folder, requested->model_folder, settings->model_folder));
    TRY(compare_plans(run_folder, plan, options, settings));
    json_auto_t *now = train_options_to_json(&requested->options), *there = train_options_to_json(&settings->options);
    TRY(now && there ? compare_options(run_folder, options, now, there) : STATUS_FAILED);
    return compare_lengths(run_folder, options, &settings->options, out);
}

enum status run_continue_check(const char *model_folder, const char *run_folder, struct plan_options *plan,
                               const struct train_options *options, struct train_options *out) {
    AUTO(run_settings_free) struct run_settings settings = {0}, requested = {0};
    TRY(run_folder_read(run_folder, &settings));
    TRY(compare(model_folder, run_folder, plan, options, &settings, &requested, out));
    SETTINGS_DROP(plan, lora);
    SETTINGS_DROP(plan, plan_path);
    return STATUS_OK;
}
