/* Where a plan's pipeline is cut: by the seconds of its blocks, into as many spans a stage as make the shortest
 * simulated step. */
#ifndef BALLAST_SESSION_STAGE_CUTS_H
#define BALLAST_SESSION_STAGE_CUTS_H

#include "session/session_plan.h"

/* For `graph`, by FLOPs, before anything is compiled: sets plan->chosen.policy.spans, of plan->request.virtual_stages
 * spans a stage (0: one). `limited`: each stage fits the device, where a cut does. */
enum status stage_cuts_by_flops(struct session_plan *plan, const struct graph *graph, bool limited);
/* The same by plan->costs, of a plan that is compiled; its programs are those of the cut before. */
enum status stage_cuts_by_seconds(struct session_plan *plan);

#endif
