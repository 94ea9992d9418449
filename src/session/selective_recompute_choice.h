/* Whether light operators are recomputed in backward (policy.selective_recompute); private to the session module. */
#ifndef BALLAST_SESSION_SELECTIVE_RECOMPUTE_CHOICE_H
#define BALLAST_SESSION_SELECTIVE_RECOMPUTE_CHOICE_H

#include "session/session_plan.h"

/* For a plan that is compiled and whose policy is open. A step that fits is made to take less memory where that costs
 * next to no time, by counts: at least SELECTIVE_RECOMPUTE_FLOPS_PER_BYTE FLOPs of the step for each byte that is read
 * or written once more, and at least a SELECTIVE_RECOMPUTE_PART_MIN of the device's bytes saved; in fp32, whose
 * GEMMs take a byte's time for fewer FLOPs than those of bf16 with tiles, a SELECTIVE_RECOMPUTE_PART_MIN_FP32. One
 * that does not fit always is, since all else that makes it fit (moving, whole blocks computed again) costs more. */
enum {
    SELECTIVE_RECOMPUTE_FLOPS_PER_BYTE = 1000,
    SELECTIVE_RECOMPUTE_PART_MIN = 20,
    SELECTIVE_RECOMPUTE_PART_MIN_FP32 = 50
};
enum status selective_recompute_choose(struct session_plan *plan);

#endif
