/* Leaves out choices that another of the same variable makes needless (dead-end elimination by Goldstein's criterion,
 * Biophysical Journal 66, 1994): whatever the other variables choose, the other costs no more, and it takes no more
 * memory at any moment. Where it may cost the same it must be an earlier choice, so that the first of the cheapest
 * solutions stays. */
#include <string.h>

#include "plan/layout/ilp_program.h"

struct reduction {
    struct ilp_program *ilp;
    bool *gone; /* [first[count]] */
};

static int64_t pair_cost(const struct ilp_program *ilp, const struct ilp_pair *pair, int variable, int choice,
                         int other) {
    int columns = ilp->choices[pair->high];
    return variable == pair->low ? pair->cost[choice * columns + other] : pair->cost[other * columns + choice];
}

/* Least of cost(k) - cost(by) over what is left of the variable at the pair's other end. */
static int64_t min_difference(const struct reduction *reduction, const struct ilp_pair *pair, int variable, int k,
                              int by) {
    const struct ilp_program *ilp = reduction->ilp;
    int other = variable == pair->low ? pair->high : pair->low;
    int64_t min = ILP_FORBIDDEN;
    for (int l = 0; l < ilp->choices[other]; l++) {
        int64_t own = pair_cost(ilp, pair, variable, k, l);
        if (reduction->gone[ilp->first[other] + l] || own >= ILP_FORBIDDEN) continue;
        int64_t difference = own - pair_cost(ilp, pair, variable, by, l);
        min = difference < min ? difference : min;
    }
    return min;
}

static bool takes_no_more_memory(const struct ilp_program *ilp, int at, int by) {
    for (int m = 0; m < ilp->moment_count; m++) {
        const int64_t *memory = ilp->memory + (size_t)m * (size_t)ilp->first[ilp->count];
        if (memory[by] > memory[at]) return false;
    }
    return true;
}

static bool makes_needless(const struct reduction *reduction, int variable, int k, int by) {
    const struct ilp_program *ilp = reduction->ilp;
    int first = ilp->first[variable];
    int64_t saved = ilp->cost[first + k] - ilp->cost[first + by];
    if (!takes_no_more_memory(ilp, first + k, first + by)) return false;
    for (size_t i = 0; i < ilp->pairs.count && saved > -ILP_FORBIDDEN; i++) {
        const struct ilp_pair *pair = &ilp->pairs.items[i];
        if (pair->low == variable || pair->high == variable)
            saved = ilp_sum(saved, min_difference(reduction, pair, variable, k, by));
    }
    return saved > 0 || (saved == 0 && by < k);
}

static bool is_needless(const struct reduction *reduction, int variable, int k) {
    const struct ilp_program *ilp = reduction->ilp;
    for (int by = 0; by < ilp->choices[variable]; by++)
        if (by != k && !reduction->gone[ilp->first[variable] + by] && makes_needless(reduction, variable, k, by))
            return true;
    return false;
}

/* Until none is found: what is left out makes others needless. */
static void mark(struct reduction *reduction) {
    const struct ilp_program *ilp = reduction->ilp;
    bool found = true;
    while (found) {
        found = false;
        for (int v = 0; v < ilp->count; v++) {
            for (int k = 0; k < ilp->choices[v]; k++) {
                bool *gone = &reduction->gone[ilp->first[v] + k];
                if (*gone || !is_needless(reduction, v, k)) continue;
                *gone = found = true;
            }
        }
    }
}

/* Moves what is left of an array over all choices to its front. */
static void compact(const struct reduction *reduction, int64_t *values) {
    int kept = 0;
    for (int k = 0; k < reduction->ilp->first[reduction->ilp->count]; k++)
        if (!reduction->gone[k]) values[kept++] = values[k];
}

static void compact_pair(const struct reduction *reduction, struct ilp_pair *pair) {
    const struct ilp_program *ilp = reduction->ilp;
    int columns = ilp->choices[pair->high], kept = 0;
    for (int a = 0; a < ilp->choices[pair->low]; a++)
        for (int b = 0; b < columns; b++)
            if (!reduction->gone[ilp->first[pair->low] + a] && !reduction->gone[ilp->first[pair->high] + b])
                pair->cost[kept++] = pair->cost[a * columns + b];
}

static void compact_moments(const struct reduction *reduction, int width) {
    struct ilp_program *ilp = reduction->ilp;
    size_t before = (size_t)ilp->first[ilp->count];
    for (int m = 0; m < ilp->moment_count; m++) {
        int64_t *memory = ilp->memory + (size_t)m * before;
        compact(reduction, memory);
        memmove(ilp->memory + (size_t)m * (size_t)width, memory, (size_t)width * sizeof *memory);
    }
}

static void compact_all(const struct reduction *reduction) {
    struct ilp_program *ilp = reduction->ilp;
    int kept = 0, at = 0;
    for (int k = 0; k < ilp->first[ilp->count]; k++)
        if (!reduction->gone[k]) ilp->original[kept++] = ilp->original[k];
    compact(reduction, ilp->cost);
    for (size_t i = 0; i < ilp->pairs.count; i++)
        compact_pair(reduction, &ilp->pairs.items[i]);
    compact_moments(reduction, kept);
    kept = 0;
    for (int v = 0; v < ilp->count; v++) {
        int begin = kept;
        for (int k = 0; k < ilp->choices[v]; k++)
            kept += !reduction->gone[at++];
        ilp->first[v] = begin;
        ilp->choices[v] = kept - begin;
    }
    ilp->first[ilp->count] = kept;
}

enum status ilp_program_reduce(struct ilp_program *ilp) {
    struct reduction reduction = {ilp, mem_array((size_t)ilp->first[ilp->count], sizeof *reduction.gone)};
    if (!reduction.gone) return STATUS_FAILED;
    mark(&reduction);
    compact_all(&reduction);
    mem_free(reduction.gone);
    return STATUS_OK;
}
