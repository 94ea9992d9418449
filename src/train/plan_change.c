#include "train/plan_change.h"

#include "base/log.h"
#include "session/machine.h"
#include "session/states.h"

/* Whether states can wait in memory: next to the larger of the two engines' arenas, one of which is open. */
static bool wait_in_memory(const struct train_run *run, const struct session_plan *next) {
    const struct programs *now = &run->plan.programs, *then = &next->programs;
    const struct machine *machine = &run->session.machine;
    int64_t larger = 0, open = now->tier_bytes[TIER_DEVICE] + now->tier_bytes[TIER_HOST], capacity;
    if (machine->backend->memory) return false;
    for (enum tier tier = TIER_DEVICE; tier <= TIER_HOST; tier++)
        larger += now->tier_bytes[tier] > then->tier_bytes[tier] ? now->tier_bytes[tier] : then->tier_bytes[tier];
    if (machine_follow_memory(machine, open, &capacity) != STATUS_OK) return false;
    return larger + kept_states_bytes(&run->engine) <= capacity + machine->limits.host_bytes;
}

/* Whether each rank goes on with what it has: where something is cut, chunks of another size cut otherwise. `next`
 * NULL: not known yet. */
static bool each_keeps(const struct train_run *run, const struct session_plan *next) {
    if (session_ranks(&run->session) == 1) return true;
    return next && !partition_cuts(&run->plan.chosen.policy.partition) &&
           !partition_cuts(&next->chosen.policy.partition);
}

static enum status keep_states(struct train_run *run, const struct session_plan *next, struct kept_states *kept) {
    if (!each_keeps(run, next)) return kept_states_take_together(&run->engine, run->folder, kept);
    enum tier tier = next && wait_in_memory(run, next) ? TIER_HOST : TIER_DISK;
    return kept_states_take(&run->engine, tier, run->folder, kept);
}

void plan_change_report_stay(const struct train_run *run) {
    if (run_leads(run)) log_note("the plan stays as it is: %s", status_message());
    status_clear();
    run->session.comm->agreed_failure = false;
}

static enum status leave_engine(struct train_run *run, const struct session_plan *next, struct kept_states *kept) {
    enum status status = keep_states(run, next, kept);
    if (status == STATUS_OK)
        train_loop_detach(run);
    else
        kept_states_free(kept);
    return status;
}

static enum status enter_engine(struct train_run *run, const struct kept_states *kept) {
    enum status status = engine_open(&run->plan, &run->engine);
    if (status == STATUS_OK) status = kept_states_give(kept, &run->engine);
    if (status == STATUS_OK) status = run_agree(run, train_loop_attach(run));
    if (status != STATUS_OK) train_loop_detach(run);
    return status;
}

/* What memory each rank may take, with no engine open. */
static enum status find_capacity(const struct train_run *run, int64_t *bytes) {
    TRY(run_agree(run, machine_follow_memory(&run->session.machine, 0, bytes)));
    return rank_budget_min(run->session.comm, bytes);
}

static enum status renew(struct train_run *run, const struct costs *costs, struct session_plan *out) {
    TRY(session_plan_renew(&run->plan, NULL, costs, out));
    enum status status = run_agree(run, session_plan_check_memory(out));
    if (status != STATUS_OK) session_plan_free(out);
    return status;
}

/* Costs that are known are of the plan's own graph, and keep the search to that. A run fits them under a policy that
 * moves or computes again; under the plain one they are those of the profile. Where nothing fits by that graph, one
 * with other tiles, or in which light operators are recomputed, may. */
static enum status choose_once(struct train_run *run, struct session_plan *out) {
    bool fitted = run->watch.costs.kernels && !policy_is_plain(&run->plan.chosen.policy);
    TRY(find_capacity(run, &run->session.machine.capacity_bytes[TIER_DEVICE]));
    enum status status = renew(run, fitted ? &run->watch.costs : NULL, out);
    if (status != STATUS_NO_FIT || !fitted) return status;
    status_clear();
    run->session.comm->agreed_failure = false;
    return renew(run, NULL, out);
}

/* A limit may be lowered bit by bit, as the run gives memory back. */
static enum status choose_now(struct train_run *run, struct session_plan *out) {
    enum { TRIES = 5 };
    for (int i = 0;; i++) {
        int64_t capacity;
        TRY(choose_once(run, out));
        enum status status = find_capacity(run, &capacity);
        int64_t headroom = capacity - out->programs.tier_bytes[TIER_DEVICE];
        if (status == STATUS_OK) status = rank_budget_min(run->session.comm, &headroom);
        if (status == STATUS_OK && (headroom >= 0 || i == TRIES - 1)) return STATUS_OK;
        session_plan_free(out);
        TRY(status);
    }
}

/* No engine is open. */
static enum status go_on_by(struct train_run *run, const struct session_plan *next, const struct kept_states *kept) {
    struct session_plan old = run->plan;
    run->plan = *next;
    enum status status = enter_engine(run, kept);
    if (status == STATUS_OK)
        session_plan_free(&old);
    else
        run->plan = old;
    return status;
}

/* The first error is a note where the run can go on, and the second one its end. */
static enum status go_back(struct train_run *run, const struct kept_states *kept) {
    plan_change_report_stay(run);
    run->session.machine.backend->set_threads(run->plan.chosen.threads);
    enum status status = enter_engine(run, kept);
    run->engine.partially_updated = status != STATUS_OK;
    return status;
}

enum status plan_change_make(struct train_run *run, struct session_plan *next, bool *changed) {
    struct session_plan chosen = {.session = NULL};
    struct kept_states kept;
    *changed = false;
    enum status status = leave_engine(run, next, &kept);
    if (status != STATUS_OK) {
        plan_change_report_stay(run);
        return STATUS_OK;
    }
    if (!next) status = choose_now(run, &chosen);
    if (status == STATUS_OK) status = go_on_by(run, next ? next : &chosen, &kept);
    *changed = status == STATUS_OK;
    if (!*changed && !next) session_plan_free(&chosen);
    if (!*changed) status = go_back(run, &kept);
    kept_states_free(&kept);
    return status;
}
