/* Chains: sections 10 and 11. */
#include <math.h>

#include "plan/recompute.h"
#include "support/case_results.h"
#include "support/rotor_cases.h"

/* cost->time is infinite where no schedule fits. */
static enum status solve(const struct rotor_case *one, struct recompute_cost *cost) {
    struct recompute_schedule schedule = {0};
    enum status status = rotor_solve(&one->chain, one->slots, &schedule, cost);
    vec_free(&schedule);
    if (status == STATUS_NO_FIT) {
        *cost = (struct recompute_cost){.time = INFINITY};
        return STATUS_OK;
    }
    return status == STATUS_OK ? status : status_prefix(status, "cases[%d]", one->index);
}

/* The flop_times of section 11 have no "memory_slots" of their own, and no entry in the array. */
static enum status add(const char *name, const struct rotor_case *one, struct case_results *out) {
    struct recompute_cost cost;
    TRY(solve(one, &cost));
    bool fits = !isinf(cost.time);
    struct case_result result = {.section = name, .index = one->index, .objective = cost.time};
    result.silent = one->kind == ROTOR_CASE_MODEL_FLOPS;
    snprintf(result.place, sizeof result.place, "cases[%d]%s, %lld slots", one->index,
             result.silent ? ".flop_times" : "", (long long)one->slots);
    if (one->answered) case_compare(&result, one->time, false);
    result.more =
        json_pack("{s:I, s:o}", "slots", (json_int_t)one->slots, "peak", fits ? json_integer(cost.peak) : json_null());
    return case_results_add(out, &result);
}

enum status solve_rotor_cases(const char *name, const json_t *section, struct case_results *out) {
    struct rotor_cases cases;
    TRY(rotor_cases_from_json(name, section, &cases));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < cases.count && status == STATUS_OK; i++)
        status = case_named(name, add(name, &cases.items[i], out));
    rotor_cases_free(&cases);
    return status;
}
