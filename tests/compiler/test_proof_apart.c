/* The proof does not share errors with the compiler: faults planted in the walk that adds waits make programs lack
 * waits, and program_verify must find that. */
/* link: -Wl,--wrap=walk_program */
#include <string.h>

#include "compiler/order.h"
#include "support/small_graph.h"
#include "support/unit.h"

enum fault { NONE, ONE_RUN, ONE_STEP, EVERYTHING_HAS_ENDED, FAULT_COUNT };
static enum fault planted;

struct visitor {
    enum status (*call)(void *payload, struct walk *walk);
    void *payload;
};

static enum status call_with_fault(void *payload, struct walk *walk) {
    const struct visitor *visitor = payload;
    if (planted == ONE_STEP && walk->step > 0) return STATUS_OK;
    if (planted == ONE_RUN && walk->repetition > 0) return STATUS_OK;
    if (planted == EVERYTHING_HAS_ENDED) memcpy(walk->before.ended, walk->issued, sizeof walk->before.ended);
    return visitor->call(visitor->payload, walk);
}

enum status __real_walk_program(const struct program *program, enum status (*call)(void *, struct walk *),
                                void *payload);
enum status __wrap_walk_program(const struct program *program, enum status (*call)(void *, struct walk *),
                                void *payload);
enum status __wrap_walk_program(const struct program *program, enum status (*call)(void *, struct walk *),
                                void *payload) {
    return __real_walk_program(program, call_with_fault, &(struct visitor){call, payload});
}

/* Programs of all kinds: dealt to streams at random, and with tiers, whose streams are their own. */
static const struct policy policies[] = {
    {.micro_batches_per_wave = 1,
     .chunk_bytes = 8192,
     .buffers = 2,
     .lookahead = 1,
     .parameters = TIER_HOST,
     .gradients = TIER_HOST,
     .optimizer = TIER_HOST,
     .update = TIER_HOST,
     .schedule = "f0-4 b4-0"},
    {.micro_batches_per_wave = 2,
     .chunk_bytes = 8192,
     .buffers = 3,
     .lookahead = 1,
     .parameters = TIER_DISK,
     .gradients = TIER_HOST,
     .optimizer = TIER_DISK,
     .update = TIER_HOST,
     .schedule = "f0-4 h1 d2 b4 f3 b3-0"},
};

/* True when every program is made and proved. */
static bool all_are_proved(const struct graph *graph, enum fault fault) {
    bool proved = true;
    planted = fault;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        struct plan plan = small_plan(graph, 6, policies[i].micro_batches_per_wave);
        plan.policy = policies[i];
        int64_t *bytes = small_graph_workspace(graph);
        struct workspace_table workspace = {.bytes = bytes, .count = (int)graph->nodes.count};
        struct program *program;
        enum status status = program_compile(graph, &plan, &workspace, NULL, &program);
        if (status != STATUS_OK) fail_msg("policy %zu: %s", i, status_message());
        proved &= program_verify(program) == STATUS_OK;
        program_free(program);
        mem_free(bytes);
    }
    planted = NONE;
    return proved;
}

static void missing_waits_are_found(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&(struct small_graph_options){.layers = 3,
                                                                          .tied = true,
                                                                          .packed_qkv = true,
                                                                          .dtype = DTYPE_BF16,
                                                                          .micro_batch_sequences = 2,
                                                                          .sequence_length = 5});
    if (!all_are_proved(graph, NONE)) fail_msg("without a fault: %s", status_message());
    for (enum fault fault = ONE_RUN; fault < FAULT_COUNT; fault++)
        if (all_are_proved(graph, fault)) fail_msg("fault %d was not found", fault);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(missing_waits_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
