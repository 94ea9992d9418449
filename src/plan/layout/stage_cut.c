#include "plan/layout/stage_cut.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

/* F(s, k, d) for s stages at most, k to `layers`, d to `devices`; `last` and `submesh` are those of the first stage. */
struct entry {
    double seconds;
    int16_t last, submesh;
};
struct table {
    const struct stage_problem *problem;
    int max_stages;
    int fewest, max; /* devices of a submesh: s stages have from s * fewest to s * max */
    struct entry *entries;
};

static struct entry *entry_at(const struct table *table, int stages, int layer, int devices) {
    const struct stage_problem *problem = table->problem;
    size_t row = (size_t)stages * (size_t)(problem->layers + 1) + (size_t)layer;
    return &table->entries[row * (size_t)(problem->devices + 1) + (size_t)devices];
}

static const struct stage_cost *cost_of(const struct stage_problem *problem, int first, int last, int submesh) {
    size_t row = (size_t)first * (size_t)problem->layers + (size_t)last;
    return &problem->costs[row * (size_t)problem->submesh_count + (size_t)submesh];
}

static bool fits(const struct stage_problem *problem, const struct stage_cost *cost, int in_flight) {
    int64_t left = problem->device_bytes - cost->held_bytes;
    return left >= 0 && cost->wave_bytes <= left / in_flight;
}

static void fill_entry(const struct table *table, int stages, int layer, int devices, double longest) {
    const struct stage_problem *problem = table->problem;
    struct entry *entry = entry_at(table, stages, layer, devices);
    *entry = (struct entry){.seconds = INFINITY};
    for (int last = layer; last < problem->layers; last++) {
        for (int m = 0; m < problem->submesh_count; m++) {
            const struct stage_cost *cost = cost_of(problem, layer, last, m);
            int left = devices - problem->submesh_devices[m];
            if (left < 0 || cost->seconds > longest || !fits(problem, cost, stages)) continue;
            double seconds = cost->seconds + entry_at(table, stages - 1, last + 1, left)->seconds;
            if (seconds < entry->seconds) *entry = (struct entry){seconds, (int16_t)last, (int16_t)m};
        }
    }
}

/* With no stage longer than `longest`: the number of stages with the least sum, or 0. What s stages cannot have stays
 * as it was made: infinite. */
static int fill(const struct table *table, double longest) {
    const struct stage_problem *problem = table->problem;
    int best = 0;
    double min = INFINITY;
    for (int s = 1; s <= table->max_stages; s++) {
        int64_t end = (int64_t)s * table->max;
        if (end > problem->devices) end = problem->devices;
        for (int layer = 0; layer < problem->layers; layer++)
            for (int64_t d = (int64_t)s * table->fewest; d <= end; d++)
                fill_entry(table, s, layer, (int)d, longest);
        double seconds = entry_at(table, s, 0, problem->devices)->seconds;
        if (seconds < min) min = seconds, best = s;
    }
    return best;
}

static double step_seconds(const struct table *table, int stages) {
    const struct stage_problem *problem = table->problem;
    double sum = 0, longest = 0;
    for (int s = stages, layer = 0, d = problem->devices; s > 0; s--) {
        const struct entry *entry = entry_at(table, s, layer, d);
        double seconds = cost_of(problem, layer, entry->last, entry->submesh)->seconds;
        sum += seconds, longest = fmax(longest, seconds);
        layer = entry->last + 1, d -= problem->submesh_devices[entry->submesh];
    }
    return sum + (double)(problem->waves - 1) * longest;
}

static enum status write_cut(const struct table *table, int stages, double seconds, struct stage_cut *out) {
    struct stage *list = mem_array((size_t)stages, sizeof *list);
    if (!list) return STATUS_FAILED;
    for (int s = stages, layer = 0, d = table->problem->devices; s > 0; s--) {
        const struct entry *entry = entry_at(table, s, layer, d);
        list[stages - s] = (struct stage){layer, entry->last, entry->submesh};
        layer = entry->last + 1, d -= table->problem->submesh_devices[entry->submesh];
    }
    stage_cut_free(out);
    *out = (struct stage_cut){stages, list, seconds};
    return STATUS_OK;
}

static int compare_seconds(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The times that could be the longest, ascending, each once. */
static enum status list_longest(const struct stage_problem *problem, double **out, size_t *count) {
    size_t capacity = (size_t)problem->layers * (size_t)problem->layers * (size_t)problem->submesh_count, kept = 0,
           used = 0;
    double *times = mem_array(capacity, sizeof *times);
    if (!times) return STATUS_FAILED;
    for (int first = 0; first < problem->layers; first++)
        for (int last = first; last < problem->layers; last++)
            for (int m = 0; m < problem->submesh_count; m++)
                if (isfinite(cost_of(problem, first, last, m)->seconds))
                    times[used++] = cost_of(problem, first, last, m)->seconds;
    qsort(times, used, sizeof *times, compare_seconds);
    for (size_t i = 0; i < used; i++)
        if (i == 0 || times[i] != times[kept - 1]) times[kept++] = times[i];
    *out = times, *count = kept;
    return STATUS_OK;
}

/* The first of the times with which there is a cut; `count` where there is none. */
static size_t first_that_fits(const struct table *table, const double *times, size_t count) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (fill(table, times[middle]) > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Goes up the times until the longest stage alone takes more than what is left of the best. */
static enum status find(const struct table *table, const double *times, size_t count, struct stage_cut *out) {
    int stages = fill(table, INFINITY);
    if (stages == 0)
        return status_set(STATUS_NO_FIT, "no cut uses all %d devices within their memory", table->problem->devices);
    double min_sum = entry_at(table, stages, 0, table->problem->devices)->seconds;
    double others = (double)(table->problem->waves - 1);
    out->seconds = INFINITY;
    for (size_t i = first_that_fits(table, times, count); i < count; i++) {
        if (min_sum + others * times[i] >= out->seconds) return STATUS_OK;
        stages = fill(table, times[i]);
        double seconds = step_seconds(table, stages);
        if (seconds < out->seconds) TRY(write_cut(table, stages, seconds, out));
    }
    return STATUS_OK;
}

static enum status check_costs(const struct stage_problem *problem) {
    for (int first = 0; first < problem->layers; first++) {
        for (int last = first; last < problem->layers; last++) {
            for (int m = 0; m < problem->submesh_count; m++) {
                const struct stage_cost *cost = cost_of(problem, first, last, m);
                if (!(cost->seconds >= 0))
                    return status_set(STATUS_BAD_INPUT, "layers %d to %d on submesh %d: %g s: must be 0 or more", first,
                                      last, m, cost->seconds);
                if (cost->held_bytes < 0 || cost->wave_bytes < 0)
                    return status_set(STATUS_BAD_INPUT, "layers %d to %d on submesh %d: bytes below 0", first, last, m);
            }
        }
    }
    return STATUS_OK;
}

static enum status check(const struct stage_problem *problem) {
    if (problem->layers < 1 || problem->layers > STAGE_LAYERS_MAX)
        return status_set(STATUS_BAD_INPUT, "%d layers: must be 1 to %d", problem->layers, STAGE_LAYERS_MAX);
    if (problem->devices < 1 || problem->devices > STAGE_DEVICES_MAX)
        return status_set(STATUS_BAD_INPUT, "%d devices: must be 1 to %d", problem->devices, STAGE_DEVICES_MAX);
    if (problem->submesh_count < 1 || problem->submesh_count > STAGE_SUBMESHES_MAX)
        return status_set(STATUS_BAD_INPUT, "%d submeshes: must be 1 to %d", problem->submesh_count,
                          STAGE_SUBMESHES_MAX);
    if (problem->waves < 1)
        return status_set(STATUS_BAD_INPUT, "%lld waves: must be at least 1", (long long)problem->waves);
    for (int m = 0; m < problem->submesh_count; m++)
        if (problem->submesh_devices[m] < 1)
            return status_set(STATUS_BAD_INPUT, "submesh %d: %d devices: must be at least 1", m,
                              problem->submesh_devices[m]);
    return check_costs(problem);
}

static enum status table_create(const struct stage_problem *problem, struct table *out) {
    int max = problem->layers < problem->devices ? problem->layers : problem->devices;
    size_t rows = (size_t)(max + 1) * (size_t)(problem->layers + 1), entries = rows * (size_t)(problem->devices + 1);
    if (entries > STAGE_ENTRIES_MAX)
        return status_set(STATUS_BAD_INPUT, "%d layers on %d devices: a table of %zu entries, more than %zu",
                          problem->layers, problem->devices, entries, STAGE_ENTRIES_MAX);
    *out = (struct table){problem, max, problem->submesh_devices[0], problem->submesh_devices[0],
                          mem_array(entries, sizeof *out->entries)};
    if (!out->entries) return STATUS_FAILED;
    for (int m = 1; m < problem->submesh_count; m++) {
        if (problem->submesh_devices[m] < out->fewest) out->fewest = problem->submesh_devices[m];
        if (problem->submesh_devices[m] > out->max) out->max = problem->submesh_devices[m];
    }
    for (size_t i = 0; i < entries; i++)
        out->entries[i].seconds = INFINITY;
    entry_at(out, 0, problem->layers, 0)->seconds = 0;
    return STATUS_OK;
}

enum status stage_cut_find(const struct stage_problem *problem, struct stage_cut *out) {
    struct table table = {0};
    struct stage_cut cut = {0};
    double *times = NULL;
    size_t count = 0;
    TRY(check(problem));
    TRY(table_create(problem, &table));
    enum status status = list_longest(problem, &times, &count);
    if (status == STATUS_OK) status = find(&table, times, count, &cut);
    mem_free(times);
    mem_free(table.entries);
    if (status == STATUS_OK)
        *out = cut;
    else
        stage_cut_free(&cut);
    return status;
}

void stage_cut_free(struct stage_cut *cut) {
    mem_free(cut->stages);
    *cut = (struct stage_cut){0};
}
