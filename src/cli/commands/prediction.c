#include "cli/commands/prediction.h"

#include "base/file.h"
#include "base/json.h"
#include "cli/step_options.h"
#include "session/checkpoint/run_folder.h"
#include "session/plan.h"

enum { TIMELINE_FILE_LIMIT_BYTES = 1 << 30 };

void prediction_free(struct prediction *prediction) {
    json_decref(prediction->measured);
    stage_steps_free(&prediction->stages);
    machine_costs_free(&prediction->costs);
    session_plan_free(&prediction->plan);
    session_close(&prediction->session);
    scratch_free(&prediction->memory);
}

static enum status read_run(struct prediction *prediction) {
    struct run_settings settings;
    TRY(run_folder_read(prediction->path, &settings));
    prediction->decided = settings.plan;
    prediction->model = scratch_format(&prediction->memory, "%s", settings.model_folder);
    prediction->measured_path = scratch_format(&prediction->memory, "%s/timeline.json", prediction->path);
    memory_options_keep_disk(&settings.limits, &prediction->machine.memory);
    run_settings_free(&settings);
    if (!prediction->model || !prediction->measured_path) return STATUS_FAILED;
    const char *plan = scratch_format(&prediction->memory, "%s/plan.json", prediction->path);
    if (!plan) return STATUS_FAILED;
    if (file_exists(plan)) TRY(plan_document_read_prediction(plan, &prediction->decided, &prediction->planned));
    if (!file_exists(prediction->measured_path)) return STATUS_OK;
    return json_read_object(prediction->measured_path, TIMELINE_FILE_LIMIT_BYTES, &prediction->measured);
}

static enum status read_plan(struct prediction *prediction) {
    TRY(plan_read(prediction->path, &prediction->decided));
    TRY(plan_document_read_prediction(prediction->path, &prediction->decided, &prediction->planned));
    return plan_read_model(prediction->path, &prediction->memory, &prediction->model);
}

static enum status read_source(const struct options *options, struct prediction *prediction) {
    struct plan_options given;
    prediction->path = options->arguments.items[0];
    plan_options_init(&prediction->machine);
    prediction->machine.outline = true;
    TRY(file_is_folder(prediction->path) ? read_run(prediction) : read_plan(prediction));
    if (options_given(options, OPT_model)) prediction->model = options_text(options, OPT_model);
    if (!prediction->model) {
        (void)status_set(STATUS_BAD_INPUT, "%s: model: the plan names none", prediction->path);
        return status_hint(STATUS_BAD_INPUT, "--model MODEL_DIR says which it is for");
    }
    TRY(step_options_read(options, true, &given));
    if (SETTINGS_HAVE(&given, cluster_path)) SETTINGS_GIVE(&prediction->machine, cluster_path, given.cluster_path);
    if (SETTINGS_HAVE(&given.memory, disk_folder)) prediction->machine.memory = given.memory;
    return STATUS_OK;
}

static enum status require_disk(const struct prediction *prediction) {
    const struct memory_options *limits = &prediction->session.machine.limits;
    if (prediction->plan.programs.tier_bytes[TIER_DISK] == 0 || SETTINGS_HAVE(limits, disk_folder)) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: uses the disk tier, whose speed is measured where it will be",
                     prediction->path);
    return status_hint(STATUS_BAD_INPUT, "--disk DIR says where");
}

static enum status predict(struct prediction *prediction) {
    const struct programs *programs = &prediction->plan.programs;
    TRY(session_begin_step(prediction->model, &prediction->decided, prediction->path, &prediction->machine,
                           &prediction->session, &prediction->plan));
    TRY(require_disk(prediction));
    if (!file_is_folder(prediction->path))
        TRY(plan_document_check_model(prediction->path, &prediction->session.model->config));
    TRY(machine_costs_measure(&prediction->session.machine, programs, &(struct measuring){0}, &prediction->costs));
    const struct plan *plan = &prediction->plan.chosen;
    TRY(stage_steps_make(programs_main(programs), plan, &prediction->costs.costs, &prediction->stages));
    prediction->timeline = &prediction->stages.list[rank_place_stage(&plan->place)].timeline;
    step_summarise(prediction->timeline, &prediction->costs.costs, &prediction->step);
    return STATUS_OK;
}

enum status prediction_make(const struct options *options, struct prediction *out) {
    *out = (struct prediction){0};
    TRY(read_source(options, out));
    return predict(out);
}
