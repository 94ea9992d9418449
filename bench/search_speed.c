/* Time of finding a policy, by size of the model and memory of the device, on a machine whose costs are made up: 1
 * TFLOP/s, 20 GB/s of memory, a disk of 2 GB/s.
 *
 *     build/bench/search_speed [MOST_COMPILED]
 *
 * Without a number, as many programs are compiled as when a run starts. Processor time of all, and of what comes before
 * the first program: proposing and bounding. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/process.h"
#include "console/policy_words.h"
#include "support/made_up_machine.h"
#include "support/step_graph.h"

static const struct step_graph_size sizes[] = {
    {"12 layers, hidden 768", 12, 768, 12, 50257, 1024, 8},
    {"96 layers, hidden 12288", 96, 12288, 96, 50257, 2048, 8},
};

static const struct made_up_machine machine = {"", 1e12, 2e10, 1e10, 2e9, 0.25};

static enum status search_once(const struct search_input *input, bool print, double *seconds) {
    struct search_result result;
    char words[POLICY_WORDS_BYTES];
    double start = step_graph_now_s();
    TRY(search_policies(input, &result));
    *seconds = step_graph_now_s() - start;
    int32_t blocks = graph_count_blocks(input->graph);
    if (print)
        printf("    %" PRId64 " bounded, %" PRId64 " compiled, %s\n", result.enumerated, result.compiled,
               result.proved ? "proved" : "not proved");
    for (size_t i = 0; i < result.front.count && i < 1 && print; i++)
        printf("    %.3f s (bound %.3f) %s\n", result.front.items[i].step_s, result.front.items[i].bound_s,
               policy_words(&result.front.items[i].policy, blocks, words));
    if (result.front.count == 0 && print) printf("    nothing fits\n");
    search_result_free(&result);
    return STATUS_OK;
}

static enum status measure(struct search_input *input, int64_t plain_bytes, double part, int most) {
    double none, all;
    input->capacity_bytes[TIER_DEVICE] = (int64_t)(part * (double)plain_bytes);
    input->most_compiled = -1;
    TRY(search_once(input, false, &none));
    input->most_compiled = most;
    printf("  %.2f of the plain policy's memory\n", part);
    TRY(search_once(input, true, &all));
    printf("    %.0f ms; %.0f ms before the first is compiled\n", 1e3 * all, 1e3 * none);
    return STATUS_OK;
}

/* `most`: of struct search_input; below 0: as when a run starts. */
static enum status measure_size(const struct step_graph_size *size, int most) {
    static const double parts[] = {0.8, 0.5, 0.25, 0.1};
    struct graph *graph;
    struct costs costs;
    TRY(step_graph_build(size, &graph));
    TRY(made_up_costs(graph, &machine, &costs));
    int64_t *bytes = mem_array(graph->nodes.count, sizeof *bytes);
    if (!bytes) return STATUS_FAILED;
    struct workspace_table workspace = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct recipe recipe = {
        .dtype = graph->dtype, .batch = size->grains, .sequence_length = size->sequence, .grain_sequences = 1};
    struct search_input input = {.graph = graph, .workspace = &workspace, .costs = &costs, .recipe = &recipe};
    int64_t plain_bytes;
    if (most < 0) most = search_most_compiled(graph);
    TRY(search_plain_bytes(&input, &plain_bytes));
    input.capacity_bytes[TIER_HOST] = (int64_t)(machine.host_part * (double)plain_bytes);
    input.capacity_bytes[TIER_DISK] = INT64_MAX / 4;
    printf("%s\n", size->name);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        TRY(measure(&input, plain_bytes, parts[i], most));
    mem_free(bytes);
    costs_free(&costs);
    graph_free(graph);
    return STATUS_OK;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    int most = count > 1 ? atoi(arguments[1]) : -1;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (measure_size(&sizes[i], most) != STATUS_OK) {
            fprintf(stderr, "search_speed: %s: %s\n", sizes[i].name, status_message());
            return 1;
        }
    return 0;
}
