#include "train/plan_change.h"

#include "base/log.h"
#include "session/kept_states.h"

/* Whether states can wait in memory: beside the larger of the two engines' arenas, one of which is open. */
static bool wait_in_memory(const struct train_run *run, const struct session_plan *next) {
    const struct programs *now = &run->plan.programs, *then = &next->programs;
    const struct machine *machine = &run->session.machine;
    int64_t larger = 0, open = now->tier_bytes[TIER_DEVICE] + now->tier_bytes[TIER_HOST], capacity;
    if (machine->backend->memory) return false;
    for (enum tier tier = TIER_DEVICE; tier <= TIER_HOST; tier++)
        larger += now->tier_bytes[tier] > then->tier_bytes[tier] ? now->tier_bytes[tier] : then->tier_bytes[tier];
    if (machine_follow_memory(machine, open, &capacity) != STATUS_OK) return false;
    return larger + kept_states_bytes(&run->plan) <= capacity + machine->limits.host_bytes;
}

static enum status leave_engine(struct train_run *run, enum tier tier, struct kept_states *kept) {
    enum status status = kept_states_take(&run->engine, tier, run->folder, kept);
    if (status == STATUS_OK)
        train_loop_detach(run);
    else
        kept_states_free(kept);
    return status;
}

static enum status enter_engine(struct train_run *run, const struct kept_states *kept) {
    enum status status = engine_open(&run->plan, &run->engine);
    if (status == STATUS_OK) status = kept_states_give(kept, &run->engine);
    if (status == STATUS_OK) status = train_loop_attach(run);
    if (status != STATUS_OK) train_loop_detach(run);
    return status;
}

/* Whether memory is still there for it. No engine is open. */
static bool is_there(const struct train_run *run, const struct session_plan *plan) {
    int64_t capacity;
    if (machine_follow_memory(&run->session.machine, 0, &capacity) == STATUS_OK)
        return plan->programs.tier_bytes[TIER_DEVICE] <= capacity;
    status_clear();
    return true;
}

static enum status choose_once(struct train_run *run, struct session_plan *out) {
    const struct costs *known = run->watch.costs.kernels ? &run->watch.costs : NULL;
    struct machine *machine = &run->session.machine;
    TRY(machine_follow_memory(machine, 0, &machine->capacity_bytes[TIER_DEVICE]));
    TRY(session_plan_renew(&run->plan, NULL, known, out));
    enum status status = session_plan_check_memory(out);
    if (status != STATUS_OK) session_plan_free(out);
    return status;
}

/* A limit may be lowered bit by bit, as the run gives memory back. */
static enum status choose_now(struct train_run *run, struct session_plan *out) {
    enum { TRIES = 5 };
    TRY(choose_once(run, out));
    for (int i = 1; i < TRIES && !is_there(run, out); i++) {
        session_plan_free(out);
        TRY(choose_once(run, out));
    }
    return STATUS_OK;
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
    log_note("the plan stays as it is: %s", status_message());
    status_clear();
    run->session.machine.backend->set_threads(run->plan.chosen.threads);
    enum status status = enter_engine(run, kept);
    run->engine.torn = status != STATUS_OK;
    return status;
}

enum status plan_change_make(struct train_run *run, struct session_plan *next, bool *changed) {
    enum tier tier = next && wait_in_memory(run, next) ? TIER_HOST : TIER_DISK;
    struct session_plan chosen = {.session = NULL};
    struct kept_states kept;
    *changed = false;
    enum status status = leave_engine(run, tier, &kept);
    if (status != STATUS_OK) {
        log_note("the plan stays as it is: %s", status_message());
        status_clear();
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
