/* Whether a run would go on faster by another policy: the decision alone, from what its steps took and from the memory
 * that there is. The change itself is made by plan_change.h. */
#ifndef BALLAST_TRAIN_REPLAN_H
#define BALLAST_TRAIN_REPLAN_H

#include "session/session_plan.h"

enum replan_reason {
    REPLAN_NONE, /* the plan stays */
    REPLAN_FASTER,
    REPLAN_LESS_MEMORY,
    REPLAN_MORE_MEMORY /* and faster with it */
};
/* "faster", …, as metrics.jsonl has it. */
const char *replan_reason_name(enum replan_reason reason);

/* Seconds of a step by the plan and by another one, of the change, and the steps over which it has to pay. */
struct replan_gain {
    double now_s, other_s, change_s;
    int64_t steps;
};
/* Whether the other one is more than 5% faster, and saves more than the change takes. */
bool replan_pays(const struct replan_gain *gain);

/* The steps over which a gain is counted: those that are left but, once memory has become less, no more than have
 * passed since then. So memory that comes and goes moves a run only as often as that pays. `forced_step` -1: never. */
int64_t replan_horizon(int64_t step, int64_t steps, int64_t forced_step);

/* Steps from one decision to the next one, after `pause` before it: twice as many, up to some millions. */
int64_t replan_pause(int64_t pause);

/* Seconds that a change is taken to last: as if so many bytes of states waited on a slow disk. */
double replan_change_s(int64_t state_bytes);

struct replan_input {
    const struct session_plan *now;  /* on the machine as it is now described */
    const struct timeline *recorded; /* what the issues of its main program took, of this rank; NULL: not known */
    double change_s;
    int64_t steps; /* replan_horizon */
};
struct replan_choice {
    bool pays;
    struct replan_gain gain;  /* empty where no other plan was looked for */
    struct session_plan plan; /* where it pays, for the caller to free; else empty */
};
/* Fits `costs`, those of the plan's graph, to the recorded steps of all ranks, and looks for a faster plan by them
 * where that may save more than looking takes: rank 0 does, for all. Collective, with the same costs on all ranks.
 * FAILED without memory; what a plan can fail with: on all ranks alike, with *out empty. */
enum status replan_choose(const struct replan_input *input, struct costs *costs, struct replan_choice *out);

#endif
