/* The times, group by group, at which activations leave the device and return. */
#include "search/schedule_cost.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

enum { LAYERS = 4, BLOCKS = LAYERS + 2, MOVED = 1 };

struct subject {
    struct graph *graph;
    int64_t *bytes;
    struct plan plan;
    struct chunk_list chunks;
    struct costs costs;
    struct execution_source source;
    struct execution_list executions;
};

static void open_subject(struct subject *out) {
    struct small_graph_options options = {
        .layers = LAYERS, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 16};
    *out = (struct subject){.graph = small_graph_build(&options)};
    out->bytes = small_graph_workspace(out->graph);
    out->plan = small_plan(out->graph, 1, 1);
    out->costs = synthetic_costs(out->graph, 0, 1);
    assert_int_equal(chunks_pack(out->graph, INT64_MAX / 4, &out->chunks), STATUS_OK);
    assert_int_equal(execution_source_create(out->graph, &out->plan.policy, &out->chunks, false, &out->source),
                     STATUS_OK);
}

static void close_subject(struct subject *subject) {
    vec_free(&subject->executions.list);
    execution_source_free(&subject->source);
    chunks_free(&subject->chunks);
    costs_free(&subject->costs);
    mem_free(subject->bytes);
    graph_free(subject->graph);
}

static struct schedule_cost measure(struct subject *subject, const char *schedule, int64_t lookahead) {
    struct workspace_table workspace = {.bytes = subject->bytes, .count = (int)subject->graph->nodes.count};
    struct schedule_cost cost;
    assert_int_equal(schedule_list_executions(&subject->source, schedule, &subject->executions), STATUS_OK);
    assert_int_equal(
        schedule_cost_measure(&subject->source, &subject->executions, &workspace, &subject->costs, lookahead, &cost),
        STATUS_OK);
    return cost;
}

/* Groups 0 to 4 are forwards, 5 is the last block's forward and backward, 6 to 10 are the backwards of blocks 4 to 0.
 * Block 1's results are stored `lookahead` groups after its forward, group 1, and fetched as many before its backward,
 * group 9. Block 2 also reads its output, in groups 2 and 8. */
static void check_absence(struct subject *subject, int64_t lookahead) {
    struct schedule_cost kept = measure(subject, "", lookahead),
                         moved = measure(subject, "f0-2 d1 f3-5 b5-0", lookahead);
    const int64_t forward = 1, read_forward = 2, read_backward = 8, backward = 9;
    int64_t all = moved.out[TIER_DISK].bytes;
    assert_int_equal(kept.groups.count, 2 * BLOCKS - 1);
    assert_int_equal(moved.groups.count, kept.groups.count);
    assert_int_equal(moved.forward[MOVED], forward);
    assert_int_equal(moved.backward[MOVED], backward);
    assert_true(moved.moves && !kept.moves && all > 0);
    assert_int_equal(moved.in[TIER_DISK].bytes, all);
    for (int64_t g = 0; g < (int64_t)kept.groups.count; g++) {
        int64_t absent = kept.groups.items[g].before - moved.groups.items[g].before;
        bool here = g < forward + 1 + lookahead || g >= backward - lookahead;
        bool away = g >= read_forward + 1 + lookahead && g < read_backward - lookahead;
        if ((here && absent != 0) || (away && absent != all))
            fail_msg("lookahead %d, group %d: %lld of %lld bytes are away", (int)lookahead, (int)g, (long long)absent,
                     (long long)all);
    }
    schedule_cost_free(&kept);
    schedule_cost_free(&moved);
}

static void absences_are_those_of_programs(void **state) {
    (void)state;
    struct subject subject;
    open_subject(&subject);
    for (int64_t lookahead = 0; lookahead <= 2; lookahead++)
        check_absence(&subject, lookahead);
    close_subject(&subject);
}

/* Between groups 1 and 9 there is space for a store and a fetch of three groups each, and of no more. */
static void what_stays(void **state) {
    (void)state;
    struct subject subject;
    open_subject(&subject);
    for (int64_t lookahead = 0; lookahead <= 5; lookahead++) {
        struct schedule_cost cost = measure(&subject, "f0-2 d1 f3-5 b5-0", lookahead);
        assert_int_equal(cost.out[TIER_DISK].copies > 0, 9 - 1 > 1 + 2 * lookahead);
        schedule_cost_free(&cost);
    }
    close_subject(&subject);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absences_are_those_of_programs),
        cmocka_unit_test(what_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
