/* Timelines for the page: the critical chain of a step, and thinning. */
#include <math.h>
#include <string.h>

#include "report/page/timeline.h"
#include "support/tiny_run.h"
#include "support/unit.h"

/* events: stream, name, block, section, micro-batch, phase, start, duration, bytes */
static json_t *timeline_of(json_t *events) {
    json_t *timeline =
        json_pack("{s:i, s:f, s:[s,s], s:[{s:s},{s:s}], s:o, s:[s], s:[s], s:[s,s], s:[]}", "version", 1, "step_s",
                  1e-3, "names", "a", "b", "streams", "role", "compute", "role", "disk_in", "events", events, "blocks",
                  "x", "sections", "s", "phases", "forward", "backward", "tiers");
    assert_non_null(timeline);
    return timeline;
}

static json_t *event(int stream, int phase, double start, double length) {
    return json_pack("[i,i,i,i,i,i,f,f,i]", stream, 0, 0, 0, 0, phase, start, length, 8);
}

/* Compute waits from 100 to 600 for the disk, whose first read nobody waits for. */
static json_t *waiting_events(void) {
    return json_pack("[o,o,o,o,o]", event(0, 0, 0, 100), event(0, 0, 600, 100), event(0, 1, 700, 300),
                     event(1, 0, 0, 50), event(1, 0, 200, 400));
}

static void the_chain_goes_over_streams(void **state) {
    (void)state;
    json_t *timeline = timeline_of(waiting_events());
    struct timeline_rows rows;
    assert_int_equal(timeline_rows_read("t", timeline, &rows), STATUS_OK);
    assert_int_equal(timeline_rows_chain(&rows), STATUS_OK);
    static const bool expected[] = {true, true, true, false, true}; /* the read begins after compute's first event */
    assert_int_equal(rows.items.count, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(rows.items.items[i].chained, expected[i]);
    vec_free(&rows.items);
    json_t *page;
    assert_int_equal(page_timeline_make("t", timeline, &page), STATUS_OK);
    const json_t *first = json_array_get(json_object_get(page, "bounds"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "role")), "disk_in");
    assert_true(fabs(json_real_value(json_object_get(first, "seconds")) - 400e-6) < 1e-9);
    json_decref(page);
    json_decref(timeline);
}

static json_t *caused(int stream, double start, double length, int cause) {
    json_t *array = event(stream, 0, start, length);
    json_array_append_new(array, json_integer(cause));
    return array;
}

/* A file that says what events waited for is believed: here the last of compute waited for the disk, which by time
 * alone nobody would say. Its rows are in another order than the file's. */
static void causes_are_the_files(void **state) {
    (void)state;
    json_t *timeline = timeline_of(json_pack("[o,o,o,o]", caused(1, 0, 100, -1), caused(0, 0, 90, -1),
                                             caused(0, 100, 1, 1), caused(0, 101, 9, 0)));
    struct timeline_rows rows;
    assert_int_equal(timeline_rows_read("t", timeline, &rows), STATUS_OK);
    assert_int_equal(timeline_rows_chain(&rows), STATUS_OK);
    static const bool chained[] = {false, false, true, true};
    static const int32_t causes[] = {-1, 0, 3, -1};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(rows.items.items[i].chained, chained[i]);
        assert_int_equal(rows.items.items[i].cause, causes[i]);
    }
    vec_free(&rows.items);
    json_decref(timeline);
}

/* Events in pairs, one of each stream, each second waiting for the first: joined or not, a row's cause is the row that
 * holds the event which its first one waited for. */
static void causes_outlast_thinning(void **state) {
    (void)state;
    json_t *events = json_array();
    for (int i = 0; i < 20000; i++)
        json_array_append_new(events, caused(i % 2, 10.0 * i, 9, i - 1));
    json_t *timeline = timeline_of(events);
    struct timeline_rows rows;
    assert_int_equal(timeline_rows_read("t", timeline, &rows), STATUS_OK);
    for (size_t max = 20000; max > 2; max /= 8) {
        timeline_rows_thin(&rows, max);
        for (size_t i = 0; i < rows.items.count; i++) {
            const struct timeline_row *row = &rows.items.items[i];
            int32_t found = timeline_rows_find(&rows, row->cause);
            if (row->start_us < 5) continue; /* the first waits for nothing */
            assert_in_range(found, 0, rows.items.count - 1);
            assert_true(rows.items.items[found].stream != row->stream);
            assert_true(rows.items.items[found].start_us <= row->start_us - 10);
            assert_true(rows.items.items[found].end_us >= row->start_us - 1);
        }
    }
    vec_free(&rows.items);
    json_decref(timeline);
}

/* Many short events and one long in their midst. */
static json_t *many_events(int count) {
    json_t *events = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(
            events, event(i % 2, (i / 100) % 2, 10.0 * (i / 2) + (i > 4000 ? 90000 : 0), i == 4000 ? 80000 : 9));
    return events;
}

static void thinning_keeps_time_bytes_and_the_longest(void **state) {
    (void)state;
    json_t *timeline = timeline_of(many_events(100000));
    struct timeline_rows rows;
    assert_int_equal(timeline_rows_read("t", timeline, &rows), STATUS_OK);
    static const size_t limits[] = {100000, 12000, 500, 3, 2};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        timeline_rows_thin(&rows, limits[l]);
        int64_t bytes = 0, events = 0;
        double longest = 0, end[2] = {0, 0};
        assert_true(rows.items.count <= limits[l]);
        assert_true(rows.items.count >= limits[l] / 8); /* and no more is lost than must be */
        for (size_t i = 0; i < rows.items.count; i++) {
            const struct timeline_row *row = &rows.items.items[i];
            bytes += row->bytes;
            events += row->events;
            longest = fmax(longest, row->longest_us);
            assert_true(row->start_us >= end[row->stream]); /* nothing overlaps that did not */
            end[row->stream] = row->end_us;
        }
        assert_int_equal(bytes, 800000);
        assert_int_equal(events, 100000);
        assert_true(longest == 80000);
    }
    vec_free(&rows.items);
    json_decref(timeline);
}

static void points_keep_the_peak(void **state) {
    (void)state;
    json_t *timeline = timeline_of(waiting_events()), *points = json_array(), *page;
    for (int i = 0; i < 50000; i++)
        json_array_append_new(points, json_pack("[i,i,i]", i, i % 7, i == 31313 ? 1000 : i == 777 ? -0 : 5));
    json_array_append_new(json_object_get(timeline, "tiers"),
                          json_pack("{s:s, s:i, s:[s,s], s:o}", "name", "device", "program_bytes", 2000, "kinds", "p",
                                    "q", "points", points));
    assert_int_equal(page_timeline_make("t", timeline, &page), STATUS_OK);
    const json_t *kept = json_object_get(json_array_get(json_object_get(page, "tiers"), 0), "points"), *point;
    assert_in_range(json_array_size(kept), 100, PAGE_TIMELINE_POINTS);
    json_int_t max = 0, last = -1;
    size_t i;
    json_array_foreach(kept, i, point) {
        json_int_t time = json_integer_value(json_array_get(point, 0)),
                   value = json_integer_value(json_array_get(point, 2));
        assert_true(time > last);
        last = time;
        max = value > max ? value : max;
    }
    assert_int_equal(max, 1000);
    json_decref(page);
    json_decref(timeline);
}

static void refuse(json_t *timeline, const char *text) {
    json_t *page;
    expect_status(page_timeline_make("t.json", timeline, &page), STATUS_BAD_INPUT, text);
    json_decref(timeline);
}

static json_t *with(const char *field, json_t *value) {
    json_t *timeline = timeline_of(waiting_events());
    json_object_set_new(timeline, field, value);
    return timeline;
}

static void what_ranks_communicate_is_kept(void **state) {
    (void)state;
    json_t *communication = json_pack("{s:f,s:f,s:i,s:i,s:i}", "seconds", 0.5, "hidden_s", 0.25, "in_node_bytes", 10,
                                      "across_bytes", 20, "read_bytes", 30);
    json_t *timeline = with("communication", communication), *page;
    assert_int_equal(page_timeline_make("t", timeline, &page), STATUS_OK);
    assert_true(json_equal(json_object_get(page, "communication"), communication));
    json_decref(page);
    json_decref(timeline);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    refuse(with("version", json_integer(2)), "t.json: version: 2 needs a newer Ballast");
    refuse(with("step_s", json_string("x")), "t.json: step_s: must be a number");
    refuse(with("events", json_object()), "t.json: events: must be an array");
    refuse(with("events", json_pack("[[i]]", 1)), "t.json: events[0]: must be an array of ten numbers");
    refuse(with("events", json_pack("[o,o]", event(0, 0, 1, 1), event(2, 0, 1, 1))), "events[1]: an index is outside");
    refuse(with("events", json_pack("[o]", event(0, -2, 1, 1))), "events[0]: an index is outside");
    refuse(with("events", json_pack("[o]", event(0, 0, -1, 1))), "events[0]: times and bytes must not be negative");
    refuse(with("events", json_pack("[o]", caused(0, 0, 1, 1))), "events[0]: what it waited for is no event");
    refuse(with("moves", json_pack("[s]", "optimizer")), "t.json: moves: must be as long as names");
    refuse(with("names", json_pack("[s,i]", "a", 1)), "t.json: names[1]: must be a string");
    refuse(with("streams", json_pack("[{s:s},{}]", "role", "a")), "t.json: streams[1]: role: missing");
    refuse(with("tiers", json_pack("[{s:s}]", "name", "d")), "t.json: tiers[0]: program_bytes: missing");
    refuse(with("communication", json_integer(1)), "t.json: communication: must be an object");
    refuse(with("communication", json_pack("{s:f,s:f}", "seconds", 1.0, "hidden_s", -1.0)),
           "t.json: communication: hidden_s: -1 is outside");
    refuse(with("communication", json_pack("{s:f}", "seconds", 1.0)), "t.json: communication: hidden_s: missing");
    refuse(with("tiers",
                json_pack("[{s:s,s:i,s:[s],s:[[i]]}]", "name", "d", "program_bytes", 1, "kinds", "k", "points", 1)),
           "t.json: tiers[0]: points[0]: must be a time and the bytes of each kind");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chain_goes_over_streams), cmocka_unit_test(causes_are_the_files),
        cmocka_unit_test(causes_outlast_thinning),     cmocka_unit_test(thinning_keeps_time_bytes_and_the_longest),
        cmocka_unit_test(points_keep_the_peak),        cmocka_unit_test(what_ranks_communicate_is_kept),
        cmocka_unit_test(what_is_wrong_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
