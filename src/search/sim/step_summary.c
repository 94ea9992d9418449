#include "search/sim/step_summary.h"

#include <math.h>

#include "base/json.h"
#include "compiler/program.h"

/* Breaks a step's time down: the time on its critical path by stream, activity and phase. */

/* Seconds of the critical path by stream, activity and phase. */
struct shares {
    double seconds[STREAM_ROLE_COUNT][ACTIVITY_COUNT][PHASE_COUNT];
};

/* The phase of the compute stream's kernel in the middle of an event. If none runs then, of its next kernel; if none
 * follows, of its last. */
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

static int insert_bound(struct bound *out, int count, struct bound bound) {
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
                    count = insert_bound(
                        out, count,
                        (struct bound){(enum stream_role)role, (enum activity)activity, (enum phase)phase, seconds});
            }
    return count;
}

static void add_activities(const struct timeline *timeline, const struct costs *costs, struct step_summary *out) {
    const struct program *program = timeline->program;
    for (size_t i = 0; i < timeline->events.count; i++) {
        const struct timeline_event *event = &timeline->events.items[i];
        const struct instruction *instruction = &program->instructions.items[event->instruction];
        enum activity activity = costs_of(costs, program, instruction).activity;
        out->busy_s[program->roles[instruction->stream]][activity] += event->end_s - event->start_s;
    }
}

static int find_stream(const struct program *program, enum stream_role role) {
    int stream = 0;
    while (stream < program->streams && program->roles[stream] != role)
        stream++;
    return stream;
}

/* Seconds in which two streams work at once. The events of each are in sequence. */
static double seconds_together(const struct timeline *timeline, int one, int other) {
    const struct timeline_event *events = timeline->events.items;
    size_t i = timeline->begins[one], k = timeline->begins[other];
    double together = 0;
    while (i < timeline->begins[one + 1] && k < timeline->begins[other + 1]) {
        double begin = fmax(events[i].start_s, events[k].start_s), end = fmin(events[i].end_s, events[k].end_s);
        if (end > begin) together += end - begin;
        if (events[i].end_s < events[k].end_s)
            i++;
        else
            k++;
    }
    return together;
}

static void add_communication(const struct timeline *timeline, struct step_summary *out) {
    const struct program *program = timeline->program;
    int messages = find_stream(program, STREAM_COMM), compute = find_stream(program, STREAM_COMPUTE);
    if (messages == program->streams || compute == program->streams) return;
    out->communication_s = out->streams[messages].busy_s;
    out->hidden_s = seconds_together(timeline, messages, compute);
    out->traffic = collectives_traffic(program);
}

static json_t *communication_to_json(const struct step_summary *summary) {
    const struct comm_traffic *traffic = &summary->traffic;
    return json_pack("{s:f, s:f, s:I, s:I, s:I}", "seconds", summary->communication_s, "hidden_s", summary->hidden_s,
                     "in_node_bytes", (json_int_t)traffic->sent[MESH_IN_NODE], "across_bytes",
                     (json_int_t)traffic->sent[MESH_ACROSS], "read_bytes", (json_int_t)traffic->read);
}

static bool has_communication(const struct step_summary *summary) {
    const struct comm_traffic *traffic = &summary->traffic;
    return traffic->sent[MESH_IN_NODE] + traffic->sent[MESH_ACROSS] + traffic->read > 0;
}

void step_summarise(const struct timeline *timeline, const struct costs *costs, struct step_summary *out) {
    *out = (struct step_summary){.step_s = timeline->step_s, .stream_count = timeline->program->streams};
    timeline_summarise(timeline, out->streams);
    add_activities(timeline, costs, out);
    out->bound_count = timeline_bounds(timeline, costs, out->bounds);
    add_communication(timeline, out);
}

static json_t *bounds_to_json(const struct step_summary *summary) {
    char name[BOUND_TEXT_BYTES];
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; i < summary->bound_count; i++)
        failed |= json_array_append_new(list, json_pack("{s:s, s:f}", "what", bound_text(&summary->bounds[i], name),
                                                        "seconds", summary->bounds[i].seconds));
    return json_unless(failed, list);
}

enum status step_summary_add_json(const struct step_summary *summary, json_t *object) {
    int failed =
        json_object_set_new(object, "step_s", summary->step_s > 0 ? json_real(summary->step_s) : json_null()) |
        json_object_set_new(object, "streams", timeline_streams_to_json(summary->streams, summary->stream_count)) |
        json_object_set_new(object, "binds", bounds_to_json(summary));
    if (summary->slowest_s > 0)
        failed |=
            json_object_set_new(object, "step_range_s", json_pack("[f, f]", summary->fastest_s, summary->slowest_s));
    if (has_communication(summary))
        failed |= json_object_set_new(object, "communication", communication_to_json(summary));
    return failed ? status_no_memory(0, "a step's JSON") : STATUS_OK;
}

enum status step_summary_add_communication(const struct timeline *timeline, json_t *object) {
    struct step_summary summary = {.step_s = timeline->step_s};
    timeline_summarise(timeline, summary.streams);
    add_communication(timeline, &summary);
    if (!has_communication(&summary)) return STATUS_OK;
    int failed = json_object_set_new(object, "communication", communication_to_json(&summary));
    return failed ? status_no_memory(0, "a step's JSON") : STATUS_OK;
}

enum { STEP_MAX_S = 1000000000 };

static enum status read_stream(const char *file, const json_t *item, struct timeline_stream *out) {
    const char *role = "";
    TRY(json_read_string(file, item, "role", &role));
    TRY(json_read_double(file, item, "busy_s", 0, STEP_MAX_S, &out->busy_s));
    TRY(json_read_double(file, item, "waiting_s", 0, STEP_MAX_S, &out->waiting_s));
    for (out->role = 0; out->role < STREAM_ROLE_COUNT; out->role++)
        if (strcmp(stream_role_name(out->role), role) == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: streams: no stream is called \"%.60s\"", file, role);
}

/* Compares texts, since there are few. */
static enum status read_bound(const char *file, const json_t *item, struct bound *out) {
    static const enum stream_role roles[] = {STREAM_COMPUTE, STREAM_UPDATE};
    const char *what = "";
    char name[BOUND_TEXT_BYTES];
    TRY(json_read_string(file, item, "what", &what));
    TRY(json_read_double(file, item, "seconds", 0, STEP_MAX_S, &out->seconds));
    for (out->activity = 0; out->activity < ACTIVITY_COUNT; out->activity++)
        for (out->phase = 0; out->phase < PHASE_COUNT; out->phase++)
            for (int i = 0; i < 2; i++) {
                out->role = roles[i];
                if (strcmp(bound_text(out, name), what) == 0) return STATUS_OK;
            }
    return status_set(STATUS_BAD_INPUT, "%s: binds: \"%.90s\" is nothing that can bind", file, what);
}

/* Absent on one rank, and in older files. */
static enum status read_communication(const char *file, const json_t *object, struct step_summary *out) {
    char where[512];
    if (!object) return STATUS_OK;
    snprintf(where, sizeof where, "%s: communication", file);
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(json_read_double(where, object, "seconds", 0, STEP_MAX_S, &out->communication_s));
    TRY(json_read_double(where, object, "hidden_s", 0, STEP_MAX_S, &out->hidden_s));
    TRY(json_read_int(where, object, "in_node_bytes", 0, INT64_MAX, &out->traffic.sent[MESH_IN_NODE]));
    TRY(json_read_int(where, object, "across_bytes", 0, INT64_MAX, &out->traffic.sent[MESH_ACROSS]));
    return json_read_int(where, object, "read_bytes", 0, INT64_MAX, &out->traffic.read);
}

enum status step_summary_read_json(const char *file, const json_t *object, struct step_summary *out) {
    struct step_summary summary = {.step_s = 0};
    const json_t *streams = json_object_get(object, "streams"), *bounds = json_object_get(object, "binds");
    TRY(json_read_double(file, object, "step_s", 0, STEP_MAX_S, &summary.step_s));
    if (json_array_size(streams) > STREAM_ROLE_COUNT || json_array_size(bounds) > BOUNDS_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: more streams or bounds than a step has", file);
    for (size_t i = 0; i < json_array_size(streams); i++)
        TRY(read_stream(file, json_array_get(streams, i), &summary.streams[summary.stream_count++]));
    for (size_t i = 0; i < json_array_size(bounds); i++)
        TRY(read_bound(file, json_array_get(bounds, i), &summary.bounds[summary.bound_count++]));
    TRY(read_communication(file, json_object_get(object, "communication"), &summary));
    *out = summary.step_s > 0 ? summary : (struct step_summary){.step_s = 0};
    return STATUS_OK;
}

char *bound_text(const struct bound *bound, char text[BOUND_TEXT_BYTES]) {
    snprintf(text, BOUND_TEXT_BYTES, "%s during %s%s", activity_name(bound->activity), phase_name(bound->phase),
             bound->role == STREAM_UPDATE ? " (deferred update)" : "");
    return text;
}

static double apart(const struct step_difference *difference) {
    return fabs(difference->measured_s - difference->predicted_s);
}

static int insert(struct step_difference *out, int count, struct step_difference difference) {
    if (count == DIFFERENCES_MAX && apart(&out[count - 1]) >= apart(&difference)) return count;
    int at = count < DIFFERENCES_MAX ? count++ : count - 1;
    for (; at > 0 && apart(&out[at - 1]) < apart(&difference); at--)
        out[at] = out[at - 1];
    out[at] = difference;
    return count;
}

int step_differences(const struct step_summary *predicted, const struct step_summary *measured,
                     struct step_difference out[DIFFERENCES_MAX]) {
    int count = 0, great = 0;
    for (enum stream_role role = 0; role < STREAM_ROLE_COUNT; role++)
        for (enum activity a = 0; a < ACTIVITY_COUNT; a++)
            count = insert(out, count,
                           (struct step_difference){.role = role,
                                                    .activity = a,
                                                    .predicted_s = predicted->busy_s[role][a],
                                                    .measured_s = measured->busy_s[role][a]});
    for (int s = 0; s < predicted->stream_count && s < measured->stream_count; s++)
        count = insert(out, count,
                       (struct step_difference){.role = predicted->streams[s].role,
                                                .waits = true,
                                                .predicted_s = predicted->streams[s].waiting_s,
                                                .measured_s = measured->streams[s].waiting_s});
    while (great < count && apart(&out[great]) > 0 && apart(&out[great]) >= apart(&out[0]) / 10)
        great++;
    return great;
}

char *difference_text(const struct step_difference *difference, char text[DIFFERENCE_TEXT_BYTES]) {
    const char *does = difference->waits ? "waiting" : activity_name(difference->activity);
    snprintf(text, DIFFERENCE_TEXT_BYTES, "%s: %s", stream_role_name(difference->role), does);
    return text;
}
