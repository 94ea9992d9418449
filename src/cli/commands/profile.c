
#include "base/json.h"
#include "cli/commands/command.h"
#include "cli/new_output.h"
#include "cli/step_options.h"
#include "machine/cluster.h"
#include "profile/link_rates.h"
#include "report/console/profile_table.h"
#include "session/machine_costs.h"
#include "session/plan.h"
#include "session/session.h"

/* The measurements. Without a model, only those of the cluster. */
struct profiling {
    struct plan_options requested;
    struct session session;
    struct session_plan plan;
    struct machine_costs found;
    struct profile_row *rows; /* found.report.operators */
};

/* The command measures again, and stores the results for later commands. */
static const struct measuring measuring = {.anew = true};

/* Refuses options that need a model. */
static enum status refuse_without_model(const struct options *options) {
    static const enum option_id ids[] = {OPT_batch,
                                         OPT_sequence_length,
                                         OPT_dtype,
                                         OPT_document_attention,
                                         OPT_micro_batch_sequences,
                                         OPT_lora,
                                         OPT_freeze,
                                         OPT_micro_batches_per_wave,
                                         OPT_partition,
                                         OPT_collectives,
                                         OPT_optimizer,
                                         OPT_optimizer_dtype,
                                         OPT_master_weights,
                                         OPT_quantize_base,
                                         OPT_muon_momentum,
                                         OPT_packing};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (options_given(options, ids[i]))
            return status_set(STATUS_BAD_INPUT, "ballast profile: --%s needs a model; give its directory",
                              option_table[ids[i]]->name);
    return STATUS_OK;
}

/* Whether this rank prints the measurements. Rank 0 measures for all ranks, with as many processes as its host has
 * ranks. */
static bool reports(const struct profiling *profiling) {
    return !profiling->requested.comm || profiling->requested.comm->rank == 0;
}

/* Counts the calls of each operator in a step. */
static enum status count_calls(struct profiling *profiling) {
    const struct program *program = programs_main(&profiling->plan.programs)->program;
    const struct profile_report *report = &profiling->found.report;
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
    profiling->requested.outline = true;
    TRY(session_begin(folder, PROGRAMS_TO_TRAIN, &profiling->requested, NULL, &profiling->session, &profiling->plan));
    if (!reports(profiling)) return STATUS_OK;
    TRY(machine_costs_measure(&profiling->session.machine, &profiling->plan.programs, &measuring, &profiling->found));
    return count_calls(profiling);
}

static enum status measure_machine(struct profiling *profiling) {
    struct comm *comm = profiling->requested.comm;
    struct machine machine;
    TRY(machine_open(&profiling->requested, NULL, &machine));
    if (comm) TRY(rank_cores_find_contention(comm, &machine.contention));
    if (!reports(profiling)) return STATUS_OK;
    return machine_measure(&machine, plan_options_threads(&profiling->requested), &measuring,
                           &profiling->found.cluster);
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

/* Returns the cluster's document, with the model's operators. */
static json_t *document(const struct profiling *profiling) {
    json_t *object = cluster_to_json(&profiling->found.cluster);
    if (!object || !profiling->rows) return object;
    json_t *rows = json_array();
    for (int32_t i = 0; i < profiling->found.report.operators; i++)
        json_push(&rows, row_to_json(&profiling->rows[i]));
    json_put(&object, "operators", rows);
    json_put(&object, "kernels_s", json_real(profile_table_sum(profiling->rows, profiling->found.report.operators)));
    return json_made(0, object, "the profile's JSON");
}

static enum status write_cluster(const char *path, const struct cluster *cluster) {
    json_auto_t *object = cluster_to_json(cluster);
    if (!object) return STATUS_FAILED;
    return new_file_write_json(path, object, JSON_FILE_FLAGS);
}

static enum status put_out(const struct options *options, struct profiling *profiling) {
    const char *path = options_text(options, OPT_output);
    if (path) TRY(write_cluster(path, &profiling->found.cluster));
    if (options_flag(options, OPT_json)) return cli_print_json(document(profiling));
    profile_table_print_machine(stdout, &profiling->found.cluster);
    if (profiling->rows) profile_table_print_operators(stdout, profiling->rows, profiling->found.report.operators);
    profile_table_print_parts(stdout, "", &profiling->found.costs);
    return STATUS_OK;
}

/* Measures the links between ranks. All ranks take part. */
static enum status measure_links(struct profiling *profiling) {
    struct comm *comm = profiling->requested.comm;
    struct machine machine;
    if (!comm || mesh_ranks(&comm->mesh) == 1) return STATUS_OK;
    TRY(machine_open(&profiling->requested, NULL, &machine));
    TRY(rank_cores_find_contention(comm, &machine.contention));
    const struct link_options link = {
        .thorough = true, .threads = plan_options_threads(&profiling->requested), .memory_bytes = LINK_MEMORY_BYTES};
    TRY(machine_measure_links(comm, &link, &machine));
    machine_take_links(&machine.between, &profiling->found.cluster.rates);
    return STATUS_OK;
}

static enum status profile(const struct options *options, struct profiling *profiling) {
    bool model = options->arguments.count > 0;
    if (!model) TRY(refuse_without_model(options));
    TRY(step_options_read(options, false, &profiling->requested));
    TRY(comm_agree(profiling->requested.comm,
                   model ? measure_model(options->arguments.items[0], profiling) : measure_machine(profiling)));
    TRY(measure_links(profiling));
    return reports(profiling) ? put_out(options, profiling) : STATUS_OK;
}

static enum status read_cluster(const char *path) {
    struct cluster cluster;
    return cluster_read(path, &cluster);
}

static enum status run(const struct options *options) {
    const char *output = options_text(options, OPT_output);
    struct profiling profiling = {.rows = NULL};
    if (output) TRY(new_file_check(output, "a cluster file", read_cluster));
    enum status status = profile(options, &profiling);
    mem_free(profiling.rows);
    machine_costs_free(&profiling.found);
    session_plan_free(&profiling.plan);
    session_close(&profiling.session);
    return status;
}

const struct command command_profile = {
    .bit = COMMAND_PROFILE,
    .name = "profile",
    .arguments = "[MODEL_DIR|PRESET]",
    .min = 0,
    .max = 1,
    .summary = "measure this machine and the operators of a model",
    .details = "Measures matrix multiplication, memory copies and the disk, and how much these slow each other down: a "
               "second or two. With a model, also measures each operator of its training step for three seconds. Other "
               "commands use the cached results.",
    .notes = "Copies go to and from the host tier (--host-memory, or a GPU) and the disk tier (--disk). Under mpirun "
             "or with --ranks, also measures the links between ranks: messages within and across nodes, collectives by "
             "size, pairs of ranks, and how much communication slows kernels down. Reads no weights. The next run "
             "repeats measurements that other programs disturbed. With -o, writes a cluster file for --cluster.",
    .example = "ballast profile -o machine.json",
    .run = run,
};
