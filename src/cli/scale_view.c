#include "cli/scale_view.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "cli/new_output.h"
#include "report/page/scale_page.h"

/* --- columns of the tables --- */

#define CELL(name) static enum status name(const void *context, const struct choice *choice, struct text_buffer *out)

CELL(devices_cell) {
    (void)context;
    return svg_print(out, "%lld", (long long)choice->devices);
}
CELL(layout_cell) {
    const struct layout *layout = &choice->layout;
    (void)context;
    TRY(svg_print(out, "%lld x %lld", (long long)layout->tensor, (long long)layout->pipeline));
    if (layout->virtual_stages > 1) TRY(svg_print(out, "x%lld", (long long)layout->virtual_stages));
    return svg_print(out, " x %lld", (long long)layout->data);
}
CELL(partition_cell) {
    const struct partition_triple *cut = &choice->layout.partition;
    (void)context;
    return svg_print(out, "%lld|%lld|%lld", (long long)cut->parameters, (long long)cut->gradients,
                     (long long)cut->optimizer);
}
CELL(recompute_cell) {
    (void)context;
    return svg_print(out, "%s", scale_plan_recompute_names[choice->layout.recomputation]);
}
CELL(micro_cell) {
    (void)context;
    return svg_print(out, "%lld", (long long)choice->layout.micro_batch);
}
CELL(memory_cell) {
    (void)context;
    return svg_print(out, "%.1f", (double)choice->forecast.peak_bytes / 1e9);
}
CELL(step_cell) {
    (void)context;
    return svg_print(out, "%.2f s", choice->forecast.step_s);
}
CELL(mfu_cell) { return svg_print(out, "%.1f%%", 100 * scale_plan_mfu(context, choice)); }
CELL(tokens_cell) { return svg_amount(out, scale_plan_step_tokens(context) / choice->forecast.step_s); }
CELL(days_cell) { return svg_print(out, "%.1f", scale_plan_days(context, choice)); }
CELL(price_cell) { return svg_print(out, "%.4g", scale_plan_price(context, choice)); }
CELL(useful_cell) { return svg_print(out, "%.1f%%", 100 * scale_plan_useful(context, choice)); }

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

/* --- what is drawn --- */

/* The fastest layout for --devices; else the fewest devices that end in time, or the most that were looked at. */
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
    picture.job = (struct training){.model = request->model, .cluster = request->cluster, .system = request->system};
    if (picture.chosen) picture.job.layout = picture.chosen->layout;
    return picture;
}

/* --- files --- */

static enum status read_start(const char *path, const char *start, const char *kind) {
    char *text;
    size_t bytes;
    TRY(file_read(path, (size_t)1 << 26, &text, &bytes));
    bool same = strncmp(text, start, strlen(start)) == 0;
    mem_free(text);
    return same ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: is no %s", path, kind);
}

static enum status read_page(const char *path) { return read_start(path, "<!doctype html>", "page"); }
static enum status read_drawing(const char *path) { return read_start(path, "<svg", "drawing"); }

enum status scale_plan_check_outputs(const struct options *options) {
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
    struct text_buffer text = {0};
    size_t count = find_columns(plan, columns);
    enum status status = scale_page_make(picture, columns, count, plan, &text);
    if (status == STATUS_OK) status = new_file_write(path, text.items, text.count);
    if (status == STATUS_OK) log_note("wrote %s: open it in any browser", path);
    vec_free(&text);
    return status;
}

enum status scale_plan_show(const struct options *options, const struct scale_plan *plan) {
    if (!options_given(options, OPT_page) && !options_given(options, OPT_svg)) return STATUS_OK;
    char *name = mem_format("%s on %s", options->arguments.items[0], options_text(options, OPT_cluster_path));
    struct scale_picture picture = picture_of(plan, name);
    enum status status = name ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK && options_given(options, OPT_page))
        status = write_page(options_text(options, OPT_page), plan, &picture);
    if (status == STATUS_OK && options_given(options, OPT_svg))
        status = scale_plots_write(&picture, options_text(options, OPT_svg));
    mem_free(name);
    return status;
}
