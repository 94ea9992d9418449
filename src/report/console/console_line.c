#include "report/console/console_line.h"

#include <math.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "base/text.h"
#include "session/engine.h"

struct field_line {
    char fields[FIELDS_MAX][FIELD_BYTES]; /* the most important first; ASCII */
    int count;
    int strong;  /* the field that stands out where there is colour; -1: none */
    double part; /* of the bar that is full, 0 to 1 */
};

enum { BAR_MIN = 8, BAR_MAX = 30, BAR_FRAME = 3, GAP = 2, MAIN_FIELDS = 2 };

/* The next field, FIELD_BYTES large. */
static char *field_line_add(struct field_line *line) {
    BUG_IF(line->count == FIELDS_MAX, "more than %d fields", FIELDS_MAX);
    return line->fields[line->count++];
}

static size_t append(char *text, size_t used, const char *more) {
    int put = snprintf(text + used, FIELD_LINE_BYTES - used, "%s", more);
    size_t bytes = put > 0 ? (size_t)put : 0;
    return used + bytes < FIELD_LINE_BYTES ? used + bytes : FIELD_LINE_BYTES - 1;
}

static size_t append_bar(char *text, double part, int width, bool colour) {
    int full = (int)((part < 0 ? 0 : part > 1 ? 1 : part) * width);
    size_t used = append(text, 0, colour ? "\x1b[36m" : "[");
    for (int i = 0; i < width; i++) {
        if (colour && i == full) used = append(text, used, "\x1b[2m");
        used = append(text, used, i < full ? (colour ? "━" : "#") : (colour ? "─" : "."));
    }
    return append(text, used, colour ? "\x1b[0m " : "] ");
}

/* How many fields fit, and the columns that they take. */
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

/* The bar's width does not depend on the fields' lengths, so that it does not jump from step to step. */
static int bar_width(int columns) {
    enum { PART = 6 };
    int width = columns / PART;
    return width < BAR_MIN ? BAR_MIN : width > BAR_MAX ? BAR_MAX : width;
}

/* At most `columns` visible characters. The bar has a sixth of them, 8 to 30, for which lesser fields free space; it is
 * left out where the first two fields do not fit next to it. `colour`: with ANSI colours. */
static void field_line_print(const struct field_line *line, int columns, bool colour, char text[FIELD_LINE_BYTES]) {
    int needed = line->count < MAIN_FIELDS ? line->count : MAIN_FIELDS, taken, width = bar_width(columns);
    int shown = fit(line, columns - width - BAR_FRAME, &taken);
    bool bar = shown >= needed;
    if (!bar) shown = fit(line, columns, &taken);
    size_t used = 0;
    text[0] = '\0';
    if (bar) used = append_bar(text, line->part, width, colour);
    for (int i = 0; i < shown; i++) {
        bool strong = colour && i == line->strong;
        if (i > 0) used = append(text, used, "  ");
        if (strong) used = append(text, used, "\x1b[1m");
        used = append(text, used, line->fields[i]);
        if (strong) used = append(text, used, "\x1b[0m");
    }
}

enum { NUMBER_BYTES = 24, EPOCH_BYTES = 64, PAIRS_BYTES = 80 };

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
    char memory[SIZE_TEXT], left[24], mfu[NUMBER_BYTES], epoch[EPOCH_BYTES] = "", pairs[PAIRS_BYTES] = "";
    print_mfu(step->mfu, mfu);
    if (step->epochs > 0) snprintf(epoch, sizeof epoch, "  epoch: %.2f/%g", step->epoch, step->epochs);
    if (step->pairs)
        snprintf(pairs, sizeof pairs, "  margin: %.4f  accuracy: %.0f%%", preference_margin(step->preference),
                 100 * step->preference[PREFERENCE_RIGHT]);
    snprintf(line, FIELD_LINE_BYTES,
             "step: %" PRId64 "%s  loss: %.4f%s  grad_norm: %.4f  lr: %.2e  memory: %s  tps: %.0f  mfu: %s  left: %s",
             step->step, epoch, step->loss, pairs, step->grad_norm, step->learning_rate,
             size_print(step->device_bytes, memory), step->tokens_per_s, mfu,
             console_print_time(step->remaining_s, left));
}

#define ADD_FIELD(...) snprintf(field_line_add(&fields), FIELD_BYTES, __VA_ARGS__)

void console_line_live(const struct train_step *step, const struct console_state *state, int columns, bool colour,
                       char line[FIELD_LINE_BYTES]) {
    char memory[SIZE_TEXT], left[24], mfu[NUMBER_BYTES];
    struct field_line fields = {.strong = 1, .part = step->steps > 0 ? (double)step->step / (double)step->steps : 0};
    print_mfu(step->mfu, mfu);
    ADD_FIELD("%" PRId64 "/%" PRId64, step->step, step->steps);
    ADD_FIELD("loss %.4f", step->loss);
    if (state->saving) ADD_FIELD("saving");
    if (step->pairs) ADD_FIELD("margin %.3f", preference_margin(step->preference));
    ADD_FIELD("%s left", console_print_time(step->remaining_s, left));
    if (step->epochs > 0) ADD_FIELD("epoch %.2f/%g", step->epoch, step->epochs);
    ADD_FIELD("%.0f tok/s", step->tokens_per_s);
    if (isfinite(state->valid_loss)) ADD_FIELD("val %.4f", state->valid_loss);
    ADD_FIELD("%s", size_print(step->device_bytes, memory));
    ADD_FIELD("mfu %s", mfu);
    ADD_FIELD("norm %.3f", step->grad_norm);
    ADD_FIELD("lr %.2e", step->learning_rate);
    field_line_print(&fields, columns, colour, line);
}

static const int64_t SECOND_NS = 1000 * 1000 * 1000;
/* Short work shows no line, which would only flicker; a log gets few lines. */
enum { LIVE_FIRST_MS = 300, LIVE_INTERVAL_MS = 100, PLAIN_INTERVAL_MS = 10 * 1000 };

static struct {
    FILE *out;
    bool live, colour;
    bool drawn; /* this work has lines */
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
    struct field_line line = {.strong = -1, .part = total > 0 ? done / total : 0};
    snprintf(field_line_add(&line), FIELD_BYTES, "%s", progress->what);
    snprintf(field_line_add(&line), FIELD_BYTES, "%s of %s", print_amount(progress->unit, done, amounts[0]),
             print_amount(progress->unit, total, amounts[1]));
    if (per_s > 0) {
        snprintf(field_line_add(&line), FIELD_BYTES, "%s left", console_print_time((total - done) / per_s, left));
        snprintf(field_line_add(&line), FIELD_BYTES, "%s/s", print_amount(progress->unit, per_s, amounts[2]));
    }
    if (columns > 0) {
        field_line_print(&line, columns, colour, text);
        return;
    }
    size_t used = 0;
    for (int i = 0; i < line.count && used < FIELD_LINE_BYTES; i++)
        used += (size_t)snprintf(text + used, FIELD_LINE_BYTES - used, "%s%s",
                                 i == 0   ? ""
                                 : i == 1 ? ": "
                                          : ", ",
                                 line.fields[i]);
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
