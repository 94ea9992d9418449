/* A run watches its plan: it times its own instructions and looks at the memory that there is, and changes to another
 * plan where that pays or must be. Losses and weights stay the same bit for bit.
 *
 * Three steps are recorded before the 5th, 15th, 35th … step of this part of the run, each time twice as far apart, and
 * costs are learned from the shortest time of each instruction in them. Memory is looked at once a second. Where it has
 * become less than the arenas take, the run changes at once.
 *
 * Of several ranks each does so; rank 0 decides by what all of them recorded and by the least memory that one of them
 * has, and all change after the same step. Ranks with devices of their own keep their plan. Private to src/train. */
#pragma once

#include "search/sim/costs.h"
#include "search/sim/timeline.h"
#include "session/plan.h"

struct train_run;

/* Whether a run would go on faster by another policy: the decision alone, from what its steps took and from the memory
 * that there is. */

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

/* A run goes on by another plan: between two steps its states leave one engine and enter another one, bit for bit.
 *
 * At no time do two engines have memory. What becomes of an error depends on when it comes: before the old engine is
 * closed nothing has changed; after that the old plan's engine is opened again, and the run goes on as it was. Only
 * where that fails too is the run at its end: so where memory is short, a checkpoint comes first. What fails on one
 * rank fails on all. */

/* Between steps, on a run without a checkpoint that is being written; all ranks together, each to its own programs of
 * one plan. To `next`, which is taken over where
 * the run changes, and left to the caller where not. With `next` NULL, to the plan that is chosen for the machine as it
 * is now described while no engine has memory; states then wait on the disk. OK with *changed false: the plan stays,
 * and a note says why. Any other status: the run has no engine any more. */
enum status plan_change_make(struct train_run *run, struct session_plan *next, bool *changed);

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
