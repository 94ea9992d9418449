#include "report/console_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

enum { FIELD_BYTES = 64, NUMBER_BYTES = 24, FIELDS_MAX = 9, BAR_LEAST = 8, BAR_MOST = 30 };

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

void console_line_plain(const struct train_step *step, char line[CONSOLE_LINE_BYTES]) {
    char memory[SIZE_TEXT], left[24], mfu[NUMBER_BYTES];
    print_mfu(step->mfu, mfu);
    snprintf(line, CONSOLE_LINE_BYTES,
             "step: %" PRId64 "  loss: %.4f  grad_norm: %.4f  lr: %.2e  memory: %s  tps: %.0f  mfu: %s  left: %s",
             step->step, step->loss, step->grad_norm, step->learning_rate, size_print(step->device_bytes, memory),
             step->tokens_per_s, mfu, console_print_time(step->remaining_s, left));
}

/* The fields by importance; returns how many. */
static int print_fields(const struct train_step *step, double valid_loss, char fields[FIELDS_MAX][FIELD_BYTES]) {
    char memory[SIZE_TEXT], left[24], mfu[NUMBER_BYTES];
    int n = 0;
    print_mfu(step->mfu, mfu);
    snprintf(fields[n++], FIELD_BYTES, "%" PRId64 "/%" PRId64, step->step, step->steps);
    snprintf(fields[n++], FIELD_BYTES, "loss %.4f", step->loss);
    snprintf(fields[n++], FIELD_BYTES, "%s left", console_print_time(step->remaining_s, left));
    snprintf(fields[n++], FIELD_BYTES, "%.0f tok/s", step->tokens_per_s);
    snprintf(fields[n++], FIELD_BYTES, "%s", size_print(step->device_bytes, memory));
    snprintf(fields[n++], FIELD_BYTES, "mfu %s", mfu);
    snprintf(fields[n++], FIELD_BYTES, "norm %.3f", step->grad_norm);
    snprintf(fields[n++], FIELD_BYTES, "lr %.2e", step->learning_rate);
    if (isfinite(valid_loss)) snprintf(fields[n++], FIELD_BYTES, "val %.4f", valid_loss);
    return n;
}

static size_t append(char *line, size_t used, const char *text) {
    int put = snprintf(line + used, CONSOLE_LINE_BYTES - used, "%s", text);
    size_t more = put > 0 ? (size_t)put : 0;
    return used + more < CONSOLE_LINE_BYTES ? used + more : CONSOLE_LINE_BYTES - 1;
}

static size_t append_bar(char *line, const struct train_step *step, int width, bool colour) {
    int full = step->steps > 0 ? (int)((double)step->step / (double)step->steps * width) : 0;
    size_t used = append(line, 0, colour ? "\x1b[36m" : "[");
    for (int i = 0; i < width; i++) {
        if (colour && i == full) used = append(line, used, "\x1b[2m");
        used = append(line, used, i < full ? (colour ? "━" : "#") : (colour ? "─" : "."));
    }
    return append(line, used, colour ? "\x1b[0m " : "] ");
}

void console_line_live(const struct train_step *step, double valid_loss, int columns, bool colour,
                       char line[CONSOLE_LINE_BYTES]) {
    enum { BAR_FRAME = 3 };
    char fields[FIELDS_MAX][FIELD_BYTES];
    int count = print_fields(step, valid_loss, fields), used_columns = 0, shown = 0;
    for (; shown < count; shown++) {
        int more = (int)strlen(fields[shown]) + (shown > 0 ? 2 : 0);
        if (used_columns + more > columns) break;
        used_columns += more;
    }
    int room = columns - used_columns - BAR_FRAME;
    size_t used = 0;
    line[0] = '\0';
    if (room >= BAR_LEAST) used = append_bar(line, step, room < BAR_MOST ? room : BAR_MOST, colour);
    for (int i = 0; i < shown; i++) {
        if (i > 0) used = append(line, used, "  ");
        if (colour && i == 1) used = append(line, used, "\x1b[1m");
        used = append(line, used, fields[i]);
        if (colour && i == 1) used = append(line, used, "\x1b[0m");
    }
}
