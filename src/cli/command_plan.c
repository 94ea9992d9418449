#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"
#include "cli/command.h"
#include "cli/new_file.h"
#include "cli/step_options.h"
#include "cluster/cluster.h"
#include "report/plan_table.h"
#include "report/policy_words.h"
#include "train/run_folder.h"
#include "train/train_setup.h"

static json_t *kinds_to_json(const struct memory_report *memory) {
    json_t *kinds = json_object();
    int failed = !kinds;
    for (int kind = 0; kind < BUFFER_KIND_COUNT; kind++)
        failed |= json_object_set_new(kinds, buffer_kind_name((enum buffer_kind)kind),
                                      json_integer((json_int_t)memory->by_kind[kind]));
    failed |= json_object_set_new(kinds, "unused", json_integer((json_int_t)memory->unused));
    if (!failed) return kinds;
    json_decref(kinds);
    return NULL;
}

static json_t *tiers_to_json(const struct train_setup *setup) {
    json_t *tiers = json_array();
    int failed = !tiers;
    for (int tier = 0; tier < TIER_COUNT; tier++) {
        if (setup->capacity_bytes[tier] == 0 && setup->program_bytes[tier] == 0) continue;
        failed |= json_array_append_new(tiers, json_pack("{s:s, s:I, s:I, s:o}", "name", tier_name((enum tier)tier),
                                                         "program_bytes", (json_int_t)setup->program_bytes[tier],
                                                         "capacity_bytes", (json_int_t)setup->capacity_bytes[tier],
                                                         "by_kind", kinds_to_json(&setup->memory[tier])));
    }
    if (!failed) return tiers;
    json_decref(tiers);
    return NULL;
}

static json_t *streams_to_json(const struct prediction *prediction) {
    json_t *list = json_array();
    int failed = !list;
    for (int s = 0; s < prediction->stream_count; s++) {
        const struct timeline_stream *stream = &prediction->streams[s];
        failed |= json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "role", stream_role_name(stream->role),
                                                        "busy_s", stream->busy_s, "waiting_s", stream->waiting_s));
    }
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *bounds_to_json(const struct prediction *prediction) {
    char words[BOUND_WORDS_BYTES];
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; i < prediction->bound_count; i++)
        failed |=
            json_array_append_new(list, json_pack("{s:s, s:f}", "what", bound_words(&prediction->bounds[i], words),
                                                  "seconds", prediction->bounds[i].seconds));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *candidates_to_json(const struct candidate *candidates, size_t count) {
    json_t *list = json_array();
    int failed = !list;
    for (size_t i = 0; i < count; i++)
        failed |=
            json_array_append_new(list, json_pack("{s:f, s:I, s:I, s:I, s:o}", "step_s", candidates[i].step_s,
                                                  "device_bytes", (json_int_t)candidates[i].tier_bytes[TIER_DEVICE],
                                                  "host_bytes", (json_int_t)candidates[i].tier_bytes[TIER_HOST],
                                                  "disk_bytes", (json_int_t)candidates[i].tier_bytes[TIER_DISK],
                                                  "policy", policy_to_json(&candidates[i].policy)));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

/* Null where the policy was given, or plain and fitted: then none was searched for. */
static json_t *search_to_json(const struct search_result *search) {
    if (search->enumerated == 0) return json_null();
    return json_pack("{s:I, s:I, s:b}", "enumerated", (json_int_t)search->enumerated, "compiled",
                     (json_int_t)search->compiled, "proved", search->proved);
}

/* A plan file with what is known of it. prediction: NULL where none was made. */
static json_t *document(const struct train_setup *setup, const struct prediction *prediction) {
    const struct prediction none = {0};
    const struct search_result *search = &setup->search;
    json_t *object = plan_to_json(&setup->plan);
    if (!prediction) prediction = &none;
    int failed = !object;
    if (!failed) {
        failed |=
            json_object_set_new(object, "step_s", prediction->step_s > 0 ? json_real(prediction->step_s) : json_null());
        failed |= json_object_set_new(object, "tiers", tiers_to_json(setup));
        failed |= json_object_set_new(object, "streams", streams_to_json(prediction));
        failed |= json_object_set_new(object, "runners_up",
                                      candidates_to_json(search->runners_up.items, search->runners_up.count));
        failed |= json_object_set_new(object, "front", candidates_to_json(search->front.items, search->front.count));
        failed |= json_object_set_new(object, "binds", bounds_to_json(prediction));
        failed |= json_object_set_new(object, "search", search_to_json(search));
    }
    if (!failed) return object;
    json_decref(object);
    (void)status_no_memory(0, "the plan's JSON");
    return NULL;
}

/* What was taken off before "available". */
static void print_reserve(void) {
    char process[SIZE_TEXT];
    printf("available: to this process within its cgroup, less %s for the process itself and %.0f%% left free;\n"
           "--device-memory SIZE sets it\n",
           size_print(CLUSTER_PROCESS_BYTES, process), 100 * CLUSTER_RESERVE_FRACTION);
}

static enum status name_model(const char *folder, json_t *plan) {
    struct scratch memory = {0};
    const char *absolute;
    enum status status = path_make_absolute(folder, &memory, &absolute);
    if (status == STATUS_OK) status = plan_set_model(plan, absolute);
    scratch_free(&memory);
    return status;
}

static enum status put_out(const struct options *options, const struct train_setup *setup,
                           const struct prediction *prediction) {
    const char *path = options_text(options, OPT_OUTPUT);
    json_t *object = document(setup, prediction);
    if (!object) return STATUS_FAILED;
    enum status status = name_model(options->arguments.items[0], object);
    if (status == STATUS_OK && path) status = json_write(path, object);
    if (status == STATUS_OK && options_flag(options, OPT_JSON)) return cli_print_json(object);
    json_decref(object);
    TRY(status);
    if (options_flag(options, OPT_JSON)) return STATUS_OK;
    plan_table_print(stdout, setup, prediction);
    if (!options_given(options, OPT_DEVICE_MEMORY)) print_reserve();
    return STATUS_OK;
}

static enum status read_plan(const char *path) {
    struct plan plan;
    return plan_read(path, &plan);
}

static enum status run(const struct options *options) {
    const char *output = options_text(options, OPT_OUTPUT);
    if (output) TRY(new_file_check(output, "a plan file", read_plan));
    struct plan_options plan;
    struct train_options training;
    struct train_setup setup;
    bool generate = strcmp(options_text(options, OPT_FOR), "generate") == 0;
    step_options_read(options, false, &plan);
    step_options_read_optimizer(options, &training);
    if (generate) plan.batch = plan.grain_sequences = plan.grains_per_pass = 0; /* it has one sequence */
    TRY(train_setup_create(options->arguments.items[0], generate ? SETUP_GENERATE : SETUP_TRAIN, &plan, &training,
                           &setup));
    struct prediction prediction;
    enum status status = train_setup_check_memory(&setup);
    if (status == STATUS_OK && !generate) status = train_setup_measure(&setup);
    if (status == STATUS_OK && !generate) status = train_setup_predict(&setup, &prediction);
    if (status == STATUS_OK) status = put_out(options, &setup, generate ? NULL : &prediction);
    train_setup_free(&setup);
    return status;
}

const struct command command_plan = {
    .bit = COMMAND_PLAN,
    .name = "plan",
    .arguments = "MODEL_DIR",
    .least = 1,
    .most = 1,
    .summary = "the memory of a training step, exactly, and its time, before anything is loaded",
    .details = "Compiles the step (or, --for generate, the programs for text) and prints its memory by kind, its "
               "predicted time and what binds it. What does not fit in memory goes to --host-memory and --disk, if "
               "there are any, by the fastest policy that a search finds. The first time on a machine it measures for "
               "some seconds. Exits with 3 when nothing fits, saying by how much and what would. With -o, writes a "
               "plan file that `ballast train --plan` takes.",
    .run = run,
};
