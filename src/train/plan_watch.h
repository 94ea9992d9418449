/* A run watches its plan: it times its own instructions and looks at the memory that there is, and changes to another
 * plan where that pays (replan.h) or must be. Losses and weights stay the same bit for bit.
 *
 * Three steps are recorded before the 5th, 15th, 35th … step of this part of the run, each time twice as far apart, and
 * costs are learned from the shortest time of each instruction in them. Memory is looked at once a second. Where it has
 * become less than the arenas take, the run changes at once.
 *
 * Of several ranks each does so; rank 0 decides by what all of them recorded and by the least memory that one of them
 * has, and all change after the same step. Ranks with devices of their own keep their plan. Private to src/train. */
#ifndef BALLAST_TRAIN_PLAN_WATCH_H
#define BALLAST_TRAIN_PLAN_WATCH_H

#include "search/sim/costs.h"
#include "search/sim/timeline.h"
#include "train/replan.h"

struct train_run;

struct plan_watch {
    bool on; /* else nothing of this is used */
    /* Each issue as in that of the steps recorded since the last decision in which it took least: what held it up in
     * one of them counts for nothing. Without events: none can be recorded. */
    struct timeline shortest;
    bool recorded;              /* whether there is one */
    struct costs costs;         /* of the plan's graph as they were measured last; without kernels: not known */
    int64_t next, pause;        /* the step after which is decided; those from that one to the one after */
    int64_t forced_step;        /* at which memory last made the run change; -1: none */
    int64_t needed_bytes;       /* of the device tier by the plan, on the rank that needs most */
    int64_t capacity_bytes;     /* of the device tier, at the last decision */
    int64_t no_fit_bytes;       /* capacity with which no plan was found; 0: none */
    int64_t looked_ns;          /* when memory was last looked at */
    bool looks;                 /* before the next step all ranks look at their memory: one of them has less, or more */
    int64_t device_space_bytes; /* what the device tier may take on each rank, where all have just looked; -1: not */
};

/* A plan that a run changed to. */
struct train_replan {
    int64_t step; /* steps done */
    enum replan_reason reason;
    double before_s, after_s; /* predicted for a step, by the same costs; 0: not known */
    int64_t device_bytes_before, device_bytes;
    double seconds; /* that the change took, with what was looked at */
};

/* Whether a run's plan is watched at all: its steps are then recorded on every rank. */
bool plan_watch_wanted(const struct train_run *run);
/* For the steps to come. The run has its plan, engine and step record. Collective. FAILED without memory. */
enum status plan_watch_open(struct train_run *run);
void plan_watch_close(struct plan_watch *watch);
/* Whether the step after `step` is to be recorded, and, after it, that it was. Allocates nothing. */
bool plan_watch_records(const struct plan_watch *watch, int64_t step);
void plan_watch_take(struct plan_watch *watch, const struct timeline *recorded);
/* Between steps, before and after ranks tell each other whether to go on: what this rank says of its memory, and the
 * least that one of them said. */
int64_t plan_watch_look(struct train_run *run);
void plan_watch_hear(struct train_run *run, int64_t min);
/* Between steps: changes the plan where that is due. Collective. Not OK: what ends the run. */
enum status plan_watch_turn(struct train_run *run);

#endif
