#include "train/plan_watch.h"

#include "base/clock.h"
#include "base/terminal.h"
#include "base/text.h"
#include "session/engine.h"
#include "session/machine_costs.h"
#include "session/plan.h"
#include "session/session.h"
#include "train/loop.h"

/* Predictions are off by some percent, so smaller gains do not count. */
static const double GAIN_MIN = 0.05;
/* Approximate time of a policy search (search/search.h). */
static const double SEARCH_S = 0.5;
/* States are written and read again. Disks used for training are at least this fast. */
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
    AUTO(stage_steps_free) struct stage_steps steps = {0};
    TRY(stage_steps_make(programs_main(&plan->programs), &plan->chosen, costs, &steps));
    *step_s = steps.step_s;
    return STATUS_OK;
}

static struct comm *comm_of(const struct replan_input *input) { return input->now->session->comm; }

/* Broadcasts rank 0's result. */
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
    if (policy_is_plain(&input->now->chosen.policy)) return STATUS_OK; /* nothing is moved or recomputed */
    TRY(fit(input, costs));
    if (comm_of(input)->rank == 0) status = predict(input->now, costs, &out->gain.now_s);
    TRY(share_gain(input, status, &out->gain));
    double max_s = out->gain.now_s * (double)out->gain.steps; /* the maximum that any plan can save */
    return GAIN_MIN * max_s > SEARCH_S ? look_for_other(input, costs, out) : STATUS_OK;
}

/* Whether states can wait in memory, next to the larger of the two engines' arenas. One arena is open at a time. */
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

/* Whether each rank keeps its part of the states. If something is cut, other chunk sizes cut it differently. `next`
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

/* Reports an error once and clears it. All ranks have agreed on the error, and the run is unchanged. */
static void plan_change_report_stay(const struct train_run *run) {
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

/* The memory that each rank may use, without an open engine. */
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

/* Known costs belong to the plan's own graph and restrict the search to it. A run fits them under a policy that moves
 * or recomputes; under the plain policy they come from the profile. If nothing fits with that graph, another graph may:
 * one with other tiles or selective recomputation. */
static enum status choose_once(struct train_run *run, struct session_plan *out) {
    bool fitted = run->watch.costs.kernels && !policy_is_plain(&run->plan.chosen.policy);
    TRY(find_capacity(run, &run->session.machine.capacity_bytes[TIER_DEVICE]));
    enum status status = renew(run, fitted ? &run->watch.costs : NULL, out);
    if (status != STATUS_NO_FIT || !fitted) return status;
    status_clear();
    run->session.comm->agreed_failure = false;
    return renew(run, NULL, out);
}

/* A limit may fall gradually, while the run frees memory. */
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

/* The first error is a note if the run can continue. The second one ends the run. */
static enum status go_back(struct train_run *run, const struct kept_states *kept) {
    plan_change_report_stay(run);
    run->session.machine.backend->set_threads(run->plan.chosen.threads);
    enum status status = enter_engine(run, kept);
    run->engine.partially_updated = status != STATUS_OK;
    return status;
}

enum status plan_change_make(struct train_run *run, struct session_plan *next, bool *changed) {
    struct session_plan chosen = {.session = NULL};
    AUTO(kept_states_free) struct kept_states kept = {0};
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
    return status;
}

enum { FIRST_PAUSE = 5, RECORDED_STEPS = 3, LOOK_EVERY_NS = 1000 * 1000 * 1000 };
/* Smaller changes of free memory do not justify a new plan. */
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

/* Broadcasts rank 0's costs. */
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

/* Updates the plan in the run's directory and reports the change. */
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
    TRY(know_costs(run)); /* of the current graph */
    TRY(know_needed(run));
    replan->step = run->state.step;
    replan->after_s = run->prediction.step_s;
    replan->device_bytes = run->plan.programs.tier_bytes[TIER_DEVICE];
    replan->seconds = (double)(clock_now_ns() - began_ns) * 1e-9;
    enum status status = open_shortest(run);
    return run_agree(run, status == STATUS_OK ? report_change(run, replan) : status);
}

/* `next` as in plan_watch.h. */
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

/* Saves a checkpoint first, which remains if the system kills the process. */
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

/* ---- memory checks ---- */

enum { NOTHING_SEEN = INT64_MAX, REQUESTS_A_LOOK = 0 };

/* The capacity of this rank; the last known one if the system does not report it. */
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

/* Whether all ranks check now, so that each knows that all do. */
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
