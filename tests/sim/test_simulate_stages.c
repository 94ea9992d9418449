/* Pipeline stages simulated together: the published times of 1F1B and interleaved 1F1B if only layers take time,
 * messages that take time, and stages that do not match. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "search/sim/simulate.h"
#include "support/compile_proved.h"
#include "support/fault_sweep.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

enum { LAYERS = 6, STAGES_TRIED = 6 };
static const double FORWARD_S = 1, BACKWARD_S = 2; /* of a layer */

struct stages {
    int count;
    struct program *programs[STAGES_TRIED];
    struct timeline timelines[STAGES_TRIED];
};

static struct graph *make_graph(void) {
    return small_graph_build(&(struct small_graph_options){
        .layers = LAYERS, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 4});
}

/* One node of each layer in each direction takes time, and nothing else; a message `latency_s`. */
static struct costs costs_of_layers(const struct graph *graph, double latency_s) {
    struct costs costs = synthetic_costs(graph, 0, 1);
    bool *done = mem_array(2 * graph->blocks.count, sizeof *done);
    assert_non_null(done);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        bool layer = node->phase <= PHASE_BACKWARD && node->block >= 1 && node->block <= LAYERS;
        bool *of = &done[2 * (size_t)node->block + (node->phase == PHASE_BACKWARD)];
        costs.kernels[n].seconds = layer && !*of ? (node->phase == PHASE_FORWARD ? FORWARD_S : BACKWARD_S) : 0;
        if (layer) *of = true;
    }
    mem_free(done);
    costs.rates.issue_s = costs.rates.wake_s = 0;
    costs.rates.zero = (struct transfer_rate){0, 1e18};
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            costs.rates.slowdown[a][b] = 1;
    costs.rates.links = (struct cluster_links){.mesh = {4, 4}, /* another one: all is made of messages */
                                               .message = {[MESH_IN_NODE] = {latency_s, 1e18}},
                                               .read = {latency_s, 1e18}};
    return costs;
}

static void compile(const struct graph *graph, int count, int64_t waves, const char *spans, struct stages *out) {
    int64_t *bytes = small_graph_workspace(graph);
    const struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    *out = (struct stages){.count = count};
    for (int stage = 0; stage < count; stage++) {
        struct plan plan = small_plan(graph, waves, 1);
        plan.place =
            (struct rank_place){.mesh = {1, count}, .rank = stage, .pipeline_parallel = count, .in_place = true};
        snprintf(plan.policy.spans, sizeof plan.policy.spans, "%s", spans);
        if (program_compile_proved(graph, &plan, &table, &out->programs[stage]) != STATUS_OK)
            fail_msg("%s", status_message());
    }
    mem_free(bytes);
}

static enum status simulate_all(struct stages *stages, const struct costs *costs) {
    const struct program *programs[STAGES_TRIED];
    memcpy(programs, stages->programs, sizeof programs);
    return simulate_stages(programs, stages->count, costs, stages->timelines);
}

static void drop(struct stages *stages) {
    for (int stage = 0; stage < stages->count; stage++) {
        timeline_free(&stages->timelines[stage]);
        program_free(stages->programs[stage]);
    }
}

static double slowest(const struct stages *stages) {
    double step_s = 0;
    for (int stage = 0; stage < stages->count; stage++)
        step_s = fmax(step_s, stages->timelines[stage].step_s);
    return step_s;
}

static double time_step(int count, int64_t waves, const char *spans, double latency_s) {
    struct graph *graph = make_graph();
    struct costs costs = costs_of_layers(graph, latency_s);
    struct stages stages;
    compile(graph, count, waves, spans, &stages);
    if (simulate_all(&stages, &costs) != STATUS_OK) fail_msg("%s", status_message());
    double step_s = slowest(&stages);
    drop(&stages);
    costs_free(&costs);
    graph_free(graph);
    return step_s;
}

/* A stage with a part of the layers takes (waves + stages - 1) (f + b) where f and b are its own seconds; with v spans
 * of them each, the stages wait for a v-th of what they waited (arXiv 2104.04473, sections 2.2.1 and 2.2.2). */
static void pipelines_take_their_published_times(void **state) {
    (void)state;
    static const struct {
        int stages, virtual_stages;
        const char *spans;
    } cases[] = {{2, 1, "4"}, {3, 1, "3 5"}, {6, 1, "2 3 4 5 6"}, {2, 3, "2 3 4 5 6"}, {3, 2, "2 3 4 5 6"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t rounds = 1; rounds <= 3; rounds++) {
            int64_t waves = rounds * cases[i].stages;
            double wave_s = (FORWARD_S + BACKWARD_S) * LAYERS / cases[i].stages;
            double expected = (double)waves * wave_s + (cases[i].stages - 1) * wave_s / cases[i].virtual_stages;
            double found = time_step(cases[i].stages, waves, cases[i].spans, 0);
            if (fabs(found - expected) > 1e-6)
                fail_msg("%d stages of %d spans, %lld passes: %g s, not %g", cases[i].stages, cases[i].virtual_stages,
                         (long long)waves, found, expected);
        }
}

static void uneven_stages_wait_for_the_longest(void **state) {
    (void)state;
    /* 2 and 4 layers: one wave through both, and all others at the pace of the second. */
    double expected = 6 * (FORWARD_S + BACKWARD_S) + 7 * 4 * (FORWARD_S + BACKWARD_S);
    assert_true(fabs(time_step(2, 8, "3", 0) - expected) < 1e-6);
}

/* Of one wave, both messages are on the way to its end; and the more stages, the more of them. */
static void messages_take_their_time(void **state) {
    (void)state;
    double all_s = LAYERS * (FORWARD_S + BACKWARD_S);
    for (int stages = 2; stages <= 3; stages++) {
        double longer = time_step(stages, 1, stages == 2 ? "4" : "3 5", 0.5) - all_s;
        assert_true(longer >= 2 * (stages - 1) * 0.5);
    }
}

static void stages_of_other_plans_wait_for_ever(void **state) {
    (void)state;
    struct graph *graph = make_graph();
    struct costs costs = costs_of_layers(graph, 0);
    struct stages few, many;
    compile(graph, 2, 2, "4", &few);
    compile(graph, 2, 3, "4", &many);
    struct program *own = few.programs[1];
    few.programs[1] = many.programs[1];
    assert_int_equal(simulate_all(&few, &costs), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "waits for ever"));
    few.programs[1] = own;
    drop(&few);
    drop(&many);
    costs_free(&costs);
    graph_free(graph);
}

struct subject {
    struct stages *stages;
    const struct costs *costs;
};

static enum status simulate_and_drop(void *payload) {
    const struct subject *subject = payload;
    enum status status = simulate_all(subject->stages, subject->costs);
    for (int stage = 0; stage < subject->stages->count; stage++)
        timeline_free(&subject->stages->timelines[stage]);
    return status;
}

static void allocations_may_fail(void **state) {
    (void)state;
    struct graph *graph = make_graph();
    struct costs costs = costs_of_layers(graph, 0);
    struct stages stages;
    compile(graph, 2, 2, "4", &stages);
    struct subject subject = {&stages, &costs};
    assert_true(fault_sweep(FAULT_ALLOCATE, false, simulate_and_drop, &subject) > 5);
    drop(&stages);
    costs_free(&costs);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_take_their_published_times), cmocka_unit_test(uneven_stages_wait_for_the_longest),
        cmocka_unit_test(messages_take_their_time), cmocka_unit_test(stages_of_other_plans_wait_for_ever),
        cmocka_unit_test(allocations_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
