#include "search/sim/simulate.h"

#include <math.h>

/* Discrete events. Rates change only when an instruction ends, so the simulation goes from end to end. It computes the
 * rates of the active instructions, the time to the first end, and the remaining work of the others. Ranks share no
 * rates. */

struct stream {
    size_t next, end; /* events of the timeline: the waiting or active one, and one past the stream's last */
    int32_t met;      /* how many of the next event's waits are met */
    bool active;
    bool asleep;   /* waits for another stream */
    bool meets;    /* has a message for which other ranks of its group are not ready */
    double left_s; /* remaining time of the active one, without slowdown */
    enum activity activity;
    double rate;
};

/* A rank: each has its own processors, and meets the others in messages. */
struct machine_rank {
    const struct program *program;
    struct timeline *timeline;
    int64_t *ended; /* by instruction: completed issues in this step */
    struct stream streams[STREAMS_MAX];
};

struct simulation {
    const struct costs *costs;
    struct machine_rank *ranks;
    int count;
    double now_s;
};

static struct timeline_event *next_event(const struct machine_rank *rank, const struct stream *stream) {
    return &rank->timeline->events.items[stream->next];
}

static const struct instruction *next_instruction(const struct machine_rank *rank, const struct stream *stream) {
    return &rank->program->instructions.items[next_event(rank, stream)->instruction];
}

/* Whether this rank allows its next event to begin. */
static bool waits_met(const struct machine_rank *rank, struct stream *stream) {
    const struct timeline_event *event = next_event(rank, stream);
    const struct instruction *instruction = next_instruction(rank, stream);
    for (; stream->met < instruction->wait_count; stream->met++) {
        int32_t waited = instruction->waits[stream->met];
        int64_t required = program_issues_required(rank->program, waited, event->instruction, 0, event->repetition);
        if (rank->ended[waited] < required) return false;
    }
    return true;
}

/* A stream that slept takes rates.wake_s to wake up. A stream that waits for another rank does not sleep. */
static void begin(const struct simulation *simulation, struct machine_rank *rank, struct stream *stream) {
    struct timeline_event *event = next_event(rank, stream);
    struct kernel_cost cost = costs_of(simulation->costs, rank->program, next_instruction(rank, stream));
    double wake_s = stream->asleep ? simulation->costs->rates.wake_s : 0;
    if (!stream->meets) event->start_s = simulation->now_s + wake_s;
    stream->active = true;
    stream->asleep = stream->meets = false;
    stream->left_s = wake_s + cost.seconds;
    stream->activity = cost.activity;
}

/* ---- messages ---- */

/* The collective of the instruction with other simulated ranks; NULL: none. */
static const struct program_collective *message_of(const struct simulation *simulation, const struct machine_rank *rank,
                                                   const struct instruction *instruction) {
    if (simulation->count == 1 || instruction->opcode != OPCODE_BROADCAST) return NULL;
    return &rank->program->collectives.items[instruction->collective];
}

static struct machine_rank *member_of(const struct simulation *simulation, const struct machine_rank *rank,
                                      const struct comm_group *group, int i) {
    struct rank_place place = rank->program->place;
    place.rank = mesh_group_rank(group, i);
    return &simulation->ranks[rank_place_stage(&place)];
}

/* The stream on which a rank waits for a message of the group; NULL: it does not. All ranks have a group's messages in
 * the same order. */
static struct stream *find_waiting(const struct simulation *simulation, struct machine_rank *rank,
                                   const struct comm_group *group) {
    for (int s = 0; s < rank->program->streams; s++) {
        struct stream *stream = &rank->streams[s];
        if (!stream->meets) continue;
        const struct program_collective *own = message_of(simulation, rank, next_instruction(rank, stream));
        if (memcmp(&own->group, group, sizeof *group) == 0) return stream;
    }
    return NULL;
}

/* Begins it on all ranks if they all wait for it. */
static void meet(const struct simulation *simulation, struct machine_rank *rank,
                 const struct program_collective *message) {
    const struct comm_group *group = &message->group;
    for (int i = 0; i < group->count; i++)
        if (!find_waiting(simulation, member_of(simulation, rank, group, i), group)) return;
    for (int i = 0; i < group->count; i++) {
        struct machine_rank *member = member_of(simulation, rank, group, i);
        begin(simulation, member, find_waiting(simulation, member, group));
    }
}

/* ---- events ---- */

/* Begins ready instructions, or waits for other ranks. */
static void begin_next(const struct simulation *simulation, struct machine_rank *rank, struct stream *stream) {
    const struct program_collective *message = message_of(simulation, rank, next_instruction(rank, stream));
    if (!waits_met(rank, stream)) {
        stream->asleep = true;
    } else if (!message) {
        begin(simulation, rank, stream);
    } else {
        next_event(rank, stream)->start_s = simulation->now_s;
        stream->meets = true;
        meet(simulation, rank, message);
    }
}

static bool begin_ready(struct simulation *simulation) {
    bool any = false;
    for (int r = 0; r < simulation->count; r++) {
        struct machine_rank *rank = &simulation->ranks[r];
        for (int s = 0; s < rank->program->streams; s++) {
            struct stream *stream = &rank->streams[s];
            if (!stream->active && !stream->meets && stream->next < stream->end) begin_next(simulation, rank, stream);
        }
    }
    for (int r = 0; r < simulation->count; r++)
        for (int s = 0; s < simulation->ranks[r].program->streams; s++)
            any |= simulation->ranks[r].streams[s].active;
    return any;
}

/* Seconds until the first active instruction of a rank ends; below 0: there is none. */
static double set_rates(const struct simulation *simulation, struct machine_rank *rank) {
    int streams = rank->program->streams;
    double min_s = -1;
    for (int s = 0; s < streams; s++) {
        struct stream *stream = &rank->streams[s];
        if (!stream->active) continue;
        const double *slowdown = simulation->costs->rates.slowdown[stream->activity];
        double slower = 1;
        for (int other = 0; other < streams; other++)
            if (other != s && rank->streams[other].active) slower += slowdown[rank->streams[other].activity] - 1;
        stream->rate = 1 / slower;
        double seconds = stream->left_s / stream->rate;
        if (min_s < 0 || seconds < min_s) min_s = seconds;
    }
    return min_s;
}

/* Over all ranks. */
static double find_next_end(struct simulation *simulation) {
    double min_s = -1;
    for (int r = 0; r < simulation->count; r++) {
        double seconds = set_rates(simulation, &simulation->ranks[r]);
        if (seconds >= 0 && (min_s < 0 || seconds < min_s)) min_s = seconds;
    }
    return min_s;
}

static void end_event(const struct simulation *simulation, struct machine_rank *rank, struct stream *stream) {
    struct timeline_event *event = next_event(rank, stream);
    event->end_s = rank->timeline->step_s = simulation->now_s;
    rank->ended[event->instruction]++;
    stream->next++;
    stream->active = false;
    stream->met = 0;
}

static void advance(struct simulation *simulation, double seconds) {
    simulation->now_s += seconds;
    for (int r = 0; r < simulation->count; r++) {
        struct machine_rank *rank = &simulation->ranks[r];
        for (int s = 0; s < rank->program->streams; s++) {
            struct stream *stream = &rank->streams[s];
            if (!stream->active) continue;
            bool ends = stream->left_s / stream->rate <= seconds;
            stream->left_s -= seconds * stream->rate;
            if (ends) end_event(simulation, rank, stream);
        }
    }
}

/* Within a rank, instructions wait only for earlier ones in the list, so some stream can always continue. */
static enum status simulate_events(struct simulation *simulation) {
    while (begin_ready(simulation))
        advance(simulation, find_next_end(simulation));
    for (int r = 0; r < simulation->count; r++)
        for (int s = 0; s < simulation->ranks[r].program->streams; s++) {
            const struct stream *stream = &simulation->ranks[r].streams[s];
            BUG_IF(stream->next < stream->end && simulation->count == 1, "streams that wait for each other");
            if (stream->next < stream->end)
                return status_set(STATUS_FAILED, "simulation: stage %d of %d waits for ever", r, simulation->count);
        }
    return STATUS_OK;
}

/* ---- setting up ---- */

static enum status begin_rank(const struct program *program, const struct costs *costs, struct timeline *timeline,
                              struct machine_rank *out) {
    *out = (struct machine_rank){.program = program, .timeline = timeline};
    TRY(costs_check(costs, program));
    TRY(timeline_create(program, timeline));
    for (int s = 0; s < program->streams; s++)
        out->streams[s] = (struct stream){.next = timeline->begins[s],
                                          .end = timeline->begins[s + 1],
                                          .asleep = program->streams > 1}; /* between steps */
    return mem_items(&out->ended, program->instructions.count + 1);
}

enum status simulate_stages(const struct program *const *programs, int count, const struct costs *costs,
                            struct timeline *out) {
    struct simulation simulation = {
        .costs = costs, .ranks = mem_array((size_t)count, sizeof *simulation.ranks), .count = count};
    enum status status = simulation.ranks ? STATUS_OK : STATUS_FAILED;
    for (int r = 0; r < count; r++)
        out[r] = (struct timeline){.program = NULL};
    for (int r = 0; r < count && status == STATUS_OK; r++)
        status = begin_rank(programs[r], costs, &out[r], &simulation.ranks[r]);
    if (status == STATUS_OK) status = simulate_events(&simulation);
    for (int r = 0; r < count; r++) {
        if (simulation.ranks) mem_free(simulation.ranks[r].ended);
        if (status != STATUS_OK) timeline_free(&out[r]);
    }
    mem_free(simulation.ranks);
    return status;
}

enum status simulate(const struct program *program, const struct costs *costs, struct timeline *out) {
    return simulate_stages(&program, 1, costs, out);
}

/* Costs that are far off make other instructions concurrent than in the real step. The first rounds correct that. */
enum { FIT_ROUNDS_MAX = 8 };
static const double FIT_CLOSE = 0.005;

/* Two numbers, which are summed over ranks. */
struct kind {
    double recorded_s, simulated_s;
};

/* Kinds: kernels, by the first equal node, on the device, then on the host if its costs differ; then copies; then zeros
 * and sums. */
struct fit {
    struct costs *costs;
    int32_t *alike[2];
    struct kind *kinds;
    int32_t copies, zeros, count;
};

static bool costs_alike(const struct node *a, const struct node *b, const struct kernel_cost *costs) {
    return a->op == b->op && costs[a->id].seconds == costs[b->id].seconds;
}

static enum status find_alike(const struct graph *graph, const struct kernel_cost *costs, int32_t **out) {
    TRY(mem_items(out, graph->nodes.count));
    for (int32_t n = 0; n < (int32_t)graph->nodes.count; n++)
        for (int32_t *alike = &(*out)[n]; *alike < n; ++*alike)
            if (costs_alike(graph->nodes.items[*alike], graph->nodes.items[n], costs)) break;
    return STATUS_OK;
}

static enum status fit_begin(const struct graph *graph, struct costs *costs, struct fit *out) {
    *out = (struct fit){.costs = costs, .copies = 2 * costs->count};
    out->zeros = out->copies + TIER_COUNT * TIER_COUNT;
    out->count = out->zeros + 1;
    TRY(mem_items(&out->kinds, (size_t)out->count));
    TRY(find_alike(graph, costs->kernels, &out->alike[0]));
    return costs->host_kernels ? find_alike(graph, costs->host_kernels, &out->alike[1]) : STATUS_OK;
}

static void fit_end(struct fit *fit) {
    mem_free(fit->alike[0]);
    mem_free(fit->alike[1]);
    mem_free(fit->kinds);
}

/* NULL: it belongs to no fitted kind. */
static struct kind *kind_of(const struct fit *fit, const struct program *program,
                            const struct instruction *instruction) {
    const struct buffer *buffers = program->buffers.items;
    const struct operand *operands = instruction->operands;
    bool own = instruction->tier == TIER_HOST && fit->costs->host_kernels;
    if (opcode_is_collective(instruction->opcode)) return NULL;
    if (instruction->opcode == OPCODE_KERNEL)
        return &fit->kinds[(own ? fit->costs->count : 0) + fit->alike[own][instruction->node->id]];
    if (instruction->opcode != OPCODE_COPY) return &fit->kinds[fit->zeros];
    return &fit->kinds[fit->copies + TIER_COUNT * (int)buffers[operands[0].buffer].tier +
                       (int)buffers[operands[OP_INPUTS_MAX].buffer].tier];
}

/* Simulated instructions include their issue time, recorded ones do not. */
static void add_up(struct fit *fit, const struct timeline *recorded, const struct timeline *simulated) {
    const struct program *program = recorded->program;
    for (size_t i = 0; i < recorded->events.count; i++) {
        const struct timeline_event *measured = &recorded->events.items[i], *made = &simulated->events.items[i];
        const struct instruction *instruction = &program->instructions.items[measured->instruction];
        struct kind *kind = kind_of(fit, program, instruction);
        double all_s = costs_of(fit->costs, program, instruction).seconds;
        if (!kind || measured->end_s <= measured->start_s || all_s <= 0) continue;
        kind->recorded_s += measured->end_s - measured->start_s;
        kind->simulated_s += (made->end_s - made->start_s) * (1 - fit->costs->rates.issue_s / all_s);
    }
}

static enum status add_step(struct fit *fit, const struct timeline *recorded) {
    struct timeline simulated;
    if (!recorded) return STATUS_OK;
    TRY(simulate(recorded->program, fit->costs, &simulated));
    add_up(fit, recorded, &simulated);
    timeline_free(&simulated);
    return STATUS_OK;
}

/* Sends two numbers per kind to the ranks. */
static enum status add_over_ranks(const struct fit_sum_over_ranks *ranks, enum status mine, struct fit *fit) {
    if (!ranks) return mine;
    return ranks->add(ranks->payload, mine, (double *)fit->kinds,
                      (size_t)fit->count * (sizeof(struct kind) / sizeof(double)));
}

/* Returns the kind's factor; 1 if nothing of it was recorded. */
static double factor_of(const struct kind *kind) {
    bool known = kind->recorded_s > 0 && kind->simulated_s > 0;
    return known ? kind->recorded_s / kind->simulated_s : 1;
}

static void scale_rate(struct transfer_rate *rate, double factor) {
    rate->latency_s *= factor;
    rate->bytes_per_s /= factor;
}

static void scale_costs(struct fit *fit) {
    struct costs *costs = fit->costs;
    for (int32_t n = 0; n < costs->count; n++) {
        costs->kernels[n].seconds *= factor_of(&fit->kinds[fit->alike[0][n]]);
        if (!costs->host_kernels) continue;
        costs->host_kernels[n].seconds *= factor_of(&fit->kinds[costs->count + fit->alike[1][n]]);
    }
    for (int pair = 0; pair < TIER_COUNT * TIER_COUNT; pair++)
        scale_rate(&costs->rates.copy[pair / TIER_COUNT][pair % TIER_COUNT],
                   factor_of(&fit->kinds[fit->copies + pair]));
    scale_rate(&costs->rates.zero, factor_of(&fit->kinds[fit->zeros]));
}

/* Returns the largest relative error of a kind. */
static double take_kinds(struct fit *fit) {
    double furthest = 0;
    scale_costs(fit);
    for (int32_t k = 0; k < fit->count; k++) {
        furthest = fmax(furthest, fabs(factor_of(&fit->kinds[k]) - 1));
        fit->kinds[k] = (struct kind){0};
    }
    return furthest;
}

enum status costs_fit(const struct program *program, const struct timeline *recorded,
                      const struct fit_sum_over_ranks *ranks, struct costs *costs) {
    struct fit fit;
    double furthest = 1;
    enum status status = fit_begin(program->graph, costs, &fit);
    for (int round = 0; round < FIT_ROUNDS_MAX && furthest > FIT_CLOSE; round++) {
        if (status == STATUS_OK) status = add_step(&fit, recorded);
        status = add_over_ranks(ranks, status, &fit);
        if (status != STATUS_OK) break;
        furthest = take_kinds(&fit);
    }
    fit_end(&fit);
    return status;
}
