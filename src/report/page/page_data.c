#include "report/page/page_data.h"

#include <sys/stat.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "model/model.h"
#include "plan/plan.h"
#include "report/page/metrics_reader.h"
#include "report/page/timeline.h"
#include "session/checkpoint/run_folder.h"
#include "train/run_state.h"

enum { FILE_LIMIT_BYTES = 1 << 24, MODEL_FIELDS_MAX = 64, MODEL_TEXT_MAX = 200 };

struct page_run {
    char *folder;
    struct metrics_reader metrics;
    struct samples_reader samples;
    struct page_run *compared; /* NULL: none; of it directory and metrics alone are used */
    int64_t step_tokens;       /* of `compared` */
    json_t *fixed;             /* all but the metrics, as of its revision; NULL: not read yet */
    char revision[PAGE_REVISION_BYTES];
};

/* The last part of a path; "" stays "". */
static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* The plan's own fields by plan_from_json, and those that are only shown. */
static enum status check_plan(const char *path, const json_t *object) {
    struct plan plan;
    double step_s;
    TRY(plan_from_json(path, object, &plan));
    TRY(json_read_double(path, object, "step_s", 0, 1e12, &step_s));
    const json_t *tiers = json_object_get(object, "tiers"), *tier;
    size_t i;
    if (tiers && !json_is_array(tiers)) return status_set(STATUS_BAD_INPUT, "%s: tiers: must be an array", path);
    json_array_foreach(tiers, i, tier) {
        char where[4200];
        int64_t bytes;
        const char *name;
        snprintf(where, sizeof where, "%s: tiers[%zu]", path, i);
        if (!json_is_object(tier)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
        TRY(json_require(where, tier, "name"));
        TRY(json_read_string(where, tier, "name", &name));
        TRY(json_read_int(where, tier, "program_bytes", 0, INT64_MAX, &bytes));
        TRY(json_read_int(where, tier, "capacity_bytes", 0, INT64_MAX, &bytes));
    }
    return STATUS_OK;
}

static enum status read_plan(const char *path, json_t **out) {
    json_t *object;
    TRY(json_read_object(path, FILE_LIMIT_BYTES, &object));
    enum status status = check_plan(path, object);
    if (status == STATUS_OK) status = plan_update_keys(path, object, out);
    json_decref(object);
    return status;
}

static json_t *brief_fields(const json_t *config) {
    json_t *kept = json_object(), *value;
    const char *key;
    size_t fields = 0;
    int failed = !kept;
    json_object_foreach((json_t *)(uintptr_t)config, key, value) {
        bool brief = json_is_number(value) || (json_is_string(value) && json_string_length(value) < MODEL_TEXT_MAX);
        if (brief && fields++ < MODEL_FIELDS_MAX) failed |= json_object_set(kept, key, value);
    }
    if (!failed) return kept;
    json_decref(kept);
    return NULL;
}

/* Where sizes stand: a model with vision has those of its text model by themselves. */
static const json_t *sizes_of(const json_t *config) {
    const json_t *text = json_object_get(config, "text_config");
    return json_is_object(text) ? text : config;
}

/* What config.json, or the preset, says of the (text) model, short values only; NULL for a model that has moved away,
 * which leaves its name. */
static enum status read_model(const char *folder, json_t **out) {
    char *path = path_join(folder, "config.json");
    json_t *config = NULL;
    if (!path) return STATUS_FAILED;
    const struct model_preset *preset = file_exists(path) ? NULL : model_preset_find(folder);
    enum status status = file_exists(path) ? json_read_object(path, FILE_LIMIT_BYTES, &config) : STATUS_OK;
    if (preset) status = model_preset_config(preset, &config);
    mem_free(path);
    *out = config ? brief_fields(sizes_of(config)) : NULL;
    if (config && !*out) status = status_no_memory(0, "what is shown of a model");
    json_decref(config);
    return status == STATUS_BAD_INPUT ? STATUS_OK : status;
}

/* Sets a field of the document, null where there is no value. */
static enum status put(json_t *document, const char *field, json_t *value) {
    if (json_object_set_new(document, field, value ? value : json_null()) == 0) return STATUS_OK;
    return status_no_memory(0, "the page's data");
}

/* directory: "" where there is none. */
static enum status begin_document(const char *kind, const char *name, const char *folder, const char *model,
                                  json_t **out) {
    *out = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s}", "version", PAGE_DATA_VERSION, "ballast", BALLAST_VERSION, "kind",
                     kind, "name", name, "folder", folder, "model_name", model);
    return *out ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: a name that is not UTF-8", name);
}

enum status page_data_predict(json_t *document, const json_t *timeline) {
    json_t *made;
    TRY(page_timeline_make("the prediction", timeline, &made));
    return put(document, "predicted", made);
}

enum status page_data_of_plan(const char *plan_path, json_t **out) {
    json_t *document = NULL, *plan = NULL, *config = NULL;
    TRY(read_plan(plan_path, &plan));
    const char *model = json_string_value(json_object_get(plan, "model"));
    const char *name = last_part(model ? model : plan_path);
    enum status status;
    TRY_GOTO(status, begin_document("plan", name, "", model ? last_part(model) : "", &document), done);
    if (model) TRY_GOTO(status, read_model(model, &config), done);
    TRY_GOTO(status, put(document, "model", config), done);
    TRY_GOTO(status, put(document, "plan", json_incref(plan)), done);
    *out = document;
    document = NULL; /* the caller's now */
done:
    json_decref(document);
    json_decref(plan);
    return status;
}

static enum status open_readers(struct page_run *run) {
    char *metrics = path_join(run->folder, "metrics.jsonl"), *samples = path_join(run->folder, "samples.jsonl");
    enum status status;
    TRY_GOTO(status, metrics && samples ? metrics_reader_open(metrics, &run->metrics) : STATUS_FAILED, done);
    TRY_GOTO(status, samples_reader_open(samples, &run->samples), done);
done:
    mem_free(metrics);
    mem_free(samples);
    return status;
}

static enum status open_beside(const char *folder, struct page_run *run) {
    struct run_settings settings;
    TRY(run_folder_read(folder, &settings));
    run->step_tokens = settings.plan.recipe.batch * settings.plan.recipe.sequence_length;
    run_settings_free(&settings);
    return page_run_open(folder, NULL, &run->compared);
}

enum status page_run_open(const char *run_folder, const char *compared, struct page_run **out) {
    struct page_run *run = mem_array(1, sizeof *run);
    enum status status;
    TRY_GOTO(status, run && (run->folder = mem_string(run_folder)) ? STATUS_OK : STATUS_FAILED, failed);
    TRY_GOTO(status, open_readers(run), failed);
    if (compared) TRY_GOTO(status, open_beside(compared, run), failed);
    *out = run;
    return STATUS_OK;
failed:
    page_run_close(run);
    return status;
}

void page_run_close(struct page_run *run) {
    if (!run) return;
    page_run_close(run->compared);
    metrics_reader_close(&run->metrics);
    samples_reader_close(&run->samples);
    json_decref(run->fixed);
    mem_free(run->folder);
    mem_free(run);
}

/* Of what the page shows besides the metrics: sizes and times of the files, by FNV-1a. */
static enum status find_revision(const struct page_run *run, char revision[PAGE_REVISION_BYTES]) {
    static const char *const names[] = {"run.json", "plan.json", "timeline.json", "predicted.json"};
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat info = {0};
        char *path = path_join(run->folder, names[i]);
        if (!path) return STATUS_FAILED;
        if (stat(path, &info) != 0) info.st_size = -1;
        sum = (sum ^ (uint64_t)info.st_size) * 1099511628211u;
        sum = (sum ^ (uint64_t)info.st_mtim.tv_sec) * 1099511628211u;
        sum = (sum ^ (uint64_t)info.st_mtim.tv_nsec) * 1099511628211u;
        mem_free(path);
    }
    snprintf(revision, PAGE_REVISION_BYTES, "%016" PRIx64, sum);
    return STATUS_OK;
}

/* Sets a field to what a reader gave; NULL: it had no memory. */
static enum status put_read(json_t *document, const char *field, json_t *value) {
    return value ? put(document, field, value) : status_no_memory(0, "the page's data");
}

static enum status put_metrics(struct page_run *run, json_t *document) {
    TRY(metrics_reader_advance(&run->metrics));
    return put_read(document, "metrics", metrics_reader_to_json(&run->metrics));
}

static enum status put_beside(struct page_run *run, json_t *document) {
    struct scratch memory = {0};
    const char *folder;
    if (!run->compared) return put(document, "compare", NULL);
    enum status status = path_make_absolute(run->compared->folder, &memory, &folder);
    json_t *compared = NULL;
    if (status == STATUS_OK) {
        compared = json_pack("{s:s, s:s, s:I}", "name", last_part(folder), "folder", folder, "step_tokens",
                             (json_int_t)run->step_tokens);
        status = compared ? put_metrics(run->compared, compared)
                          : status_set(STATUS_BAD_INPUT, "%s: a name that is not UTF-8", folder);
    }
    scratch_free(&memory);
    if (status == STATUS_OK) return put(document, "compare", compared);
    json_decref(compared);
    return status;
}

static enum status put_samples(struct page_run *run, json_t *document) {
    TRY(samples_reader_advance(&run->samples));
    return put_read(document, "samples", samples_reader_to_json(&run->samples));
}

enum status page_run_changes(struct page_run *run, json_t **out) {
    char revision[PAGE_REVISION_BYTES];
    TRY(find_revision(run, revision));
    TRY(samples_reader_advance(&run->samples));
    json_t *document = json_pack("{s:s, s:I}", "revision", revision, "samples", (json_int_t)run->samples.count);
    enum status status;
    TRY_GOTO(status, document ? put_metrics(run, document) : status_no_memory(0, "the page's data"), failed);
    TRY_GOTO(status, put_beside(run, document), failed);
    *out = document;
    return STATUS_OK;
failed:
    json_decref(document);
    return status;
}

static enum status put_timeline(struct page_run *run, json_t *document, const char *file, const char *field) {
    json_t *timeline = NULL;
    char *path = path_join(run->folder, file);
    if (!path) return STATUS_FAILED;
    enum status status = file_exists(path) ? page_timeline_read(path, &timeline) : STATUS_OK;
    mem_free(path);
    return status == STATUS_OK ? put(document, field, timeline) : status;
}

/* run.json's plan, or plan.json's, which knows what the program takes. */
static enum status put_plan(struct page_run *run, json_t *document, const json_t *settings) {
    json_t *plan = NULL;
    char *path = path_join(run->folder, "plan.json");
    enum status status = STATUS_FAILED;
    if (path)
        status = file_exists(path) ? read_plan(path, &plan)
                                   : plan_update_keys("run.json", json_object_get(settings, "plan"), &plan);
    mem_free(path);
    return status == STATUS_OK ? put(document, "plan", plan) : status;
}

static enum status begin_run(struct page_run *run, const char *model, json_t **out) {
    struct scratch memory = {0};
    const char *folder;
    char argument[PATH_SHELL_BYTES];
    enum status status;
    TRY_GOTO(status, path_make_absolute(run->folder, &memory, &folder), done);
    TRY_GOTO(status, begin_document("run", last_part(folder), folder, last_part(model), out), done);
    TRY_GOTO(status, put_read(*out, "resume", json_sprintf("ballast resume %s", path_for_shell(folder, argument))),
             done);
done:
    scratch_free(&memory);
    return status;
}

/* run.json is read twice: strictly, for what is wrong with it, and as it is, to be shown. */
static enum status put_settings(struct page_run *run, json_t **out) {
    struct run_settings settings;
    char *path = path_join(run->folder, "run.json");
    json_t *object = NULL, *config = NULL;
    if (!path) return STATUS_FAILED;
    enum status status = run_folder_read(run->folder, &settings);
    if (status != STATUS_OK) return mem_free(path), status;
    TRY_GOTO(status, begin_run(run, settings.model_folder, out), done);
    TRY_GOTO(status, read_model(settings.model_folder, &config), done);
    TRY_GOTO(status, put(*out, "model", config), done);
    TRY_GOTO(status, json_read_object(path, FILE_LIMIT_BYTES, &object), done);
    TRY_GOTO(status, put(*out, "options", json_incref(json_object_get(object, "options"))), done);
    TRY_GOTO(status, put(*out, "changes", run_changes_to_json(&settings.changes)), done);
    TRY_GOTO(status, put_plan(run, *out, object), done);
done:
    run_settings_free(&settings);
    json_decref(object);
    mem_free(path);
    return status;
}

static enum status read_fixed(struct page_run *run, const char *revision) {
    json_t *document = NULL;
    enum status status;
    TRY_GOTO(status, put_settings(run, &document), failed);
    TRY_GOTO(status, put(document, "revision", json_string(revision)), failed);
    TRY_GOTO(status, put_timeline(run, document, "timeline.json", "measured"), failed);
    TRY_GOTO(status, put_timeline(run, document, "predicted.json", "predicted"), failed);
    json_decref(run->fixed);
    run->fixed = document;
    snprintf(run->revision, sizeof run->revision, "%s", revision);
    return STATUS_OK;
failed:
    json_decref(document);
    return status;
}

enum status page_run_data(struct page_run *run, json_t **out) {
    char revision[PAGE_REVISION_BYTES];
    TRY(find_revision(run, revision));
    if (!run->fixed || strcmp(revision, run->revision) != 0) TRY(read_fixed(run, revision));
    json_t *document = json_object(); /* json_copy would leave out what it has no memory for */
    bool copied = document && json_object_update(document, run->fixed) == 0;
    enum status status;
    TRY_GOTO(status, copied ? put_metrics(run, document) : status_no_memory(0, "the page's data"), failed);
    TRY_GOTO(status, put_samples(run, document), failed);
    TRY_GOTO(status, put_beside(run, document), failed);
    *out = document;
    return STATUS_OK;
failed:
    json_decref(document);
    return status;
}

enum status page_run_end(const char *run_folder, json_t *document) {
    enum run_state state;
    char *message = NULL;
    TRY(run_end_read(run_folder, &state, &message));
    json_t *end = json_pack("{s:s, s:s}", "state", run_state_name(state), "message", message);
    mem_free(message);
    return put_read(document, "end", end);
}
