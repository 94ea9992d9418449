#include "train/replan.h"

#include "session/machine.h"
#include "session/machine_costs.h"

/* Predictions are wrong by some percent: less is no reason. */
static const double GAIN_MIN = 0.05;
/* A search for a policy takes about so long (search/search.h). */
static const double SEARCH_S = 0.5;
/* Written and read again; no disk that one would train on is slower. */
static const double CHANGE_BYTES_PER_S = 1e8, CHANGE_MIN_S = 0.1;

const char *replan_reason_name(enum replan_reason reason) {
    static const char *const names[] = {[REPLAN_NONE] = "none",
                                        [REPLAN_FASTER] = "faster",
                                        [REPLAN_LESS_MEMORY] = "less memory",
                                        [REPLAN_MORE_MEMORY] = "more memory"};
    return names[reason];
}

bool replan_pays(const struct replan_gain *gain) {
    double saved_s = gain->now_s - gain->other_s;
    return saved_s > GAIN_MIN * gain->now_s && saved_s * (double)gain->steps > gain->change_s;
}

int64_t replan_horizon(int64_t step, int64_t steps, int64_t forced_step) {
    int64_t left = steps - step, passed = step - forced_step;
    return forced_step >= 0 && passed < left ? passed : left;
}

int64_t replan_pause(int64_t pause) {
    const int64_t max = 1 << 22;
    return pause < max ? 2 * pause : pause;
}

double replan_change_s(int64_t state_bytes) { return CHANGE_MIN_S + (double)state_bytes / CHANGE_BYTES_PER_S; }

static enum status predict(const struct session_plan *plan, const struct costs *costs, double *step_s) {
    struct stage_steps steps;
    enum status status = stage_steps_make(programs_main(&plan->programs), &plan->chosen, costs, &steps);
    if (status == STATUS_OK) *step_s = steps.step_s;
    stage_steps_free(&steps);
    return status;
}

static struct comm *comm_of(const struct replan_input *input) { return input->now->session->comm; }

/* What rank 0 came to, for all. */
static enum status share_gain(const struct replan_input *input, enum status mine, struct replan_gain *gain) {
    TRY(comm_agree(comm_of(input), mine));
    return comm_share(comm_of(input), gain, sizeof *gain);
}

static enum status fit(const struct replan_input *input, struct costs *costs) {
    struct fit_sum_over_ranks ranks = rank_costs_sum_over_ranks(comm_of(input));
    const struct program *program = programs_main(&input->now->programs)->program;
    return costs_fit(program, input->recorded, session_ranks(input->now->session) > 1 ? &ranks : NULL, costs);
}

static enum status look_for_other(const struct replan_input *input, const struct costs *costs,
                                  struct replan_choice *choice) {
    TRY(session_plan_renew(input->now, NULL, costs, &choice->plan));
    const struct machine *machine = &input->now->session->machine;
    int64_t misfit = 0;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (choice->plan.programs.tier_bytes[tier] > machine->capacity_bytes[tier]) misfit = -1;
    enum status status = rank_budget_min(comm_of(input), &misfit);
    if (status == STATUS_OK && comm_of(input)->rank == 0) status = predict(&choice->plan, costs, &choice->gain.other_s);
    status = share_gain(input, status, &choice->gain);
    choice->pays = status == STATUS_OK && misfit == 0 && replan_pays(&choice->gain);
    if (!choice->pays) session_plan_free(&choice->plan);
    return status;
}

enum status replan_choose(const struct replan_input *input, struct costs *costs, struct replan_choice *out) {
    enum status status = STATUS_OK;
    *out = (struct replan_choice){.gain = {.change_s = input->change_s, .steps = input->steps}};
    if (policy_is_plain(&input->now->chosen.policy)) return STATUS_OK; /* nothing is moved or computed again */
    TRY(fit(input, costs));
    if (comm_of(input)->rank == 0) status = predict(input->now, costs, &out->gain.now_s);
    TRY(share_gain(input, status, &out->gain));
    double max_s = out->gain.now_s * (double)out->gain.steps; /* that any plan can save */
    return GAIN_MIN * max_s > SEARCH_S ? look_for_other(input, costs, out) : STATUS_OK;
}
