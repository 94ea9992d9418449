#include "search/scale/replay.h"

#include <math.h>

enum status replay_add(struct replay *replay, struct replay_instruction instruction, int32_t *out) {
    if (replay->instructions.count >= INT32_MAX)
        return status_set(STATUS_BAD_INPUT, "the step has too many instructions to be simulated");
    TRY(vec_push(&replay->instructions, instruction));
    if (out) *out = (int32_t)replay->instructions.count - 1;
    return STATUS_OK;
}

/* State of a queue. */
struct queue_state {
    int32_t next;    /* first instruction that has not begun; REPLAY_NONE: all have begun */
    int32_t running; /* REPLAY_NONE: it waits or is done */
    double left_s;   /* remaining time of the running one, without slowdown */
    double free_s;   /* end of the last one */
};

struct stage_state {
    struct queue_state queues[REPLAY_QUEUE_COUNT];
    double time_s;  /* time at which left_s is valid */
    double busy_s;  /* of its kernels */
    double event_s; /* time of the next known end or begin here; INFINITY: depends on another stage */
    int32_t place;  /* index in the heap */
};

struct run {
    struct scratch memory;
    struct replay *replay;
    struct stage_state *states;
    int32_t *following; /* by instruction: the next on its queue */
    int32_t *heap;      /* stages by event_s */
    int32_t *waiting;   /* by instruction: first stage and queue (2 * stage + queue) that waits for it */
    int32_t *others;    /* by stage and queue: the next that waits for the same */
};

static void heap_put(struct run *run, int32_t place, int32_t stage) {
    run->heap[place] = stage;
    run->states[stage].place = place;
}

static void heap_settle(struct run *run, int32_t stage) {
    int32_t place = run->states[stage].place, count = run->replay->stages;
    double key = run->states[stage].event_s;
    while (place > 0 && run->states[run->heap[(place - 1) / 2]].event_s > key) {
        heap_put(run, place, run->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (int32_t child = 2 * place + 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && run->states[run->heap[child + 1]].event_s < run->states[run->heap[child]].event_s)
            child++;
        if (run->states[run->heap[child]].event_s >= key) break;
        heap_put(run, place, run->heap[child]);
        place = child;
    }
    heap_put(run, place, stage);
}

static bool ended(const struct run *run, int32_t instruction) {
    return run->replay->instructions.items[instruction].end_s >= 0;
}

/* Time at which the queue's next instruction may begin. INFINITY if it waits for one that has not ended; *blocked is
 * then that one. */
static double ready_s(const struct run *run, const struct queue_state *queue, int32_t *blocked) {
    const struct replay_instruction *next = &run->replay->instructions.items[queue->next];
    double ready = queue->free_s;
    *blocked = REPLAY_NONE;
    for (int i = 0; i < 2; i++) {
        int32_t other = next->waits[i].instruction;
        if (other == REPLAY_NONE) continue;
        if (!ended(run, other)) {
            *blocked = other;
            return INFINITY;
        }
        ready = fmax(ready, run->replay->instructions.items[other].end_s + next->waits[i].after_s);
    }
    return ready;
}

static double pace(const struct run *run, const struct stage_state *state, int queue) {
    int32_t beside = state->queues[REPLAY_COLLECTIVES].running;
    if (queue != REPLAY_KERNELS || beside == REPLAY_NONE) return 1;
    return 1 / (1 + run->replay->instructions.items[beside].slows);
}

/* Known end of the running instruction of the queue. */
static double end_of(const struct run *run, const struct stage_state *state, int queue) {
    return state->time_s + state->queues[queue].left_s / pace(run, state, queue);
}

static void wait_for(struct run *run, int32_t waiter, int32_t instruction) {
    run->others[waiter] = run->waiting[instruction];
    run->waiting[instruction] = waiter;
}

/* Finds the time of the stage's next event. A queue that waits for another stage is linked to that instruction. */
static void plan_event(struct run *run, int32_t stage) {
    struct stage_state *state = &run->states[stage];
    double event = INFINITY;
    for (int q = 0; q < REPLAY_QUEUE_COUNT; q++) {
        struct queue_state *queue = &state->queues[q];
        int32_t blocked = REPLAY_NONE;
        if (queue->running != REPLAY_NONE)
            event = fmin(event, end_of(run, state, q));
        else if (queue->next != REPLAY_NONE)
            event = fmin(event, fmax(state->time_s, ready_s(run, queue, &blocked)));
        if (blocked != REPLAY_NONE && run->others[2 * stage + q] == REPLAY_NONE - 1)
            wait_for(run, 2 * stage + q, blocked);
    }
    state->event_s = event;
    heap_settle(run, stage);
}

static void advance(struct run *run, struct stage_state *state, double now) {
    double passed = now - state->time_s;
    for (int q = 0; q < REPLAY_QUEUE_COUNT; q++)
        if (state->queues[q].running != REPLAY_NONE) state->queues[q].left_s -= passed * pace(run, state, q);
    state->time_s = now;
}

/* Re-examines queues that wait for the instruction. */
static void wake(struct run *run, int32_t instruction) {
    int32_t waiter = run->waiting[instruction];
    run->waiting[instruction] = REPLAY_NONE;
    while (waiter != REPLAY_NONE) {
        int32_t after = run->others[waiter], stage = waiter / 2;
        run->others[waiter] = REPLAY_NONE - 1;
        if (run->states[stage].time_s < run->replay->instructions.items[instruction].end_s)
            advance(run, &run->states[stage], run->replay->instructions.items[instruction].end_s);
        plan_event(run, stage);
        waiter = after;
    }
}

static const double SLACK_S = 1e-12; /* closer events are simultaneous */

static void finish(struct run *run, struct queue_state *queue, double now) {
    int32_t done = queue->running;
    run->replay->instructions.items[done].end_s = now;
    queue->running = REPLAY_NONE;
    queue->free_s = now;
    if (now > run->replay->end_s) run->replay->end_s = now;
    wake(run, done);
}

static void begin(struct run *run, struct queue_state *queue, double now) {
    struct replay_instruction *next = &run->replay->instructions.items[queue->next];
    next->start_s = now;
    queue->running = queue->next;
    queue->left_s = next->seconds;
    queue->next = run->following[queue->running];
}

/* Handles everything that ends or begins on the stage at its event. */
static void happen(struct run *run, int32_t stage) {
    struct stage_state *state = &run->states[stage];
    double now = state->event_s;
    bool ends[REPLAY_QUEUE_COUNT];
    /* Checked before time advances: for long times the remainder may be rounding error, and never 0. */
    for (int q = 0; q < REPLAY_QUEUE_COUNT; q++)
        ends[q] = state->queues[q].running != REPLAY_NONE && end_of(run, state, q) <= now + SLACK_S;
    advance(run, state, now);
    for (int q = 0; q < REPLAY_QUEUE_COUNT; q++)
        if (ends[q]) finish(run, &state->queues[q], now);
    for (int q = 0; q < REPLAY_QUEUE_COUNT; q++) {
        struct queue_state *queue = &state->queues[q];
        int32_t blocked;
        if (queue->running == REPLAY_NONE && queue->next != REPLAY_NONE &&
            ready_s(run, queue, &blocked) <= now + SLACK_S)
            begin(run, queue, now);
    }
    plan_event(run, stage);
}

static enum status allocate(struct run *run) {
    size_t count = run->replay->instructions.count, stages = (size_t)run->replay->stages;
    TRY(scratch_items(&run->memory, &run->states, stages));
    TRY(scratch_items(&run->memory, &run->following, count));
    TRY(scratch_items(&run->memory, &run->heap, stages));
    TRY(scratch_items(&run->memory, &run->waiting, count));
    return scratch_items(&run->memory, &run->others, 2 * stages);
}

static void link_queues(struct run *run) {
    struct replay *replay = run->replay;
    for (int32_t stage = 0; stage < replay->stages; stage++) {
        for (int q = 0; q < REPLAY_QUEUE_COUNT; q++) {
            run->states[stage].queues[q] = (struct queue_state){.next = REPLAY_NONE, .running = REPLAY_NONE};
            run->others[2 * stage + q] = REPLAY_NONE - 1;
        }
        heap_put(run, stage, stage);
    }
    for (int32_t i = (int32_t)replay->instructions.count - 1; i >= 0; i--) {
        struct replay_instruction *one = &replay->instructions.items[i];
        struct queue_state *queue = &run->states[one->stage].queues[one->queue];
        one->end_s = -1;
        if (one->queue == REPLAY_KERNELS) run->states[one->stage].busy_s += one->seconds;
        run->waiting[i] = REPLAY_NONE;
        run->following[i] = queue->next;
        queue->next = i;
    }
}

enum status replay_run(struct replay *replay) {
    struct run run = {.replay = replay};
    enum status status = allocate(&run);
    replay->end_s = replay->busy_s = 0;
    if (status == STATUS_OK) {
        link_queues(&run);
        for (int32_t stage = 0; stage < replay->stages; stage++)
            plan_event(&run, stage);
        while (replay->stages > 0 && run.states[run.heap[0]].event_s < INFINITY)
            happen(&run, run.heap[0]);
        for (int32_t stage = 0; stage < replay->stages; stage++)
            replay->busy_s = fmax(replay->busy_s, run.states[stage].busy_s);
        for (size_t i = 0; i < replay->instructions.count; i++)
            BUG_IF(replay->instructions.items[i].end_s < 0, "the waits of instruction %zu go around in a circle", i);
    }
    scratch_free(&run.memory);
    return status;
}

void replay_free(struct replay *replay) { vec_free(&replay->instructions); }
