#include "report/console/console.h"

#include <math.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/terminal.h"
#include "base/text.h"
#include "report/console/plan_table.h"
#include "session/engine.h"
#include "text/chat/template.h"
#include "train/plan_watch.h"

struct field_line {
    char fields[FIELDS_MAX][FIELD_BYTES]; /* the most important first; ASCII */
    int count;
    int strong;  /* the field to highlight if there is color; -1: none */
    double part; /* filled fraction of the bar, 0 to 1 */
};

enum { BAR_MIN = 8, BAR_MAX = 30, BAR_FRAME = 3, GAP = 2, MAIN_FIELDS = 2 };

/* The next field, FIELD_BYTES large. */
static char *field_line_add(struct field_line *line) {
    BUG_IF(line->count == FIELDS_MAX, "more than %d fields", FIELDS_MAX);
    return line->fields[line->count++];
}

static void append_bar(char text[FIELD_LINE_BYTES], double part, int width, bool colour) {
    int full = (int)((part < 0 ? 0 : part > 1 ? 1 : part) * width);
    text_add(text, FIELD_LINE_BYTES, colour ? "\x1b[36m" : "[");
    for (int i = 0; i < width; i++) {
        if (colour && i == full) text_add(text, FIELD_LINE_BYTES, "\x1b[2m");
        text_add(text, FIELD_LINE_BYTES, "%s", i < full ? (colour ? "━" : "#") : (colour ? "─" : "."));
    }
    text_add(text, FIELD_LINE_BYTES, colour ? "\x1b[0m " : "] ");
}

/* The number of fields that fit, and the columns that they take. */
static int fit(const struct field_line *line, int columns, int *taken) {
    int shown = 0;
    *taken = 0;
    for (; shown < line->count; shown++) {
        int more = (int)strlen(line->fields[shown]) + (shown > 0 ? GAP : 0);
        if (*taken + more > columns) break;
        *taken += more;
    }
    return shown;
}

/* The bar's width does not depend on the fields' lengths, so it does not jump from step to step. */
static int bar_width(int columns) {
    enum { PART = 6 };
    int width = columns / PART;
    return width < BAR_MIN ? BAR_MIN : width > BAR_MAX ? BAR_MAX : width;
}

/* Prints at most `columns` visible characters. The bar has a sixth of them, 8 to 30, and less important fields are
 * dropped for it. It is omitted if the first two fields do not fit next to it. `colour`: with ANSI colors. */
static void field_line_print(const struct field_line *line, int columns, bool colour, char text[FIELD_LINE_BYTES]) {
    int needed = line->count < MAIN_FIELDS ? line->count : MAIN_FIELDS, taken, width = bar_width(columns);
    int shown = fit(line, columns - width - BAR_FRAME, &taken);
    bool bar = shown >= needed;
    if (!bar) shown = fit(line, columns, &taken);
    text[0] = '\0';
    if (bar) append_bar(text, line->part, width, colour);
    for (int i = 0; i < shown; i++) {
        bool strong = colour && i == line->strong;
        text_add(text, FIELD_LINE_BYTES, "%s%s%s%s", i > 0 ? "  " : "", strong ? "\x1b[1m" : "", line->fields[i],
                 strong ? "\x1b[0m" : "");
    }
}

enum { NUMBER_BYTES = 24 };

char *console_print_time(double seconds, char text[24]) {
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e12) return strcpy(text, "-");
    int64_t s = (int64_t)(seconds + 0.5);
    if (s < 60)
        snprintf(text, 24, "%ds", (int)s);
    else if (s < 3600)
        snprintf(text, 24, "%dm%02ds", (int)(s / 60), (int)(s % 60));
    else if (s < 86400)
        snprintf(text, 24, "%dh%02dm", (int)(s / 3600), (int)(s % 3600 / 60));
    else
        snprintf(text, 24, "%" PRId64 "d%02dh", s / 86400, (int)(s % 86400 / 3600));
    return text;
}

static void print_mfu(double mfu, char text[NUMBER_BYTES]) {
    if (isfinite(mfu))
        snprintf(text, NUMBER_BYTES, "%.1f%%", 100 * mfu);
    else
        snprintf(text, NUMBER_BYTES, "-");
}

void console_line_plain(const struct train_step *step, char line[FIELD_LINE_BYTES]) {
    char done[COUNT_TEXT], all[COUNT_TEXT], speed[COUNT_TEXT], memory[SIZE_TEXT], left[24], mfu[NUMBER_BYTES];
    print_mfu(step->mfu, mfu);
    line[0] = '\0';
    text_add(line, FIELD_LINE_BYTES, "step %s/%s", count_print(step->step, done), count_print(step->steps, all));
    if (step->epochs > 0) text_add(line, FIELD_LINE_BYTES, "  epoch %.2f/%g", step->epoch, step->epochs);
    text_add(line, FIELD_LINE_BYTES, "  loss %.4f", step->loss);
    if (step->pairs)
        text_add(line, FIELD_LINE_BYTES, "  margin %.4f  accuracy %.0f%%", preference_margin(step->preference),
                 100 * step->preference[PREFERENCE_RIGHT]);
    text_add(line, FIELD_LINE_BYTES, "  grad norm %.4f  lr %.2e  %s tokens/s  MFU %s  memory %s  %s left",
             step->grad_norm, step->learning_rate, count_print((int64_t)step->tokens_per_s, speed), mfu,
             size_print(step->device_bytes, memory), console_print_time(step->remaining_s, left));
}

#define ADD_FIELD(...) snprintf(field_line_add(&fields), FIELD_BYTES, __VA_ARGS__)

void console_line_live(const struct train_step *step, const struct console_state *state, int columns, bool colour,
                       char line[FIELD_LINE_BYTES]) {
    char done[COUNT_TEXT], all[COUNT_TEXT], speed[COUNT_TEXT], memory[SIZE_TEXT], left[24], mfu[NUMBER_BYTES];
    struct field_line fields = {.strong = 1, .part = step->steps > 0 ? (double)step->step / (double)step->steps : 0};
    print_mfu(step->mfu, mfu);
    ADD_FIELD("%s/%s", count_print(step->step, done), count_print(step->steps, all));
    ADD_FIELD("loss %.4f", step->loss);
    if (state->saving) ADD_FIELD("saving");
    if (step->pairs) ADD_FIELD("margin %.3f", preference_margin(step->preference));
    ADD_FIELD("%s left", console_print_time(step->remaining_s, left));
    if (step->epochs > 0) ADD_FIELD("epoch %.2f/%g", step->epoch, step->epochs);
    ADD_FIELD("%s tok/s", count_print((int64_t)step->tokens_per_s, speed));
    if (isfinite(state->valid_loss)) ADD_FIELD("val %.4f", state->valid_loss);
    ADD_FIELD("%s", size_print(step->device_bytes, memory));
    ADD_FIELD("MFU %s", mfu);
    ADD_FIELD("norm %.3f", step->grad_norm);
    ADD_FIELD("lr %.2e", step->learning_rate);
    field_line_print(&fields, columns, colour, line);
}

static const int64_t SECOND_NS = 1000 * 1000 * 1000;
/* Short work shows no line, which would only flicker. A log gets few lines. */
enum { LIVE_FIRST_MS = 300, LIVE_INTERVAL_MS = 100, PLAIN_INTERVAL_MS = 10 * 1000 };

static struct {
    FILE *out;
    bool live, colour;
    bool drawn; /* this work has drawn lines */
    int64_t began_ns, next_ns;
} view;

static char *print_amount(enum progress_unit unit, double amount, char text[SIZE_TEXT]) {
    if (unit == PROGRESS_BYTES) return size_print((int64_t)amount, text);
    snprintf(text, SIZE_TEXT, "%.0f", amount);
    return text;
}

void progress_print_line(const struct progress *progress, double seconds, int columns, bool colour,
                         char text[FIELD_LINE_BYTES]) {
    double done = (double)progress->done, total = (double)progress->total;
    double per_s = seconds > 0 ? done / seconds : 0;
    char amounts[3][SIZE_TEXT], left[24];
    struct field_line fields = {.strong = -1, .part = total > 0 ? done / total : 0};
    ADD_FIELD("%s", progress->what);
    ADD_FIELD("%s of %s", print_amount(progress->unit, done, amounts[0]),
              print_amount(progress->unit, total, amounts[1]));
    if (per_s > 0) {
        ADD_FIELD("%s left", console_print_time((total - done) / per_s, left));
        ADD_FIELD("%s/s", print_amount(progress->unit, per_s, amounts[2]));
    }
    if (columns > 0) {
        field_line_print(&fields, columns, colour, text);
        return;
    }
    text[0] = '\0';
    for (int i = 0; i < fields.count; i++)
        text_add(text, FIELD_LINE_BYTES, "%s%s", i == 0 ? "" : i == 1 ? ": " : ", ", fields.fields[i]);
}

static void draw(const struct progress *progress, int64_t now_ns) {
    char text[FIELD_LINE_BYTES];
    double seconds = (double)(now_ns - view.began_ns) / (double)SECOND_NS;
    progress_print_line(progress, seconds, view.live ? terminal_columns(view.out) : 0, view.colour, text);
    if (view.live)
        live_line_draw(view.out, text);
    else
        fprintf(view.out, "%s\n", text);
}

static int64_t after_ms(int64_t now_ns, int64_t ms) { return now_ns + ms * (SECOND_NS / 1000); }

static void listen(void *payload, enum progress_moment moment, const struct progress *progress) {
    int64_t now = clock_now_ns();
    (void)payload;
    switch (moment) {
    case PROGRESS_BEGINS:
        view.began_ns = now;
        view.drawn = false;
        view.next_ns = after_ms(now, view.live ? LIVE_FIRST_MS : PLAIN_INTERVAL_MS);
        break;
    case PROGRESS_MOVES:
        if (now < view.next_ns) break;
        draw(progress, now);
        view.drawn = true;
        view.next_ns = after_ms(now, view.live ? LIVE_INTERVAL_MS : PLAIN_INTERVAL_MS);
        break;
    case PROGRESS_ENDS:
        if (view.live)
            live_line_wipe();
        else if (view.drawn)
            draw(progress, now);
        break;
    }
}

void progress_view_open(FILE *out) {
    view.out = out;
    view.live = terminal_is_live(out);
    view.colour = terminal_has_colour(out);
    progress_listen(listen, NULL);
}

static bool has_chat_template(const char *folder) {
    struct chat_template *chat = NULL;
    bool found = chat_template_find(folder, &chat) == STATUS_OK && chat;
    chat_template_free(chat);
    status_clear();
    return found;
}

static void console_account_begin(struct console_account *account, const struct session_plan *plan,
                                  const char *run_folder, int64_t first_step, int64_t steps) {
    static const char name[] = "tokenizer.json";
    AUTO_FREE char *tokenizer = path_join(model_companion_folder(plan->session->model, name), name);
    *account = (struct console_account){.begun_steps = first_step,
                                        .run_steps = steps,
                                        .writes_text = tokenizer && file_exists(tokenizer),
                                        .chats = has_chat_template(plan->session->model->folder),
                                        .adapters = plan->session->model->config.adapter.rank > 0,
                                        .began_ns = clock_now_ns()};
    snprintf(account->run_folder, sizeof account->run_folder, "%s", run_folder);
}

void console_account_step(struct console_account *account, const struct train_step *step) {
    int64_t before = account->steps > 0 ? account->last.tokens : step->tokens / step->step * (step->step - 1);
    if (account->steps == 0) account->first = *step;
    account->tokens += step->tokens - before;
    account->last = *step;
    account->steps++;
}

void console_account_validation(struct console_account *account, int64_t step, double loss) {
    if (account->valid_step == 0 || loss < account->best_loss) {
        account->best_step = step;
        account->best_loss = loss;
    }
    account->valid_step = step;
    account->valid_loss = loss;
}

static double margin_of(const struct train_step *step) { return preference_margin(step->preference); }

static void print_margins(const struct console_account *account, FILE *out) {
    fprintf(out, "margin: %.4f at step %" PRId64, margin_of(&account->first), account->first.step);
    if (account->steps > 1) fprintf(out, ", %.4f at step %" PRId64, margin_of(&account->last), account->last.step);
    fputc('\n', out);
}

static void print_losses(const struct console_account *account, FILE *out) {
    fprintf(out, "loss: %.4f at step %" PRId64, account->first.loss, account->first.step);
    if (account->steps > 1) fprintf(out, ", %.4f at step %" PRId64, account->last.loss, account->last.step);
    if (account->valid_step > 0) fprintf(out, "; validation: %.4f", account->valid_loss);
    if (account->best_step < account->valid_step)
        fprintf(out, ", lowest %.4f at step %" PRId64, account->best_loss, account->best_step);
    fputc('\n', out);
}

/* Prints commands that suit the run. */
static void print_next(const struct console_account *account, FILE *out) {
    char argument[PATH_SHELL_BYTES];
    const char *run = path_for_shell(account->run_folder, argument), *lead = "next:", *indent = "     ";
    if (account->writes_text && account->chats) fprintf(out, "%s ballast chat %s\n", lead, run);
    if (account->writes_text && !account->chats) fprintf(out, "%s ballast generate %s --prompt TEXT\n", lead, run);
    if (account->writes_text) lead = indent;
    if (account->adapters) fprintf(out, "%s ballast merge %s -o MODEL_DIR\n", lead, run);
    if (account->adapters) lead = indent;
    if (!account->checkpoint[0] || account->steps == 0) return;
    if (account->last.epochs > 0)
        fprintf(out, "%s ballast resume %s --epochs %g\n", lead, run, 2 * account->last.epochs);
    else
        fprintf(out, "%s ballast resume %s --steps %" PRId64 "\n", lead, run, 2 * account->last.steps);
}

void console_print_end(const struct console_account *account, FILE *out) {
    double seconds = (double)(clock_now_ns() - account->began_ns) * 1e-9;
    char steps[COUNT_TEXT], tokens[COUNT_TEXT], speed[COUNT_TEXT], time[24];
    if (account->steps == 0) {
        fprintf(out, "done: the run was complete\n");
    } else {
        double per_s = seconds > 0 ? (double)account->tokens / seconds : 0;
        fprintf(out, "done: %s step%s in %s, %s tokens, %s tokens/s in all\n", count_print(account->steps, steps),
                account->steps == 1 ? "" : "s", console_print_time(seconds, time), count_print(account->tokens, tokens),
                count_print((int64_t)per_s, speed));
        print_losses(account, out);
        if (account->last.pairs) print_margins(account, out);
    }
    fprintf(out, "model: %s/model\n", account->run_folder);
    print_next(account, out);
}

/* Minimum time between two lines, so that short steps do not flood a log. metrics.jsonl has every step. */
enum { LIVE_INTERVAL_NS = 100 * 1000 * 1000, PLAIN_INTERVAL_NS = 1000 * 1000 * 1000 };

struct console {
    FILE *out;
    bool quiet, live, colour;
    int64_t shown_ns;       /* time of the last step shown */
    struct train_step last; /* the last step, shown or not; its step is 0 before the first */
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
            amount_print((double)plan->figures.trained_parameters, trained),
            amount_print((double)plan->figures.parameters, all),
            100 * (double)plan->figures.trained_parameters / (double)plan->figures.parameters);
}

/* "2 ranks of 1 thread each", or "8 threads" for a single rank */
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
            plan->session->model->config.family->name, amount_print((double)plan->figures.parameters, parameters),
            dtype_name(recipe->dtype), recipe->batch, recipe->sequence_length);
    report_workers(console->out, &plan->chosen);
    fprintf(console->out, " (%s)\n", recipe->isa);
    report_trained(console, plan);
    char todo[96] = "complete; writing the model again", data[64] = "tokenized while steps run", counts[2][COUNT_TEXT];
    if (data_tokens >= 0) snprintf(data, sizeof data, "%s tokens", count_print(data_tokens, counts[0]));
    if (first_step < steps)
        snprintf(todo, sizeof todo, "steps %s to %s", count_print(first_step + 1, counts[0]),
                 count_print(steps, counts[1]));
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

/* Adds the largest difference of the last step from its prediction. */
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

/* Prints the changes of the plan, and the reason. */
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
