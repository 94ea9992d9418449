#include "cli/commands/simulate.h"

#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands/command.h"
#include "cli/new_output.h"
#include "cli/step_options.h"
#include "report/console/plan_table.h"
#include "report/console/profile_table.h"
#include "report/page/timeline.h"
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

enum { TRACE_DIGITS = 12 };

static enum status write_trace(const struct prediction *prediction, const char *path) {
    json_auto_t *trace = trace_create(), *predicted = timeline_to_json(prediction->timeline);
    TRY(trace && predicted ? trace_add(trace, 1, prediction->path, predicted) : STATUS_FAILED);
    if (prediction->measured) TRY(trace_add(trace, 2, prediction->measured_path, prediction->measured));
    return new_file_write_json(path, trace, JSON_COMPACT | JSON_REAL_PRECISION(TRACE_DIGITS));
}

/* Measured seconds of the recorded step; negative if none was recorded. */
static double measured_s(const struct prediction *prediction) {
    const json_t *seconds = json_object_get(prediction->measured, "wall_s");
    if (!json_is_number(seconds)) seconds = json_object_get(prediction->measured, "step_s");
    return json_is_number(seconds) ? json_number_value(seconds) : -1;
}

/* Number of the recorded step; 0: unknown. */
static json_int_t measured_step(const struct prediction *prediction) {
    return json_integer_value(json_object_get(prediction->measured, "step"));
}

static json_t *known_s(double seconds) { return seconds > 0 ? json_real(seconds) : json_null(); }

static double tokens_per_s(const struct prediction *prediction) {
    const struct recipe *recipe = &prediction->plan.chosen.recipe;
    return (double)(recipe->batch * recipe->sequence_length) / prediction->timeline->step_s;
}

static json_t *tiers_to_json(const struct prediction *prediction) {
    json_t *list = json_array();
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t bytes = prediction->plan.programs.tier_bytes[tier];
        if (bytes > 0)
            json_push(&list, json_pack("{s:s, s:I}", "name", tier_name(tier), "program_bytes", (json_int_t)bytes));
    }
    return list;
}

static json_t *document(const struct prediction *prediction) {
    double measured = measured_s(prediction);
    json_t *object = json_pack(
        "{s:i, s:s, s:o, s:o, s:o, s:f, s:o, s:{s:i, s:i, s:i, s:f}}", "version", 1, "model", prediction->model,
        "measured_step", measured_step(prediction) > 0 ? json_integer(measured_step(prediction)) : json_null(),
        "measured_step_s", known_s(measured), "planned_step_s", known_s(prediction->planned.step_s), "tokens_per_s",
        tokens_per_s(prediction), "tiers", tiers_to_json(prediction), "profile", "operators",
        (int)prediction->costs.report.operators, "extrapolated", (int)prediction->costs.costs.extrapolated, "measured",
        (int)prediction->costs.report.measured, "noise", prediction->costs.report.noise);
    bool made = object && step_summary_add_json(&prediction->step, object) == STATUS_OK;
    return json_made(!made, object, "the prediction's JSON");
}

static void print_streams(const struct prediction *prediction) {
    const struct step_summary *step = &prediction->step;
    for (int s = 0; s < step->stream_count; s++)
        printf("%-16s %9.4f s busy, %9.4f s idle\n", stream_role_name(step->streams[s].role), step->streams[s].busy_s,
               step->streams[s].waiting_s);
}

/* Prints the plan's own prediction if it differs, because costs may have been measured again since. */
static void print_planned(const struct prediction *prediction) {
    double step = prediction->timeline->step_s, planned = prediction->planned.step_s;
    if (planned > 0 && fabs(step / planned - 1) > 5e-4)
        printf("as planned       %9.4f s, from measurements at that time\n", planned);
}

static void print_measured(const struct prediction *prediction, double measured) {
    char which[48] = "";
    if (measured_step(prediction) > 0)
        snprintf(which, sizeof which, " (step %lld of the run)", (long long)measured_step(prediction));
    printf("measured step    %9.4f s%s; the prediction is %+.1f%% off\n", measured, which,
           100 * (prediction->timeline->step_s / measured - 1));
}

static void print_summary(const struct prediction *prediction) {
    char text[BOUND_TEXT_BYTES], size[SIZE_TEXT];
    double step = prediction->timeline->step_s, measured = measured_s(prediction);
    printf("predicted step   %9.4f s, %.0f tokens/s\n", step, tokens_per_s(prediction));
    print_planned(prediction);
    if (measured > 0) print_measured(prediction, measured);
    print_streams(prediction);
    for (int i = 0; i < prediction->step.bound_count; i++)
        printf("%-16s %9.4f s of %s\n", i == 0 ? "bottleneck" : "", prediction->step.bounds[i].seconds,
               bound_text(&prediction->step.bounds[i], text));
    profile_table_print_parts(stdout, "", &prediction->costs.costs);
    ranks_table_print(stdout, &prediction->plan.chosen.place, &prediction->step, &prediction->costs.costs.rates.links);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (prediction->plan.programs.tier_bytes[tier] > 0)
            printf("%-6s memory    %s (%" PRId64 " bytes)\n", tier_name(tier),
                   size_print(prediction->plan.programs.tier_bytes[tier], size),
                   prediction->plan.programs.tier_bytes[tier]);
}

static enum status is_trace(const char *path) {
    json_auto_t *object = NULL;
    TRY(json_read_object(path, TIMELINE_FILE_LIMIT_BYTES, &object));
    bool trace = json_is_array(json_object_get(object, "traceEvents"));
    return trace ? STATUS_OK : STATUS_BAD_INPUT;
}

/* Writes predicted.json next to the run's timeline.json, for `ballast report` and `--serve`. */
static enum status keep(const struct prediction *prediction) {
    if (!prediction->measured_path) return STATUS_OK;
    AUTO_FREE char *path = path_join(prediction->path, "predicted.json");
    return path ? timeline_write(prediction->timeline, path) : STATUS_FAILED;
}

static enum status put_out(const struct options *options, const struct prediction *prediction) {
    const char *trace = options_text(options, OPT_trace);
    if (trace) TRY(write_trace(prediction, trace));
    if (options_flag(options, OPT_json)) return cli_print_json(document(prediction));
    print_summary(prediction);
    return STATUS_OK;
}

static enum status run(const struct options *options) {
    const char *trace = options_text(options, OPT_trace);
    if (trace) TRY(new_file_check(trace, "a trace", is_trace));
    AUTO(prediction_free) struct prediction prediction = {0};
    TRY(prediction_make(options, &prediction));
    TRY(keep(&prediction));
    return put_out(options, &prediction);
}

const struct command command_simulate = {
    .bit = COMMAND_SIMULATE,
    .name = "simulate",
    .arguments = "PLAN.json|RUN_DIR",
    .min = 1,
    .max = 1,
    .summary = "predict the time of a training step from its plan",
    .details = "Prints the step's predicted time, the busy and idle time of each stream, and the bottleneck. For a run "
               "directory, also prints the step that the run measured.",
    .notes =
        "Compiles the program that `ballast train` would run, measures the model's operators and the machine's rates "
        "(some seconds, then cached), and simulates the program with these costs. For a run directory, writes "
        "RUN_DIR/predicted.json for `ballast report`. With --trace, writes both steps as a Chrome trace for Perfetto.",
    .example = "ballast simulate run --trace step.json",
    .run = run,
};
