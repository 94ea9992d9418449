#include <stdio.h>

#include "backend/backend.h"
#include "base/cache_folder.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/new_file.h"
#include "cli/step_options.h"
#include "cluster/cluster.h"
#include "console/profile_table.h"
#include "profile/profile_model.h"
#include "session/train_setup.h"

/* What is measured and what comes of it; `setup`, `costs` and the rows only with a model. */
struct profiling {
    struct plan_options plan;
    const struct backend *backend;
    struct profile_options options;
    char *cache_folder;
    struct cluster cluster;
    struct train_setup setup;
    struct costs costs;
    struct profile_report report;
    struct profile_row *rows; /* report.operators */
};

/* What only a model gives a meaning to. */
static enum status refuse_without_model(const struct options *options) {
    static const enum option_id ids[] = {OPT_BATCH, OPT_SEQ,  OPT_DTYPE,  OPT_DOCUMENT_ATTENTION,
                                         OPT_GRAIN, OPT_LORA, OPT_FREEZE, OPT_GRAINS_PER_PASS};
    static const char *const names[] = {"batch", "seq",  "dtype",  "document-attention",
                                        "grain", "lora", "freeze", "grains-per-pass"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (options_given(options, ids[i]))
            return status_set(STATUS_BAD_INPUT, "ballast profile: --%s says something of a model; give its folder",
                              names[i]);
    return STATUS_OK;
}

static enum status find_cluster(struct profiling *profiling) {
    if (profiling->plan.cluster_path) return cluster_read(profiling->plan.cluster_path, &profiling->cluster);
    return profiling->backend->measure(&profiling->cluster);
}

/* The command measures anew: whoever calls it wants to know how it is now. What it finds is kept for other runs. */
static enum status prepare(const struct options *options, struct profiling *profiling) {
    TRY(step_options_read(options, false, &profiling->plan));
    profiling->backend = profiling->plan.backend;
    TRY(find_cluster(profiling));
    profiling->cache_folder = cache_folder();
    if (!profiling->cache_folder) return STATUS_FAILED;
    const struct memory_options *memory = &profiling->plan.memory;
    profiling->options = (struct profile_options){
        .disk_folder = memory->disk_folder[0] ? memory->disk_folder : NULL,
        .host_tier = memory->host_bytes > 0 || profiling->backend->memory,
        .cache_folder = profiling->cache_folder,
        .anew = true,
        .threads = profiling->plan.threads > 0 ? profiling->plan.threads : cluster_count_cores(NULL),
    };
    return STATUS_OK;
}

/* Calls of each operator in a step. */
static enum status count_calls(struct profiling *profiling) {
    const struct program *program = profiling->setup.main->program;
    const struct profile_report *report = &profiling->report;
    profiling->rows = mem_array((size_t)report->operators, sizeof *profiling->rows);
    if (!profiling->rows) return STATUS_FAILED;
    for (int32_t i = 0; i < report->operators; i++)
        profiling->rows[i].profiled = &report->list[i];
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode == OPCODE_KERNEL)
            profiling->rows[report->of_node[instruction->node->id]].count +=
                program->sections.items[instruction->section].repeat;
    }
    return STATUS_OK;
}

static enum status measure_model(const char *folder, struct profiling *profiling) {
    struct train_setup *setup = &profiling->setup;
    profiling->plan.outline = true;
    TRY(train_setup_create(folder, SETUP_TRAIN, &profiling->plan, NULL, setup));
    profiling->options.threads = setup->plan.recipe.threads;
    TRY(profile_model(setup->backend, setup->main->graph, &profiling->cluster, &profiling->options, &profiling->costs,
                      &profiling->report));
    return count_calls(profiling);
}

static json_t *row_to_json(const struct profile_row *row) {
    const struct profiled_operator *profiled = row->profiled;
    struct op_cost cost;
    op_cost(profiled->node, &cost);
    return json_pack("{s:s, s:s, s:I, s:f, s:f, s:b, s:s, s:f, s:f}", "operator", profiled->node->op->name, "first",
                     profiled->node->name, "count", (json_int_t)row->count, "seconds", profiled->seconds, "spread",
                     profiled->noise, "extrapolated", (int)profiled->extrapolated, "activity",
                     activity_name(profiled->activity), "flops", cost.flops, "bytes", cost.bytes);
}

/* The cluster's document with the model's operators. */
static json_t *document(const struct profiling *profiling) {
    json_t *object = cluster_to_json(&profiling->cluster);
    if (!object || !profiling->rows) return object;
    json_t *rows = json_array();
    int failed = !rows;
    for (int32_t i = 0; i < profiling->report.operators; i++)
        failed |= json_array_append_new(rows, row_to_json(&profiling->rows[i]));
    failed |= json_object_set_new(object, "operators", rows);
    failed |= json_object_set_new(object, "kernels_s",
                                  json_real(profile_table_sum(profiling->rows, profiling->report.operators)));
    if (!failed) return object;
    json_decref(object);
    (void)status_no_memory(0, "the profile's JSON");
    return NULL;
}

static enum status write_cluster(const char *path, const struct cluster *cluster) {
    json_t *object = cluster_to_json(cluster);
    if (!object) return STATUS_FAILED;
    enum status status = json_write(path, object);
    json_decref(object);
    return status;
}

static enum status put_out(const struct options *options, struct profiling *profiling) {
    const char *path = options_text(options, OPT_OUTPUT);
    if (path) TRY(write_cluster(path, &profiling->cluster));
    if (options_flag(options, OPT_JSON)) return cli_print_json(document(profiling));
    profile_table_print_machine(stdout, &profiling->cluster);
    if (profiling->rows) profile_table_print_operators(stdout, profiling->rows, profiling->report.operators);
    profile_table_print_parts(stdout, "", &profiling->costs);
    return STATUS_OK;
}

static enum status profile(const struct options *options, struct profiling *profiling) {
    bool model = options->arguments.count > 0;
    if (!model) TRY(refuse_without_model(options));
    TRY(prepare(options, profiling));
    TRY(model ? measure_model(options->arguments.items[0], profiling)
              : profile_machine(profiling->backend, &profiling->options, &profiling->cluster, NULL));
    return put_out(options, profiling);
}

static enum status read_cluster(const char *path) {
    struct cluster cluster;
    return cluster_read(path, &cluster);
}

static enum status run(const struct options *options) {
    const char *output = options_text(options, OPT_OUTPUT);
    struct profiling profiling = {.cache_folder = NULL};
    if (output) TRY(new_file_check(output, "a cluster file", read_cluster));
    enum status status = profile(options, &profiling);
    profile_report_free(&profiling.report);
    costs_free(&profiling.costs);
    mem_free(profiling.rows);
    if (profiling.setup.model) train_setup_free(&profiling.setup);
    mem_free(profiling.cache_folder);
    return status;
}

const struct command command_profile = {
    .bit = COMMAND_PROFILE,
    .name = "profile",
    .arguments = "[MODEL_DIR|PRESET]",
    .least = 0,
    .most = 1,
    .summary = "what the machine does in a second, and what each operator of a model costs",
    .details =
        "Measures matrix products in fp32 and bf16, zeros, copies to and from the host and disk tiers where "
        "--host-memory (or a GPU) and --disk give them, and how much slower each is beside each other: a second or "
        "two. With a model, also each "
        "distinct operator of its training step, for three seconds; no weight is read. What is measured is kept in the "
        "cache folder for other runs; what other programs disturbed is measured again by the next. With -o, writes a "
        "cluster file, which --cluster takes.",
    .run = run,
};
