#include "train/replan.h"

#include <string.h>

#include "sim/cost_fit.h"

/* Predictions are wrong by some percent: less is no reason. */
static const double GAIN_LEAST = 0.05;
/* A search for a policy takes about so long (search/search.h). */
static const double SEARCH_S = 0.5;
/* Written and read again; no disk that one would train on is slower. */
static const double CHANGE_BYTES_PER_S = 1e8, CHANGE_LEAST_S = 0.1;

const char *replan_reason_name(enum replan_reason reason) {
    static const char *const names[] = {[REPLAN_NONE] = "none",
                                        [REPLAN_FASTER] = "faster",
                                        [REPLAN_LESS_MEMORY] = "less memory",
                                        [REPLAN_MORE_MEMORY] = "more memory"};
    return names[reason];
}

bool replan_pays(const struct replan_gain *gain) {
    double saved_s = gain->now_s - gain->other_s;
    return saved_s > GAIN_LEAST * gain->now_s && saved_s * (double)gain->steps > gain->change_s;
}

int64_t replan_horizon(int64_t step, int64_t steps, int64_t forced_step) {
    int64_t left = steps - step, passed = step - forced_step;
    return forced_step >= 0 && passed < left ? passed : left;
}

double replan_change_s(int64_t state_bytes) { return CHANGE_LEAST_S + (double)state_bytes / CHANGE_BYTES_PER_S; }

static enum status predict(const struct session_plan *plan, const struct costs *costs, double *step_s) {
    struct timeline timeline;
    TRY(simulate(programs_main(&plan->programs)->program, costs, &timeline));
    *step_s = timeline.step_s;
    timeline_free(&timeline);
    return STATUS_OK;
}

static enum status look_for_other(const struct replan_facts *facts, const struct costs *costs,
                                  struct replan_choice *choice) {
    TRY(session_plan_renew(facts->now, NULL, costs, &choice->plan));
    const struct machine *machine = &facts->now->session->machine;
    bool fits = true;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        fits &= choice->plan.programs.tier_bytes[tier] <= machine->capacity_bytes[tier];
    enum status status = predict(&choice->plan, costs, &choice->gain.other_s);
    choice->pays = status == STATUS_OK && fits && replan_pays(&choice->gain);
    if (!choice->pays) session_plan_free(&choice->plan);
    return status;
}

enum status replan_choose(const struct replan_facts *facts, struct costs *costs, struct replan_choice *out) {
    *out = (struct replan_choice){.gain = {.change_s = facts->change_s, .steps = facts->steps}};
    if (policy_is_plain(&facts->now->chosen.policy)) return STATUS_OK; /* nothing is moved or computed again */
    if (facts->recorded) TRY(costs_fit(facts->recorded, costs));
    TRY(predict(facts->now, costs, &out->gain.now_s));
    double most_s = out->gain.now_s * (double)facts->steps; /* that any plan can save */
    return GAIN_LEAST * most_s > SEARCH_S ? look_for_other(facts, costs, out) : STATUS_OK;
}
