#include "report/page/page.h"

#include <sys/stat.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/text.h"
#include "model/model.h"
#include "plan/plan.h"
#include "report/page/metrics_reader.h"
#include "report/page/timeline.h"
#include "session/checkpoint/run_folder.h"
#include "train/run_state.h"

enum { PAGE_DATA_VERSION = 1, PAGE_REVISION_BYTES = 32 };

enum { FILE_LIMIT_BYTES = 1 << 24, MODEL_FIELDS_MAX = 64, MODEL_TEXT_MAX = 200 };

struct page_run {
    char *folder;
    struct metrics_reader metrics;
    struct samples_reader samples;
    struct page_run *compared; /* NULL: none; only its directory and metrics are used */
    int64_t step_tokens;       /* of `compared` */
    json_t *fixed;             /* all except the metrics, at its revision; NULL: not read yet */
    char revision[PAGE_REVISION_BYTES];
};

/* The last part of a path; "" stays "". */
static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Checks the plan's own fields by plan_from_json, and fields that are only shown. */
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
    json_auto_t *object = NULL;
    TRY(json_read_object(path, FILE_LIMIT_BYTES, &object));
    TRY(check_plan(path, object));
    return plan_update_keys(path, object, out);
}

static json_t *brief_fields(const json_t *config) {
    json_t *kept = json_object(), *value;
    const char *key;
    size_t fields = 0;
    json_object_foreach((json_t *)(uintptr_t)config, key, value) {
        bool brief = json_is_number(value) || (json_is_string(value) && json_string_length(value) < MODEL_TEXT_MAX);
        if (brief && fields++ < MODEL_FIELDS_MAX) json_put(&kept, key, json_incref(value));
    }
    return kept;
}

/* Object of the sizes: a model with vision has those of its text model in a separate object. */
static const json_t *sizes_of(const json_t *config) {
    const json_t *text = json_object_get(config, "text_config");
    return json_is_object(text) ? text : config;
}

/* Short values of the (text) model's config.json, or of the preset's. NULL for a model that has moved; its name
 * remains. */
static enum status read_model(const char *folder, json_t **out) {
    AUTO_FREE char *path = path_join(folder, "config.json");
    json_auto_t *config = NULL;
    if (!path) return STATUS_FAILED;
    const struct model_preset *preset = file_exists(path) ? NULL : model_preset_find(folder);
    enum status status = file_exists(path) ? json_read_object(path, FILE_LIMIT_BYTES, &config) : STATUS_OK;
    if (preset) status = model_preset_config(preset, &config);
    *out = config ? brief_fields(sizes_of(config)) : NULL;
    if (config && !*out) status = status_no_memory(0, "what is shown of a model");
    return status == STATUS_BAD_INPUT ? STATUS_OK : status;
}

/* Sets a field of the document. NULL: out of memory for the value. */
static enum status put(json_t *document, const char *field, json_t *value) {
    if (json_object_set_new(document, field, value) == 0) return STATUS_OK;
    return status_no_memory(0, "the page's data");
}

/* directory: "" if there is none. */
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
    json_auto_t *document = NULL, *plan = NULL;
    json_t *config = NULL;
    TRY(read_plan(plan_path, &plan));
    const char *model = json_string_value(json_object_get(plan, "model"));
    const char *name = last_part(model ? model : plan_path);
    TRY(begin_document("plan", name, "", model ? last_part(model) : "", &document));
    if (model) TRY(read_model(model, &config));
    TRY(put(document, "model", config ? config : json_null()));
    TRY(put(document, "plan", json_incref(plan)));
    *out = TAKE(document);
    return STATUS_OK;
}

static enum status open_readers(struct page_run *run) {
    AUTO_FREE char *metrics = path_join(run->folder, "metrics.jsonl"),
                   *samples = path_join(run->folder, "samples.jsonl");
    TRY(metrics && samples ? metrics_reader_open(metrics, &run->metrics) : STATUS_FAILED);
    return samples_reader_open(samples, &run->samples);
}

static enum status open_beside(const char *folder, struct page_run *run) {
    AUTO(run_settings_free) struct run_settings settings = {0};
    TRY(run_folder_read(folder, &settings));
    run->step_tokens = settings.plan.recipe.batch * settings.plan.recipe.sequence_length;
    return page_run_open(folder, NULL, &run->compared);
}

enum status page_run_open(const char *run_folder, const char *compared, struct page_run **out) {
    struct page_run *run = mem_array(1, sizeof *run);
    if (!run) return STATUS_FAILED;
    run->folder = mem_string(run_folder);
    enum status status = run->folder ? open_readers(run) : STATUS_FAILED;
    if (status == STATUS_OK && compared) status = open_beside(compared, run);
    if (status == STATUS_OK)
        *out = run;
    else
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

/* Revision of everything on the page except the metrics: sizes and times of the files, by FNV-1a. */
static enum status find_revision(const struct page_run *run, char revision[PAGE_REVISION_BYTES]) {
    static const char *const names[] = {"run.json", "plan.json", "timeline.json", "predicted.json"};
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat info = {0};
        AUTO_FREE char *path = path_join(run->folder, names[i]);
        if (!path) return STATUS_FAILED;
        if (stat(path, &info) != 0) info.st_size = -1;
        sum = (sum ^ (uint64_t)info.st_size) * 1099511628211u;
        sum = (sum ^ (uint64_t)info.st_mtim.tv_sec) * 1099511628211u;
        sum = (sum ^ (uint64_t)info.st_mtim.tv_nsec) * 1099511628211u;
    }
    snprintf(revision, PAGE_REVISION_BYTES, "%016" PRIx64, sum);
    return STATUS_OK;
}

static enum status put_metrics(struct page_run *run, json_t *document) {
    TRY(metrics_reader_advance(&run->metrics));
    return put(document, "metrics", metrics_reader_to_json(&run->metrics));
}

static enum status put_beside(struct page_run *run, json_t *document) {
    AUTO(scratch_free) struct scratch memory = {0};
    const char *folder;
    if (!run->compared) return put(document, "compare", json_null());
    TRY(path_make_absolute(run->compared->folder, &memory, &folder));
    json_auto_t *compared = json_pack("{s:s, s:s, s:I}", "name", last_part(folder), "folder", folder, "step_tokens",
                                      (json_int_t)run->step_tokens);
    if (!compared) return status_set(STATUS_BAD_INPUT, "%s: a name that is not UTF-8", folder);
    TRY(put_metrics(run->compared, compared));
    return put(document, "compare", TAKE(compared));
}

static enum status put_samples(struct page_run *run, json_t *document) {
    TRY(samples_reader_advance(&run->samples));
    return put(document, "samples", samples_reader_to_json(&run->samples));
}

enum status page_run_changes(struct page_run *run, json_t **out) {
    char revision[PAGE_REVISION_BYTES];
    TRY(find_revision(run, revision));
    TRY(samples_reader_advance(&run->samples));
    json_auto_t *document = json_pack("{s:s, s:I}", "revision", revision, "samples", (json_int_t)run->samples.count);
    TRY(document ? put_metrics(run, document) : status_no_memory(0, "the page's data"));
    TRY(put_beside(run, document));
    *out = TAKE(document);
    return STATUS_OK;
}

static enum status put_timeline(struct page_run *run, json_t *document, const char *file, const char *field) {
    json_t *timeline = NULL;
    AUTO_FREE char *path = path_join(run->folder, file);
    if (!path) return STATUS_FAILED;
    if (file_exists(path)) TRY(page_timeline_read(path, &timeline));
    return put(document, field, timeline ? timeline : json_null());
}

/* The plan of plan.json, which has the program's memory, else that of run.json. */
static enum status put_plan(struct page_run *run, json_t *document, const json_t *settings) {
    json_t *plan = NULL;
    AUTO_FREE char *path = path_join(run->folder, "plan.json");
    if (!path) return STATUS_FAILED;
    TRY(file_exists(path) ? read_plan(path, &plan)
                          : plan_update_keys("run.json", json_object_get(settings, "plan"), &plan));
    return put(document, "plan", plan);
}

static enum status begin_run(struct page_run *run, const char *model, json_t **out) {
    AUTO(scratch_free) struct scratch memory = {0};
    const char *folder;
    char argument[PATH_SHELL_BYTES];
    TRY(path_make_absolute(run->folder, &memory, &folder));
    TRY(begin_document("run", last_part(folder), folder, last_part(model), out));
    return put(*out, "resume", json_sprintf("ballast resume %s", path_for_shell(folder, argument)));
}

/* Reads run.json twice: strictly, to find errors, and unchanged, to show it. */
static enum status put_settings(struct page_run *run, json_t **out) {
    AUTO(run_settings_free) struct run_settings settings = {0};
    AUTO_FREE char *path = path_join(run->folder, "run.json");
    json_auto_t *object = NULL;
    json_t *config = NULL;
    if (!path) return STATUS_FAILED;
    TRY(run_folder_read(run->folder, &settings));
    TRY(begin_run(run, settings.model_folder, out));
    TRY(read_model(settings.model_folder, &config));
    TRY(put(*out, "model", config ? config : json_null()));
    TRY(json_read_object(path, FILE_LIMIT_BYTES, &object));
    TRY(put(*out, "options", json_incref(json_object_get(object, "options"))));
    TRY(put(*out, "changes", run_changes_to_json(&settings.changes)));
    return put_plan(run, *out, object);
}

static enum status read_fixed(struct page_run *run, const char *revision) {
    json_auto_t *document = NULL;
    TRY(put_settings(run, &document));
    TRY(put(document, "revision", json_string(revision)));
    TRY(put_timeline(run, document, "timeline.json", "measured"));
    TRY(put_timeline(run, document, "predicted.json", "predicted"));
    json_decref(run->fixed);
    run->fixed = TAKE(document);
    snprintf(run->revision, sizeof run->revision, "%s", revision);
    return STATUS_OK;
}

enum status page_run_data(struct page_run *run, json_t **out) {
    char revision[PAGE_REVISION_BYTES];
    TRY(find_revision(run, revision));
    if (!run->fixed || strcmp(revision, run->revision) != 0) TRY(read_fixed(run, revision));
    json_auto_t *document = json_object(); /* json_copy would silently omit values if out of memory */
    bool copied = document && json_object_update(document, run->fixed) == 0;
    TRY(copied ? put_metrics(run, document) : status_no_memory(0, "the page's data"));
    TRY(put_samples(run, document));
    TRY(put_beside(run, document));
    *out = TAKE(document);
    return STATUS_OK;
}

enum status page_run_end(const char *run_folder, json_t *document) {
    enum run_state state;
    AUTO_FREE char *message = NULL;
    TRY(run_end_read(run_folder, &state, &message));
    return put(document, "end", json_pack("{s:s, s:s}", "state", run_state_name(state), "message", message));
}

enum { NUMBER_DIGITS = 9 }; /* enough for a drawing, at half the file size */

/* JSON allows these only in strings, where \u works as well. In HTML they are markup. */
static const char *escape_of(char c) {
    switch (c) {
    case '<': return "\\u003c";
    case '>': return "\\u003e";
    case '&': return "\\u0026";
    default: return NULL;
    }
}

static char *escape(const char *text) {
    size_t bytes = 0;
    for (const char *c = text; *c; c++)
        bytes += escape_of(*c) ? strlen(escape_of(*c)) : 1;
    char *out = mem_array(bytes + 1, 1), *end = out;
    for (const char *c = text; out && *c; c++) {
        const char *escaped = escape_of(*c);
        if (escaped)
            end = stpcpy(end, escaped);
        else
            *end++ = *c;
    }
    return out;
}

char *page_text_of(const json_t *document) {
    AUTO_FREE char *text = json_text(document, JSON_COMPACT | JSON_REAL_PRECISION(NUMBER_DIGITS));
    char *escaped = text ? escape(text) : NULL;
    if (!escaped) (void)status_no_memory(0, "the page");
    return escaped;
}

char *page_make(const json_t *document, size_t *bytes) {
    AUTO_FREE char *data = page_text_of(document);
    if (!data) return NULL;
    size_t length = strlen(data), total = page_source_before_bytes + length + page_source_after_bytes;
    char *page = mem_array(total + 1, 1);
    if (page) {
        memcpy(page, page_source_before, page_source_before_bytes);
        memcpy(page + page_source_before_bytes, data, length);
        memcpy(page + page_source_before_bytes + length, page_source_after, page_source_after_bytes);
    }
    if (bytes) *bytes = total;
    return page;
}

/* path in the document, name, type, help */
#define SAMPLE_LIST(X)                                                                                                 \
    X("metrics/step", "ballast_step", "counter", "Optimizer steps done")                                               \
    X("options/steps", "ballast_steps_target", "gauge", "Optimizer steps of the whole run")                            \
    X("metrics/last/loss", "ballast_loss", "gauge", "Training loss of the last step")                                  \
    X("metrics/last/val_loss", "ballast_validation_loss", "gauge", "Loss of the last validation")                      \
    X("metrics/val_step", "ballast_validation_step", "gauge", "Step of the last validation, 0 before the first")       \
    X("metrics/last/tokens", "ballast_tokens_total", "counter", "Tokens trained on since step 1")                      \
    X("metrics/last/tokens_per_s", "ballast_tokens_per_second", "gauge", "Tokens a second in the last step")           \
    X("metrics/last/step_s", "ballast_step_seconds", "gauge", "Seconds of the last step")                              \
    X("plan/step_s", "ballast_predicted_step_seconds", "gauge", "Seconds of a step by the plan")                       \
    X("metrics/last/predicted_step_s", "ballast_predicted_step_seconds", "gauge", "Seconds of a step by the plan")     \
    X("metrics/last/lr", "ballast_learning_rate", "gauge", "Learning rate of the last step")                           \
    X("metrics/last/grad_norm", "ballast_grad_norm", "gauge", "Global gradient norm before clipping")                  \
    X("metrics/last/mfu", "ballast_mfu_ratio", "gauge", "Model FLOPs a second over the machine's matrix rate")         \
    X("metrics/last/device_bytes", "ballast_memory_resident_bytes", "gauge", "Resident bytes of the device arena")

/* "a/b/c": fields of nested objects. */
static const json_t *find(const json_t *document, const char *path) {
    char key[64];
    for (const char *slash = path; document && slash; path = slash + 1) {
        slash = strchr(path, '/');
        snprintf(key, sizeof key, "%.*s", slash ? (int)(slash - path) : (int)strlen(path), path);
        document = json_object_get(document, key);
        if (!slash) break;
    }
    return document;
}

static enum status print_head(struct text_buffer *text, const char *name, const char *type, const char *help) {
    return text_print(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static enum status print_value(struct text_buffer *text, const json_t *value) {
    if (json_is_integer(value)) return text_print(text, " %lld\n", (long long)json_integer_value(value));
    return text_print(text, " %.17g\n", json_real_value(value));
}

/* A label's value: a name from a plan file, escaped. */
static enum status print_label(struct text_buffer *text, const char *value) {
    for (const char *c = value; *c; c++) {
        if (*c == '\n')
            TRY(text_print(text, "\\n"));
        else
            TRY(text_print(text, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c));
    }
    return STATUS_OK;
}

static enum status print_tiers(struct text_buffer *text, const json_t *document, const char *field, const char *name,
                               const char *help) {
    const json_t *tiers = find(document, "plan/tiers"), *tier;
    size_t i;
    if (json_array_size(tiers) > 0) TRY(print_head(text, name, "gauge", help));
    json_array_foreach(tiers, i, tier) {
        const json_t *value = json_object_get(tier, field), *title = json_object_get(tier, "name");
        if (!json_is_number(value) || !json_is_string(title)) continue;
        TRY(text_print(text, "%s{tier=\"", name));
        TRY(print_label(text, json_string_value(title)));
        TRY(text_print(text, "\"}"));
        TRY(print_value(text, value));
    }
    return STATUS_OK;
}

static enum status print_samples(struct text_buffer *text, const json_t *document) {
    static const char *const samples[][4] = {
#define SAMPLE_ROW(path, name, type, help) {path, name, type, help},
        SAMPLE_LIST(SAMPLE_ROW)};
    const char *last = "";
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const json_t *value = find(document, samples[i][0]);
        if (!json_is_number(value) || strcmp(last, samples[i][1]) == 0) continue; /* the first known one */
        last = samples[i][1];
        TRY(print_head(text, samples[i][1], samples[i][2], samples[i][3]));
        TRY(text_print(text, "%s", samples[i][1]));
        TRY(print_value(text, value));
    }
    TRY(print_tiers(text, document, "program_bytes", "ballast_memory_used_bytes", "The arena of each memory tier"));
    TRY(print_tiers(text, document, "capacity_bytes", "ballast_memory_capacity_bytes",
                    "The most that a tier may take"));
    return text_print(text, "%s", "");
}

char *prometheus_text(const json_t *document) {
    AUTO_VEC struct text_buffer text = {0};
    return print_samples(&text, document) == STATUS_OK ? TAKE(text.items) : NULL;
}
