/* Predicts the step of a plan or run from its program and measurements of this machine, for `ballast simulate` and
 * `ballast report`. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "cli/options.h"
#include "search/sim/step_summary.h"
#include "session/machine_costs.h"
#include "session/plan.h"

/* A simulated step, with its inputs and results. */
struct prediction {
    const char *path;            /* the plan file or the run's directory */
    const char *model;           /* directory; stored in `memory` or the options */
    struct plan decided;         /* the plan of that file or run */
    struct plan_options machine; /* only the machine's options: cluster file, disk (by option, else the run's) */
    struct scratch memory;
    const char *measured_path; /* stored in `memory`; NULL for a plan file */
    json_t *measured;          /* the run's timeline.json; NULL: none */
    struct session session;
    struct session_plan plan;
    struct machine_costs costs;
    struct stage_steps stages;
    const struct timeline *timeline; /* part of `stages` */
    struct step_summary step;
    struct step_summary planned; /* the prediction stored in the plan file or run; empty: none */
};

/* Predicts the step of the command's first argument, with --model, --disk and --cluster. A run has a disk of its
 * own. Takes some seconds to measure operators that were not measured on this machine before. BAD_INPUT names file
 * and field. The caller calls prediction_free, also after a failure. */
enum status prediction_make(const struct options *options, struct prediction *out);
void prediction_free(struct prediction *prediction);
