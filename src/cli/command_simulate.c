#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/cache_folder.h"
#include "base/file.h"
#include "base/json.h"
#include "base/size.h"
#include "cli/command.h"
#include "cli/new_file.h"
#include "cli/step_options.h"
#include "profile/profile_model.h"
#include "report/trace.h"
#include "sim/simulate.h"
#include "train/run_folder.h"
#include "train/train_setup.h"

enum { TIMELINE_FILE_LIMIT_BYTES = 1 << 30, TRACE_DIGITS = 12 };

/* What is simulated, and all that is found out about it. */
struct subject {
    const char *path;         /* the plan file or the run's folder */
    const char *model;        /* folder; in `memory` or the options */
    char *disk_folder;        /* in `memory`; NULL: none */
    const char *cluster_path; /* NULL: this machine */
    struct plan plan;
    struct scratch memory;
    const char *measured_path; /* in `memory` */
    json_t *measured;          /* the run's timeline.json; NULL: it has none */
    struct train_setup setup;
    struct costs costs;
    struct profile_report profile;
    struct timeline timeline;
    struct bound bounds[BOUNDS_MAX];
    int bound_count;
};

static void subject_free(struct subject *subject) {
    json_decref(subject->measured);
    timeline_free(&subject->timeline);
    costs_free(&subject->costs);
    profile_report_free(&subject->profile);
    train_setup_free(&subject->setup);
    scratch_free(&subject->memory);
}

static enum status read_run(struct subject *subject) {
    struct run_settings settings;
    TRY(run_folder_read(subject->path, &settings));
    subject->plan = settings.plan;
    subject->model = scratch_format(&subject->memory, "%s", settings.model_folder);
    subject->measured_path = scratch_format(&subject->memory, "%s/timeline.json", subject->path);
    run_settings_free(&settings);
    if (!subject->model || !subject->measured_path) return STATUS_FAILED;
    if (!file_exists(subject->measured_path)) return STATUS_OK;
    return json_read_object(subject->measured_path, TIMELINE_FILE_LIMIT_BYTES, &subject->measured);
}

static enum status read_plan(struct subject *subject) {
    TRY(plan_read(subject->path, &subject->plan));
    return plan_read_model(subject->path, &subject->memory, &subject->model);
}

static enum status read_subject(const struct options *options, struct subject *subject) {
    struct plan_options given;
    subject->path = options->arguments.items[0];
    TRY(file_is_folder(subject->path) ? read_run(subject) : read_plan(subject));
    if (options_given(options, OPT_MODEL)) subject->model = options_text(options, OPT_MODEL);
    if (!subject->model) {
        (void)status_set(STATUS_BAD_INPUT, "%s: model: the plan names none", subject->path);
        return status_hint(STATUS_BAD_INPUT, "--model MODEL_DIR says which it is for");
    }
    step_options_read(options, true, &given);
    subject->cluster_path = given.cluster_path;
    if (!given.memory.disk_folder[0]) return STATUS_OK;
    subject->disk_folder = scratch_format(&subject->memory, "%s", given.memory.disk_folder);
    return subject->disk_folder ? STATUS_OK : STATUS_FAILED;
}

static enum status require_disk(const struct subject *subject) {
    if (subject->setup.program_bytes[TIER_DISK] == 0 || subject->disk_folder) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: uses the disk tier, whose speed is measured where it will be",
                     subject->path);
    return status_hint(STATUS_BAD_INPUT, "--disk DIR says where");
}

static enum status find_cluster(const struct subject *subject, struct cluster *out) {
    if (subject->cluster_path) return cluster_read(subject->cluster_path, out);
    TRY(cluster_measure(out));
    snprintf(out->device.isa, sizeof out->device.isa, "%s", subject->setup.backend->isa());
    return STATUS_OK;
}

static enum status measure_costs(struct subject *subject) {
    const struct train_setup *setup = &subject->setup;
    struct cluster cluster;
    TRY(find_cluster(subject, &cluster));
    char *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    struct profile_options options = {.disk_folder = setup->program_bytes[TIER_DISK] > 0 ? subject->disk_folder : NULL,
                                      .host_tier = setup->program_bytes[TIER_HOST] > 0,
                                      .cache_folder = cache,
                                      .threads = setup->plan.recipe.threads};
    enum status status =
        profile_model(setup->backend, setup->main->graph, &cluster, &options, &subject->costs, &subject->profile);
    mem_free(cache);
    return status;
}

static enum status predict(struct subject *subject) {
    TRY(train_setup_create_step(subject->model, &subject->plan, subject->path, &subject->setup));
    TRY(require_disk(subject));
    TRY(measure_costs(subject));
    TRY(simulate(subject->setup.main->program, &subject->costs, &subject->timeline));
    subject->bound_count = timeline_bounds(&subject->timeline, &subject->costs, subject->bounds);
    return STATUS_OK;
}

static enum status write_trace(const struct subject *subject, const char *path) {
    json_t *trace = trace_create(), *predicted = timeline_to_json(&subject->timeline);
    enum status status = trace && predicted ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK) status = trace_add(trace, 1, subject->path, predicted);
    if (status == STATUS_OK && subject->measured)
        status = trace_add(trace, 2, subject->measured_path, subject->measured);
    char *text = status == STATUS_OK ? json_dumps(trace, JSON_COMPACT | JSON_REAL_PRECISION(TRACE_DIGITS)) : NULL;
    if (status == STATUS_OK)
        status = text ? file_replace(path, text, strlen(text)) : status_no_memory(0, "the text of a trace");
    free(text);
    json_decref(trace);
    json_decref(predicted);
    return status;
}

/* Seconds of the recorded step; below 0: there is none. */
static double measured_s(const struct subject *subject) {
    const json_t *seconds = json_object_get(subject->measured, "step_s");
    return json_is_number(seconds) ? json_number_value(seconds) : -1;
}

static double tokens_per_s(const struct subject *subject) {
    const struct recipe *recipe = &subject->setup.plan.recipe;
    return (double)(recipe->batch * recipe->sequence_length) / subject->timeline.step_s;
}

static const char *bound_text(const struct bound *bound, char text[96]) {
    snprintf(text, 96, "%s during %s%s", activity_name(bound->activity), phase_name(bound->phase),
             bound->role == STREAM_UPDATE ? " (deferred update)" : "");
    return text;
}

static json_t *streams_to_json(const struct subject *subject) {
    struct timeline_stream streams[STREAMS_MAX];
    json_t *list = json_array();
    int failed = !list;
    timeline_summarise(&subject->timeline, streams);
    for (int s = 0; s < subject->timeline.program->streams; s++)
        failed |=
            json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "role", stream_role_name(streams[s].role),
                                                  "busy_s", streams[s].busy_s, "waiting_s", streams[s].waiting_s));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *bounds_to_json(const struct subject *subject) {
    char text[96];
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; i < subject->bound_count; i++)
        failed |= json_array_append_new(list, json_pack("{s:s, s:f}", "what", bound_text(&subject->bounds[i], text),
                                                        "seconds", subject->bounds[i].seconds));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *tiers_to_json(const struct subject *subject) {
    json_t *list = json_array();
    int failed = !list;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t bytes = subject->setup.program_bytes[tier];
        if (bytes > 0)
            failed |= json_array_append_new(
                list, json_pack("{s:s, s:I}", "name", tier_name(tier), "program_bytes", (json_int_t)bytes));
    }
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *document(const struct subject *subject) {
    double measured = measured_s(subject);
    json_t *object = json_pack("{s:i, s:s, s:f, s:o, s:f, s:o, s:o, s:o, s:{s:i, s:i, s:f}}", "version", 1, "model",
                               subject->model, "step_s", subject->timeline.step_s, "measured_step_s",
                               measured < 0 ? json_null() : json_real(measured), "tokens_per_s", tokens_per_s(subject),
                               "streams", streams_to_json(subject), "binds", bounds_to_json(subject), "tiers",
                               tiers_to_json(subject), "profile", "operators", (int)subject->profile.operators,
                               "measured", (int)subject->profile.measured, "noise", subject->profile.noise);
    if (!object) (void)status_no_memory(0, "the prediction's JSON");
    return object;
}

static void print_streams(const struct subject *subject) {
    struct timeline_stream streams[STREAMS_MAX];
    timeline_summarise(&subject->timeline, streams);
    for (int s = 0; s < subject->timeline.program->streams; s++)
        printf("%-16s %9.4f s at work, %9.4f s waiting\n", stream_role_name(streams[s].role), streams[s].busy_s,
               streams[s].waiting_s);
}

static void print_summary(const struct subject *subject) {
    char text[96], size[SIZE_TEXT];
    double step = subject->timeline.step_s, measured = measured_s(subject);
    printf("predicted step   %9.4f s, %.0f tokens/s\n", step, tokens_per_s(subject));
    if (measured > 0)
        printf("measured step    %9.4f s; the prediction is %+.1f%% off\n", measured, 100 * (step / measured - 1));
    print_streams(subject);
    for (int i = 0; i < subject->bound_count; i++)
        printf("%-16s %9.4f s of %s\n", i == 0 ? "what binds" : "", subject->bounds[i].seconds,
               bound_text(&subject->bounds[i], text));
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (subject->setup.program_bytes[tier] > 0)
            printf("%-6s memory    %s (%" PRId64 " bytes)\n", tier_name(tier),
                   size_print(subject->setup.program_bytes[tier], size), subject->setup.program_bytes[tier]);
}

static enum status is_trace(const char *path) {
    json_t *object;
    TRY(json_read_object(path, TIMELINE_FILE_LIMIT_BYTES, &object));
    bool trace = json_is_array(json_object_get(object, "traceEvents"));
    json_decref(object);
    return trace ? STATUS_OK : STATUS_BAD_INPUT;
}

static enum status put_out(const struct options *options, const struct subject *subject) {
    const char *trace = options_text(options, OPT_TRACE);
    if (trace) TRY(write_trace(subject, trace));
    if (options_flag(options, OPT_JSON)) return cli_print_json(document(subject));
    print_summary(subject);
    return STATUS_OK;
}

static enum status run(const struct options *options) {
    const char *trace = options_text(options, OPT_TRACE);
    if (trace) TRY(new_file_check(trace, "a trace", is_trace));
    struct subject subject = {0};
    enum status status = read_subject(options, &subject);
    if (status == STATUS_OK) status = predict(&subject);
    if (status == STATUS_OK) status = put_out(options, &subject);
    subject_free(&subject);
    return status;
}

const struct command command_simulate = {
    .bit = COMMAND_SIMULATE,
    .name = "simulate",
    .arguments = "PLAN.json|RUN_DIR",
    .least = 1,
    .most = 1,
    .summary = "the time of a training step, predicted from its plan",
    .details =
        "Compiles the very program that `ballast train` would run, measures the model's operators and the machine's "
        "rates (some seconds; kept for the next time), and runs the program against them: the step's time, what each "
        "stream does, and what binds. For a run's folder, beside the step that the run measured. With --trace, writes "
        "both for Perfetto.",
    .run = run,
};
