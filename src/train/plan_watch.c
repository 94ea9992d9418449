#include "train/plan_watch.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "session/kept_states.h"
#include "session/plan_document.h"
#include "train/plan_change.h"

enum { FIRST_PAUSE = 5, RECORDED_STEPS = 3, LOOK_EVERY_NS = 1000 * 1000 * 1000 };
/* Memory that comes and goes by less is nothing to change for. */
static const double MORE_MEMORY = 1.1;

static enum status open_fastest(struct train_run *run) {
    struct plan_watch *watch = &run->watch;
    timeline_free(&watch->fastest);
    watch->recorded = false;
    if (run->record.timeline.events.count == 0 || policy_is_plain(&run->plan.chosen.policy)) return STATUS_OK;
    return timeline_create(run->record.timeline.program, &watch->fastest);
}

enum status plan_watch_open(struct train_run *run) {
    run->watch = (struct plan_watch){.on = run->options->replan && session_ranks(&run->session) == 1,
                                     .next = run->state.step + FIRST_PAUSE,
                                     .pause = FIRST_PAUSE,
                                     .forced_step = -1,
                                     .capacity_bytes = run->session.machine.capacity_bytes[TIER_DEVICE],
                                     .looked_ns = clock_now_ns()};
    if (!run->watch.on) return STATUS_OK;
    if (run->plan.costs.kernels) TRY(costs_copy(&run->plan.costs, &run->watch.costs));
    return open_fastest(run);
}

void plan_watch_close(struct plan_watch *watch) {
    timeline_free(&watch->fastest);
    costs_free(&watch->costs);
    *watch = (struct plan_watch){.on = false};
}

bool plan_watch_records(const struct plan_watch *watch, int64_t step) {
    return watch->on && watch->fastest.events.count > 0 && step < watch->next && step >= watch->next - RECORDED_STEPS;
}

void plan_watch_take(struct plan_watch *watch, const struct timeline *recorded) {
    struct timeline *fastest = &watch->fastest;
    if (watch->recorded && fastest->step_s <= recorded->step_s) return;
    memcpy(fastest->events.items, recorded->events.items, recorded->events.count * sizeof *recorded->events.items);
    fastest->step_s = recorded->step_s;
    watch->recorded = true;
}

/* ---- changing ---- */

static int64_t arena_bytes(const struct programs *programs) {
    return programs->tier_bytes[TIER_DEVICE] + programs->tier_bytes[TIER_HOST];
}

/* What the run's folder says of its plan, and who is told. */
static enum status tell_change(struct train_run *run, const struct train_replan *replan) {
    run->settings.plan = run->plan.chosen;
    TRY(run_folder_write(run->folder, &run->settings));
    TRY(plan_document_write(run->folder, &run->plan, &run->prediction, run->settings.model_folder));
    TRY(metrics_write_replan(&run->metrics, replan));
    if (run->events->replanned) run->events->replanned(run->events->payload, replan, &run->plan);
    return STATUS_OK;
}

static enum status settle_change(struct train_run *run, struct train_replan *replan, int64_t began_ns) {
    run->state.plan = run->plan.chosen;
    run->off_steps = 0;
    run->smooth_step_s = 0;
    run->prediction = (struct step_summary){.step_s = 0};
    TRY(session_plan_find_costs(&run->plan));
    if (run->plan.costs.kernels) TRY(session_plan_predict(&run->plan, &run->prediction));
    if (run->plan.costs.kernels && !run->watch.costs.kernels) TRY(costs_copy(&run->plan.costs, &run->watch.costs));
    TRY(open_fastest(run));
    replan->step = run->state.step;
    replan->after_s = run->prediction.step_s;
    replan->device_bytes = run->plan.programs.tier_bytes[TIER_DEVICE];
    replan->seconds = (double)(clock_now_ns() - began_ns) * 1e-9;
    return tell_change(run, replan);
}

/* `next` as in plan_change.h. */
static enum status change(struct train_run *run, struct session_plan *next, enum replan_reason reason, double before_s,
                          int64_t began_ns, bool *changed) {
    struct train_replan replan = {
        .reason = reason, .before_s = before_s, .device_bytes_before = run->plan.programs.tier_bytes[TIER_DEVICE]};
    TRY(train_loop_finish_save(run));
    TRY(engine_settle(&run->engine));
    TRY(plan_change_make(run, next, changed));
    return *changed ? settle_change(run, &replan, began_ns) : STATUS_OK;
}

/* ---- less memory ---- */

static void tell_no_fit(const struct train_run *run, int64_t capacity_bytes) {
    char there[SIZE_TEXT], takes[SIZE_TEXT];
    log_warning("memory has become less: %s are left for the run, which takes %s; it goes on, and may be ended by the "
                "system",
                size_print(capacity_bytes, there), size_print(arena_bytes(&run->plan.programs), takes));
}

/* The checkpoint that comes first is what is left where the system ends the process. */
static enum status follow_less(struct train_run *run, int64_t capacity_bytes) {
    struct plan_watch *watch = &run->watch;
    int64_t began_ns = clock_now_ns();
    bool changed;
    if (run->options->save_every > 0) TRY(train_loop_save(run));
    run->session.machine.capacity_bytes[TIER_DEVICE] = capacity_bytes;
    TRY(change(run, NULL, REPLAN_LESS_MEMORY, 0, began_ns, &changed));
    watch->no_fit_bytes = changed ? 0 : capacity_bytes;
    if (!changed) tell_no_fit(run, capacity_bytes);
    watch->capacity_bytes = run->session.machine.capacity_bytes[TIER_DEVICE];
    watch->forced_step = run->state.step;
    watch->next = run->state.step + watch->pause;
    return STATUS_OK;
}

static bool was_tried(const struct plan_watch *watch, int64_t capacity_bytes) {
    return (double)capacity_bytes <= MORE_MEMORY * (double)watch->no_fit_bytes;
}

/* ---- a faster plan ---- */

static enum status choose(struct train_run *run, struct replan_choice *choice) {
    struct plan_watch *watch = &run->watch;
    const struct session_plan *now = &run->plan;
    const struct replan_facts facts = {
        .now = now,
        .recorded = watch->recorded ? &watch->fastest : NULL,
        .change_s = replan_change_s(kept_states_bytes(now)),
        .steps = replan_horizon(run->state.step, run->options->steps, watch->forced_step),
    };
    *choice = (struct replan_choice){.pays = false};
    return watch->costs.kernels ? replan_choose(&facts, &watch->costs, choice) : STATUS_OK;
}

static enum status decide(struct train_run *run, int64_t capacity_bytes) {
    struct plan_watch *watch = &run->watch;
    int64_t began_ns = clock_now_ns();
    bool more = (double)capacity_bytes > MORE_MEMORY * (double)watch->capacity_bytes, changed = false;
    struct replan_choice choice;
    run->session.machine.capacity_bytes[TIER_DEVICE] = capacity_bytes;
    enum status status = choose(run, &choice);
    if (status != STATUS_OK) {
        log_note("the plan stays as it is: %s", status_message());
        status_clear();
    }
    if (status == STATUS_OK && choice.pays) {
        status =
            change(run, &choice.plan, more ? REPLAN_MORE_MEMORY : REPLAN_FASTER, choice.gain.now_s, began_ns, &changed);
        if (!changed) session_plan_free(&choice.plan);
        TRY(status);
    }
    run->session.machine.backend->set_threads(run->plan.chosen.threads);
    watch->capacity_bytes = capacity_bytes;
    watch->recorded = false;
    watch->pause *= 2;
    watch->next = run->state.step + watch->pause;
    return STATUS_OK;
}

/* Whether to look, and what is there; where the system does not say, what there was. */
static bool look(struct train_run *run, int64_t *capacity_bytes) {
    struct plan_watch *watch = &run->watch;
    int64_t now_ns = clock_now_ns();
    if (now_ns - watch->looked_ns < LOOK_EVERY_NS && run->state.step < watch->next) return false;
    watch->looked_ns = now_ns;
    if (machine_follow_memory(&run->session.machine, arena_bytes(&run->plan.programs), capacity_bytes) == STATUS_OK)
        return true;
    status_clear();
    *capacity_bytes = watch->capacity_bytes;
    return true;
}

enum status plan_watch_turn(struct train_run *run) {
    struct plan_watch *watch = &run->watch;
    int64_t capacity_bytes;
    if (!watch->on || !look(run, &capacity_bytes)) return STATUS_OK;
    bool less = capacity_bytes < run->plan.programs.tier_bytes[TIER_DEVICE];
    bool more = (double)capacity_bytes > MORE_MEMORY * (double)watch->capacity_bytes;
    if (less) return was_tried(watch, capacity_bytes) ? STATUS_OK : follow_less(run, capacity_bytes);
    return more || run->state.step >= watch->next ? decide(run, capacity_bytes) : STATUS_OK;
}
