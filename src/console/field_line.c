#include "console/field_line.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

enum { BAR_LEAST = 8, BAR_MOST = 30, BAR_FRAME = 3, GAP = 2, MAIN_FIELDS = 2 };

char *field_line_add(struct field_line *line) {
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

/* Of one width however long the fields are, so that it does not jump from step to step. */
static int bar_width(int columns) {
    enum { PART = 6 };
    int width = columns / PART;
    return width < BAR_LEAST ? BAR_LEAST : width > BAR_MOST ? BAR_MOST : width;
}

void field_line_print(const struct field_line *line, int columns, bool colour, char text[FIELD_LINE_BYTES]) {
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
