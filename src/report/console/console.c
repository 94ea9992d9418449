#include "report/console/console.h"

#include <inttypes.h>
#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/terminal.h"
#include "report/console/console_end.h"
#include "report/console/console_line.h"
#include "report/console/policy_text.h"
#include "session/engine.h"
#include "train/plan_watch.h"

/* The least time between two lines, so that short steps do not flood a log; metrics.jsonl has them all. */
enum { LIVE_INTERVAL_NS = 100 * 1000 * 1000, PLAIN_INTERVAL_NS = 1000 * 1000 * 1000 };

struct console {
    FILE *out;
    bool quiet, live, colour;
    int64_t shown_ns;       /* when the step was last shown */
    struct train_step last; /* the last one shown or not; its step is 0 before the first */
    struct console_state state;
    struct console_account account;
    char line[FIELD_LINE_BYTES];
    struct train_events events;
};

/* With adapters or --freeze only some parameters train. */
static void report_trained(const struct console *console, const struct session_plan *plan) {
    char trained[COUNT_TEXT], all[COUNT_TEXT];
    if (plan->figures.trained_parameters >= plan->figures.parameters) return;
    fprintf(console->out, "%s of %s parameters train (%.3g%%)\n",
            count_print(plan->figures.trained_parameters, trained), count_print(plan->figures.parameters, all),
            100 * (double)plan->figures.trained_parameters / (double)plan->figures.parameters);
}

/* "2 ranks of 1 thread each", or "8 threads" of the one rank */
static void report_workers(FILE *out, const struct plan *plan) {
    int ranks = rank_place_ranks(&plan->place), threads = plan->threads;
    if (ranks > 1) fprintf(out, "%d ranks of ", ranks);
    fprintf(out, "%d thread%s%s", threads, threads == 1 ? "" : "s", ranks > 1 ? " each" : "");
}

static void on_begin(void *payload, const struct session_plan *plan, const char *run_folder, int64_t first_step,
                     int64_t steps, int64_t data_tokens) {
    struct console *console = payload;
    const struct recipe *recipe = &plan->chosen.recipe;
    console_account_begin(&console->account, plan, run_folder, first_step, steps);
    if (console->quiet) return;
    char arena[SIZE_TEXT], capacity[SIZE_TEXT], parameters[COUNT_TEXT];
    fprintf(console->out, "%s: %s parameters, %s, batch %" PRId64 " x %" PRId64 " tokens, ",
            plan->session->model->config.family->name, count_print(plan->figures.parameters, parameters),
            dtype_name(recipe->dtype), recipe->batch, recipe->sequence_length);
    report_workers(console->out, &plan->chosen);
    fprintf(console->out, " (%s)\n", recipe->isa);
    report_trained(console, plan);
    char todo[64] = "complete; writing the model again", data[64] = "tokenized while steps run";
    if (data_tokens >= 0) snprintf(data, sizeof data, "%" PRId64 " tokens", data_tokens);
    if (first_step < steps) snprintf(todo, sizeof todo, "steps %" PRId64 " to %" PRId64, first_step + 1, steps);
    fprintf(console->out, "data: %s; memory: %s of %s; %s; run: %s\n", data,
            size_print(plan->programs.tier_bytes[TIER_DEVICE], arena),
            size_print(plan->session->machine.capacity_bytes[TIER_DEVICE], capacity), todo, run_folder);
}

/* Compares the prediction with the first settled step, once. */
static void compare_prediction(struct console *console, const struct train_step *step) {
    if (step->predicted_step_s <= 0 || !step->settled) return;
    char predicted[SIZE_TEXT], measured[SIZE_TEXT];
    live_line_wipe();
    fprintf(console->out, "step %" PRId64 "  predicted %.4g s and %s, measured %.4g s and %s\n", step->step,
            step->predicted_step_s, size_print(step->predicted_device_bytes, predicted), step->step_s,
            size_print(step->device_bytes, measured));
}

/* Adds where the last of the steps differed most from its prediction. */
static void on_mispredicted(void *payload, const struct misprediction *off) {
    struct console *console = payload;
    struct step_difference differences[DIFFERENCES_MAX];
    char text[DIFFERENCE_TEXT_BYTES];
    bool recorded = off->measured.step_s > 0;
    int count = recorded ? step_differences(&off->predicted, &off->measured, differences) : 0;
    live_line_wipe();
    fprintf(console->out,
            "step %" PRId64 "  the last %d steps took over %.0f%% %s than predicted: %.4g s, not %.4g s%s\n", off->step,
            off->steps, 100 * off->part, off->step_s > off->predicted.step_s ? "more" : "less", off->step_s,
            off->predicted.step_s, count > 0 ? "; most apart are" : "");
    for (int i = 0; i < count; i++)
        fprintf(console->out, "  %-28s predicted %9.4g ms, measured %9.4g ms\n", difference_text(&differences[i], text),
                1e3 * differences[i].predicted_s, 1e3 * differences[i].measured_s);
}

/* What changed, and why. */
static void on_replanned(void *payload, const struct train_replan *replan, const struct session_plan *plan) {
    static const char *const why[] = {[REPLAN_NONE] = "",
                                      [REPLAN_FASTER] = "since another one is faster by what its steps took",
                                      [REPLAN_LESS_MEMORY] = "since memory has become less",
                                      [REPLAN_MORE_MEMORY] = "since memory has become more"};
    struct console *console = payload;
    char text[POLICY_TEXT_BYTES], before[SIZE_TEXT], now[SIZE_TEXT], times[96] = "";
    const struct graph *graph = programs_main(&plan->programs)->graph;
    if (replan->before_s > 0 && replan->after_s > 0)
        snprintf(times, sizeof times, "; predicted %.4g s a step, not %.4g s", replan->after_s, replan->before_s);
    live_line_wipe();
    fprintf(console->out, "step %" PRId64 "  plan changed %s: %s; memory %s, not %s%s; took %.2g s\n", replan->step,
            why[replan->reason], policy_text(&plan->chosen.policy, graph_count_blocks(graph), text),
            size_print(replan->device_bytes, now), size_print(replan->device_bytes_before, before), times,
            replan->seconds);
}

static void draw_live(struct console *console) {
    console_line_live(&console->last, &console->state, terminal_columns(console->out), console->colour, console->line);
    live_line_draw(console->out, console->line);
}

static void on_step(void *payload, const struct train_step *step) {
    struct console *console = payload;
    console_account_step(&console->account, step);
    if (console->quiet) return;
    compare_prediction(console, step);
    console->last = *step;
    int64_t now = clock_now_ns(), interval = console->live ? LIVE_INTERVAL_NS : PLAIN_INTERVAL_NS;
    if (now - console->shown_ns < interval && step->step < step->steps) return;
    console->shown_ns = now;
    if (console->live) {
        draw_live(console);
        if (step->step == step->steps) live_line_keep();
        return;
    }
    console_line_plain(step, console->line);
    fprintf(console->out, "%s\n", console->line);
}

static void on_validated(void *payload, const struct train_validation *validation) {
    struct console *console = payload;
    console_account_validation(&console->account, validation->step, validation->loss);
    if (console->quiet) return;
    console->state.valid_loss = validation->loss;
    live_line_wipe();
    fprintf(console->out, "step %" PRId64 "  val_loss %.4f", validation->step, validation->loss);
    if (validation->pairs)
        fprintf(console->out, "  val_margin %.4f  val_accuracy %.0f%%", preference_margin(validation->preference),
                100 * validation->preference[PREFERENCE_RIGHT]);
    fputc('\n', console->out);
}

static void on_sampled(void *payload, int64_t step, const char *prompt, const char *text) {
    struct console *console = payload;
    live_line_wipe();
    fprintf(console->out, "step %" PRId64 "  sample: %s%s\n", step, prompt, text);
}

/* Shown at once, since the next step may have to wait for the checkpoint. */
static void on_saving(void *payload, int64_t step) {
    struct console *console = payload;
    (void)step;
    console->state.saving = true;
    if (console->live && console->last.step > 0) draw_live(console);
}

static void on_saved(void *payload, int64_t step, const char *folder) {
    struct console *console = payload;
    snprintf(console->account.checkpoint, sizeof console->account.checkpoint, "%s", folder);
    if (console->quiet) return;
    console->state.saving = false;
    live_line_wipe();
    fprintf(console->out, "step %" PRId64 "  saved %s\n", step, folder);
}

static void on_end(void *payload, enum status status) {
    struct console *console = payload;
    if (console->quiet) return;
    live_line_keep();
    if (status == STATUS_OK) console_print_end(&console->account, console->out);
    fflush(console->out);
}

struct console *console_create(FILE *out, bool quiet) {
    struct console *console = mem_array(1, sizeof *console);
    if (!console) return NULL;
    console->out = out;
    console->quiet = quiet;
    console->live = terminal_is_live(out);
    console->colour = terminal_has_colour(out);
    console->state.valid_loss = NAN;
    console->events = (struct train_events){.begin = on_begin,
                                            .step = on_step,
                                            .mispredicted = quiet ? NULL : on_mispredicted,
                                            .replanned = quiet ? NULL : on_replanned,
                                            .validated = on_validated,
                                            .sampled = quiet ? NULL : on_sampled,
                                            .saving = quiet ? NULL : on_saving,
                                            .saved = on_saved,
                                            .end = on_end,
                                            .payload = console};
    return console;
}

void console_free(struct console *console) { mem_free(console); }

const struct train_events *console_events(const struct console *console) { return &console->events; }

const struct console_account *console_account(const struct console *console) { return &console->account; }
