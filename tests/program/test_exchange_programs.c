/* Operators that ranks of a group make together, in programs: proved for each rank and for all, on groups of 2 and 4
 * ranks beside data ranks, under any policy; and faults that are found. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "program/program.h"
#include "support/exchange_graph.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/unit.h"

enum { GRAINS = 4, RANKS_MOST = 8 };

struct ranks {
    int count;
    struct graph *graphs[RANKS_MOST];
    struct program *programs[RANKS_MOST];
    struct recipe recipe;
};

static struct rank_place place_of(struct mesh mesh, int tensor, int rank) {
    return (struct rank_place){.mesh = mesh, .rank = rank, .tensor = tensor, .tier = TIER_DEVICE};
}

static void ranks_free(struct ranks *ranks) {
    for (int r = 0; r < ranks->count; r++) {
        program_free(ranks->programs[r]);
        graph_free(ranks->graphs[r]);
    }
}

/* The program of one rank; NULL with a message. */
static struct program *compile(const struct graph *graph, const struct plan *plan) {
    struct program *program = NULL;
    int64_t *bytes = small_graph_workspace(graph);
    const struct workspace_table table = {bytes, (int)graph->nodes.count};
    enum status status = program_compile(graph, plan, &table, &program);
    mem_free(bytes);
    return status == STATUS_OK ? program : NULL;
}

static void ranks_make(struct mesh mesh, int tensor, const struct policy *policy, struct ranks *out) {
    *out = (struct ranks){.count = mesh_ranks(&mesh)};
    for (int r = 0; r < out->count; r++) {
        const struct rank_place place = place_of(mesh, tensor, r);
        const struct group_part part = {tensor, r % tensor};
        out->graphs[r] = exchange_graph_build(DTYPE_F32, part);
        struct plan plan = exchange_plan(out->graphs[r], &place, GRAINS);
        if (policy) plan.policy = *policy;
        out->recipe = plan.recipe;
        out->programs[r] = compile(out->graphs[r], &plan);
        if (!out->programs[r]) fail_msg("rank %d: %s", r, status_message());
    }
}

static enum status verify(const struct ranks *ranks) {
    const struct program *programs[RANKS_MOST];
    memcpy(programs, ranks->programs, sizeof programs);
    return program_verify_ranks(programs, ranks->count, &ranks->recipe);
}

static void expect_proved(struct mesh mesh, int tensor, const struct policy *policy) {
    struct ranks ranks;
    ranks_make(mesh, tensor, policy, &ranks);
    if (verify(&ranks) != STATUS_OK) fail_msg("%d of %d: %s", tensor, ranks.count, status_message());
    ranks_free(&ranks);
}

static void programs_of_all_ranks_are_proved(void **state) {
    (void)state;
    const struct mesh two = {1, 2}, four = {1, 4}, nodes = {2, 2}, eight = {2, 4};
    expect_proved(two, 2, NULL);
    expect_proved(four, 4, NULL);
    expect_proved(four, 2, NULL);
    expect_proved(nodes, 2, NULL);
    expect_proved(nodes, 4, NULL);
    expect_proved(eight, 4, NULL);
    expect_proved(eight, 2, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_of_all_ranks_are_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
