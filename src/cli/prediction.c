#include "cli/prediction.h"

#include <stdio.h>

#include "backend/backend.h"
#include "base/cache_folder.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/run_folder.h"
#include "cli/step_options.h"
#include "cluster/cluster.h"
#include "session/plan_document.h"

enum { TIMELINE_FILE_LIMIT_BYTES = 1 << 30 };

void prediction_free(struct prediction *prediction) {
    json_decref(prediction->measured);
    timeline_free(&prediction->timeline);
    costs_free(&prediction->costs);
    profile_report_free(&prediction->profile);
    train_setup_free(&prediction->setup);
    scratch_free(&prediction->memory);
}

static enum status read_run(struct prediction *prediction) {
    struct run_settings settings;
    TRY(run_folder_read(prediction->path, &settings));
    prediction->plan = settings.plan;
    prediction->model = scratch_format(&prediction->memory, "%s", settings.model_folder);
    prediction->measured_path = scratch_format(&prediction->memory, "%s/timeline.json", prediction->path);
    prediction->disk_folder = scratch_format(&prediction->memory, "%s", settings.limits.disk_folder);
    run_settings_free(&settings);
    if (!prediction->model || !prediction->measured_path || !prediction->disk_folder) return STATUS_FAILED;
    if (!prediction->disk_folder[0]) prediction->disk_folder = NULL;
    const char *plan = scratch_format(&prediction->memory, "%s/plan.json", prediction->path);
    if (!plan) return STATUS_FAILED;
    if (file_exists(plan)) TRY(plan_document_read_prediction(plan, &prediction->plan, &prediction->planned));
    if (!file_exists(prediction->measured_path)) return STATUS_OK;
    return json_read_object(prediction->measured_path, TIMELINE_FILE_LIMIT_BYTES, &prediction->measured);
}

static enum status read_plan(struct prediction *prediction) {
    TRY(plan_read(prediction->path, &prediction->plan));
    TRY(plan_document_read_prediction(prediction->path, &prediction->plan, &prediction->planned));
    return plan_read_model(prediction->path, &prediction->memory, &prediction->model);
}

static enum status read_source(const struct options *options, struct prediction *prediction) {
    struct plan_options given;
    prediction->path = options->arguments.items[0];
    TRY(file_is_folder(prediction->path) ? read_run(prediction) : read_plan(prediction));
    if (options_given(options, OPT_MODEL)) prediction->model = options_text(options, OPT_MODEL);
    if (!prediction->model) {
        (void)status_set(STATUS_BAD_INPUT, "%s: model: the plan names none", prediction->path);
        return status_hint(STATUS_BAD_INPUT, "--model MODEL_DIR says which it is for");
    }
    TRY(step_options_read(options, true, &given));
    prediction->cluster_path = given.cluster_path;
    if (!given.memory.disk_folder[0]) return STATUS_OK;
    prediction->disk_folder = scratch_format(&prediction->memory, "%s", given.memory.disk_folder);
    return prediction->disk_folder ? STATUS_OK : STATUS_FAILED;
}

static enum status require_disk(const struct prediction *prediction) {
    if (prediction->setup.program_bytes[TIER_DISK] == 0 || prediction->disk_folder) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: uses the disk tier, whose speed is measured where it will be",
                     prediction->path);
    return status_hint(STATUS_BAD_INPUT, "--disk DIR says where");
}

static enum status find_cluster(const struct prediction *prediction, struct cluster *out) {
    if (prediction->cluster_path) return cluster_read(prediction->cluster_path, out);
    return prediction->setup.backend->measure(out);
}

static enum status measure_costs(struct prediction *prediction) {
    const struct train_setup *setup = &prediction->setup;
    struct cluster cluster;
    TRY(find_cluster(prediction, &cluster));
    char *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    struct profile_options options = {.disk_folder =
                                          setup->program_bytes[TIER_DISK] > 0 ? prediction->disk_folder : NULL,
                                      .host_tier = setup->program_bytes[TIER_HOST] > 0,
                                      .cache_folder = cache,
                                      .threads = setup->plan.recipe.threads};
    enum status status =
        profile_model(setup->backend, setup->main->graph, &cluster, &options, &prediction->costs, &prediction->profile);
    mem_free(cache);
    return status;
}

static enum status predict(struct prediction *prediction) {
    TRY(train_setup_create_step(prediction->model, &prediction->plan, prediction->path, &prediction->setup));
    TRY(require_disk(prediction));
    TRY(measure_costs(prediction));
    TRY(simulate(prediction->setup.main->program, &prediction->costs, &prediction->timeline));
    step_summarise(&prediction->timeline, &prediction->costs, &prediction->step);
    return STATUS_OK;
}

enum status prediction_make(const struct options *options, struct prediction *out) {
    *out = (struct prediction){0};
    TRY(read_source(options, out));
    return predict(out);
}
