/* A run watches its plan: it times its instructions, monitors memory, and changes to another plan if that pays or is
 * necessary. Losses and weights stay bit-identical.
 *
 * Three steps are recorded before the 5th, 15th, 35th … step of this part of the run, at doubling intervals. Costs are
 * learned from the minimum time of each instruction in them. Memory is checked once a second. If it falls below the
 * arenas' size, the run changes at once.
 *
 * With several ranks, each does so. Rank 0 decides by all ranks' records and by the minimum memory of any rank; all
 * change after the same step. Ranks with devices of their own keep their plan. Private to src/train. */
#pragma once

#include "search/sim/costs.h"
#include "search/sim/timeline.h"
#include "session/plan.h"

struct train_run;

/* Decides whether another policy would speed up a run, from the times of its steps and the available memory. */

enum replan_reason {
    REPLAN_NONE, /* the plan stays */
    REPLAN_FASTER,
    REPLAN_LESS_MEMORY,
    REPLAN_MORE_MEMORY /* and the new plan is faster */
};
/* "faster", …, as in metrics.jsonl. */
const char *replan_reason_name(enum replan_reason reason);

/* Step times of the current plan and another one, the time of the change, and the steps over which it must pay. */
struct replan_gain {
    double now_s, other_s, change_s;
    int64_t steps;
};
/* Whether the other plan is more than 5% faster and saves more time than the change takes. */
bool replan_pays(const struct replan_gain *gain);

/* The steps over which a gain is counted: the remaining steps. Once memory has fallen, at most the steps since then. So
 * fluctuating memory causes changes only as often as they pay. `forced_step` -1: never. */
int64_t replan_horizon(int64_t step, int64_t steps, int64_t forced_step);

/* Steps from one decision to the next, after `pause` before it: twice as many, up to some millions. */
int64_t replan_pause(int64_t pause);

/* Assumed seconds of a change, with so many bytes of states written to a slow disk. */
double replan_change_s(int64_t state_bytes);

struct replan_input {
    const struct session_plan *now;  /* for the machine as it is now described */
    const struct timeline *recorded; /* times of this rank's main program instructions; NULL: unknown */
    double change_s;
    int64_t steps; /* replan_horizon */
};
struct replan_choice {
    bool pays;
    struct replan_gain gain;  /* empty if no other plan was searched for */
    struct session_plan plan; /* if the change pays, for the caller to free; otherwise empty */
};
/* Fits `costs`, for the plan's graph, to the recorded steps of all ranks. Rank 0 then searches for a faster plan by
 * them, if it may save more than the search takes. Collective, with the same costs on all ranks. FAILED without memory.
 * If planning fails, all ranks return its status, with *out empty. */
enum status replan_choose(const struct replan_input *input, struct costs *costs, struct replan_choice *out);

/* Changes a run's plan between two steps. States move bit for bit from one engine to another.
 *
 * Two engines never hold memory at the same time. The effect of an error depends on its time. Before the old engine
 * closes, nothing has changed. After that, the old plan's engine is opened again and the run continues. Only if that
 * fails, too, the run ends; so if memory is scarce, a checkpoint comes first. A failure on one rank fails all. */

/* Changes the run to `next` between steps, while no checkpoint is in progress. Collective: each rank uses its own
 * programs of one plan. `next` is taken over if the run changes, otherwise the caller keeps it. `next` NULL: chooses a
 * plan for the machine as it is now described, while no engine has memory; states then wait on disk. OK with *changed
 * false: the plan stays, and a note says why. Any other status: the run no longer has an engine. */
enum status plan_change_make(struct train_run *run, struct session_plan *next, bool *changed);

struct plan_watch {
    bool on; /* otherwise the rest is unused */
    /* Each instruction as in the recorded step, since the last decision, in which it was fastest. This removes random
     * delays. Without events: none can be recorded. */
    struct timeline shortest;
    bool recorded;              /* whether `shortest` is set */
    struct costs costs;         /* of the plan's graph, as last measured; no kernels: unknown */
    int64_t next, pause;        /* the step after which a decision is made; steps from it to the next decision */
    int64_t forced_step;        /* the last step at which memory forced a change; -1: none */
    int64_t needed_bytes;       /* device tier of the plan, on the rank that needs the most */
    int64_t capacity_bytes;     /* of the device tier, at the last decision */
    int64_t no_fit_bytes;       /* capacity for which no plan was found; 0: none */
    int64_t looked_ns;          /* time of the last memory check */
    bool looks;                 /* all ranks check memory before the next step: one has less, or more */
    int64_t device_space_bytes; /* capacity of the device tier on each rank, if all ranks have just checked; otherwise
                                 * -1 */
};

/* A plan that a run changed to. */
struct train_replan {
    int64_t step; /* steps done */
    enum replan_reason reason;
    double before_s, after_s; /* predicted step times, by the same costs; 0: unknown */
    int64_t device_bytes_before, device_bytes;
    double seconds; /* of the change, including its checks */
};

/* Whether a run's plan is watched, and steps are therefore recorded on every rank. */
bool plan_watch_wanted(const struct train_run *run);
/* Starts watching. The run has its plan, engine and step record. Collective. FAILED without memory. */
enum status plan_watch_open(struct train_run *run);
void plan_watch_close(struct plan_watch *watch);
/* Whether to record the step after `step`; then counts it as recorded. Allocates nothing. */
bool plan_watch_records(const struct plan_watch *watch, int64_t step);
void plan_watch_take(struct plan_watch *watch, const struct timeline *recorded);
/* Call these between steps, before and after the ranks agree to continue. The first checks this rank's memory and
 * returns it; the second receives the minimum over all ranks. */
int64_t plan_watch_look(struct train_run *run);
void plan_watch_hear(struct train_run *run, int64_t min);
/* Between steps: changes the plan if that is due. Collective. A status other than OK ends the run. */
enum status plan_watch_turn(struct train_run *run);
