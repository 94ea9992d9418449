/* A policy for programs that do not fit under the one that was asked for; private to the session module. */
#ifndef BALLAST_SESSION_PLAN_POLICY_H
#define BALLAST_SESSION_PLAN_POLICY_H

#include "session/session_plan.h"

/* BAD_INPUT where flat operations are asked for by an option and the ranks' devices use NCCL, which chooses its
 * ways itself. A plan file that has them is taken: there it changes nothing. */
enum status plan_policy_check_ways(const struct plan_request *request, const struct rank_place *place);

/* Where the plan's programs do not fit the machine's tiers, compiles others under the policies that a search finds,
 * the fastest first, until some do: `chosen`, `programs`, `search` and `costs` are then theirs. If none does, they are
 * as they were. */
enum status plan_policy_choose(struct session_plan *plan);

/* What no policy of plan->chosen's shape goes below; nothing is compiled. `graph` and `costs` are of its main program
 * (machine_costs_bound). */
enum status plan_policy_bound(struct session_plan *plan, const struct graph *graph, const struct costs *costs,
                              struct search_bound *out);
/* A step of plan->chosen as the search sees it, with the plan's costs; step_s 0: it does not fit. */
enum status plan_policy_measure(struct session_plan *plan, struct trial *out);

/* What a request takes under the policy that takes least of the device, of those that tiers of `capacity_bytes` below
 * it hold. Nothing is measured. */
struct min_memory {
    int64_t min_bytes;              /* of the device: session_plan.min_bytes */
    int64_t tier_bytes[TIER_COUNT]; /* of the programs that were compiled last */
    bool fits;                      /* all of them, compiled and proved, fit */
};
enum status plan_policy_find_min_memory(const struct session *session, const struct plan_request *request,
                                        const int64_t capacity_bytes[TIER_COUNT], struct min_memory *out);

#endif
