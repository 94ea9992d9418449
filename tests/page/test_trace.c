/* Timelines as Chrome traces: every event, stream and memory sample. Files that are no timelines are refused. */
#include <math.h>
#include <string.h>

#include "report/page/timeline.h"
#include "search/sim/simulate.h"
#include "support/fault_sweep.h"
#include "support/small_graph.h"
#include "support/toy_program.h"
#include "support/unit.h"

static json_t *make_timeline(void) {
    const struct small_graph_options options = {
        .layers = 2, .dtype = DTYPE_BF16, .micro_batch_sequences = 2, .sequence_length = 8};
    const struct policy policy = {.micro_batches_per_wave = 1,
                                  .chunk_bytes = 4096,
                                  .buffers = 8,
                                  .parameters = TIER_HOST,
                                  .optimizer = TIER_DISK};
    struct graph *graph = small_graph_build(&options);
    struct program *program = small_program_under(graph, 2, &policy);
    struct costs costs;
    struct timeline timeline;
    random_costs(graph, 3, &costs);
    assert_int_equal(simulate(program, &costs, &timeline), STATUS_OK);
    json_t *json = timeline_to_json(&timeline);
    assert_non_null(json);
    timeline_free(&timeline);
    costs_free(&costs);
    program_free(program);
    graph_free(graph);
    return json;
}

static size_t count_points(const json_t *timeline) {
    size_t count = 0, index;
    const json_t *tier;
    json_array_foreach(json_object_get(timeline, "tiers"), index, tier) count +=
        json_array_size(json_object_get(tier, "points"));
    return count;
}

struct counted {
    size_t complete_events, counters, names;
    double duration_us;
};

static struct counted count_events(const json_t *trace, int process) {
    struct counted counted = {0};
    size_t index;
    const json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), index, event) {
        if (json_integer_value(json_object_get(event, "pid")) != process) continue;
        const char *kind = json_string_value(json_object_get(event, "ph"));
        counted.complete_events += strcmp(kind, "X") == 0;
        counted.counters += strcmp(kind, "C") == 0;
        counted.names += strcmp(kind, "M") == 0;
        counted.duration_us += json_number_value(json_object_get(event, "dur"));
    }
    return counted;
}

static void both_timelines_are_processes(void **state) {
    (void)state;
    json_t *timeline = make_timeline(), *trace = trace_create();
    const json_t *events = json_object_get(timeline, "events"), *event;
    double duration_us = 0;
    size_t index;
    json_array_foreach(events, index, event) duration_us += json_number_value(json_array_get(event, 7));
    for (int process = 1; process <= 2; process++) {
        assert_int_equal(trace_add(trace, process, "timeline.json", timeline), STATUS_OK);
        struct counted counted = count_events(trace, process);
        assert_int_equal(counted.complete_events, json_array_size(events));
        assert_int_equal(counted.counters, count_points(timeline));
        assert_int_equal(counted.names, 1 + 2 * json_array_size(json_object_get(timeline, "streams")));
        assert_true(fabs(counted.duration_us - duration_us) < 1e-6 * duration_us);
    }
    json_decref(trace);
    json_decref(timeline);
}

static void refuse(json_t *timeline, const char *message) {
    json_t *trace = trace_create();
    assert_int_equal(trace_add(trace, 1, "run/timeline.json", timeline), STATUS_BAD_INPUT);
    if (!strstr(status_message(), message)) fail_msg("'%s' is not in: %s", message, status_message());
    json_decref(trace);
    json_decref(timeline);
}

static json_t *row_of(json_t *timeline, size_t event) {
    return json_array_get(json_object_get(timeline, "events"), event);
}

static void other_files_are_refused(void **state) {
    (void)state;
    refuse(json_object(), "run/timeline.json: version");
    json_t *timeline = make_timeline();
    json_object_set_new(timeline, "version", json_integer(99));
    refuse(timeline, "version");
    timeline = make_timeline();
    json_object_set_new(timeline, "events", json_integer(1));
    refuse(timeline, "run/timeline.json: events: must be an array");
    timeline = make_timeline();
    json_array_set_new(row_of(timeline, 3), 1, json_integer(1 << 20));
    refuse(timeline, "run/timeline.json: events[3]: an index is outside its list");
    timeline = make_timeline();
    json_array_set_new(row_of(timeline, 2), 0, json_integer(17));
    refuse(timeline, "events[2]: an index is outside its list");
    timeline = make_timeline();
    json_array_set_new(row_of(timeline, 5), 7, json_string("long"));
    refuse(timeline, "events[5]: must be an array of ten numbers");
    timeline = make_timeline();
    json_array_remove(row_of(timeline, 0), 9);
    json_array_remove(row_of(timeline, 0), 8);
    refuse(timeline, "events[0]: must be an array of ten numbers");
    timeline = make_timeline();
    json_t *points = json_object_get(json_array_get(json_object_get(timeline, "tiers"), 0), "points");
    json_array_remove(json_array_get(points, 1), 0);
    refuse(timeline, "tiers[0]: points[1]: must be a time and the bytes of each kind");
    timeline = make_timeline();
    json_object_del(json_array_get(json_object_get(timeline, "tiers"), 1), "kinds");
    refuse(timeline, "tiers[1]: kinds: must be an array");
}

static enum status trace_both(void *timeline) {
    json_t *trace = trace_create();
    enum status status = trace ? trace_add(trace, 1, "a.json", timeline) : STATUS_FAILED;
    json_decref(trace);
    return status;
}

static void every_allocation_fails_in_turn(void **state) {
    (void)state;
    json_t *timeline = make_timeline();
    const struct fault_subject subject = {.body = trace_both, .payload = timeline};
    json_faults(true);
    struct fault_tally tally = fault_sweep_bearable(FAULT_ALLOCATE, false, unit_sweep(100, FAULT_EVERY), &subject);
    json_faults(false);
    assert_true(tally.reported == tally.hit && tally.hit >= 100);
    json_decref(timeline);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_timelines_are_processes),
                                       cmocka_unit_test(other_files_are_refused),
                                       cmocka_unit_test(every_allocation_fails_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
