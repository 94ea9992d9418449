#include "support/search_rows.h"

#include <string.h>

#include "support/made_up_machine.h"
#include "support/policy_walk.h"

static const struct made_up_machine machines[] = {
    {"processor, fast disk", 2e11, 2e10, 0, 2e9, 0},
    {"processor, slow disk", 2e11, 2e10, 0, 3e8, 0},
    {"GPU, host and disk", 4e14, 2e12, 2.5e10, 3e9, 0.5},
};
static const double parts[] = {0.6, 0.35, 0.2, 0.12};
enum { MACHINES = sizeof machines / sizeof *machines, PARTS = sizeof parts / sizeof *parts };
_Static_assert(MACHINES *PARTS == SEARCH_ROWS, "a row for each machine and amount of memory");

static enum status find_fastest(const struct search_input *input, int walked, struct search_row *row) {
    struct search_result result;
    TRY(search_policies(input, &result));
    row->step_s = result.pareto_front.count > 0 ? result.pareto_front.items[0].step_s : 0;
    row->compiled = result.compiled;
    enum status status = STATUS_OK;
    if (row->step_s > 0) {
        struct trial best = result.pareto_front.items[0];
        row->policy = best.policy;
        status = policy_walk(input, walked, 1, &best);
        row->walked_s = best.step_s;
        row->walked = best.policy;
    }
    search_result_free(&result);
    return status;
}

static enum status search_on(const struct made_up_machine *machine, struct search_input *input, int walked,
                             struct search_row rows[PARTS]) {
    struct costs costs;
    int64_t plain_bytes;
    TRY(search_plain_bytes(input, &plain_bytes));
    enum status status = made_up_costs(input->graph, machine, &costs);
    input->costs = &costs;
    input->capacity_bytes[TIER_HOST] = (int64_t)(machine->host_part * (double)plain_bytes);
    input->capacity_bytes[TIER_DISK] = INT64_MAX / 4;
    for (int i = 0; i < PARTS && status == STATUS_OK; i++) {
        rows[i] = (struct search_row){.machine = machine->name, .part = parts[i]};
        input->capacity_bytes[TIER_DEVICE] = (int64_t)(parts[i] * (double)plain_bytes);
        status = find_fastest(input, walked, &rows[i]);
    }
    costs_free(&costs);
    return status;
}

enum status search_rows_find(const struct step_graph_size *size, struct search_effort effort,
                             struct search_row rows[SEARCH_ROWS]) {
    struct graph *graph;
    TRY(step_graph_build(size, &graph));
    int64_t *bytes = mem_array(graph->nodes.count, sizeof *bytes);
    struct workspace_table workspace = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct recipe recipe = {.dtype = graph->dtype,
                            .batch = size->micro_batches,
                            .sequence_length = size->sequence,
                            .micro_batch_sequences = 1};
    struct search_input input = {.graph = graph,
                                 .workspace = &workspace,
                                 .recipe = &recipe,
                                 .max_compiled =
                                     effort.max_compiled > 0 ? effort.max_compiled : search_max_compiled(graph)};
    enum status status = bytes ? STATUS_OK : STATUS_FAILED;
    memset(rows, 0, SEARCH_ROWS * sizeof *rows);
    for (int m = 0; m < MACHINES && status == STATUS_OK; m++)
        if (!effort.machine || strstr(machines[m].name, effort.machine))
            status = search_on(&machines[m], &input, effort.walked, &rows[m * PARTS]);
    mem_free(bytes);
    graph_free(graph);
    return status;
}
