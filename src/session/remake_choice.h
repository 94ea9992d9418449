/* Whether what is light is made again in backward (policy.remake); private to the session room. */
#ifndef BALLAST_SESSION_REMAKE_CHOICE_H
#define BALLAST_SESSION_REMAKE_CHOICE_H

#include "session/session_plan.h"

/* For a plan that is compiled and whose policy is open. A step that fits is made to take less memory where that costs
 * next to no time, by counts: at least REMAKE_FLOPS_PER_BYTE FLOPs of the step for each byte that is read or written
 * once more, and at least a REMAKE_LEAST_PART of the device's bytes saved; in fp32, whose products take a byte's time
 * for fewer FLOPs than those of bf16 with tiles, a REMAKE_LEAST_PART_FP32. One that does not fit always is, since all
 * else that makes it fit (moving, whole blocks computed again) costs more. */
enum { REMAKE_FLOPS_PER_BYTE = 1000, REMAKE_LEAST_PART = 20, REMAKE_LEAST_PART_FP32 = 50 };
enum status remake_choose(struct session_plan *plan);

#endif
