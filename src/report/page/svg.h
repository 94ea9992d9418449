/* Drawings as SVG: texts that stand alone as a file, for a paper, and inside the page alike. */
#ifndef BALLAST_REPORT_PAGE_SVG_H
#define BALLAST_REPORT_PAGE_SVG_H

#include "base/utf8.h"

/* Appends by printf's rules. FAILED without memory. */
__attribute__((format(printf, 2, 3))) enum status svg_print(struct text_buffer *out, const char *format, ...);
/* Appends a text with what XML and HTML would read as markup escaped. */
enum status svg_text(struct text_buffer *out, const char *text);

/* An axis: values `low` to `high` are drawn from pixel `from` to `to`, by their logarithms or as they are. */
struct svg_axis {
    double low, high, from, to;
    bool logarithmic;
};
double svg_at(const struct svg_axis *axis, double value);

/* One drawing: `title` above, its axes' titles next to them. */
struct svg_frame {
    const char *title, *across, *up;
    struct svg_axis x, y;
    enum status (*x_label)(struct text_buffer *out, double value); /* how a tick's value is written */
    enum status (*y_label)(struct text_buffer *out, double value);
};
enum { SVG_WIDTH = 720, SVG_HEIGHT = 400, SVG_LEFT = 84, SVG_RIGHT = 700, SVG_TOP = 44, SVG_BOTTOM = 340 };
/* <svg>, the title, both axes with ticks at round values and lines behind what is drawn next. `height` of the whole. */
enum status svg_begin(struct text_buffer *out, const char *title, int height);
enum status svg_axes(struct text_buffer *out, const struct svg_frame *frame);
enum status svg_end(struct text_buffer *out);

/* Labels: 12, 1.5k, 3M; seconds as 20 ms, 1.5 s; bytes as 12 GB. */
enum status svg_amount(struct text_buffer *out, double value);
enum status svg_seconds(struct text_buffer *out, double value);
enum status svg_gigabytes(struct text_buffer *out, double value);

#endif
