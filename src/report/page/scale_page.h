/* The page of a plan for many devices: one HTML file with the drawings of scale_plots.h and a table of each layout. */
#ifndef BALLAST_REPORT_PAGE_SCALE_PAGE_H
#define BALLAST_REPORT_PAGE_SCALE_PAGE_H

#include "report/page/scale_plots.h"

/* A column's heading and what a choice has there; `context` is the caller's. */
struct scale_column {
    const char *heading;
    enum status (*cell)(const void *context, const struct choice *choice, struct text_buffer *out);
};
/* Appends the page: drawings, then the Pareto front and the curve as tables of so many columns. FAILED without memory.
 */
enum status scale_page_make(const struct scale_picture *picture, const struct scale_column *columns, size_t count,
                            const void *context, struct text_buffer *out);
/* DIR/pareto_front.svg, curve.svg, timeline.svg and memory.svg, of what there is to draw; creates the directory. */
enum status scale_plots_write(const struct scale_picture *picture, const char *folder);

#endif
