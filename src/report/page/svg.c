#include "report/page/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum status svg_print(struct text_buffer *out, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    BUG_IF(length < 0 || (size_t)length >= sizeof text, "an element of a drawing has %d characters", length);
    return text_append(out, text, (size_t)length);
}

enum status svg_text(struct text_buffer *out, const char *text) {
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

double svg_at(const struct svg_axis *axis, double value) {
    double low = axis->low, high = axis->high;
    if (axis->logarithmic) low = log10(low), high = log10(high), value = log10(value);
    return axis->from + (value - low) / (high > low ? high - low : 1) * (axis->to - axis->from);
}

enum status svg_begin(struct text_buffer *out, const char *title, int height) {
    TRY(svg_print(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                  "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" role=\"img\">\n<title>",
                  SVG_WIDTH, height, SVG_WIDTH, height));
    TRY(svg_text(out, title));
    TRY(svg_print(out, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", SVG_WIDTH, height));
    TRY(svg_print(out, "<text x=\"%d\" y=\"22\" font-size=\"14\" font-weight=\"bold\" fill=\"#17202b\">", SVG_LEFT));
    TRY(svg_text(out, title));
    return svg_print(out, "</text>\n");
}

enum status svg_end(struct text_buffer *out) { return svg_print(out, "</svg>\n"); }

/* The round step (1, 2 or 5 times a power of ten) that gives at most so many ticks. */
static double tick_step(double extent, int max) {
    double power = pow(10, floor(log10(extent / max)));
    static const double parts[] = {1, 2, 5, 10};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (extent / (parts[i] * power) <= max) return parts[i] * power;
    return 10 * power;
}

enum { TICKS_MAX = 24 };

/* Logarithmic: 1, 2 and 5 times each power of ten; of two decades and more the powers alone. */
static int find_ticks(const struct svg_axis *axis, double out[TICKS_MAX]) {
    int count = 0;
    if (!axis->logarithmic) {
        double step = tick_step(axis->high - axis->low > 0 ? axis->high - axis->low : 1, 7);
        for (double at = ceil(axis->low / step - 1e-9) * step; at <= axis->high + 1e-9 * step && count < TICKS_MAX;
             at += step)
            out[count++] = fabs(at) < 1e-9 * step ? 0 : at; /* not -0 */
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
            TRY(svg_print(out,
                          "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e1e5ea\"/><text x=\"%g\" "
                          "y=\"%.1f\" text-anchor=\"end\" fill=\"#55606e\">",
                          frame->x.from, frame->x.to, at, at, frame->x.from - 8, at + 4));
        else
            TRY(svg_print(out,
                          "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\" stroke=\"#e1e5ea\"/><text x=\"%.1f\" "
                          "y=\"%g\" text-anchor=\"middle\" fill=\"#55606e\">",
                          at, at, frame->y.to, frame->y.from, at, frame->y.from + 18));
        TRY((up ? frame->y_label : frame->x_label)(out, values[i]));
        TRY(svg_print(out, "</text>\n"));
    }
    return STATUS_OK;
}

enum status svg_axes(struct text_buffer *out, const struct svg_frame *frame) {
    if (frame->x_label) TRY(draw_ticks(out, frame, false));
    if (frame->y_label) TRY(draw_ticks(out, frame, true));
    TRY(svg_print(out, "<path d=\"M%g %gV%gH%g\" fill=\"none\" stroke=\"#8a939d\"/>\n", frame->x.from, frame->y.to,
                  frame->y.from, frame->x.to));
    TRY(svg_print(out, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\" fill=\"#17202b\">",
                  (frame->x.from + frame->x.to) / 2, frame->y.from + 38));
    TRY(svg_text(out, frame->across));
    TRY(svg_print(out,
                  "</text>\n<text transform=\"translate(16 %g) rotate(-90)\" text-anchor=\"middle\" fill=\"#17202b\">",
                  (frame->y.from + frame->y.to) / 2));
    TRY(svg_text(out, frame->up));
    return svg_print(out, "</text>\n");
}

enum status svg_amount(struct text_buffer *out, double value) {
    static const struct {
        double of;
        const char *name;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double in = units[i].of == 1e4 ? 1e3 : units[i].of;
        if (value >= units[i].of) return svg_print(out, "%.4g%s", value / in, units[i].name);
    }
    return svg_print(out, "%.4g", value);
}

enum status svg_seconds(struct text_buffer *out, double value) {
    if (value == 0) return svg_print(out, "0");
    return value < 1 ? svg_print(out, "%.4g ms", 1e3 * value) : svg_print(out, "%.4g s", value);
}

enum status svg_gigabytes(struct text_buffer *out, double value) { return svg_print(out, "%.4g GB", value / 1e9); }
