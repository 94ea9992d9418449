#include "session/tile_search.h"

#include <math.h>

#include "ir/token_tiles.h"
#include "session/plan_choice.h"
#include "session/plan_policy.h"

/* A micro-batch in so many tiles: with more of them GEMMs have fewer tokens than they need to reach their rate. */
static const int64_t tile_counts[] = {4, 16};

static int64_t micro_batch_tokens(const struct session_plan *plan) {
    return plan->chosen.recipe.micro_batch_sequences * plan->chosen.recipe.sequence_length;
}

static bool may_gain(const struct session_plan *plan) {
    const struct plan_request *request = &plan->request;
    int64_t tokens = micro_batch_tokens(plan);
    bool alone = rank_place_ranks(&plan->chosen.place) == 1 && request->faster_than_s == 0 && !request->costs;
    bool possible =
        tokens % OP_ROWS_APART == 0 && tokens > OP_ROWS_APART && programs_take_tiles(&plan->session->machine);
    bool open = program_set_has(&request->set, PROGRAM_STEP) && policy_is_plain(&request->plan.policy);
    return alone && possible && open && !(plan_choice_fits(plan) && policy_stays(&plan->chosen.policy)) &&
           graph_has_tiles(programs_main(&plan->programs)->graph);
}

/* A step of the plan's; INFINITY where it does not fit. */
static enum status time_step(struct session_plan *plan, double *seconds) {
    struct trial measured;
    *seconds = INFINITY;
    if (!plan_choice_fits(plan)) return STATUS_OK;
    TRY(session_plan_measure(plan));
    TRY(plan_policy_measure(plan, &measured));
    bool sum = plan->request.objective == OBJECTIVE_SUM;
    if (measured.step_s > 0) *seconds = sum ? measured.sum_s : measured.step_s;
    return STATUS_OK;
}

static enum status choose_with(struct session_plan *plan) {
    TRY(plan_choice_compile(plan));
    return plan_policy_choose(plan);
}

/* The better one of the plan and one with tiles of so many tokens. */
static enum status try_tile(struct session_plan *plan, int64_t tile_tokens, double *best_s) {
    struct session_plan tiled = {.session = plan->session, .request = plan->request, .chosen = plan->chosen};
    tiled.chosen.policy = plan->request.plan.policy;
    tiled.chosen.policy.tile_tokens = tile_tokens;
    tiled.chosen.policy.selective_recompute = plan->chosen.policy.selective_recompute;
    tiled.request.faster_than_s = *best_s;
    double seconds = INFINITY;
    enum status status = choose_with(&tiled);
    tiled.request.faster_than_s = 0;
    if (status == STATUS_OK) status = time_step(&tiled, &seconds);
    if (tiled.min_bytes < plan->min_bytes) plan->min_bytes = tiled.min_bytes;
    if (status == STATUS_OK && seconds < *best_s) {
        *best_s = seconds;
        tiled.min_bytes = plan->min_bytes;
        session_plan_free(plan);
        *plan = tiled;
    } else {
        session_plan_free(&tiled);
    }
    return status;
}

enum status tile_search(struct session_plan *plan) {
    int64_t tokens = micro_batch_tokens(plan), last = tokens;
    double best_s;
    if (!may_gain(plan)) return STATUS_OK;
    TRY(time_step(plan, &best_s));
    for (size_t i = 0; i < sizeof tile_counts / sizeof *tile_counts; i++) {
        int64_t runs = (tokens / OP_ROWS_APART + tile_counts[i] - 1) / tile_counts[i];
        if (runs * OP_ROWS_APART >= last) continue;
        last = runs * OP_ROWS_APART;
        TRY(try_tile(plan, last, &best_s));
    }
    return STATUS_OK;
}
