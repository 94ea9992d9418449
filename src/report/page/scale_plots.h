/* Drawings of plans for many devices (search/scale/choose.h): the Pareto front, the curve over numbers of devices, what
 * the stages of a layout do when, and the memory of their ranks. Each is one SVG (svg.h), for the page and for a file.
 */
#ifndef BALLAST_REPORT_PAGE_SCALE_PLOTS_H
#define BALLAST_REPORT_PAGE_SCALE_PLOTS_H

#include "report/page/svg.h"
#include "search/scale/choose.h"

/* What is drawn; all is borrowed. */
struct scale_picture {
    const char *name;                  /* of model and cluster */
    const struct choice *pareto_front; /* may be empty */
    size_t pareto_front_count;
    const struct choice *curve; /* by rising devices */
    size_t curve_count;
    const struct choice *chosen;        /* whose timeline and memory are shown */
    struct training job;                /* of the chosen */
    double step_tokens, capacity_bytes; /* of a step; of a device */
};

enum scale_plot { SCALE_PLOT_PARETO_FRONT, SCALE_PLOT_CURVE, SCALE_PLOT_TIMELINE, SCALE_PLOT_MEMORY, SCALE_PLOT_COUNT };
/* "pareto_front", "curve", "timeline", "memory": of files, and of places in the page. */
const char *scale_plot_name(enum scale_plot plot);
/* What the drawing says, in a sentence. */
const char *scale_plot_caption(enum scale_plot plot);
/* Whether there is something to draw. */
bool scale_plot_has(const struct scale_picture *picture, enum scale_plot plot);
/* Appends the drawing. */
enum status scale_plot_draw(const struct scale_picture *picture, enum scale_plot plot, struct text_buffer *out);

#endif
