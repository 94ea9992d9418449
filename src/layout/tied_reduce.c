/* Leaves out choices that another of the same variable makes needless (dead-end elimination by Goldstein's criterion,
 * Biophysical Journal 66, 1994): whatever the other variables choose, the other costs no more, and it takes no more
 * memory at any moment. Where it may cost the same it must be an earlier choice, so that the first of the cheapest
 * solutions stays. */
#include <string.h>

#include "layout/tied_program.h"

struct reduction {
    struct tied_program *tied;
    bool *gone; /* [first[count]] */
};

static int64_t pair_cost(const struct tied_program *tied, const struct tied_pair *pair, int variable, int choice,
                         int other) {
    int columns = tied->choices[pair->high];
    return variable == pair->low ? pair->cost[choice * columns + other] : pair->cost[other * columns + choice];
}

/* Least of cost(k) - cost(by) over what is left of the variable at the pair's other end. */
static int64_t least_difference(const struct reduction *reduction, const struct tied_pair *pair, int variable, int k,
                                int by) {
    const struct tied_program *tied = reduction->tied;
    int other = variable == pair->low ? pair->high : pair->low;
    int64_t least = TIED_FORBIDDEN;
    for (int l = 0; l < tied->choices[other]; l++) {
        int64_t own = pair_cost(tied, pair, variable, k, l);
        if (reduction->gone[tied->first[other] + l] || own >= TIED_FORBIDDEN) continue;
        int64_t difference = own - pair_cost(tied, pair, variable, by, l);
        least = difference < least ? difference : least;
    }
    return least;
}

static bool takes_no_more_memory(const struct tied_program *tied, int at, int by) {
    for (int m = 0; m < tied->moment_count; m++) {
        const int64_t *memory = tied->memory + (size_t)m * (size_t)tied->first[tied->count];
        if (memory[by] > memory[at]) return false;
    }
    return true;
}

static bool makes_needless(const struct reduction *reduction, int variable, int k, int by) {
    const struct tied_program *tied = reduction->tied;
    int first = tied->first[variable];
    int64_t saved = tied->cost[first + k] - tied->cost[first + by];
    if (!takes_no_more_memory(tied, first + k, first + by)) return false;
    for (size_t i = 0; i < tied->pairs.count && saved > -TIED_FORBIDDEN; i++) {
        const struct tied_pair *pair = &tied->pairs.items[i];
        if (pair->low == variable || pair->high == variable)
            saved = tied_sum(saved, least_difference(reduction, pair, variable, k, by));
    }
    return saved > 0 || (saved == 0 && by < k);
}

static bool is_needless(const struct reduction *reduction, int variable, int k) {
    const struct tied_program *tied = reduction->tied;
    for (int by = 0; by < tied->choices[variable]; by++)
        if (by != k && !reduction->gone[tied->first[variable] + by] && makes_needless(reduction, variable, k, by))
            return true;
    return false;
}

/* Until none is found: what is left out makes others needless. */
static void mark(struct reduction *reduction) {
    const struct tied_program *tied = reduction->tied;
    bool found = true;
    while (found) {
        found = false;
        for (int v = 0; v < tied->count; v++) {
            for (int k = 0; k < tied->choices[v]; k++) {
                bool *gone = &reduction->gone[tied->first[v] + k];
                if (*gone || !is_needless(reduction, v, k)) continue;
                *gone = found = true;
            }
        }
    }
}

/* Moves what is left of an array over all choices to its front. */
static void compact(const struct reduction *reduction, int64_t *values) {
    int kept = 0;
    for (int k = 0; k < reduction->tied->first[reduction->tied->count]; k++)
        if (!reduction->gone[k]) values[kept++] = values[k];
}

static void compact_pair(const struct reduction *reduction, struct tied_pair *pair) {
    const struct tied_program *tied = reduction->tied;
    int columns = tied->choices[pair->high], kept = 0;
    for (int a = 0; a < tied->choices[pair->low]; a++)
        for (int b = 0; b < columns; b++)
            if (!reduction->gone[tied->first[pair->low] + a] && !reduction->gone[tied->first[pair->high] + b])
                pair->cost[kept++] = pair->cost[a * columns + b];
}

static void compact_moments(const struct reduction *reduction, int width) {
    struct tied_program *tied = reduction->tied;
    size_t before = (size_t)tied->first[tied->count];
    for (int m = 0; m < tied->moment_count; m++) {
        int64_t *memory = tied->memory + (size_t)m * before;
        compact(reduction, memory);
        memmove(tied->memory + (size_t)m * (size_t)width, memory, (size_t)width * sizeof *memory);
    }
}

static void compact_all(const struct reduction *reduction) {
    struct tied_program *tied = reduction->tied;
    int kept = 0, at = 0;
    for (int k = 0; k < tied->first[tied->count]; k++)
        if (!reduction->gone[k]) tied->original[kept++] = tied->original[k];
    compact(reduction, tied->cost);
    for (size_t i = 0; i < tied->pairs.count; i++)
        compact_pair(reduction, &tied->pairs.items[i]);
    compact_moments(reduction, kept);
    kept = 0;
    for (int v = 0; v < tied->count; v++) {
        int begin = kept;
        for (int k = 0; k < tied->choices[v]; k++)
            kept += !reduction->gone[at++];
        tied->first[v] = begin;
        tied->choices[v] = kept - begin;
    }
    tied->first[tied->count] = kept;
}

enum status tied_program_reduce(struct tied_program *tied) {
    struct reduction reduction = {tied, mem_array((size_t)tied->first[tied->count], sizeof *reduction.gone)};
    if (!reduction.gone) return STATUS_FAILED;
    mark(&reduction);
    compact_all(&reduction);
    mem_free(reduction.gone);
    return STATUS_OK;
}
