/* The page of a plan for many devices: one HTML file with the drawings below and a table of each layout. */
#pragma once

#include "base/text.h"
#include "search/scale/choose.h"

/* Drawings as SVG texts, which work both as files, for a paper, and inside the page. */

/* Labels: 12, 1.5k, 3M; seconds as 20 ms, 1.5 s; bytes as 12 GB. */
enum status svg_amount(struct text_buffer *out, double value);

/* Drawings of plans for many devices (search/scale/choose.h): the Pareto front, the curve over numbers of devices, the
 * activity of a layout's stages over time, and the memory of their ranks. Each is one SVG, for the page and for a
 * file. */

/* Data of the drawings; all borrowed. */
struct scale_picture {
    const char *name;                  /* of model and cluster */
    const struct choice *pareto_front; /* may be empty */
    size_t pareto_front_count;
    const struct choice *curve; /* in increasing order of devices */
    size_t curve_count;
    const struct choice *chosen;        /* the choice whose timeline and memory are shown */
    struct training job;                /* of `chosen` */
    double step_tokens, capacity_bytes; /* per step; per device */
};

enum scale_plot { SCALE_PLOT_PARETO_FRONT, SCALE_PLOT_CURVE, SCALE_PLOT_TIMELINE, SCALE_PLOT_MEMORY, SCALE_PLOT_COUNT };
/* "pareto_front", "curve", "timeline", "memory": names of files and of anchors in the page. */
const char *scale_plot_name(enum scale_plot plot);
/* Appends the drawing. */
enum status scale_plot_draw(const struct scale_picture *picture, enum scale_plot plot, struct text_buffer *out);

/* A column's heading and its text for a choice; `context` is the caller's. */
struct scale_column {
    const char *heading;
    enum status (*cell)(const void *context, const struct choice *choice, struct text_buffer *out);
};
/* Appends the page: drawings, then the Pareto front and the curve as tables of so many columns. FAILED without memory.
 */
enum status scale_page_make(const struct scale_picture *picture, const struct scale_column *columns, size_t count,
                            const void *context, struct text_buffer *out);
/* Writes DIR/pareto_front.svg, curve.svg, timeline.svg and memory.svg, as far as there are data; creates the
 * directory. */
enum status scale_plots_write(const struct scale_picture *picture, const char *folder);
