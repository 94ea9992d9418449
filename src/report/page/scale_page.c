#include "report/page/scale_page.h"

#include <math.h>

#include "base/file.h"
#include "base/folder.h"
#include "search/scale/forecast.h"

/* An axis: maps values `low` to `high` to pixels `from` to `to`, logarithmically or linearly. */
struct svg_axis {
    double low, high, from, to;
    bool logarithmic;
};

/* One drawing: `title` above, its axes' titles next to them. */
struct svg_frame {
    const char *title, *across, *up;
    struct svg_axis x, y;
    enum status (*x_label)(struct text_buffer *out, double value); /* formats a tick's value */
    enum status (*y_label)(struct text_buffer *out, double value);
};
enum { SVG_WIDTH = 720, SVG_HEIGHT = 400, SVG_LEFT = 84, SVG_RIGHT = 700, SVG_TOP = 44, SVG_BOTTOM = 340 };

/* Appends a text with XML and HTML markup escaped. */
static enum status svg_text(struct text_buffer *out, const char *text) {
    for (const char *at = text; *at; at++) {
        const char *escaped = *at == '<'   ? "&lt;"
                              : *at == '>' ? "&gt;"
                              : *at == '&' ? "&amp;"
                              : *at == '"' ? "&quot;"
                                           : NULL;
        TRY(text_append(out, escaped ? escaped : at, escaped ? strlen(escaped) : 1));
    }
    return STATUS_OK;
}

static double svg_at(const struct svg_axis *axis, double value) {
    double low = axis->low, high = axis->high;
    if (axis->logarithmic) low = log10(low), high = log10(high), value = log10(value);
    return axis->from + (value - low) / (high > low ? high - low : 1) * (axis->to - axis->from);
}

static enum status svg_end(struct text_buffer *out) { return text_print(out, "</svg>\n"); }

/* The round step (1, 2 or 5 times a power of ten) that gives at most so many ticks. */
static double tick_step(double extent, int max) {
    double power = pow(10, floor(log10(extent / max)));
    static const double parts[] = {1, 2, 5, 10};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (extent / (parts[i] * power) <= max) return parts[i] * power;
    return 10 * power;
}

enum { TICKS_MAX = 24 };

/* Logarithmic: 1, 2 and 5 times each power of ten; for two decades and more, only the powers. */
static int find_ticks(const struct svg_axis *axis, double out[TICKS_MAX]) {
    int count = 0;
    if (!axis->logarithmic) {
        double step = tick_step(axis->high - axis->low > 0 ? axis->high - axis->low : 1, 7);
        for (double at = ceil(axis->low / step - 1e-9) * step; at <= axis->high + 1e-9 * step && count < TICKS_MAX;
             at += step)
            out[count++] = fabs(at) < 1e-9 * step ? 0 : at; /* avoids -0 */
        return count;
    }
    bool powers = axis->high / axis->low > 2000;
    static const double parts[] = {1, 2, 5};
    for (double power = floor(log10(axis->low)); power <= log10(axis->high); power++)
        for (int i = 0; i < (powers ? 1 : 3); i++) {
            double at = parts[i] * pow(10, power);
            if (at >= axis->low * 0.999 && at <= axis->high * 1.001 && count < TICKS_MAX) out[count++] = at;
        }
    return count;
}

static enum status draw_ticks(struct text_buffer *out, const struct svg_frame *frame, bool up) {
    const struct svg_axis *axis = up ? &frame->y : &frame->x;
    double values[TICKS_MAX];
    int count = find_ticks(axis, values);
    for (int i = 0; i < count; i++) {
        double at = svg_at(axis, values[i]);
        if (up)
            TRY(text_print(out,
                           "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e1e5ea\"/><text x=\"%g\" "
                           "y=\"%.1f\" text-anchor=\"end\" fill=\"#55606e\">",
                           frame->x.from, frame->x.to, at, at, frame->x.from - 8, at + 4));
        else
            TRY(text_print(out,
                           "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\" stroke=\"#e1e5ea\"/><text x=\"%.1f\" "
                           "y=\"%g\" text-anchor=\"middle\" fill=\"#55606e\">",
                           at, at, frame->y.to, frame->y.from, at, frame->y.from + 18));
        TRY((up ? frame->y_label : frame->x_label)(out, values[i]));
        TRY(text_print(out, "</text>\n"));
    }
    return STATUS_OK;
}

static enum status svg_axes(struct text_buffer *out, const struct svg_frame *frame) {
    if (frame->x_label) TRY(draw_ticks(out, frame, false));
    if (frame->y_label) TRY(draw_ticks(out, frame, true));
    TRY(text_print(out, "<path d=\"M%g %gV%gH%g\" fill=\"none\" stroke=\"#8a939d\"/>\n", frame->x.from, frame->y.to,
                   frame->y.from, frame->x.to));
    TRY(text_print(out, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\" fill=\"#17202b\">",
                   (frame->x.from + frame->x.to) / 2, frame->y.from + 38));
    TRY(svg_text(out, frame->across));
    TRY(text_print(out,
                   "</text>\n<text transform=\"translate(16 %g) rotate(-90)\" text-anchor=\"middle\" fill=\"#17202b\">",
                   (frame->y.from + frame->y.to) / 2));
    TRY(svg_text(out, frame->up));
    return text_print(out, "</text>\n");
}

/* <svg>, the title, both axes with ticks at round values, and grid lines behind the drawing. `height` is the total. */
static enum status svg_begin(struct text_buffer *out, const struct svg_frame *frame, int height) {
    TRY(text_print(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                   "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" role=\"img\">\n<title>",
                   SVG_WIDTH, height, SVG_WIDTH, height));
    TRY(svg_text(out, frame->title));
    TRY(text_print(out, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", SVG_WIDTH, height));
    TRY(text_print(out, "<text x=\"%d\" y=\"22\" font-size=\"14\" font-weight=\"bold\" fill=\"#17202b\">", SVG_LEFT));
    TRY(svg_text(out, frame->title));
    TRY(text_print(out, "</text>\n"));
    return svg_axes(out, frame);
}

enum status svg_amount(struct text_buffer *out, double value) {
    static const struct {
        double of;
        const char *name;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double in = units[i].of == 1e4 ? 1e3 : units[i].of;
        if (value >= units[i].of) return text_print(out, "%.4g%s", value / in, units[i].name);
    }
    return text_print(out, "%.4g", value);
}

static enum status svg_seconds(struct text_buffer *out, double value) {
    if (value == 0) return text_print(out, "0");
    return value < 1 ? text_print(out, "%.4g ms", 1e3 * value) : text_print(out, "%.4g s", value);
}

static enum status svg_gigabytes(struct text_buffer *out, double value) {
    return text_print(out, "%.4g GB", value / 1e9);
}

enum { ROWS_MAX = 32, ROW_PIXELS = 22, MICRO_BATCHES_SHOWN = 8 };
static const char BLUE[] = "#0b62b8", WARM[] = "#b54708", INK[] = "#17202b", LIMIT[] = "#c01c28";

static const struct {
    const char *name, *caption;
} plots[SCALE_PLOT_COUNT] = {
    [SCALE_PLOT_PARETO_FRONT] = {"pareto_front",
                                 "Layouts of which none is both faster and smaller; the fastest is marked."},
    [SCALE_PLOT_CURVE] = {"curve",
                          "The fastest layout by number of devices, the same batch on each. Dashed: as many times "
                          "the least number's tokens as there are times its devices."},
    [SCALE_PLOT_TIMELINE] =
        {"timeline", "One rank of each pipeline stage over time: kernels above, collectives below. A step with many "
                     "micro-batches is shown without some rounds."},
    [SCALE_PLOT_MEMORY] = {"memory", "Bytes of a rank of each stage at its peak."},
};
const char *scale_plot_name(enum scale_plot plot) { return plots[plot].name; }
/* The drawing's caption. */
static const char *scale_plot_caption(enum scale_plot plot) { return plots[plot].caption; }

/* Whether there is anything to draw. */
static bool scale_plot_has(const struct scale_picture *picture, enum scale_plot plot) {
    switch (plot) {
    case SCALE_PLOT_PARETO_FRONT: return picture->pareto_front_count > 0;
    case SCALE_PLOT_CURVE: return picture->curve_count > 0;
    default: return picture->chosen != NULL;
    }
}

/* A range with margins. */
static struct svg_axis padded_axis(double low, double high, double from, double to) {
    double pad = high > low ? 0.08 * (high - low) : 0.1 * high;
    return (struct svg_axis){low > pad ? low - pad : 0, high + pad, from, to, false};
}

/* A point of a line, in the values of its axes. */
struct svg_point {
    double x, y;
};
struct svg_line {
    struct svg_point (*point)(const struct scale_picture *picture, size_t i);
    size_t count, marked; /* index of the highlighted point; `count`: none */
    double width, radius; /* of the line, and of the highlighted mark */
};

static enum status draw_line(const struct scale_picture *picture, const struct svg_frame *frame,
                             const struct svg_line *line, struct text_buffer *out) {
    TRY(text_print(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" points=\"", BLUE, line->width));
    for (size_t i = 0; i < line->count; i++) {
        struct svg_point point = line->point(picture, i);
        TRY(text_print(out, "%.1f,%.1f ", svg_at(&frame->x, point.x), svg_at(&frame->y, point.y)));
    }
    TRY(text_print(out, "\"/>\n"));
    for (size_t i = 0; i < line->count; i++) {
        struct svg_point point = line->point(picture, i);
        TRY(text_print(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"/>\n", svg_at(&frame->x, point.x),
                       svg_at(&frame->y, point.y), i == line->marked ? line->radius : 4,
                       i == line->marked ? WARM : BLUE));
    }
    return STATUS_OK;
}

/* --- the Pareto front --- */

static struct svg_frame pareto_front_frame(const struct scale_picture *picture) {
    double bytes[2] = {INFINITY, 0}, seconds[2] = {INFINITY, 0};
    for (size_t i = 0; i < picture->pareto_front_count; i++) {
        const struct forecast *one = &picture->pareto_front[i].forecast;
        bytes[0] = fmin(bytes[0], (double)one->peak_bytes), bytes[1] = fmax(bytes[1], (double)one->peak_bytes);
        seconds[0] = fmin(seconds[0], one->step_s), seconds[1] = fmax(seconds[1], one->step_s);
    }
    return (struct svg_frame){.title = "Step time against memory",
                              .across = "memory of the fullest device",
                              .up = "time of a step",
                              .x = padded_axis(bytes[0], bytes[1], SVG_LEFT, SVG_RIGHT),
                              .y = padded_axis(seconds[0], seconds[1], SVG_BOTTOM, SVG_TOP),
                              .x_label = svg_gigabytes,
                              .y_label = svg_seconds};
}

static struct svg_point pareto_front_point(const struct scale_picture *picture, size_t i) {
    const struct forecast *one = &picture->pareto_front[i].forecast;
    return (struct svg_point){(double)one->peak_bytes, one->step_s};
}

static enum status draw_pareto_front(const struct scale_picture *picture, struct text_buffer *out) {
    struct svg_frame frame = pareto_front_frame(picture);
    size_t count = picture->pareto_front_count;
    const struct svg_line line = {pareto_front_point, count, count - 1, 1.5, 6}; /* the last is the fastest */
    TRY(svg_begin(out, &frame, SVG_HEIGHT));
    TRY(draw_line(picture, &frame, &line, out));
    return svg_end(out);
}

/* --- the curve over numbers of devices --- */

static double tokens_per_s(const struct scale_picture *picture, size_t i) {
    return picture->step_tokens / picture->curve[i].forecast.step_s;
}

static struct svg_frame curve_frame(const struct scale_picture *picture) {
    size_t last = picture->curve_count - 1;
    double min = (double)picture->curve[0].devices, max = (double)picture->curve[last].devices;
    double low = INFINITY, high = tokens_per_s(picture, 0) * max / min;
    for (size_t i = 0; i <= last; i++) {
        low = fmin(low, tokens_per_s(picture, i));
        high = fmax(high, tokens_per_s(picture, i));
    }
    return (struct svg_frame){.title = "Tokens a second by number of devices",
                              .across = "devices",
                              .up = "tokens a second",
                              .x = {min / 1.2, max * 1.2, SVG_LEFT, SVG_RIGHT, true},
                              .y = {low / 1.3, high * 1.3, SVG_BOTTOM, SVG_TOP, true},
                              .x_label = svg_amount,
                              .y_label = svg_amount};
}

static struct svg_point curve_point(const struct scale_picture *picture, size_t i) {
    return (struct svg_point){(double)picture->curve[i].devices, tokens_per_s(picture, i)};
}

static enum status draw_curve(const struct scale_picture *picture, struct text_buffer *out) {
    struct svg_frame frame = curve_frame(picture);
    struct svg_line line = {curve_point, picture->curve_count, 0, 1.8, 4};
    struct svg_point first = curve_point(picture, 0), last = curve_point(picture, picture->curve_count - 1);
    while (line.marked < line.count &&
           !(picture->chosen && picture->chosen->devices == picture->curve[line.marked].devices))
        line.marked++;
    TRY(svg_begin(out, &frame, SVG_HEIGHT));
    TRY(text_print(
        out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#8a939d\" stroke-dasharray=\"6 4\"/>\n",
        svg_at(&frame.x, first.x), svg_at(&frame.y, first.y), svg_at(&frame.x, last.x),
        svg_at(&frame.y, first.y * (last.x / first.x))));
    TRY(draw_line(picture, &frame, &line, out));
    return svg_end(out);
}

/* --- color keys, below a drawing --- */

struct part {
    const char *name, *color;
};

static enum status draw_key(struct text_buffer *out, const struct part *parts, int count, double y) {
    double x = SVG_LEFT;
    for (int i = 0; i < count; i++, x += 104)
        TRY(text_print(out,
                       "<rect x=\"%g\" y=\"%g\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%g\" y=\"%g\" "
                       "fill=\"%s\">%s</text>\n",
                       x, y - 10, parts[i].color, x + 16, y, INK, parts[i].name));
    return STATUS_OK;
}

/* Number of stages to draw: if there are many, some spread evenly from the first to the last. */
static int32_t stages_shown(int32_t stages) { return stages < ROWS_MAX ? stages : ROWS_MAX; }
static int32_t stage_of_row(int32_t row, int32_t stages) {
    int32_t shown = stages_shown(stages);
    return shown < 2 ? 0 : (int32_t)((int64_t)row * (stages - 1) / (shown - 1));
}

static enum status draw_stage_names(struct text_buffer *out, int32_t stages, double top) {
    for (int32_t row = 0; row < stages_shown(stages); row++)
        TRY(text_print(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#55606e\">stage %d</text>\n",
                       SVG_LEFT - 8, top + ROW_PIXELS * (row + 0.65), stage_of_row(row, stages) + 1));
    return STATUS_OK;
}

/* --- activity of a rank of each stage over time --- */

static const struct part kinds[REPLAY_KIND_COUNT] = {
    [REPLAY_FORWARD] = {"forward", "#3b82c4"}, [REPLAY_BACKWARD] = {"backward", "#e8963a"},
    [REPLAY_UPDATE] = {"update", "#4f9d55"},   [REPLAY_GATHER] = {"gather", "#8f79d6"},
    [REPLAY_REDUCE] = {"reduce", "#d8745a"},   [REPLAY_HAND_OUT] = {"hand out", "#cf7fc0"}};

/* Instructions of one kind without a visible gap are one bar. */
static enum status draw_bars(struct text_buffer *out, const struct replay *replay, int32_t stage,
                             enum replay_queue queue, const struct svg_axis *x, double top) {
    double from = 0, to = -1;
    enum replay_kind kind = REPLAY_FORWARD;
    for (size_t i = 0; i <= replay->instructions.count; i++) {
        bool end = i == replay->instructions.count;
        const struct replay_instruction *one = end ? NULL : &replay->instructions.items[i];
        if (!end && (one->stage != stage || one->queue != queue || one->end_s <= one->start_s)) continue;
        double start = end ? INFINITY : svg_at(x, one->start_s);
        if (to > from && !end && one->kind == kind && start - to < 0.3) {
            to = svg_at(x, one->end_s);
            continue;
        }
        if (to > from)
            TRY(text_print(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", from, top,
                           to - from > 0.2 ? to - from - 0.1 : to - from, ROW_PIXELS / 2 - 2, kinds[kind].color));
        if (!end) from = start, to = svg_at(x, one->end_s), kind = one->kind;
    }
    return STATUS_OK;
}

static enum status draw_rows(struct text_buffer *out, const struct replay *replay) {
    int32_t rows = stages_shown(replay->stages);
    double bottom = SVG_TOP + ROW_PIXELS * (double)rows;
    struct svg_frame frame = {.title = "A step of the ranks of each stage",
                              .across = "time",
                              .up = "",
                              .x = {0, replay->end_s, SVG_LEFT, SVG_RIGHT, false},
                              .y = {0, 1, bottom, SVG_TOP, false},
                              .x_label = svg_seconds};
    TRY(svg_begin(out, &frame, (int)bottom + 80));
    TRY(draw_stage_names(out, replay->stages, SVG_TOP));
    for (int32_t row = 0; row < rows; row++)
        for (enum replay_queue queue = 0; queue < REPLAY_QUEUE_COUNT; queue++)
            TRY(draw_bars(out, replay, stage_of_row(row, replay->stages), queue, &frame.x,
                          SVG_TOP + ROW_PIXELS * row + 1 + (double)queue * (ROW_PIXELS / 2 - 1)));
    TRY(draw_key(out, kinds, REPLAY_KIND_COUNT, bottom + 66));
    return svg_end(out);
}

static enum status draw_timeline(const struct scale_picture *picture, struct text_buffer *out) {
    struct calibration calibration = calibration_default();
    AUTO(replay_free) struct replay replay = {0};
    int64_t pipeline = picture->job.layout.pipeline;
    int64_t shown = 2 * pipeline > MICRO_BATCHES_SHOWN ? 2 * pipeline : MICRO_BATCHES_SHOWN;
    TRY(forecast_timeline(&picture->job, &calibration, shown, &replay));
    return draw_rows(out, &replay);
}

/* --- memory of a rank --- */

enum { MEMORY_PARTS = 4 };
static const struct part memory_parts[MEMORY_PARTS] = {
    {"states", "#8f79d6"}, {"activations", "#2aa79f"}, {"working", "#b99d3c"}, {"CUDA, rest", "#8a93a0"}};

static enum status draw_memory_row(struct text_buffer *out, const struct rank_memory *memory, const struct svg_axis *x,
                                   double top) {
    double parts[MEMORY_PARTS] = {memory->states, memory->activations, memory->working}, sum = 0;
    parts[MEMORY_PARTS - 1] = memory->total - memory->states - memory->activations - memory->working;
    for (int i = 0; i < MEMORY_PARTS; sum += parts[i], i++)
        TRY(text_print(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", svg_at(x, sum),
                       top + 2, svg_at(x, parts[i]) - x->from, ROW_PIXELS - 4, memory_parts[i].color));
    return STATUS_OK;
}

static enum status draw_memory(const struct scale_picture *picture, struct text_buffer *out) {
    struct calibration calibration = calibration_default();
    struct job_costs costs;
    job_costs_find(&picture->job, &calibration, &costs);
    int32_t stages = costs.pipeline.stages, rows = stages_shown(stages);
    double bottom = SVG_TOP + ROW_PIXELS * (double)rows,
           max = fmax(picture->capacity_bytes, rank_memory_max(&costs).total);
    struct svg_frame frame = {.title = "Memory of a rank of each stage",
                              .across = "bytes",
                              .up = "",
                              .x = {0, max * 1.04, SVG_LEFT, SVG_RIGHT, false},
                              .y = {0, 1, bottom, SVG_TOP, false},
                              .x_label = svg_gigabytes};
    TRY(svg_begin(out, &frame, (int)bottom + 80));
    TRY(draw_stage_names(out, stages, SVG_TOP));
    for (int32_t row = 0; row < rows; row++) {
        struct rank_memory memory = rank_memory_of(&costs, stage_of_row(row, stages));
        TRY(draw_memory_row(out, &memory, &frame.x, SVG_TOP + ROW_PIXELS * row));
    }
    double limit = svg_at(&frame.x, picture->capacity_bytes);
    TRY(text_print(
        out,
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%g\" stroke=\"%s\" stroke-width=\"1.6\" "
        "stroke-dasharray=\"7 4\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"end\" fill=\"%s\">capacity</text>\n",
        limit, limit, SVG_TOP - 4, bottom, LIMIT, limit - 4, SVG_TOP - 6, LIMIT));
    TRY(draw_key(out, memory_parts, MEMORY_PARTS, bottom + 66));
    return svg_end(out);
}

enum status scale_plot_draw(const struct scale_picture *picture, enum scale_plot plot, struct text_buffer *out) {
    switch (plot) {
    case SCALE_PLOT_PARETO_FRONT: return draw_pareto_front(picture, out);
    case SCALE_PLOT_CURVE: return draw_curve(picture, out);
    case SCALE_PLOT_TIMELINE: return draw_timeline(picture, out);
    default: return draw_memory(picture, out);
    }
}

/* `ballast` recognizes its pages by "<!doctype html>" when it replaces one. */
static const char HEAD[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<style>body{max-width:1180px;margin:0 auto;padding:20px;font:16px/1.5 system-ui,sans-serif;color:#17202b;"
    "background:#f6f7f9}h1{font-size:1.6rem}h2{font-size:1.2rem}.charts{display:grid;gap:16px;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr))}figure{margin:0;padding:12px;background:#fff;"
    "border:1px solid #d9dee5;border-radius:10px}figure svg{width:100%;height:auto}figcaption{font-size:.85rem;"
    "color:#55606e}.wide{overflow-x:auto}table{border-collapse:collapse;background:#fff;font-size:.85rem;"
    "font-variant-numeric:tabular-nums}td,th{padding:4px 10px;border:1px solid #d9dee5;text-align:right;"
    "white-space:nowrap}</style>\n<title>";

static enum status draw(const struct scale_picture *picture, struct text_buffer *out) {
    TRY(text_print(out, "<div class=\"charts\">\n"));
    for (enum scale_plot plot = 0; plot < SCALE_PLOT_COUNT; plot++) {
        if (!scale_plot_has(picture, plot)) continue;
        TRY(text_print(out, "<figure id=\"%s\">\n", scale_plot_name(plot)));
        TRY(scale_plot_draw(picture, plot, out));
        TRY(text_print(out, "<figcaption>%s</figcaption></figure>\n", scale_plot_caption(plot)));
    }
    return text_print(out, "</div>\n");
}

static enum status tabulate(const char *title, const struct choice *choices, size_t choice_count,
                            const struct scale_column *columns, size_t count, const void *context,
                            struct text_buffer *out) {
    if (choice_count == 0) return STATUS_OK;
    TRY(text_print(out, "<h2>%s</h2>\n<div class=\"wide\"><table><tr>", title));
    for (size_t i = 0; i < count; i++)
        TRY(text_print(out, "<th>%s</th>", columns[i].heading));
    for (size_t row = 0; row < choice_count; row++) {
        TRY(text_print(out, "</tr>\n<tr>"));
        for (size_t i = 0; i < count; i++) {
            TRY(text_print(out, "<td>"));
            TRY(columns[i].cell(context, &choices[row], out));
            TRY(text_print(out, "</td>"));
        }
    }
    return text_print(out, "</tr></table></div>\n");
}

enum status scale_page_make(const struct scale_picture *picture, const struct scale_column *columns, size_t count,
                            const void *context, struct text_buffer *out) {
    TRY(text_print(out, "%s", HEAD));
    TRY(svg_text(out, picture->name));
    TRY(text_print(out, "</title></head><body>\n<h1>"));
    TRY(svg_text(out, picture->name));
    TRY(text_print(out, "</h1>\n<p>All of it is simulated; nothing was run.</p>\n"));
    TRY(draw(picture, out));
    TRY(tabulate("Layouts of which none is both faster and smaller", picture->pareto_front, picture->pareto_front_count,
                 columns, count, context, out));
    TRY(tabulate("The fastest by number of devices", picture->curve, picture->curve_count, columns, count, context,
                 out));
    return text_print(out, "</body></html>\n");
}

static enum status write_plot(const struct scale_picture *picture, const char *folder, enum scale_plot plot) {
    AUTO_VEC struct text_buffer text = {0};
    AUTO_FREE char *name = mem_format("%s.svg", scale_plot_name(plot)), *path = name ? path_join(folder, name) : NULL;
    TRY(path ? scale_plot_draw(picture, plot, &text) : STATUS_FAILED);
    return file_replace(path, text.items, text.count);
}

enum status scale_plots_write(const struct scale_picture *picture, const char *folder) {
    TRY(folder_create(folder));
    for (enum scale_plot plot = 0; plot < SCALE_PLOT_COUNT; plot++)
        if (scale_plot_has(picture, plot)) TRY(write_plot(picture, folder, plot));
    return STATUS_OK;
}
