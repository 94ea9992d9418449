/* Timelines as JSON contain enough for readers without the program. */
#include <math.h>
#include <string.h>

#include "search/sim/simulate.h"
#include "support/fault_sweep.h"
#include "support/small_graph.h"
#include "support/temp_folder.h"
#include "support/toy_program.h"
#include "support/unit.h"

struct subject {
    struct graph *graph;
    struct program *program;
    struct costs costs;
    struct timeline timeline;
    json_t *json;
};

static void open_subject(struct subject *out) {
    const struct small_graph_options options = {
        .layers = 3, .dtype = DTYPE_BF16, .micro_batch_sequences = 2, .sequence_length = 8};
    const struct policy policy = {.micro_batches_per_wave = 1,
                                  .chunk_bytes = 4096,
                                  .buffers = 8,
                                  .parameters = TIER_HOST,
                                  .gradients = TIER_HOST,
                                  .optimizer = TIER_DISK,
                                  .schedule = "f0-4 d1 b4-3 f2 b2-0"};
    *out = (struct subject){.graph = small_graph_build(&options)};
    out->program = small_program_under(out->graph, 4, &policy);
    random_costs(out->graph, 3, &out->costs);
    assert_int_equal(simulate(out->program, &out->costs, &out->timeline), STATUS_OK);
    out->json = timeline_to_json(&out->timeline);
    assert_non_null(out->json);
}

static void close_subject(struct subject *subject) {
    json_decref(subject->json);
    timeline_free(&subject->timeline);
    costs_free(&subject->costs);
    program_free(subject->program);
    graph_free(subject->graph);
}

static const char *text_at(const json_t *object, const char *list, const json_t *index) {
    return json_string_value(json_array_get(json_object_get(object, list), (size_t)json_integer_value(index)));
}

/* Every event of the timeline, with the words for what it was. */
static void events_are_in_order(void **state) {
    (void)state;
    struct subject subject;
    open_subject(&subject);
    const json_t *events = json_object_get(subject.json, "events");
    assert_int_equal(json_array_size(events), subject.timeline.events.count);
    assert_int_equal(json_integer_value(json_object_get(subject.json, "version")), TIMELINE_VERSION);
    assert_string_equal(json_string_value(json_object_get(subject.json, "kind")), "predicted");
    for (size_t i = 0; i < json_array_size(events); i++) {
        const struct timeline_event *event = &subject.timeline.events.items[i];
        const struct instruction *instruction = &subject.program->instructions.items[event->instruction];
        const json_t *row = json_array_get(events, i);
        const char *name = text_at(subject.json, "names", json_array_get(row, 1));
        assert_int_equal(json_array_size(row), 10);
        assert_int_equal(json_integer_value(json_array_get(row, 0)), instruction->stream);
        if (instruction->node) {
            assert_string_equal(name, instruction->node->name);
            const char *phase = text_at(subject.json, "phases", json_array_get(row, 5));
            if (strcmp(phase, "recomputation") != 0) assert_string_equal(phase, phase_name(instruction->node->phase));
            assert_string_equal(text_at(subject.json, "blocks", json_array_get(row, 2)),
                                subject.graph->blocks.items[instruction->node->block]);
        } else {
            assert_int_equal(strncmp(name, instruction->opcode == OPCODE_ZERO ? "zero " : "copy ", 5), 0);
        }
        assert_true((json_integer_value(json_array_get(row, 8)) > 0) == !instruction->node);
        const char *moves = text_at(subject.json, "moves", json_array_get(row, 1));
        const struct buffer *buffer = &subject.program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer];
        assert_string_equal(moves, instruction->node ? "" : buffer_kind_name(buffer->kind));
        assert_string_equal(text_at(subject.json, "sections", json_array_get(row, 3)),
                            subject.program->sections.items[instruction->section].name);
        assert_true(fabs(json_number_value(json_array_get(row, 6)) - event->start_s * 1e6) < 1e-3);
        assert_true(fabs(json_number_value(json_array_get(row, 7)) - (event->end_s - event->start_s) * 1e6) < 1e-3);
    }
    close_subject(&subject);
}

/* Block 2 alone is computed again: its forward is there twice a micro-batch, the second time by the name of
 * recomputation. */
static void recomputation_is_reported(void **state) {
    (void)state;
    struct subject subject;
    open_subject(&subject);
    const json_t *row;
    size_t index;
    int again = 0, forwards = 0;
    json_array_foreach(json_object_get(subject.json, "events"), index, row) {
        if (!subject.program->instructions.items[subject.timeline.events.items[index].instruction].node) continue;
        const char *phase = text_at(subject.json, "phases", json_array_get(row, 5));
        int64_t block = json_integer_value(json_array_get(row, 2));
        forwards += block == 2 && strcmp(phase, "forward") == 0;
        if (strcmp(phase, "recomputation") != 0) continue;
        assert_int_equal(block, 2);
        again++;
    }
    assert_true(again > 0 && again <= forwards); /* what no backward reads is not recomputed */
    close_subject(&subject);
}

/* What an event waited for ended when, or before, it began; in a simulated step exactly then. */
static void causes_are_found(void **state) {
    (void)state;
    struct subject subject;
    open_subject(&subject);
    const json_t *events = json_object_get(subject.json, "events"), *row;
    size_t index;
    int others = 0;
    json_array_foreach(events, index, row) {
        json_int_t cause = json_integer_value(json_array_get(row, 9));
        const struct timeline_event *event = &subject.timeline.events.items[index];
        if (cause < 0) {
            assert_true(event->start_s == 0);
            continue;
        }
        assert_true((size_t)cause < json_array_size(events));
        assert_true(fabs(subject.timeline.events.items[cause].end_s - event->start_s) < 1e-12);
        others += json_integer_value(json_array_get(json_array_get(events, (size_t)cause), 0)) !=
                  json_integer_value(json_array_get(row, 0));
    }
    assert_true(others > 10); /* waits for other streams, not only the event before */
    close_subject(&subject);
}

/* Micro-batches are those of the step: each is met, in the wave that it belongs to. */
static void micro_batches_are_reported(void **state) {
    (void)state;
    struct subject subject;
    open_subject(&subject);
    const json_t *row;
    size_t index;
    int seen[4] = {0}, none = 0;
    json_array_foreach(json_object_get(subject.json, "events"), index, row) {
        int64_t micro_batch = json_integer_value(json_array_get(row, 4));
        assert_true(micro_batch >= -1 && micro_batch < 4);
        if (micro_batch < 0)
            none++;
        else
            seen[micro_batch]++;
        const char *section = text_at(subject.json, "sections", json_array_get(row, 3));
        if (strcmp(section, "middle waves") == 0) assert_true(micro_batch == 1 || micro_batch == 2);
    }
    assert_true(none > 0 && seen[0] > 0 && seen[1] > 0 && seen[1] == seen[2] && seen[3] > 0);
    close_subject(&subject);
}

static void streams_and_tiers_are_named(void **state) {
    (void)state;
    struct subject subject;
    open_subject(&subject);
    const json_t *streams = json_object_get(subject.json, "streams"), *tiers = json_object_get(subject.json, "tiers");
    assert_int_equal(json_array_size(streams), subject.program->streams);
    assert_string_equal(json_string_value(json_object_get(json_array_get(streams, 0), "role")), "compute");
    assert_int_equal(json_array_size(tiers), TIER_COUNT);
    const json_t *tier, *point;
    size_t t, p;
    json_array_foreach(tiers, t, tier) {
        int64_t peak = 0;
        assert_int_equal(json_array_size(json_object_get(tier, "kinds")), BUFFER_KIND_COUNT);
        json_array_foreach(json_object_get(tier, "points"), p, point) {
            int64_t sum = 0;
            for (size_t kind = 1; kind <= BUFFER_KIND_COUNT; kind++)
                sum += json_integer_value(json_array_get(point, kind));
            if (sum > peak) peak = sum;
        }
        assert_true(peak > 0);
        assert_true(peak <= json_integer_value(json_object_get(tier, "program_bytes")));
    }
    close_subject(&subject);
}

struct written {
    const struct subject *subject;
    const char *path;
};

static enum status simulate_and_write(void *payload) {
    const struct written *written = payload;
    struct timeline timeline;
    TRY(simulate(written->subject->program, &written->subject->costs, &timeline));
    enum status status = timeline_write(&timeline, written->path);
    timeline_free(&timeline);
    return status;
}

/* The file is whole or the old one. */
static void every_operation_fails_in_turn(void **state) {
    struct subject subject;
    open_subject(&subject);
    struct written written = {&subject, temp_path(*state, "timeline.json")};
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME};
    assert_int_equal(simulate_and_write(&written), STATUS_OK);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_true(fault_sweep(kinds[i], false, simulate_and_write, &written) >= 1);
        json_t *object = json_load_file(written.path, 0, NULL);
        assert_int_equal(json_equal(json_object_get(object, "names"), json_object_get(subject.json, "names")), 1);
        json_decref(object);
    }
    const struct fault_subject with_json = {.body = simulate_and_write, .payload = &written};
    json_faults(true);
    struct fault_tally tally = fault_sweep_bearable(FAULT_ALLOCATE, false, unit_sweep(100, FAULT_EVERY), &with_json);
    json_faults(false);
    assert_int_equal(tally.reported, tally.hit);
    close_subject(&subject);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_in_order),
        cmocka_unit_test(recomputation_is_reported),
        cmocka_unit_test(causes_are_found),
        cmocka_unit_test(micro_batches_are_reported),
        cmocka_unit_test(streams_and_tiers_are_named),
        cmocka_unit_test_setup_teardown(every_operation_fails_in_turn, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
