#include <malloc.h>

#include "api/library.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands/command.h"
#include "cli/new_output.h"
#include "cli/step_options.h"
#include "machine/cluster.h"
#include "profile/described_device.h"
#include "report/console/partition_table.h"
#include "report/console/plan_table.h"
#include "session/plan.h"

/* Explains the reserve that "available" excludes. */
static void print_reserve(void) {
    char process[SIZE_TEXT];
    printf("available: to this process within its cgroup, less %s for each process and %.0f%% left free;\n"
           "--device-memory SIZE sets it\n",
           size_print(CLUSTER_PROCESS_BYTES, process), 100 * CLUSTER_RESERVE_FRACTION);
}

static enum status add(json_t *document, const char *key, json_t *value, const char *what) {
    return value && json_object_set_new(document, key, value) == 0 ? STATUS_OK : status_no_memory(0, what);
}

/* Prints the sharding strategies, or adds them to the document. */
static enum status explain_strategies(const struct session_plan *plan, json_t *document) {
    AUTO(plan_strategies_free) struct plan_strategies strategies = {0};
    if (!plan_strategies_are_known(plan)) return STATUS_OK;
    TRY(plan_strategies_find(plan, &strategies));
    if (strategies.too_large) {
        log_note("--explain leaves out the sharding strategies: the model's graph has %zu nodes, and the integer "
                 "program takes at most %d",
                 strategies.graph->nodes.count, SHARD_PROGRAM_NODES_MAX);
        return STATUS_OK;
    }
    if (document) return add(document, "strategies", plan_strategies_to_json(&strategies), "the strategies' JSON");
    strategies_table_print(stdout, &strategies);
    return STATUS_OK;
}

/* Prints the layout that the solver chose, or adds it to the document. */
static enum status explain_layout(const struct session_plan *plan, json_t *document) {
    AUTO(layout_report_free) struct layout_report report = {0};
    if (!layout_report_applies(plan)) return STATUS_OK;
    TRY(layout_report_make(plan, &report));
    if (document) return add(document, "layout", layout_report_to_json(&report), "the layout's JSON");
    layout_table_print(stdout, &report);
    return STATUS_OK;
}

static enum status put_out(const struct options *options, const struct session_plan *plan,
                           const struct step_summary *prediction) {
    const char *path = options_text(options, OPT_output);
    json_auto_t *object = NULL;
    TRY(library_plan_document(options->arguments.items[0], plan, prediction, &object));
    if (path) TRY(new_file_write_json(path, object, JSON_FILE_FLAGS));
    bool requested = options_flag(options, OPT_explain), as_json = options_flag(options, OPT_json);
    bool explain = requested && prediction;
    if (requested && as_json) TRY(explain_layout(plan, object));
    if (explain && as_json) TRY(explain_strategies(plan, object));
    if (as_json) return cli_print_json(TAKE(object));
    plan_table_print(stdout, plan, prediction);
    shapes_table_print(stdout, plan, options_flag(options, OPT_explain));
    partition_table_print(stdout, plan, options_flag(options, OPT_explain));
    if (requested) TRY(explain_layout(plan, NULL));
    if (explain) TRY(explain_strategies(plan, NULL));
    if (plan->session->machine.backend == &backend_described)
        return prediction ? described_table_print(stdout, plan, prediction->step_s) : STATUS_OK;
    if (!options_given(options, OPT_device_bytes)) print_reserve();
    return STATUS_OK;
}

static enum status read_plan(const char *path) {
    struct plan plan;
    return plan_read(path, &plan);
}

static enum status choose_described_dtype(const struct cluster *cluster, bool given, struct plan_options *plan) {
    const char *name = cluster->device.name;
    if (!given) {
        SETTINGS_GIVE(plan, dtype, plan->backend->fastest_dtype());
        if (plan->dtype == DTYPE_F32) log_note("%s has no bf16 tensor cores; the plan is in fp32", name);
    }
    if (plan->dtype != DTYPE_BF16 || cluster->device.bf16_matrix) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "--dtype: bf16: %s has no bf16 tensor cores" HINT "use --dtype fp32", name);
}

/* If --cluster describes a device that this machine lacks, plans for that device. */
static enum status find_described(const struct options *options, struct plan_options *plan) {
    struct cluster cluster;
    if (!SETTINGS_HAVE(plan, cluster_path) || options_given(options, OPT_backend)) return STATUS_OK;
    TRY(cluster_open(plan->cluster_path, &cluster));
    TRY(described_device_find(plan->cluster_path, &cluster, plan->backend, &plan->backend));
    if (plan->backend != &backend_described) return STATUS_OK;
    TRY(choose_described_dtype(&cluster, options_given(options, OPT_dtype), plan));
    if (!SETTINGS_HAVE(plan, threads)) SETTINGS_GIVE(plan, threads, cluster.device.cores);
    return STATUS_OK;
}

/* The default number of nodes gives each node as many ranks as in the cluster file, if that number divides the
 * ranks. */
static enum status count_nodes(const struct options *options, const struct plan_options *plan, int ranks, int *out) {
    struct cluster cluster = {.rates.links.mesh.per_node = ranks};
    *out = (int)options_int(options, OPT_nodes);
    if (options_given(options, OPT_nodes)) return STATUS_OK;
    if (SETTINGS_HAVE(plan, cluster_path)) TRY(cluster_open(plan->cluster_path, &cluster));
    int per_node = cluster.rates.links.mesh.per_node;
    *out = per_node > 0 && ranks % per_node == 0 ? ranks / per_node : 1;
    return STATUS_OK;
}

/* Reads the number of ranks to plan for; they do not run now. */
static enum status read_ranks(const struct options *options, struct plan_options *plan) {
    int ranks = (int)options_int(options, OPT_ranks), nodes;
    if (!options_given(options, OPT_ranks)) {
        if (!options_given(options, OPT_nodes)) return STATUS_OK;
        return status_set(STATUS_BAD_INPUT, "--nodes requires --ranks" HINT "add --ranks N, a multiple of --nodes");
    }
    TRY(count_nodes(options, plan, ranks, &nodes));
    if (ranks % nodes != 0)
        return status_hint(
            status_set(STATUS_BAD_INPUT, "--nodes: %d ranks are not divisible by %d nodes", ranks, nodes),
            "every node has the same number of ranks: use a --nodes that divides %d", ranks);
    plan->planned = (struct mesh){nodes, ranks / nodes};
    return STATUS_OK;
}

/* Makes malloc reuse freed memory. A search compiles one program after another, and the system would have to clear
 * new pages for each. Large blocks therefore come from the heap too, and its end is not trimmed. */
static void keep_freed_memory(void) {
#ifdef __GLIBC__
    enum { KEPT_BYTES = 1 << 30 };
    (void)mallopt(M_MMAP_MAX, 0);
    (void)mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
#endif
}

static enum status run(const struct options *options) {
    if (scale_plan_is_requested(options)) return scale_plan_run(options);
    const char *output = options_text(options, OPT_output);
    if (output) TRY(new_file_check(output, "a plan file", read_plan));
    struct plan_options requested;
    struct train_options training;
    AUTO(session_close) struct session session = {0};
    AUTO(session_plan_free) struct session_plan plan = {0};
    bool generate = strcmp(options_text(options, OPT_purpose), "generate") == 0;
    TRY(step_options_read(options, false, &requested));
    TRY(find_described(options, &requested));
    TRY(read_ranks(options, &requested));
    keep_freed_memory();
    requested.outline = true;
    requested.by_sum = strcmp(options_text(options, OPT_objective), "sum") == 0;
    TRY(step_options_read_training(options, &training)); /* the optimizer's options belong to the recipe */
    TRY(session_begin(options->arguments.items[0], generate ? PROGRAMS_TO_WRITE : PROGRAMS_TO_TRAIN, &requested,
                      &training, &session, &plan));
    struct step_summary prediction;
    TRY(session_plan_check_memory(&plan));
    if (!generate) TRY(session_plan_measure(&plan));
    if (!generate) TRY(session_plan_predict(&plan, &prediction));
    return put_out(options, &plan, generate ? NULL : &prediction);
}

const struct command command_plan = {
    .bit = COMMAND_PLAN,
    .name = "plan",
    .arguments = "MODEL_DIR|PRESET",
    .min = 1,
    .max = 1,
    .summary = "predict memory and time of a training step, before anything is loaded",
    .details = "Compiles the training step and prints its memory by kind, its predicted time and the bottleneck. Exits "
               "with 3 if no plan fits, and prints how much memory is missing and what would fit.",
    .notes = "MODEL_DIR may hold config.json alone; PRESET is the name of a published model (`ballast help presets`). "
             "If the step does not fit in memory, a search finds the fastest policy that recomputes activations or "
             "offloads to --host-memory and --disk. The first plan on a machine measures it for some seconds. With -o, "
             "writes a plan file for `ballast train --plan`. With --for generate, plans the programs that generate "
             "text. With --devices, compares layouts for many devices of a described cluster.",
    .example = "ballast plan llama-3.1-8b --device-memory 24G --host-memory 64G",
    .run = run,
};
