/* The simulator: cases worked out by hand, and properties of any program and costs. */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "search/sim/simulate.h"
#include "search/sim/timeline.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/toy_program.h"
#include "support/unit.h"

static const struct toy_section one_section[] = {{4, 1}, {0, 0}};

static void require_time(double actual, double expected) {
    if (!(fabs(actual - expected) <= 1e-12 + 1e-9 * fabs(expected))) fail_msg("%.17g, not %.17g", actual, expected);
}

static void require_event(const struct timeline *timeline, int32_t instruction, int64_t run, double start, double end) {
    const struct timeline_event *event = timeline_find(timeline, instruction, run);
    assert_int_equal(event->instruction, instruction);
    assert_int_equal(event->repetition, run);
    require_time(event->start_s, start);
    require_time(event->end_s, end);
}

static void require_simulated(const struct program *program, const struct costs *costs, struct timeline *out) {
    enum status status = simulate(program, costs, out);
    if (status != STATUS_OK) fail_msg("simulate: %s", status_message());
}

struct expected {
    int32_t instruction;
    int64_t run;
    double start_s, end_s;
};

/* A step has these events and no other. */
static void require_events(const struct toy *toy, const struct expected *expected, size_t count) {
    struct timeline timeline;
    require_simulated(&toy->program, &toy->costs, &timeline);
    assert_int_equal(timeline.events.count, count);
    for (size_t i = 0; i < count; i++)
        require_event(&timeline, expected[i].instruction, expected[i].run, expected[i].start_s, expected[i].end_s);
    timeline_free(&timeline);
}
#define REQUIRE_EVENTS(toy, ...)                                                                                       \
    require_events(toy, (const struct expected[]){__VA_ARGS__},                                                        \
                   sizeof((const struct expected[]){__VA_ARGS__}) / sizeof(struct expected))

/* 3 and 2 seconds on one stream, 4 and 1 on another whose second waits for the first's second. */
static const struct toy_instruction two_streams[] = {
    {0, 3, ACTIVITY_PRODUCT, PHASE_FORWARD, {0}},
    {1, 4, ACTIVITY_PRODUCT, PHASE_FORWARD, {0}},
    {0, 2, ACTIVITY_PRODUCT, PHASE_FORWARD, {0}},
    {1, 1, ACTIVITY_PRODUCT, PHASE_FORWARD, {3}},
};

static void two_streams_overlap(void **state) {
    (void)state;
    struct toy toy;
    struct timeline timeline;
    struct timeline_stream streams[2];
    toy_create(one_section, two_streams, 2, &toy);
    REQUIRE_EVENTS(&toy, {0, 0, 0, 3}, {1, 0, 0, 4}, {2, 0, 3, 5}, {3, 0, 5, 6});
    require_simulated(&toy.program, &toy.costs, &timeline);
    require_time(timeline.step_s, 6);
    timeline_summarise(&timeline, streams);
    require_time(streams[0].busy_s, 5);
    require_time(streams[0].waiting_s, 0);
    require_time(streams[1].busy_s, 5);
    require_time(streams[1].waiting_s, 1);
    timeline_free(&timeline);
    toy_free(&toy);
}

/* When streams take a quarter to wake up: both at the beginning, and the second for what it waited for; what follows at
 * once has no one to wake. */
static void waking_up_takes_time(void **state) {
    (void)state;
    struct toy toy;
    toy_create(one_section, two_streams, 2, &toy);
    toy.costs.rates.wake_s = 0.25;
    REQUIRE_EVENTS(&toy, {0, 0, 0.25, 3.25}, {1, 0, 0.25, 4.25}, {2, 0, 3.25, 5.25}, {3, 0, 5.5, 6.5});
    toy_free(&toy);
}

/* Three equal users of one resource: each goes at a third, then at a half, then alone. */
static void shares_are_fair(void **state) {
    (void)state;
    const struct toy_section sections[] = {{3, 1}, {0, 0}};
    const struct toy_instruction list[] = {
        {0, 1, ACTIVITY_COPY, PHASE_FORWARD, {0}},
        {1, 2, ACTIVITY_COPY, PHASE_FORWARD, {0}},
        {2, 3, ACTIVITY_COPY, PHASE_FORWARD, {0}},
    };
    struct toy toy;
    toy_create(sections, list, 3, &toy);
    set_slowdowns(&toy.costs, 2);
    REQUIRE_EVENTS(&toy, {0, 0, 0, 3}, {1, 0, 0, 5}, {2, 0, 0, 6});
    toy_free(&toy);
}

/* A product that copies slow to a half, and that does not slow them: 4 s of it next to 3 s of copies take 1.5 s off. */
static void slowdown_may_be_uneven(void **state) {
    (void)state;
    const struct toy_section sections[] = {{2, 1}, {0, 0}};
    const struct toy_instruction list[] = {
        {0, 4, ACTIVITY_PRODUCT, PHASE_FORWARD, {0}},
        {1, 3, ACTIVITY_COPY, PHASE_FORWARD, {0}},
    };
    struct toy toy;
    toy_create(sections, list, 2, &toy);
    toy.costs.rates.slowdown[ACTIVITY_PRODUCT][ACTIVITY_COPY] = 2;
    REQUIRE_EVENTS(&toy, {1, 0, 0, 3}, {0, 0, 0, 5.5});
    toy_free(&toy);
}

/* A stream's instruction that waits for another later in the list waits for the run before; across a section's border
 * for all runs. */
static void repetitions_are_simulated(void **state) {
    (void)state;
    const struct toy_section sections[] = {{2, 3}, {1, 1}, {0, 0}};
    const struct toy_instruction list[] = {
        {0, 1, ACTIVITY_PRODUCT, PHASE_FORWARD, {2}}, /* for instruction 1 of the run before */
        {1, 2, ACTIVITY_PRODUCT, PHASE_FORWARD, {0}},
        {0, 1, ACTIVITY_PRODUCT, PHASE_FORWARD, {2}}, /* for its last run */
    };
    struct toy toy;
    toy_create(sections, list, 2, &toy);
    REQUIRE_EVENTS(&toy, {0, 0, 0, 1}, {0, 1, 2, 3}, {0, 2, 4, 5}, {1, 0, 0, 2}, {1, 1, 2, 4}, {1, 2, 4, 6},
                   {2, 0, 6, 7});
    toy_free(&toy);
}

/* What comes later in the list has ended in the step before. */
static void deferred_updates_wait_for_the_step_before(void **state) {
    (void)state;
    const struct toy_section sections[] = {{2, 1}, {2, 1}, {0, 0}};
    const struct toy_instruction list[] = {
        {0, 1, ACTIVITY_PRODUCT, PHASE_FORWARD, {4}},
        {1, 1, ACTIVITY_PRODUCT, PHASE_FORWARD, {3}},
        {0, 1, ACTIVITY_PRODUCT, PHASE_FORWARD, {0}},
        {1, 1, ACTIVITY_PRODUCT, PHASE_FORWARD, {0}},
    };
    struct toy toy;
    struct timeline timeline;
    toy_create(sections, list, 2, &toy);
    require_simulated(&toy.program, &toy.costs, &timeline);
    require_time(timeline.step_s, 2);
    timeline_free(&timeline);
    toy_free(&toy);
}

/* Compute waits for a write in backward: the chain is 1 s of forward, 5 s of the write, 2 + 4 s of backward, the last
 * of which waits for something that is long over. */
static void bounds_are_never_above(void **state) {
    (void)state;
    const struct toy_section sections[] = {{5, 1}, {0, 0}};
    const struct toy_instruction list[] = {
        {0, 1, ACTIVITY_PRODUCT, PHASE_FORWARD, {0}},  {STREAM_DISK_OUT, 5, ACTIVITY_DISK_WRITE, PHASE_FORWARD, {1}},
        {0, 2, ACTIVITY_PRODUCT, PHASE_BACKWARD, {2}}, {1, 7, ACTIVITY_STREAMING, PHASE_UPDATE, {0}},
        {0, 4, ACTIVITY_PRODUCT, PHASE_BACKWARD, {4}},
    };
    struct toy toy;
    struct timeline timeline;
    struct bound bounds[BOUNDS_MAX];
    toy_create(sections, list, STREAM_ROLE_COUNT, &toy);
    require_simulated(&toy.program, &toy.costs, &timeline);
    assert_int_equal(timeline_bounds(&timeline, &toy.costs, bounds), 3);
    assert_int_equal(bounds[0].role, STREAM_COMPUTE);
    assert_int_equal(bounds[0].phase, PHASE_BACKWARD);
    require_time(bounds[0].seconds, 6);
    assert_int_equal(bounds[1].role, STREAM_DISK_OUT);
    assert_int_equal(bounds[1].activity, ACTIVITY_DISK_WRITE);
    assert_int_equal(bounds[1].phase, PHASE_BACKWARD);
    require_time(bounds[1].seconds, 5);
    assert_int_equal(bounds[2].phase, PHASE_FORWARD);
    require_time(bounds[2].seconds, 1);
    timeline_free(&timeline);
    toy_free(&toy);
}

struct subject {
    struct graph *graph;
    struct program *program;
    struct costs costs;
    uint64_t seed;
};

static void open_subject(uint64_t seed, struct subject *out) {
    struct small_graph_options options = {.layers = 1 + (int)(seed % 4),
                                          .tied = seed % 2,
                                          .packed_qkv = seed % 3 == 0,
                                          .dtype = seed % 5 == 0 ? DTYPE_F32 : DTYPE_BF16,
                                          .micro_batch_sequences = 2,
                                          .sequence_length = 8};
    int64_t micro_batches = 1 + (int64_t)(seed % 7);
    *out = (struct subject){.graph = small_graph_build(&options), .seed = seed};
    struct policy policy = random_policy(out->graph, micro_batches, NULL, seed);
    out->program = small_program_under(out->graph, micro_batches, &policy);
    random_costs(out->graph, seed, &out->costs);
}

static void close_subject(struct subject *subject) {
    costs_free(&subject->costs);
    program_free(subject->program);
    graph_free(subject->graph);
}

/* Streams do one thing at a time, and nothing begins before what it waits for has ended. */
static void check_order(const struct timeline *timeline) {
    const struct program *program = timeline->program;
    for (int s = 0; s < program->streams; s++) {
        double before = 0;
        for (size_t i = timeline->begins[s]; i < timeline->begins[s + 1]; i++) {
            const struct timeline_event *event = &timeline->events.items[i];
            const struct instruction *self = &program->instructions.items[event->instruction];
            assert_int_equal(self->stream, s);
            assert_true(before <= event->start_s && event->start_s < event->end_s && event->end_s <= timeline->step_s);
            before = event->end_s;
            for (int32_t w = 0; w < self->wait_count; w++) {
                int64_t issues =
                    program_issues_required(program, self->waits[w], event->instruction, 0, event->repetition);
                for (int64_t run = 0; run < issues; run++)
                    assert_true(timeline_find(timeline, self->waits[w], run)->end_s <= event->start_s);
            }
        }
    }
}

static double alone_s(const struct subject *subject, const struct timeline_event *event) {
    return costs_of(&subject->costs, subject->program, &subject->program->instructions.items[event->instruction])
        .seconds;
}

/* By a pass over the issues in the order of the list, which every wait goes back in. */
static double longest_chain(const struct subject *subject, const struct timeline *timeline) {
    const struct program *program = subject->program;
    double *ends = mem_array(timeline->events.count, sizeof *ends), streams[STREAMS_MAX] = {0}, longest = 0;
    assert_non_null(ends);
    for (size_t k = 0; k < program->sections.count; k++) {
        const struct section *section = &program->sections.items[k];
        for (int64_t run = 0; run < section->repeat; run++)
            for (int32_t i = section->first; i < section->first + section->count; i++) {
                const struct instruction *self = &program->instructions.items[i];
                const struct timeline_event *event = timeline_find(timeline, i, run);
                double begin = streams[self->stream];
                for (int32_t w = 0; w < self->wait_count; w++) {
                    int64_t issues = program_issues_required(program, self->waits[w], i, 0, run);
                    if (issues == 0) continue;
                    size_t waited =
                        (size_t)(timeline_find(timeline, self->waits[w], issues - 1) - timeline->events.items);
                    begin = fmax(begin, ends[waited]);
                }
                double end = begin + alone_s(subject, event);
                ends[event - timeline->events.items] = streams[self->stream] = end;
                longest = fmax(longest, end);
            }
    }
    mem_free(ends);
    return longest;
}

static double total_work(const struct subject *subject, const struct timeline *timeline, int stream) {
    double seconds = 0;
    for (size_t i = timeline->begins[stream]; i < timeline->begins[stream + 1]; i++)
        seconds += alone_s(subject, &timeline->events.items[i]);
    return seconds;
}

/* With all apart a step takes its longest chain; with all on one resource, all work there is; else at least the chain
 * and each stream's work. */
static void check_times(struct subject *subject, const struct timeline *timeline) {
    double chain = longest_chain(subject, timeline), all = 0;
    assert_true(timeline->step_s >= chain * (1 - 1e-9));
    for (int s = 0; s < subject->program->streams; s++) {
        double work = total_work(subject, timeline, s);
        assert_true(timeline->step_s >= work * (1 - 1e-9));
        all += work;
    }
    struct timeline other;
    set_slowdowns(&subject->costs, 1);
    require_simulated(subject->program, &subject->costs, &other);
    check_order(&other);
    require_time(other.step_s, chain);
    timeline_free(&other);
    set_slowdowns(&subject->costs, 2);
    require_simulated(subject->program, &subject->costs, &other);
    check_order(&other);
    require_time(other.step_s, all);
    timeline_free(&other);
}

/* Where nothing slows anything, no more work makes a step shorter. */
static void check_more_work(struct subject *subject) {
    struct timeline less, more;
    set_slowdowns(&subject->costs, 1);
    require_simulated(subject->program, &subject->costs, &less);
    size_t node = (size_t)(random_u64(subject->seed, RANDOM_TEST, 16, 0) % (uint64_t)subject->costs.count);
    subject->costs.kernels[node].seconds *= 3;
    require_simulated(subject->program, &subject->costs, &more);
    assert_true(more.step_s >= less.step_s * (1 - 1e-9));
    timeline_free(&less);
    timeline_free(&more);
}

/* The chain fills the step: its shares add up to it, when there are not more than are told. */
static void check_bounds(const struct subject *subject, const struct timeline *timeline) {
    struct bound bounds[BOUNDS_MAX];
    int count = timeline_bounds(timeline, &subject->costs, bounds);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        assert_true(i == 0 || bounds[i].seconds <= bounds[i - 1].seconds);
        sum += bounds[i].seconds;
    }
    assert_true(count > 0 && sum <= timeline->step_s * (1 + 1e-9));
    if (count < BOUNDS_MAX) require_time(sum, timeline->step_s);
}

static int64_t sum_of(const struct memory_point *point) {
    int64_t sum = 0;
    for (int kind = 0; kind < BUFFER_KIND_COUNT; kind++) {
        assert_true(point->bytes[kind] >= 0);
        sum += point->bytes[kind];
    }
    return sum;
}

static int64_t memory_peak(const struct timeline *timeline, enum tier tier) {
    struct memory_points points;
    int64_t peak = 0;
    assert_int_equal(timeline_memory(timeline, tier, &points), STATUS_OK);
    for (size_t i = 0; i < points.list.count; i++) {
        assert_true(i == 0 || points.list.items[i - 1].time_s < points.list.items[i].time_s);
        int64_t sum = sum_of(&points.list.items[i]);
        if (sum > peak) peak = sum;
    }
    assert_true(points.list.items[0].time_s <= 0);
    vec_free(&points.list);
    return peak;
}

static void random_programs_are_simulated(void **state) {
    (void)state;
    int several = 0, repeats = 0, defers = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(150, 3000); seed++) {
        struct subject subject;
        struct timeline timeline, again;
        open_subject(seed, &subject);
        require_simulated(subject.program, &subject.costs, &timeline);
        require_simulated(subject.program, &subject.costs, &again);
        assert_true(timeline.step_s == again.step_s);
        assert_memory_equal(timeline.events.items, again.events.items,
                            timeline.events.count * sizeof *timeline.events.items);
        timeline_free(&again);
        check_order(&timeline);
        check_bounds(&subject, &timeline);
        for (enum tier tier = 0; tier < TIER_COUNT; tier++)
            assert_true(memory_peak(&timeline, tier) <= subject.program->tier_bytes[tier]);
        several += subject.program->streams > 2;
        defers += subject.program->defers;
        for (size_t s = 0; s < subject.program->sections.count; s++)
            repeats += subject.program->sections.items[s].repeat > 1;
        check_times(&subject, &timeline);
        check_more_work(&subject);
        timeline_free(&timeline);
        close_subject(&subject);
    }
    assert_true(several > 20 && repeats > 20 && defers > 20);
}

/* On one stream time is the order of the list: the peak is the compiler's. */
static void memory_on_one_stream_is_exact(void **state) {
    (void)state;
    for (int micro_batches = 1; micro_batches <= 2; micro_batches++) {
        struct small_graph_options options = {.layers = 2, .micro_batch_sequences = 2, .sequence_length = 8};
        options.dtype = DTYPE_BF16;
        struct subject subject = {.graph = small_graph_build(&options)};
        subject.program = small_program(subject.graph, micro_batches, 1, 1, 1);
        random_costs(subject.graph, 5, &subject.costs);
        struct timeline timeline;
        struct memory_report report;
        require_simulated(subject.program, &subject.costs, &timeline);
        assert_int_equal(program_report_memory(subject.program, TIER_DEVICE, &report), STATUS_OK);
        assert_int_equal(memory_peak(&timeline, TIER_DEVICE), report.total - report.unused);
        timeline_free(&timeline);
        close_subject(&subject);
    }
}

static void unmeasured_copies_are_refused(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 2, .dtype = DTYPE_F32, .micro_batch_sequences = 2, .sequence_length = 8};
    struct policy policy = {.micro_batches_per_wave = 1, .parameters = TIER_HOST, .chunk_bytes = 4096, .buffers = 8};
    struct subject subject = {.graph = small_graph_build(&options)};
    subject.program = small_program_under(subject.graph, 2, &policy);
    random_costs(subject.graph, 5, &subject.costs);
    subject.costs.rates.copy[TIER_HOST][TIER_DEVICE].bytes_per_s = 0;
    struct timeline timeline;
    assert_int_equal(simulate(subject.program, &subject.costs, &timeline), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "copies from host to device were not measured"));
    close_subject(&subject);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_streams_overlap),
        cmocka_unit_test(waking_up_takes_time),
        cmocka_unit_test(shares_are_fair),
        cmocka_unit_test(slowdown_may_be_uneven),
        cmocka_unit_test(repetitions_are_simulated),
        cmocka_unit_test(deferred_updates_wait_for_the_step_before),
        cmocka_unit_test(bounds_are_never_above),
        cmocka_unit_test(random_programs_are_simulated),
        cmocka_unit_test(memory_on_one_stream_is_exact),
        cmocka_unit_test(unmeasured_copies_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
