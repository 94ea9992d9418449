/* A plan for many devices as a page (--page) and as drawings (--svg). */
#ifndef BALLAST_CLI_SCALE_VIEW_H
#define BALLAST_CLI_SCALE_VIEW_H

#include "cli/options.h"
#include "search/scale/choose.h"
#include "search/scale/failures.h"

/* What is asked, and what came of it. */
struct scale_plan {
    struct choice_request request;
    double price;                /* of a device an hour; 0: not given */
    double tokens;               /* of the whole training; 0: not given */
    double target_days;          /* 0: not given */
    struct failures failures;    /* node_mtbf_s 0: none are counted */
    struct choices pareto_front; /* for request.devices; empty where --devices was not given */
    struct choice curve[CHOICE_CURVE_MAX];
    int curve_count;
    const struct choice *target; /* of the curve: the fewest that end in time; NULL: none do, or none are asked */
};

double scale_plan_step_tokens(const struct scale_plan *plan);
/* Of the data sheet's rate, FLOPs of the model. */
double scale_plan_mfu(const struct scale_plan *plan, const struct choice *choice);
/* Of the whole training; INFINITY where failures leave no time. */
double scale_plan_days(const struct scale_plan *plan, const struct choice *choice);
/* Of a million tokens. */
double scale_plan_price(const struct scale_plan *plan, const struct choice *choice);
/* Share of the time that is work which no failure undoes. */
double scale_plan_useful(const struct scale_plan *plan, const struct choice *choice);
extern const char *const scale_plan_recompute_names[RECOMPUTE_COUNT];

/* BAD_INPUT where --page or --svg would write over a file of another kind: before anything is computed. */
enum status scale_plan_check_outputs(const struct options *options);
/* Writes what --page and --svg ask for. */
enum status scale_plan_show(const struct options *options, const struct scale_plan *plan);

#endif
