#include "report/console/progress_view.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/terminal.h"
#include "report/console/console_line.h"

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
