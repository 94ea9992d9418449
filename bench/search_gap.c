/* What stopping early costs a search: the step of the policy that is found within the product's limit of compiled
 * programs, over that of the one that a far longer search finds, on machines whose costs are made up.
 *
 *     build/bench/search_gap [MOST_COMPILED]
 *
 * MOST_COMPILED (200): what the longer search may compile. Each row is a model, a machine and an amount of memory, as a
 * part of what the plain policy takes; 1.000 is no worse. The last line has the mean and the most of all rows. */
#include <stdio.h>
#include <stdlib.h>

#include "base/process.h"
#include "support/made_up_machine.h"
#include "support/step_graph.h"

static const struct step_graph_size sizes[] = {
    {"12 x 768, 2 grains of 1024", 12, 768, 12, 50257, 1024, 2},
    {"12 x 768, 8 grains of 1024", 12, 768, 12, 50257, 1024, 8},
    {"36 x 1280, 1 grain of 1024", 36, 1280, 20, 50257, 1024, 1},
    {"36 x 1280, 8 grains of 1024", 36, 1280, 20, 50257, 1024, 8},
    {"48 x 1600, 1 grain of 512", 48, 1600, 25, 50257, 512, 1},
};

static const struct made_up_machine machines[] = {
    {"processor, fast disk", 2e11, 2e10, 0, 2e9, 0},
    {"processor, slow disk", 2e11, 2e10, 0, 3e8, 0},
    {"GPU, host and disk", 4e14, 2e12, 2.5e10, 3e9, 0.5},
};
static const double parts[] = {0.6, 0.35, 0.2, 0.12};

struct gap {
    int rows;
    double sum, most;
};

/* 0: nothing fits. */
static enum status find_fastest(struct search_input *input, int most, double *step_s, int64_t *compiled) {
    struct search_result result;
    input->most_compiled = most;
    TRY(search_policies(input, &result));
    *step_s = result.front.count > 0 ? result.front.items[0].step_s : 0;
    *compiled = result.compiled;
    search_result_free(&result);
    return STATUS_OK;
}

static enum status compare(struct search_input *input, int most, const char *row, struct gap *gap) {
    double usual_s, longer_s;
    int64_t usual, longer;
    TRY(find_fastest(input, search_most_compiled(input->graph), &usual_s, &usual));
    TRY(find_fastest(input, most, &longer_s, &longer));
    if (usual_s == 0 || longer_s == 0) return STATUS_OK;
    double ratio = usual_s / longer_s;
    printf("%s  %8.3f s of %3lld, %8.3f s of %3lld: %.3f\n", row, usual_s, (long long)usual, longer_s,
           (long long)longer, ratio);
    gap->rows++;
    gap->sum += ratio;
    if (ratio > gap->most) gap->most = ratio;
    return STATUS_OK;
}

static enum status compare_on(const struct made_up_machine *machine, const char *model, struct search_input *input,
                              int most, struct gap *gap) {
    struct costs costs;
    int64_t plain_bytes;
    TRY(made_up_costs(input->graph, machine, &costs));
    TRY(search_plain_bytes(input, &plain_bytes));
    input->costs = &costs;
    input->capacity_bytes[TIER_HOST] = (int64_t)(machine->host_part * (double)plain_bytes);
    input->capacity_bytes[TIER_DISK] = INT64_MAX / 4;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == STATUS_OK; i++) {
        char row[128];
        snprintf(row, sizeof row, "%-28s %-21s %.2f", model, machine->name, parts[i]);
        input->capacity_bytes[TIER_DEVICE] = (int64_t)(parts[i] * (double)plain_bytes);
        status = compare(input, most, row, gap);
    }
    costs_free(&costs);
    return status;
}

static enum status compare_size(const struct step_graph_size *size, int most, struct gap *gap) {
    struct graph *graph;
    TRY(step_graph_build(size, &graph));
    int64_t *bytes = mem_array(graph->nodes.count, sizeof *bytes);
    if (!bytes) return STATUS_FAILED;
    struct workspace_table workspace = {bytes, (int)graph->nodes.count};
    struct recipe recipe = {.dtype = graph->dtype,
                            .batch = size->grains,
                            .sequence_length = size->sequence,
                            .grain_sequences = 1,
                            .threads = 1};
    struct search_input input = {.graph = graph, .workspace = &workspace, .recipe = &recipe};
    enum status status = STATUS_OK;
    for (size_t m = 0; m < sizeof machines / sizeof *machines && status == STATUS_OK; m++)
        status = compare_on(&machines[m], size->name, &input, most, gap);
    mem_free(bytes);
    graph_free(graph);
    return status;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    int most = count > 1 ? atoi(arguments[1]) : 200;
    struct gap gap = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (compare_size(&sizes[i], most, &gap) != STATUS_OK) {
            fprintf(stderr, "search_gap: %s: %s\n", sizes[i].name, status_message());
            return 1;
        }
    printf("%d rows: mean %.3f, most %.3f\n", gap.rows, gap.sum / (gap.rows > 0 ? gap.rows : 1), gap.most);
    return 0;
}
