/* What a step's time is made of: the time on its critical path by stream, activity and phase. */
#include "search/sim/simulate.h"

/* Seconds of the critical path by stream, activity and phase. */
struct shares {
    double seconds[STREAM_ROLE_COUNT][ACTIVITY_COUNT][PHASE_COUNT];
};

/* The phase of the compute stream's kernel in the middle of an event; of its next kernel where there is none then; of
 * its last where none comes. */
static enum phase phase_beside(const struct timeline *timeline, const struct timeline_event *event) {
    double middle = (event->start_s + event->end_s) / 2;
    const struct instruction *instructions = timeline->program->instructions.items;
    size_t low = timeline->begins[0], high = timeline->begins[1];
    while (low < high) {
        size_t at = low + (high - low) / 2;
        if (timeline->events.items[at].end_s <= middle)
            low = at + 1;
        else
            high = at;
    }
    for (size_t i = low; i < timeline->begins[1]; i++) {
        const struct node *node = instructions[timeline->events.items[i].instruction].node;
        if (node) return node->phase;
    }
    for (size_t i = low; i-- > timeline->begins[0];) {
        const struct node *node = instructions[timeline->events.items[i].instruction].node;
        if (node) return node->phase;
    }
    return PHASE_FORWARD;
}

static void add_share(const struct timeline *timeline, const struct costs *costs, const struct timeline_event *event,
                      struct shares *shares) {
    const struct program *program = timeline->program;
    const struct instruction *instruction = &program->instructions.items[event->instruction];
    enum activity activity = costs_of(costs, program, instruction).activity;
    bool computes = instruction->stream == 0 && instruction->node;
    enum phase phase = computes ? instruction->node->phase : phase_beside(timeline, event);
    shares->seconds[program->roles[instruction->stream]][activity][phase] += event->end_s - event->start_s;
}

static int insert(struct bound *out, int count, struct bound bound) {
    if (count == BOUNDS_MAX && out[count - 1].seconds >= bound.seconds) return count;
    int at = count < BOUNDS_MAX ? count++ : count - 1;
    for (; at > 0 && out[at - 1].seconds < bound.seconds; at--)
        out[at] = out[at - 1];
    out[at] = bound;
    return count;
}

int timeline_bounds(const struct timeline *timeline, const struct costs *costs, struct bound out[BOUNDS_MAX]) {
    struct shares shares = {0};
    const struct timeline_event *last = NULL;
    for (size_t i = 0; i < timeline->events.count; i++) {
        const struct timeline_event *event = &timeline->events.items[i];
        if (!last || event->end_s > last->end_s) last = event;
    }
    for (; last; last = timeline_cause(timeline, last))
        add_share(timeline, costs, last, &shares);
    int count = 0;
    for (int role = 0; role < STREAM_ROLE_COUNT; role++)
        for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
            for (int phase = 0; phase < PHASE_COUNT; phase++) {
                double seconds = shares.seconds[role][activity][phase];
                if (seconds > 0)
                    count = insert(
                        out, count,
                        (struct bound){(enum stream_role)role, (enum activity)activity, (enum phase)phase, seconds});
            }
    return count;
}
