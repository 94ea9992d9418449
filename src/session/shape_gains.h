/* What each part of a plan contributed: the seconds by which the best plan without it is slower. */
#ifndef BALLAST_SESSION_SHAPE_GAINS_H
#define BALLAST_SESSION_SHAPE_GAINS_H

#include "session/session_plan.h"

enum plan_part {
    PART_TENSOR,    /* without: each rank has whole tensors */
    PART_CUT,       /* without: tensors are cut as Megatron-LM does, with positions whole between GEMMs */
    PART_STAGES,    /* without: one stage */
    PART_PARTITION, /* without: each data rank has all model states; of the plan's shape */
    PART_MEMORY,    /* without: nothing is moved or computed again; of the plan's shape */
    PART_COUNT
};

struct plan_gain {
    bool used;     /* the plan has it; else it gains nothing */
    bool possible; /* without it a plan was found, or a bound of all of them; else none fits that was tried */
    bool exact;    /* else `seconds` is the least that it gains, or against shapes that were not tried expected */
    double seconds;
};

/* Of a plan whose shape was chosen. */
void plan_gains_find(const struct session_plan *plan, struct plan_gain out[PART_COUNT]);
/* {"tensor_parallel": {"used", "seconds", "exact"}, …}; seconds null where nothing fits without. NULL without memory.
 */
json_t *plan_gains_to_json(const struct session_plan *plan);

#endif
