#include "train/plan_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "session/machine.h"
#include "session/machine_costs.h"
#include "session/plan_document.h"
#include "session/states.h"
#include "train/plan_change.h"

enum { FIRST_PAUSE = 5, RECORDED_STEPS = 3, LOOK_EVERY_NS = 1000 * 1000 * 1000 };
/* Memory that comes and goes by less is nothing to change for. */
static const double MORE_MEMORY = 1.1;

static enum status open_shortest(struct train_run *run) {
    struct plan_watch *watch = &run->watch;
    timeline_free(&watch->shortest);
    watch->recorded = false;
    if (run->record.timeline.events.count == 0 || policy_is_plain(&run->plan.chosen.policy)) return STATUS_OK;
    return timeline_create(run->record.timeline.program, &watch->shortest);
}

bool plan_watch_wanted(const struct train_run *run) {
    return run->options->replan && (session_ranks(&run->session) == 1 || !run->session.machine.backend->memory);
}

/* Rank 0's, for all. */
static enum status know_costs(struct train_run *run) {
    size_t nodes = programs_main(&run->plan.programs)->graph->nodes.count;
    costs_free(&run->watch.costs);
    return run_agree(run, rank_costs_share(run->session.comm, &run->plan.costs, nodes, &run->watch.costs));
}

static enum status know_needed(struct train_run *run) {
    int64_t negative = -run->plan.programs.tier_bytes[TIER_DEVICE];
    TRY(rank_budget_min(run->session.comm, &negative));
    run->watch.needed_bytes = -negative;
    return STATUS_OK;
}

enum status plan_watch_open(struct train_run *run) {
    run->watch = (struct plan_watch){.on = plan_watch_wanted(run),
                                     .next = run->state.step + FIRST_PAUSE,
                                     .pause = FIRST_PAUSE,
                                     .forced_step = -1,
                                     .device_space_bytes = -1,
                                     .capacity_bytes = run->session.machine.capacity_bytes[TIER_DEVICE],
                                     .looked_ns = clock_now_ns()};
    if (!run->watch.on && run->options->replan && SETTINGS_HAVE(run->options, replan) && run_leads(run))
        log_note("--replan auto: several ranks with GPUs keep their plan");
    if (!run->watch.on) return STATUS_OK;
    TRY(know_costs(run));
    TRY(know_needed(run));
    return run_agree(run, open_shortest(run));
}

void plan_watch_close(struct plan_watch *watch) {
    timeline_free(&watch->shortest);
    costs_free(&watch->costs);
    *watch = (struct plan_watch){.on = false};
}

bool plan_watch_records(const struct plan_watch *watch, int64_t step) {
    return watch->on && watch->shortest.events.count > 0 && step < watch->next && step >= watch->next - RECORDED_STEPS;
}

void plan_watch_take(struct plan_watch *watch, const struct timeline *recorded) {
    for (size_t i = 0; i < recorded->events.count; i++) {
        struct timeline_event *kept = &watch->shortest.events.items[i];
        const struct timeline_event *event = &recorded->events.items[i];
        double kept_s = kept->end_s - kept->start_s, event_s = event->end_s - event->start_s;
        if (!watch->recorded || kept_s <= 0 || (event_s > 0 && event_s < kept_s)) *kept = *event;
    }
    watch->recorded = true;
}

/* ---- changing ---- */

static int64_t arena_bytes(const struct programs *programs) {
    return programs->tier_bytes[TIER_DEVICE] + programs->tier_bytes[TIER_HOST];
}

/* What the run's directory says of its plan, and who is told. */
static enum status report_change(struct train_run *run, const struct train_replan *replan) {
    run->settings.plan = run->plan.chosen;
    if (!run_leads(run)) return STATUS_OK;
    TRY(run_folder_write(run->folder, &run->settings));
    TRY(plan_document_write(run->folder, &run->plan, &run->prediction, run->settings.model_folder));
    TRY(metrics_write_replan(&run->metrics, replan));
    if (run->events->replanned) run->events->replanned(run->events->payload, replan, &run->plan);
    return STATUS_OK;
}

static enum status predict_step(struct train_run *run) {
    run->prediction = (struct step_summary){.step_s = 0};
    if (!run_leads(run)) return STATUS_OK;
    TRY(session_plan_find_costs(&run->plan));
    return run->plan.costs.kernels ? session_plan_predict(&run->plan, &run->prediction) : STATUS_OK;
}

static enum status settle_change(struct train_run *run, struct train_replan *replan, int64_t began_ns) {
    run->state.plan = run->plan.chosen;
    run->off_steps = 0;
    run->smooth_step_s = 0;
    TRY(run_agree(run, predict_step(run)));
    TRY(know_costs(run)); /* of the graph that there is now */
    TRY(know_needed(run));
    replan->step = run->state.step;
    replan->after_s = run->prediction.step_s;
    replan->device_bytes = run->plan.programs.tier_bytes[TIER_DEVICE];
    replan->seconds = (double)(clock_now_ns() - began_ns) * 1e-9;
    enum status status = open_shortest(run);
    return run_agree(run, status == STATUS_OK ? report_change(run, replan) : status);
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

static void report_no_fit(const struct train_run *run, int64_t capacity_bytes) {
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
    if (run->options->save_every > 0 && run->state.step > 0) TRY(train_loop_save(run));
    run->session.machine.capacity_bytes[TIER_DEVICE] = capacity_bytes;
    TRY(change(run, NULL, REPLAN_LESS_MEMORY, 0, began_ns, &changed));
    watch->no_fit_bytes = changed ? 0 : capacity_bytes;
    if (!changed && run_leads(run)) report_no_fit(run, capacity_bytes);
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
    const struct replan_input input = {
        .now = now,
        .recorded = watch->recorded ? &watch->shortest : NULL,
        .change_s = replan_change_s(kept_states_bytes(&run->engine)),
        .steps = replan_horizon(run->state.step, run->options->steps, watch->forced_step),
    };
    *choice = (struct replan_choice){.pays = false};
    return watch->costs.kernels ? replan_choose(&input, &watch->costs, choice) : STATUS_OK;
}

static enum status decide(struct train_run *run, int64_t capacity_bytes) {
    struct plan_watch *watch = &run->watch;
    int64_t began_ns = clock_now_ns();
    bool more = (double)capacity_bytes > MORE_MEMORY * (double)watch->capacity_bytes, changed = false;
    struct replan_choice choice;
    run->session.machine.capacity_bytes[TIER_DEVICE] = capacity_bytes;
    enum status status = choose(run, &choice);
    if (status != STATUS_OK) plan_change_report_stay(run);
    if (status == STATUS_OK && choice.pays) {
        status =
            change(run, &choice.plan, more ? REPLAN_MORE_MEMORY : REPLAN_FASTER, choice.gain.now_s, began_ns, &changed);
        if (!changed) session_plan_free(&choice.plan);
        TRY(status);
    }
    run->session.machine.backend->set_threads(run->plan.chosen.threads);
    watch->capacity_bytes = capacity_bytes;
    watch->recorded = false;
    watch->pause = replan_pause(watch->pause);
    watch->next = run->state.step + watch->pause;
    return STATUS_OK;
}

/* ---- looking ---- */

enum { NOTHING_SEEN = INT64_MAX, REQUESTS_A_LOOK = 0 };

/* What this rank may take; where the system does not say, what there was. */
static int64_t look_now(struct train_run *run) {
    int64_t bytes;
    run->watch.looked_ns = clock_now_ns();
    if (machine_follow_memory(&run->session.machine, arena_bytes(&run->plan.programs), &bytes) == STATUS_OK)
        return bytes;
    status_clear();
    return run->watch.capacity_bytes;
}

static bool is_less(const struct train_run *run, int64_t bytes) { return bytes < run->watch.needed_bytes; }
static bool is_more(const struct train_run *run, int64_t bytes) {
    return (double)bytes > MORE_MEMORY * (double)run->watch.capacity_bytes;
}

/* Whether all ranks look now: then all know that they do. */
static bool all_look(const struct train_run *run) { return run->watch.looks || run->state.step >= run->watch.next; }

int64_t plan_watch_look(struct train_run *run) {
    struct plan_watch *watch = &run->watch;
    if (!watch->on) return NOTHING_SEEN;
    if (all_look(run)) return look_now(run);
    if (clock_now_ns() - watch->looked_ns < LOOK_EVERY_NS) return NOTHING_SEEN;
    int64_t bytes = look_now(run);
    if (session_ranks(&run->session) == 1) return bytes;
    bool wants = is_less(run, bytes) ? !was_tried(watch, bytes) : is_more(run, bytes);
    return wants ? REQUESTS_A_LOOK : NOTHING_SEEN;
}

void plan_watch_hear(struct train_run *run, int64_t min) {
    struct plan_watch *watch = &run->watch;
    if (!watch->on || min == NOTHING_SEEN) return;
    if (all_look(run) || session_ranks(&run->session) == 1)
        watch->device_space_bytes = min, watch->looks = false;
    else
        watch->looks = true;
}

enum status plan_watch_turn(struct train_run *run) {
    struct plan_watch *watch = &run->watch;
    int64_t capacity_bytes = watch->device_space_bytes;
    watch->device_space_bytes = -1;
    if (!watch->on || capacity_bytes < 0) return STATUS_OK;
    if (is_less(run, capacity_bytes))
        return was_tried(watch, capacity_bytes) ? STATUS_OK : follow_less(run, capacity_bytes);
    return is_more(run, capacity_bytes) || run->state.step >= watch->next ? decide(run, capacity_bytes) : STATUS_OK;
}
