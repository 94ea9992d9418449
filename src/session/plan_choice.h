/* How the plan of one shape of ranks comes about; private to the session module. */
#ifndef BALLAST_SESSION_PLAN_CHOICE_H
#define BALLAST_SESSION_PLAN_CHOICE_H

#include "session/session_plan.h"

/* The rest of the place of plan->chosen, whose mesh and axes are known. */
void plan_choice_place(struct session_plan *plan);
/* Whether its programs fit the machine's tiers. */
bool plan_choice_fits(const struct session_plan *plan);
/* Where the choice of a policy begins: the plain one, but for what options gave and where a pipeline is cut. */
struct policy plan_choice_begin(const struct session_plan *plan);
/* The graph of its main program. The caller frees it. */
enum status plan_choice_build_graph(const struct session_plan *plan, struct graph **out);
/* Where stages are cut, all programs of the plan are cut alike. `graph`: of the main program. BAD_INPUT where it has
 * too few blocks. */
enum status plan_choice_cut(struct session_plan *plan, const struct graph *graph);
/* Compiles the programs of plan->chosen, which are not proved. */
enum status plan_choice_compile(struct session_plan *plan);
/* The same, and where the policy is open the best that fits. BAD_INPUT where the model cannot have that shape. */
enum status plan_choice_make(struct session_plan *plan);

#endif
