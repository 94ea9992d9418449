/* With fewer programs than a start has time for, the search still finds a policy that is no slower than simple
 * policies set by hand. */
#include <math.h>
#include <stdio.h>

#include "plan/chunks.h"
#include "search/search.h"
#include "support/block_chunks.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

/* Fewer than search_max_compiled has for graphs this small: with more, the search would be right more easily. */
enum { MICRO_BATCHES = 4, COMPILED = 24 };

/* How much of the states is elsewhere. */
enum streamed { STREAM_NOTHING, STREAM_HALF, STREAM_ALL, STREAMED };

struct hand {
    bool recompute;
    enum streamed streamed;
    bool finer; /* chunks of half a layer */
    int64_t micro_batches_per_wave, lookahead;
};

static void recompute_all(int32_t blocks, char *text, size_t bytes) {
    size_t used = (size_t)snprintf(text, bytes, "f0-%d", blocks - 1);
    for (int32_t i = blocks; i-- > 0;)
        used += (size_t)snprintf(text + used, bytes - used, i > 0 && i < blocks - 1 ? " f%d b%d" : " b%d", i, i);
}

static struct policy hand_set(const struct graph *graph, const struct hand *hand) {
    struct policy policy = {.micro_batches_per_wave = hand->micro_batches_per_wave};
    if (hand->recompute) recompute_all(graph_count_blocks(graph), policy.schedule, sizeof policy.schedule);
    if (hand->streamed == STREAM_NOTHING) return policy;
    struct chunk_list chunks;
    int64_t min;
    assert_int_equal(chunks_choose_bytes(graph, &policy.chunk_bytes), STATUS_OK);
    if (hand->finer) policy.chunk_bytes /= 2;
    assert_int_equal(chunks_pack(graph, policy.chunk_bytes, &chunks), STATUS_OK);
    policy.persistent_chunks = hand->streamed == STREAM_HALF ? (int64_t)chunks.chunks.count / 2 : 0;
    assert_int_equal(max_chunks_in_a_block(graph, &chunks, policy.persistent_chunks, &min), STATUS_OK);
    chunks_free(&chunks);
    policy.buffers = min + 2;
    policy.lookahead = hand->lookahead;
    policy.parameters = policy.gradients = policy.optimizer = TIER_DISK;
    return policy;
}

enum { HANDS = 2 * STREAMED * 2 * 2 * 2 };

struct bench {
    struct graph *graph;
    struct plan plan;
    struct search_input input;
    struct policy policies[HANDS];
    struct program *programs[HANDS];
};

static void compile_hands(struct bench *bench) {
    for (int i = 0; i < HANDS; i++) {
        struct hand hand = {.recompute = i % 2,
                            .streamed = (enum streamed)(i / 2 % STREAMED),
                            .finer = i / (8 * STREAMED),
                            .micro_batches_per_wave = i / (2 * STREAMED) % 2 ? MICRO_BATCHES : 1,
                            .lookahead = i / (4 * STREAMED) % 2};
        struct plan plan = {.recipe = bench->plan.recipe, .policy = hand_set(bench->graph, &hand)};
        bench->policies[i] = plan.policy;
        assert_int_equal(program_compile(bench->graph, &plan, bench->input.workspace, NULL, &bench->programs[i]),
                         STATUS_OK);
    }
}

/* Infinite where none fits. */
static double best_by_hand(const struct bench *bench, const struct policy **best) {
    double min = INFINITY;
    for (int i = 0; i < HANDS; i++) {
        struct timeline timeline;
        if (bench->programs[i]->tier_bytes[TIER_DEVICE] > bench->input.capacity_bytes[TIER_DEVICE]) continue;
        assert_int_equal(simulate(bench->programs[i], bench->input.costs, &timeline), STATUS_OK);
        if (timeline.step_s < min) min = timeline.step_s, *best = &bench->policies[i];
        timeline_free(&timeline);
    }
    return min;
}

static void check(const struct bench *bench, int machine, double part) {
    struct search_result result;
    const struct policy *best = NULL;
    double by_hand = best_by_hand(bench, &best);
    assert_int_equal(search_policies(&bench->input, &result), STATUS_OK);
    double found = result.pareto_front.count > 0 ? result.pareto_front.items[0].step_s : INFINITY;
    print_message("%s, %.2f: by hand %g s, searched %g s\n", synthetic_machine_name(machine), part, by_hand, found);
    if (found > by_hand * (1 + 1e-9)) {
        print_policy(best, 0);
        if (result.pareto_front.count > 0) print_policy(&result.pareto_front.items[0].policy, 1);
        fail_msg("a policy that is set by hand is faster");
    }
    search_result_free(&result);
}

static void check_model(int layers, enum dtype dtype, uint64_t seed) {
    static const double parts[] = {0.3, 0.5, 0.7};
    struct small_graph_options options = {
        .layers = layers, .tied = seed % 2, .dtype = dtype, .micro_batch_sequences = 1, .sequence_length = 128};
    struct graph *graph = small_graph_build(&options);
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table workspace = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct bench bench = {.graph = graph, .plan = small_plan(graph, MICRO_BATCHES, 1)};
    bench.input = (struct search_input){
        .graph = graph, .workspace = &workspace, .recipe = &bench.plan.recipe, .max_compiled = COMPILED};
    compile_hands(&bench);
    int64_t plain_bytes = bench.programs[0]->tier_bytes[TIER_DEVICE];
    bench.input.capacity_bytes[TIER_DISK] = INT64_MAX / 4;
    for (int machine = 0; machine < SYNTHETIC_MACHINES; machine++) {
        struct costs costs = synthetic_costs(graph, machine, seed);
        bench.input.costs = &costs;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            bench.input.capacity_bytes[TIER_DEVICE] = (int64_t)(parts[i] * (double)plain_bytes);
            check(&bench, machine, parts[i]);
        }
        costs_free(&costs);
    }
    for (int i = 0; i < HANDS; i++)
        program_free(bench.programs[i]);
    mem_free(bytes);
    graph_free(graph);
}

static void four_layers_are_no_slower_than_by_hand(void **state) {
    (void)state;
    check_model(4, DTYPE_F32, 2);
}

static void seven_layers_are_no_slower_than_by_hand(void **state) {
    (void)state;
    check_model(7, DTYPE_BF16, 3);
}

static double simulated_s(const struct graph *graph, const struct policy *policy, const struct costs *costs) {
    struct program *program = small_program_under(graph, MICRO_BATCHES, policy);
    struct timeline timeline;
    assert_true(program->defers);
    assert_int_equal(simulate(program, costs, &timeline), STATUS_OK);
    double seconds = timeline.step_s;
    timeline_free(&timeline);
    program_free(program);
    return seconds;
}

/* Without lookahead a block's state is fetched, updated and stored while nothing is computed; a block ahead, while
 * another block is. Kernels take long enough to hide what the disk does. */
static void updates_ahead_hide_beside_a_block(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 7, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 8};
    struct graph *graph = small_graph_build(&options);
    struct policy policy = {.micro_batches_per_wave = MICRO_BATCHES, .optimizer = TIER_DISK};
    assert_int_equal(chunks_choose_bytes(graph, &policy.chunk_bytes), STATUS_OK);
    for (int machine = 0; machine < SYNTHETIC_MACHINES; machine++) {
        struct costs costs = synthetic_costs(graph, machine, 5);
        policy.update_ahead = 0;
        double none = simulated_s(graph, &policy, &costs);
        policy.update_ahead = 1;
        double ahead = simulated_s(graph, &policy, &costs);
        print_message("%s: %g s, a block ahead %g s\n", synthetic_machine_name(machine), none, ahead);
        assert_true(ahead < none);
        costs_free(&costs);
    }
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_layers_are_no_slower_than_by_hand),
        cmocka_unit_test(seven_layers_are_no_slower_than_by_hand),
        cmocka_unit_test(updates_ahead_hide_beside_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
