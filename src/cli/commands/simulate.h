/* What `ballast simulate` and `ballast report` foretell: a plan's or a run's step, from its program and what this
 * machine was measured to do. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "cli/options.h"
#include "search/sim/step_summary.h"
#include "session/machine_costs.h"
#include "session/plan.h"

/* What is simulated, and all that is found out about it. */
struct prediction {
    const char *path;            /* the plan file or the run's directory */
    const char *model;           /* directory; in `memory` or the options */
    struct plan decided;         /* of that file or run */
    struct plan_options machine; /* of these the machine's alone: cluster file, disk (the option's, else the run's) */
    struct scratch memory;
    const char *measured_path; /* in `memory`; NULL: a plan */
    json_t *measured;          /* the run's timeline.json; NULL: it has none */
    struct session session;
    struct session_plan plan;
    struct machine_costs costs;
    struct stage_steps stages;
    const struct timeline *timeline; /* of `stages` */
    struct step_summary step;
    struct step_summary planned; /* what the plan file, or the run's, said when it was made; empty: nothing */
};

/* Of the command's first argument, with its --model, --disk and --cluster; a run knows its disk. BAD_INPUT names file
 * and field. It measures what was not measured on this machine before, for some seconds. The caller frees in any case.
 */
enum status prediction_make(const struct options *options, struct prediction *out);
void prediction_free(struct prediction *prediction);
