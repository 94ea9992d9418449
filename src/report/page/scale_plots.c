#include "report/page/scale_plots.h"

#include <math.h>
#include <stdio.h>

#include "search/scale/rank_memory.h"

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
        {"timeline", "What a rank of each pipeline stage does when: kernels above, collectives below. Of a step "
                     "with many micro-batches some rounds are left out."},
    [SCALE_PLOT_MEMORY] = {"memory", "Bytes of a rank of each stage at its peak."},
};
const char *scale_plot_name(enum scale_plot plot) { return plots[plot].name; }
const char *scale_plot_caption(enum scale_plot plot) { return plots[plot].caption; }

bool scale_plot_has(const struct scale_picture *picture, enum scale_plot plot) {
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

static enum status mark(struct text_buffer *out, double x, double y, const char *color, double radius) {
    return svg_print(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"/>\n", x, y, radius, color);
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

static enum status draw_pareto_front(const struct scale_picture *picture, struct text_buffer *out) {
    struct svg_frame frame = pareto_front_frame(picture);
    TRY(svg_begin(out, frame.title, SVG_HEIGHT));
    TRY(svg_axes(out, &frame));
    TRY(svg_print(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", BLUE));
    for (size_t i = 0; i < picture->pareto_front_count; i++)
        TRY(svg_print(out, "%.1f,%.1f ", svg_at(&frame.x, (double)picture->pareto_front[i].forecast.peak_bytes),
                      svg_at(&frame.y, picture->pareto_front[i].forecast.step_s)));
    TRY(svg_print(out, "\"/>\n"));
    for (size_t i = 0; i < picture->pareto_front_count; i++) {
        bool last = i + 1 == picture->pareto_front_count; /* the fastest */
        TRY(mark(out, svg_at(&frame.x, (double)picture->pareto_front[i].forecast.peak_bytes),
                 svg_at(&frame.y, picture->pareto_front[i].forecast.step_s), last ? WARM : BLUE, last ? 6 : 4));
    }
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

static enum status draw_curve(const struct scale_picture *picture, struct text_buffer *out) {
    struct svg_frame frame = curve_frame(picture);
    const struct choice *curve = picture->curve;
    size_t last = picture->curve_count - 1;
    double times = (double)curve[last].devices / (double)curve[0].devices;
    TRY(svg_begin(out, frame.title, SVG_HEIGHT));
    TRY(svg_axes(out, &frame));
    TRY(svg_print(
        out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#8a939d\" stroke-dasharray=\"6 4\"/>\n",
        svg_at(&frame.x, (double)curve[0].devices), svg_at(&frame.y, tokens_per_s(picture, 0)),
        svg_at(&frame.x, (double)curve[last].devices), svg_at(&frame.y, tokens_per_s(picture, 0) * times)));
    TRY(svg_print(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" points=\"", BLUE));
    for (size_t i = 0; i <= last; i++)
        TRY(svg_print(out, "%.1f,%.1f ", svg_at(&frame.x, (double)curve[i].devices),
                      svg_at(&frame.y, tokens_per_s(picture, i))));
    TRY(svg_print(out, "\"/>\n"));
    for (size_t i = 0; i <= last; i++)
        TRY(mark(out, svg_at(&frame.x, (double)curve[i].devices), svg_at(&frame.y, tokens_per_s(picture, i)),
                 picture->chosen && picture->chosen->devices == curve[i].devices ? WARM : BLUE, 4));
    return svg_end(out);
}

/* --- keys of colours, below a drawing --- */

struct part {
    const char *name, *color;
};

static enum status draw_key(struct text_buffer *out, const struct part *parts, int count, double y) {
    double x = SVG_LEFT;
    for (int i = 0; i < count; i++, x += 104)
        TRY(svg_print(out,
                      "<rect x=\"%g\" y=\"%g\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%g\" y=\"%g\" "
                      "fill=\"%s\">%s</text>\n",
                      x, y - 10, parts[i].color, x + 16, y, INK, parts[i].name));
    return STATUS_OK;
}

/* Stages that are drawn: of many, some that lie evenly from the first to the last. */
static int32_t stages_shown(int32_t stages) { return stages < ROWS_MAX ? stages : ROWS_MAX; }
static int32_t stage_of_row(int32_t row, int32_t stages) {
    int32_t shown = stages_shown(stages);
    return shown < 2 ? 0 : (int32_t)((int64_t)row * (stages - 1) / (shown - 1));
}

static enum status draw_stage_names(struct text_buffer *out, int32_t stages, double top) {
    for (int32_t row = 0; row < stages_shown(stages); row++)
        TRY(svg_print(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#55606e\">stage %d</text>\n",
                      SVG_LEFT - 8, top + ROW_PIXELS * (row + 0.65), stage_of_row(row, stages) + 1));
    return STATUS_OK;
}

/* --- when a rank of each stage does what --- */

static const struct part kinds[REPLAY_KIND_COUNT] = {
    [REPLAY_FORWARD] = {"forward", "#3b82c4"}, [REPLAY_BACKWARD] = {"backward", "#e8963a"},
    [REPLAY_UPDATE] = {"update", "#4f9d55"},   [REPLAY_GATHER] = {"gather", "#8f79d6"},
    [REPLAY_REDUCE] = {"reduce", "#d8745a"},   [REPLAY_HAND_OUT] = {"hand out", "#cf7fc0"}};

/* A run of instructions of one kind without a gap that could be seen is one bar. */
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
            TRY(svg_print(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", from, top,
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
    TRY(svg_begin(out, frame.title, (int)bottom + 80));
    TRY(svg_axes(out, &frame));
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
    struct replay replay = {0};
    int64_t pipeline = picture->job.layout.pipeline;
    int64_t shown = 2 * pipeline > MICRO_BATCHES_SHOWN ? 2 * pipeline : MICRO_BATCHES_SHOWN;
    enum status status = forecast_timeline(&picture->job, &calibration, shown, &replay);
    if (status == STATUS_OK) status = draw_rows(out, &replay);
    replay_free(&replay);
    return status;
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
        TRY(svg_print(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", svg_at(x, sum),
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
    TRY(svg_begin(out, frame.title, (int)bottom + 80));
    TRY(svg_axes(out, &frame));
    TRY(draw_stage_names(out, stages, SVG_TOP));
    for (int32_t row = 0; row < rows; row++) {
        struct rank_memory memory = rank_memory_of(&costs, stage_of_row(row, stages));
        TRY(draw_memory_row(out, &memory, &frame.x, SVG_TOP + ROW_PIXELS * row));
    }
    double limit = svg_at(&frame.x, picture->capacity_bytes);
    TRY(svg_print(
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
