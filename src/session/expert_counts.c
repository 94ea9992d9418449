#include "session/expert_counts.h"

#include <math.h>
#include <string.h>

#include "ir/ops/ops.h"

static int64_t count_layers(const struct graph *graph) {
    int64_t layers = 0;
    for (size_t n = 0; n < graph->nodes.count; n++)
        layers += graph->nodes.items[n]->op == &op_count_slots;
    return layers;
}

/* Backward goes from the last layer to the first. */
static void find_results(const struct graph *graph, struct expert_counts *counts) {
    int64_t layer = counts->layers;
    for (size_t n = 0; n < graph->nodes.count; n++)
        if (graph->nodes.items[n]->op == &op_count_slots) counts->results[--layer] = graph->nodes.items[n]->out[0];
    counts->experts = shape_elements(&counts->results[0]->shape);
}

enum status expert_counts_open(const struct graph *graph, const struct comm *comm, struct expert_counts *out) {
    *out = (struct expert_counts){.layers = count_layers(graph)};
    if (out->layers == 0) return STATUS_OK;
    out->results = mem_array((size_t)out->layers, sizeof *out->results);
    if (!out->results) return STATUS_FAILED;
    find_results(graph, out);
    size_t elements = (size_t)(out->layers * out->experts);
    out->of = mem_array(elements, sizeof *out->of);
    out->every = mem_array(elements * (size_t)mesh_ranks(&comm->mesh), sizeof *out->every);
    return out->of && out->every ? STATUS_OK : STATUS_FAILED;
}

void expert_counts_close(struct expert_counts *counts) {
    mem_free(counts->results);
    mem_free(counts->of);
    mem_free(counts->every);
    *counts = (struct expert_counts){0};
}

/* Of this rank's shares. */
static void add_shares(const struct expert_counts *counts, const struct runner *runner, int64_t shares, double *out) {
    memset(out, 0, (size_t)(counts->layers * counts->experts) * sizeof *out);
    for (int64_t layer = 0; layer < counts->layers; layer++) {
        const double *made = runner_data(runner, counts->results[layer]);
        for (int64_t i = 0; i < shares * counts->experts; i++)
            out[layer * counts->experts + i % counts->experts] += made[i];
    }
}

enum status expert_counts_collect(struct expert_counts *counts, const struct runner *runner, struct comm *comm,
                                  int64_t shares, bool counts_once) {
    const struct comm_group all = comm_group_all(comm);
    int64_t elements = counts->layers * counts->experts;
    if (elements == 0) return STATUS_OK;
    add_shares(counts, runner, counts_once ? shares : 0, counts->of);
    TRY(comm_all_gather(comm, &all, counts->of, (size_t)elements * sizeof *counts->of, counts->every));
    for (int64_t i = 0; i < elements; i++) {
        counts->of[i] = 0;
        for (int rank = 0; rank < all.count; rank++)
            counts->of[i] += counts->every[rank * elements + i];
    }
    return STATUS_OK;
}

struct expert_spread expert_counts_spread(const struct expert_counts *counts) {
    struct expert_spread spread = {INFINITY, 0};
    for (int64_t layer = 0; layer < counts->layers; layer++) {
        const double *of = counts->of + layer * counts->experts;
        double sum = 0;
        for (int64_t e = 0; e < counts->experts; e++)
            sum += of[e];
        for (int64_t e = 0; e < counts->experts && sum > 0; e++) {
            double part = of[e] * (double)counts->experts / sum;
            spread.min = fmin(spread.min, part);
            spread.max = fmax(spread.max, part);
        }
    }
    return spread;
}
