#include "cli/commands/command.h"

#include <math.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/new_output.h"
#include "machine/cluster.h"
#include "model/model.h"
#include "report/page/scale_page.h"
#include "search/scale/choose.h"
#include "search/scale/forecast.h"
#include "search/scale/training.h"

static const double DAY_S = 86400;

/* The request and its results. */
struct scale_plan {
    struct choice_request request;
    double price;                /* price of a device per hour; 0: not given */
    double tokens;               /* tokens of the whole training; 0: not given */
    double target_days;          /* 0: not given */
    struct failures failures;    /* node_mtbf_s 0: no failures */
    struct choices pareto_front; /* for request.devices; empty without --devices */
    struct choice curve[CHOICE_CURVE_MAX];
    int curve_count;
    const struct choice *target; /* the fewest devices of the curve that meet target_days; NULL: none, or no target */
};

static const char *const scale_plan_recompute_names[RECOMPUTE_COUNT] = {[RECOMPUTE_NONE] = "none",
                                                                        [RECOMPUTE_NORMS] = "norms",
                                                                        [RECOMPUTE_ATTENTION] = "attention",
                                                                        [RECOMPUTE_HALF] = "half",
                                                                        [RECOMPUTE_FULL] = "full"};

static double scale_plan_step_tokens(const struct scale_plan *plan) {
    return (double)plan->request.batch * (double)plan->request.sequence_length;
}

static int64_t nodes_of(const struct scale_plan *plan, const struct choice *choice) {
    int64_t node = plan->request.cluster.network.devices;
    return (choice->devices + node - 1) / node;
}

/* Seconds of work between two checkpoints, at least one step. */
static double scale_plan_checkpoint_every_s(const struct scale_plan *plan, const struct choice *choice) {
    return fmax(failures_best_interval_s(&plan->failures, nodes_of(plan, choice)), choice->forecast.step_s);
}

/* Fraction of the time spent on work that no failure discards. */
static double scale_plan_useful(const struct scale_plan *plan, const struct choice *choice) {
    if (plan->failures.node_mtbf_s <= 0) return 1;
    return failures_useful_part(&plan->failures, nodes_of(plan, choice), scale_plan_checkpoint_every_s(plan, choice));
}

/* Model FLOPs as a fraction of the data sheet's rate. */
static double scale_plan_mfu(const struct scale_plan *plan, const struct choice *choice) {
    return choice->forecast.flops / choice->forecast.step_s / (double)choice->devices /
           plan->request.cluster.device.limits.bf16_flops_per_s;
}

/* Days of the whole training. INFINITY if failures leave no time for it. */
static double scale_plan_days(const struct scale_plan *plan, const struct choice *choice) {
    return plan->tokens / scale_plan_step_tokens(plan) * choice->forecast.step_s / scale_plan_useful(plan, choice) /
           DAY_S;
}

/* Price of a million tokens. */
static double scale_plan_price(const struct scale_plan *plan, const struct choice *choice) {
    double seconds = choice->forecast.step_s / scale_plan_useful(plan, choice);
    return plan->price / 3600 * (double)choice->devices * seconds / scale_plan_step_tokens(plan) * 1e6;
}

/* --- table columns --- */

#define CELL(name)                                                                                                     \
    static enum status name(__attribute__((unused)) const void *context, const struct choice *choice,                  \
                            struct text_buffer *out)

CELL(devices_cell) { return text_print(out, "%lld", (long long)choice->devices); }

CELL(layout_cell) {
    const struct layout *layout = &choice->layout;
    TRY(text_print(out, "%lld x %lld", (long long)layout->tensor, (long long)layout->pipeline));
    if (layout->virtual_stages > 1) TRY(text_print(out, "x%lld", (long long)layout->virtual_stages));
    return text_print(out, " x %lld", (long long)layout->data);
}

CELL(partition_cell) {
    const struct partition_triple *cut = &choice->layout.partition;
    return text_print(out, "%lld|%lld|%lld", (long long)cut->parameters, (long long)cut->gradients,
                      (long long)cut->optimizer);
}

CELL(recompute_cell) { return text_print(out, "%s", scale_plan_recompute_names[choice->layout.recomputation]); }

CELL(micro_cell) { return text_print(out, "%lld", (long long)choice->layout.micro_batch); }

CELL(memory_cell) { return text_print(out, "%.1f", (double)choice->forecast.peak_bytes / 1e9); }

CELL(step_cell) { return text_print(out, "%.2f s", choice->forecast.step_s); }

CELL(mfu_cell) { return text_print(out, "%.1f%%", 100 * scale_plan_mfu(context, choice)); }
CELL(tokens_cell) { return svg_amount(out, scale_plan_step_tokens(context) / choice->forecast.step_s); }
CELL(days_cell) { return text_print(out, "%.1f", scale_plan_days(context, choice)); }
CELL(price_cell) { return text_print(out, "%.4g", scale_plan_price(context, choice)); }
CELL(useful_cell) { return text_print(out, "%.1f%%", 100 * scale_plan_useful(context, choice)); }

enum { COLUMNS_MAX = 12 };

static size_t find_columns(const struct scale_plan *plan, struct scale_column out[COLUMNS_MAX]) {
    static const struct scale_column always[] = {
        {"devices", devices_cell},     {"tensor x pipeline x data", layout_cell},
        {"partition", partition_cell}, {"recompute", recompute_cell},
        {"micro-batch", micro_cell},   {"GB a device", memory_cell},
        {"step", step_cell},           {"MFU", mfu_cell},
        {"tokens/s", tokens_cell}};
    size_t count = sizeof always / sizeof *always;
    memcpy(out, always, sizeof always);
    if (plan->failures.node_mtbf_s > 0) out[count++] = (struct scale_column){"useful", useful_cell};
    if (plan->price > 0) out[count++] = (struct scale_column){"a Mtoken", price_cell};
    if (plan->tokens > 0) out[count++] = (struct scale_column){"days", days_cell};
    return count;
}

/* --- drawings --- */

/* The layout to draw: the fastest for --devices, else the fewest devices that meet the target, else the most devices
 * of the curve. */
static const struct choice *chosen_of(const struct scale_plan *plan) {
    if (plan->pareto_front.list.count > 0) return choices_fastest(&plan->pareto_front);
    if (plan->target) return plan->target;
    return plan->curve_count > 0 ? &plan->curve[plan->curve_count - 1] : NULL;
}

static struct scale_picture picture_of(const struct scale_plan *plan, const char *name) {
    const struct choice_request *request = &plan->request;
    struct scale_picture picture = {.name = name,
                                    .pareto_front = plan->pareto_front.list.items,
                                    .pareto_front_count = plan->pareto_front.list.count,
                                    .curve = plan->curve,
                                    .curve_count = (size_t)plan->curve_count,
                                    .chosen = chosen_of(plan),
                                    .step_tokens = scale_plan_step_tokens(plan),
                                    .capacity_bytes = (double)request->cluster.device.tiers[0].capacity_bytes};
    picture.job =
        (struct training){.model = request->model, .cluster = request->cluster, .system = training_system_ballast};
    if (picture.chosen) picture.job.layout = picture.chosen->layout;
    return picture;
}

/* --- files --- */

static enum status read_page(const char *path) { return file_check_start(path, "<!doctype html>", "page"); }
static enum status read_drawing(const char *path) { return file_check_start(path, "<svg", "drawing"); }

/* Before any computation, returns BAD_INPUT if --page or --svg would overwrite a file of another kind. */
static enum status scale_plan_check_outputs(const struct options *options) {
    const char *folder = options_text(options, OPT_svg);
    if (options_given(options, OPT_page)) TRY(new_file_check(options_text(options, OPT_page), "a page", read_page));
    if (!options_given(options, OPT_svg)) return STATUS_OK;
    if (file_exists(folder) && !file_is_folder(folder))
        return status_set(STATUS_BAD_INPUT, "--svg %s: is no directory", folder);
    for (enum scale_plot plot = 0; plot < SCALE_PLOT_COUNT; plot++) {
        char *path = mem_format("%s/%s.svg", folder, scale_plot_name(plot));
        enum status status = path ? new_file_check(path, "a drawing", read_drawing) : STATUS_FAILED;
        mem_free(path);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

static enum status write_page(const char *path, const struct scale_plan *plan, const struct scale_picture *picture) {
    struct scale_column columns[COLUMNS_MAX];
    AUTO_VEC struct text_buffer text = {0};
    size_t count = find_columns(plan, columns);
    TRY(scale_page_make(picture, columns, count, plan, &text));
    TRY(new_file_write(path, text.items, text.count));
    log_note("wrote %s: open it in any browser", path);
    return STATUS_OK;
}

/* Writes the page of --page and the drawings of --svg. */
static enum status scale_plan_show(const struct options *options, const struct scale_plan *plan) {
    if (!options_given(options, OPT_page) && !options_given(options, OPT_svg)) return STATUS_OK;
    AUTO_FREE char *name = mem_format("%s on %s", options->arguments.items[0], options_text(options, OPT_cluster_path));
    struct scale_picture picture = picture_of(plan, name);
    TRY(name ? STATUS_OK : STATUS_FAILED);
    if (options_given(options, OPT_page)) TRY(write_page(options_text(options, OPT_page), plan, &picture));
    if (options_given(options, OPT_svg)) TRY(scale_plots_write(&picture, options_text(options, OPT_svg)));
    return STATUS_OK;
}

static const int64_t STEP_TOKENS = 4 << 20, SEQUENCE_MAX = 4096, CURVE_MIN = 8;
bool scale_plan_is_requested(const struct options *options) {
    return options_given(options, OPT_devices) || options_given(options, OPT_target_days);
}

/* Parses a number of tokens: "1T", "300B", "2.5e9". */
static enum status read_tokens(const char *text, double *out) {
    static const char units[] = "KMBT";
    char *end;
    double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    for (int i = 0; unit && i <= unit - units; i++)
        value *= 1000;
    if (end != text && (*end == '\0' || (unit && end[1] == '\0')) && value >= 1 && value <= 1e18) {
        *out = value;
        return STATUS_OK;
    }
    return status_set(STATUS_BAD_INPUT, "--tokens: %s: is no number of tokens" HINT "for example 300B or 15T", text);
}

static enum status read_model(const char *name, struct choice_request *out) {
    struct model *model;
    TRY(model_open_outline(name, &model));
    const struct model_config *config = &model->config;
    out->model = (struct transformer){.hidden = config->hidden,
                                      .layers = config->layers,
                                      .heads = config->heads,
                                      .kv_heads = config->kv_heads,
                                      .ffn = config->ffn,
                                      .vocab = config->vocab_size,
                                      .gated = !config->family->plain_mlp,
                                      .tied = config->tied,
                                      .head_size = config->head_dim};
    out->sequence_length = config->context < SEQUENCE_MAX ? config->context : SEQUENCE_MAX;
    bool dense = config->experts == 0;
    model_free(model);
    if (dense) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT,
                      "%s: is a mixture of experts, and --devices plans dense models only" HINT
                      "plan a number of ranks instead: --ranks N --cluster NAME",
                      name);
}

static enum status read_cluster(const struct options *options, struct choice_request *out) {
    if (!options_given(options, OPT_cluster_path))
        return status_hint(status_set(STATUS_BAD_INPUT, "--devices requires --cluster, which describes the devices"),
                           "for example --cluster h100x8");
    const char *name = options_text(options, OPT_cluster_path);
    TRY(cluster_open(name, &out->cluster));
    const char *lacks = out->cluster.network.devices < 1                   ? "network"
                        : out->cluster.device.limits.bf16_flops_per_s <= 0 ? "devices[0].limits"
                        : out->cluster.rates.zero.bytes_per_s <= 0         ? "rates"
                                                                           : NULL;
    if (!lacks && !out->cluster.device.bf16_matrix)
        return status_hint(status_set(STATUS_BAD_INPUT,
                                      "%s: devices[0].bf16_matrix: false: %s has no bf16 tensor cores", name,
                                      out->cluster.device.name),
                           "plans for many devices are in bf16; without --devices and --target-days, Ballast plans one "
                           "device in fp32");
    if (!lacks) return STATUS_OK;
    return status_hint(
        status_set(STATUS_BAD_INPUT, "%s: %s: is missing, and many devices are planned by it", name, lacks),
        "clusters/h100x8.json has all that is needed");
}

/* The options that apply to a plan for many devices. Others have no effect there and are refused. */
static const enum option_id heeded[] = {OPT_config,      OPT_json,  OPT_cluster_path,    OPT_devices,
                                        OPT_price,       OPT_batch, OPT_sequence_length, OPT_train_tokens,
                                        OPT_target_days, OPT_mtbf,  OPT_checkpoint_time, OPT_restart_time,
                                        OPT_page,        OPT_svg};

static enum status refuse_others(const struct options *options) {
    for (int id = 0; id < OPT_COUNT; id++) {
        bool known = !options_given(options, (enum option_id)id);
        for (size_t i = 0; i < sizeof heeded / sizeof *heeded; i++)
            known |= heeded[i] == (enum option_id)id;
        if (known) continue;
        enum status status =
            status_set(STATUS_BAD_INPUT, "--%s: is not supported in a plan for many devices", option_table[id]->name);
        return status_hint(status, "leave it out, or plan one device without --devices and --target-days");
    }
    return STATUS_OK;
}

static enum status read_request(const struct options *options, struct scale_plan *out) {
    struct choice_request *request = &out->request;
    TRY(refuse_others(options));
    TRY(read_model(options->arguments.items[0], request));
    TRY(read_cluster(options, request));
    if (options_given(options, OPT_sequence_length))
        request->sequence_length = options_int(options, OPT_sequence_length);
    request->batch = STEP_TOKENS / request->sequence_length;
    if (options_given(options, OPT_batch)) request->batch = options_int(options, OPT_batch);
    if (request->batch < 1) request->batch = 1;
    if (options_given(options, OPT_devices)) request->devices = options_int(options, OPT_devices);
    out->price = options_float(options, OPT_price);
    out->target_days = options_float(options, OPT_target_days);
    out->failures = (struct failures){.node_mtbf_s = 3600 * options_float(options, OPT_mtbf),
                                      .checkpoint_s = options_float(options, OPT_checkpoint_time),
                                      .restart_s = options_float(options, OPT_restart_time)};
    if (options_given(options, OPT_train_tokens))
        TRY(read_tokens(options_text(options, OPT_train_tokens), &out->tokens));
    if (out->target_days > 0 && out->tokens <= 0)
        return status_set(STATUS_BAD_INPUT, "--target-days requires --tokens, the tokens of the whole training" HINT
                                            "for example --tokens 1T");
    return STATUS_OK;
}

/* The curve ends at CURVE_DEVICES, or at --devices if that is larger. */
static int64_t curve_devices_max(const struct scale_plan *plan) {
    enum { CURVE_DEVICES = 4096 };
    return plan->request.devices > CURVE_DEVICES ? plan->request.devices : CURVE_DEVICES;
}

static bool is_in_time(const struct scale_plan *plan, const struct choice *choice) {
    return scale_plan_days(plan, choice) <= plan->target_days;
}

/* The `index`-th point of the curve meets the target. Inserts before it the fewest devices, after the previous
 * point, that meet it too. */
static enum status look_between(struct scale_plan *plan, int index, const struct calibration *calibration) {
    int64_t node = plan->request.cluster.network.devices;
    int64_t devices = index > 0 ? plan->curve[index - 1].devices + node : node;
    for (; devices < plan->curve[index].devices; devices += node) {
        struct choice choice;
        bool fits;
        TRY(choose_fastest(&plan->request, calibration, devices, &choice, &fits));
        if (!fits || !is_in_time(plan, &choice)) continue;
        memmove(&plan->curve[index + 1], &plan->curve[index],
                (size_t)(plan->curve_count - index) * sizeof *plan->curve);
        plan->curve[index] = choice;
        plan->curve_count++;
        break;
    }
    return STATUS_OK;
}

static enum status find_target(struct scale_plan *plan, const struct calibration *calibration) {
    for (int i = 0; i < plan->curve_count && plan->target_days > 0; i++) {
        if (!is_in_time(plan, &plan->curve[i])) continue;
        if (plan->curve_count < CHOICE_CURVE_MAX) TRY(look_between(plan, i, calibration));
        plan->target = &plan->curve[i];
        break;
    }
    return STATUS_OK;
}

/* --- text --- */

static void print_head(const struct scale_plan *plan, const char *names) {
    printf("%s  tensor  pipeline   data  partition          recompute  micro  GB/device      step    MFU    "
           "tokens/s%s%s%s\n",
           names, plan->failures.node_mtbf_s > 0 ? "  save every  useful" : "", plan->price > 0 ? "  per Mtoken" : "",
           plan->tokens > 0 ? "     days" : "");
}

static void print_choice(const struct scale_plan *plan, const struct choice *choice) {
    const struct layout *layout = &choice->layout;
    char stages[24], partition[40];
    snprintf(stages, sizeof stages, layout->virtual_stages > 1 ? "%lldx%lld" : "%lld", (long long)layout->pipeline,
             (long long)layout->virtual_stages);
    snprintf(partition, sizeof partition, "%lld|%lld|%lld", (long long)layout->partition.parameters,
             (long long)layout->partition.gradients, (long long)layout->partition.optimizer);
    printf("%7lld  %6lld  %8s  %5lld  %-17s  %-9s  %5lld  %9.1f  %6.2f s  %4.1f%%  %10.3g", (long long)choice->devices,
           (long long)layout->tensor, stages, (long long)layout->data, partition,
           scale_plan_recompute_names[layout->recomputation], (long long)layout->micro_batch,
           (double)choice->forecast.peak_bytes / 1e9, choice->forecast.step_s, 100 * scale_plan_mfu(plan, choice),
           scale_plan_step_tokens(plan) / choice->forecast.step_s);
    if (plan->failures.node_mtbf_s > 0)
        printf("  %6.0f min  %5.1f%%", scale_plan_checkpoint_every_s(plan, choice) / 60,
               100 * scale_plan_useful(plan, choice));
    if (plan->price > 0) printf("  %10.4g", scale_plan_price(plan, choice));
    if (plan->tokens > 0) printf("  %7.1f", scale_plan_days(plan, choice));
    putchar('\n');
}

static void print_target(const struct scale_plan *plan) {
    if (plan->target_days <= 0) return;
    if (!plan->target)
        printf("\nno number of devices up to %lld trains %.3g tokens in %g days\n", (long long)curve_devices_max(plan),
               plan->tokens, plan->target_days);
    else
        printf(
            "\n%lld devices train %.3g tokens in %.1f days: the smallest number of whole nodes that takes at most %g\n",
            (long long)plan->target->devices, plan->tokens, scale_plan_days(plan, plan->target), plan->target_days);
}

static void print_text(const struct options *options, const struct scale_plan *plan) {
    const struct choice_request *request = &plan->request;
    char parameters[COUNT_TEXT];
    printf("model     %s, %s parameters\n", options->arguments.items[0],
           amount_print((double)transformer_parameters(&request->model), parameters));
    printf("cluster   %s: nodes of %lld %s\n", options_text(options, OPT_cluster_path),
           (long long)request->cluster.network.devices, request->cluster.device.name);
    printf("step      %lld sequences of %lld tokens, in bf16; simulated, not measured: times within %.0f%%\n",
           (long long)request->batch, (long long)request->sequence_length, 100 * FORECAST_ERROR_PART);
    if (plan->failures.node_mtbf_s > 0)
        printf("failures  of each node every %g hours on average; a checkpoint takes %g s, a restart %g s\n",
               plan->failures.node_mtbf_s / 3600, plan->failures.checkpoint_s, plan->failures.restart_s);
    if (plan->pareto_front.list.count > 0) {
        printf("\nPareto-optimal layouts for %lld devices (step time and memory; %lld considered, %lld simulated)\n",
               (long long)request->devices, (long long)plan->pareto_front.layouts,
               (long long)plan->pareto_front.simulated);
        print_head(plan, "devices");
        for (size_t i = 0; i < plan->pareto_front.list.count; i++)
            print_choice(plan, &plan->pareto_front.list.items[i]);
    }
    printf("\nfastest layout for each number of devices, at the same global batch\n");
    print_head(plan, "devices");
    for (int i = 0; i < plan->curve_count; i++)
        print_choice(plan, &plan->curve[i]);
    print_target(plan);
}

/* --- JSON --- */

/* Returns null if the value is unknown or not finite. */
static json_t *float_or_null(bool known, double value) {
    return known && isfinite(value) ? json_real(value) : json_null();
}

static json_t *choice_to_json(const struct scale_plan *plan, const struct choice *choice) {
    const struct layout *layout = &choice->layout;
    bool fails = plan->failures.node_mtbf_s > 0;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I}, s:s, s:I, s:I, s:I, s:f, s:[f, f], s:f, s:f, s:o, s:o, s:o, s:o}",
        "devices", (json_int_t)choice->devices, "tensor_parallel", (json_int_t)layout->tensor, "pipeline_parallel",
        (json_int_t)layout->pipeline, "virtual_stages", (json_int_t)layout->virtual_stages, "data_parallel",
        (json_int_t)layout->data, "partition", "parameters", (json_int_t)layout->partition.parameters, "gradients",
        (json_int_t)layout->partition.gradients, "optimizer", (json_int_t)layout->partition.optimizer, "recompute",
        scale_plan_recompute_names[layout->recomputation], "micro_batch", (json_int_t)layout->micro_batch,
        "micro_batches", (json_int_t)layout->micro_batches, "peak_bytes", (json_int_t)choice->forecast.peak_bytes,
        "step_s", choice->forecast.step_s, "step_range_s", choice->forecast.step_s / (1 + FORECAST_ERROR_PART),
        choice->forecast.step_s * (1 + FORECAST_ERROR_PART), "mfu", scale_plan_mfu(plan, choice), "tokens_per_s",
        scale_plan_step_tokens(plan) / choice->forecast.step_s, "price_per_mtoken",
        float_or_null(plan->price > 0, scale_plan_price(plan, choice)), "days",
        float_or_null(plan->tokens > 0, scale_plan_days(plan, choice)), "checkpoint_every_s",
        float_or_null(fails, fails ? scale_plan_checkpoint_every_s(plan, choice) : 0), "useful_part",
        float_or_null(fails, scale_plan_useful(plan, choice)));
}

static json_t *list_to_json(const struct scale_plan *plan, const struct choice *choices, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_push(&list, choice_to_json(plan, &choices[i]));
    return list;
}

static enum status print_json(const struct options *options, const struct scale_plan *plan) {
    const struct choice_request *request = &plan->request;
    json_t *document =
        json_pack("{s:i, s:s, s:I, s:s, s:I, s:I, s:o, s:o, s:o}", "version", 2, "model", options->arguments.items[0],
                  "parameters", (json_int_t)transformer_parameters(&request->model), "cluster",
                  options_text(options, OPT_cluster_path), "batch", (json_int_t)request->batch, "sequence_length",
                  (json_int_t)request->sequence_length, "pareto_front",
                  list_to_json(plan, plan->pareto_front.list.items, plan->pareto_front.list.count), "curve",
                  list_to_json(plan, plan->curve, (size_t)plan->curve_count), "target_devices",
                  plan->target ? json_integer(plan->target->devices) : json_null());
    if (!document) return status_no_memory(0, "the plan's JSON");
    return cli_print_json(document);
}

static enum status choose(struct scale_plan *plan) {
    struct calibration calibration = calibration_default();
    if (plan->request.devices > 0) TRY(choose_layouts(&plan->request, &calibration, &plan->pareto_front));
    TRY(choose_curve(&plan->request, &calibration, CURVE_MIN, curve_devices_max(plan), plan->curve,
                     &plan->curve_count));
    return find_target(plan, &calibration);
}

enum status scale_plan_run(const struct options *options) {
    struct scale_plan plan = {0};
    TRY(read_request(options, &plan));
    enum status status = scale_plan_check_outputs(options);
    if (status == STATUS_OK) status = choose(&plan);
    if (status == STATUS_OK) status = scale_plan_show(options, &plan);
    if (status == STATUS_OK && options_flag(options, OPT_json))
        status = print_json(options, &plan);
    else if (status == STATUS_OK)
        print_text(options, &plan);
    choices_free(&plan.pareto_front);
    return status;
}
