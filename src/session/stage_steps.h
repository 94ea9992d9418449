/* The steps of all stages of a plan's pipeline, simulated together: one rank of each, which wait for each other's
 * messages. Without a pipeline, the one step. */
#ifndef BALLAST_SESSION_STAGE_STEPS_H
#define BALLAST_SESSION_STAGE_STEPS_H

#include "runtime/executable.h"
#include "search/sim/simulate.h"

struct stage_step {
    struct program *program;  /* NULL: that of `main` */
    struct timeline timeline; /* step_s: of the slowest stage */
    double compute_s;         /* the compute stream at work */
    int64_t tier_bytes[TIER_COUNT];
};

struct stage_steps {
    int count;
    struct stage_step *list; /* by stage */
    double step_s;
    double bubble; /* the part of all stages' time in which they do not compute: Megatron-LM's measure of a pipeline
                      (arXiv 2104.04473, section 2.2), with all other waiting in it */
};

/* `main`: a step of the plan's graph, and where the plan has one stage its program; `costs` are of that graph. Stages
 * are compiled, without their proof, for the ranks that differ from the plan's along this axis alone. The caller frees,
 * also after a failure. */
enum status stage_steps_make(const struct executable *main, const struct plan *plan, const struct costs *costs,
                             struct stage_steps *out);
void stage_steps_free(struct stage_steps *steps);

#endif
