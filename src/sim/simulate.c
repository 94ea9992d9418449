#include "sim/simulate.h"

/* Discrete events. Between two ends of instructions no rate changes, so the simulation goes from end to end: the rates
 * of the active instructions, the time to the first end, what is left of the others. */

struct stream {
    size_t next, end; /* events of the timeline: the one that waits or is active, and one past the stream's last */
    int32_t met;      /* how many of the next event's waits are met */
    bool active;
    bool asleep;   /* waits for another stream */
    double left_s; /* of the active one, if it were alone */
    enum activity activity;
    double rate;
};

struct simulation {
    const struct program *program;
    const struct costs *costs;
    struct timeline timeline;
    int64_t *ended; /* by instruction: issues in this step */
    struct stream streams[STREAMS_MAX];
    double now_s;
};

static bool waits_met(const struct simulation *simulation, struct stream *stream, const struct timeline_event *event) {
    const struct instruction *instruction = &simulation->program->instructions.items[event->instruction];
    for (; stream->met < instruction->wait_count; stream->met++) {
        int32_t waited = instruction->waits[stream->met];
        int64_t required =
            program_issues_required(simulation->program, waited, event->instruction, 0, event->repetition);
        if (simulation->ended[waited] < required) return false;
    }
    return true;
}

/* A stream that slept takes rates.wake_s to wake up. */
static void begin(const struct simulation *simulation, struct stream *stream, struct timeline_event *event) {
    struct kernel_cost cost =
        costs_of(simulation->costs, simulation->program, &simulation->program->instructions.items[event->instruction]);
    double wake_s = stream->asleep ? simulation->costs->rates.wake_s : 0;
    event->start_s = simulation->now_s + wake_s;
    stream->active = true;
    stream->asleep = false;
    stream->left_s = wake_s + cost.seconds;
    stream->activity = cost.activity;
}

static bool begin_ready(struct simulation *simulation) {
    bool any = false;
    for (int s = 0; s < simulation->program->streams; s++) {
        struct stream *stream = &simulation->streams[s];
        struct timeline_event *event = &simulation->timeline.events.items[stream->next];
        if (!stream->active && stream->next < stream->end) {
            if (waits_met(simulation, stream, event))
                begin(simulation, stream, event);
            else
                stream->asleep = true;
        }
        any |= stream->active;
    }
    return any;
}

/* Seconds until the first of the active ones ends. */
static double set_rates(struct simulation *simulation) {
    int streams = simulation->program->streams;
    double least_s = -1;
    for (int s = 0; s < streams; s++) {
        struct stream *stream = &simulation->streams[s];
        if (!stream->active) continue;
        const double *slowdown = simulation->costs->rates.slowdown[stream->activity];
        double slower = 1;
        for (int other = 0; other < streams; other++)
            if (other != s && simulation->streams[other].active)
                slower += slowdown[simulation->streams[other].activity] - 1;
        stream->rate = 1 / slower;
        double seconds = stream->left_s / stream->rate;
        if (least_s < 0 || seconds < least_s) least_s = seconds;
    }
    return least_s;
}

static void end_event(struct simulation *simulation, struct stream *stream) {
    struct timeline_event *event = &simulation->timeline.events.items[stream->next++];
    event->end_s = simulation->now_s;
    simulation->ended[event->instruction]++;
    stream->active = false;
    stream->met = 0;
}

static void advance(struct simulation *simulation, double seconds) {
    simulation->now_s += seconds;
    for (int s = 0; s < simulation->program->streams; s++) {
        struct stream *stream = &simulation->streams[s];
        if (!stream->active) continue;
        bool ends = stream->left_s / stream->rate <= seconds;
        stream->left_s -= seconds * stream->rate;
        if (ends) end_event(simulation, stream);
    }
}

/* Waits are for instructions earlier in the list, so some stream can always go on. */
static void simulate_events(struct simulation *simulation) {
    while (begin_ready(simulation))
        advance(simulation, set_rates(simulation));
    for (int s = 0; s < simulation->program->streams; s++)
        BUG_IF(simulation->streams[s].next < simulation->streams[s].end, "streams that wait for each other");
    simulation->timeline.step_s = simulation->now_s;
}

enum status simulate(const struct program *program, const struct costs *costs, struct timeline *out) {
    struct simulation simulation = {.program = program, .costs = costs};
    TRY(costs_check(costs, program));
    TRY(timeline_create(program, &simulation.timeline));
    for (int s = 0; s < program->streams; s++)
        simulation.streams[s] = (struct stream){.next = simulation.timeline.begins[s],
                                                .end = simulation.timeline.begins[s + 1],
                                                .asleep = program->streams > 1}; /* between steps */
    simulation.ended = mem_array(program->instructions.count, sizeof *simulation.ended);
    if (!simulation.ended) {
        timeline_free(&simulation.timeline);
        return STATUS_FAILED;
    }
    simulate_events(&simulation);
    mem_free(simulation.ended);
    *out = simulation.timeline;
    return STATUS_OK;
}
