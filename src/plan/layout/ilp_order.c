/* An order in which variables are chosen, so that what is chosen is soon of no more concern: at each place few choices
 * are open of the frontier, the chosen variables that have pairs with others. Greedy, from each of some variables; the
 * best of these orders. */
#include <math.h>
#include <string.h>

#include "plan/layout/ilp_program.h"

enum { STARTS_MAX = 16 };

struct ordering {
    const struct ilp_program *ilp;
    int *neighbours, *first; /* [first[variables]] by variable */
    int *open;               /* by variable: neighbours that are not chosen yet */
    bool *chosen;
    int *order, count;
    double frontier; /* logarithm of how many ways there are to choose the frontier */
    struct scratch scratch;
};

static enum status find_neighbours(struct ordering *ordering) {
    const struct ilp_program *ilp = ordering->ilp;
    size_t count = (size_t)ilp->count;
    ordering->first = scratch_alloc(&ordering->scratch, count + 1, sizeof(int));
    ordering->neighbours = scratch_alloc(&ordering->scratch, 2 * ilp->pairs.count, sizeof(int));
    ordering->open = scratch_alloc(&ordering->scratch, count, sizeof(int));
    ordering->chosen = scratch_alloc(&ordering->scratch, count, sizeof(bool));
    ordering->order = scratch_alloc(&ordering->scratch, count, sizeof(int));
    if (!ordering->first || !ordering->neighbours || !ordering->open || !ordering->chosen || !ordering->order)
        return STATUS_FAILED;
    for (size_t i = 0; i < ilp->pairs.count; i++)
        ordering->open[ilp->pairs.items[i].low]++, ordering->open[ilp->pairs.items[i].high]++;
    for (size_t v = 0; v < count; v++)
        ordering->first[v + 1] = ordering->first[v] + ordering->open[v];
    memset(ordering->open, 0, count * sizeof(int));
    for (size_t i = 0; i < ilp->pairs.count; i++) {
        int low = ilp->pairs.items[i].low, high = ilp->pairs.items[i].high;
        ordering->neighbours[ordering->first[low] + ordering->open[low]++] = high;
        ordering->neighbours[ordering->first[high] + ordering->open[high]++] = low;
    }
    return STATUS_OK;
}

static double ways(const struct ordering *ordering, int variable) { return log(ordering->ilp->choices[variable]); }

/* The frontier after the variable is chosen too. */
static double frontier_with(const struct ordering *ordering, int variable) {
    double frontier = ordering->frontier + (ordering->open[variable] > 0 ? ways(ordering, variable) : 0);
    for (int i = ordering->first[variable]; i < ordering->first[variable + 1]; i++) {
        int other = ordering->neighbours[i];
        if (ordering->chosen[other] && ordering->open[other] == 1) frontier -= ways(ordering, other);
    }
    return frontier;
}

static void choose(struct ordering *ordering, int variable) {
    ordering->frontier = frontier_with(ordering, variable);
    ordering->chosen[variable] = true;
    ordering->order[ordering->count++] = variable;
    for (int i = ordering->first[variable]; i < ordering->first[variable + 1]; i++)
        ordering->open[ordering->neighbours[i]]--;
}

/* Next to a chosen one where there is such; the first of those after which the frontier is smallest. */
static int next_variable(const struct ordering *ordering) {
    int best = -1;
    bool near = false;
    double min = 0;
    for (int v = 0; v < ordering->ilp->count; v++) {
        if (ordering->chosen[v]) continue;
        bool own = ordering->open[v] < ordering->first[v + 1] - ordering->first[v];
        double frontier = frontier_with(ordering, v);
        if (best >= 0 && (near != own ? near : frontier >= min - 1e-9)) continue;
        best = v, near = own, min = frontier;
    }
    return best;
}

/* The sum of all frontiers' ways. */
static double order_from(struct ordering *ordering, int start) {
    double sum = 0;
    ordering->count = 0, ordering->frontier = 0;
    memset(ordering->chosen, 0, (size_t)ordering->ilp->count * sizeof(bool));
    for (int v = 0; v < ordering->ilp->count; v++)
        ordering->open[v] = ordering->first[v + 1] - ordering->first[v];
    for (int next = start; next >= 0; next = next_variable(ordering)) {
        choose(ordering, next);
        sum += exp(ordering->frontier);
    }
    return sum;
}

enum status ilp_order_find(const struct ilp_program *ilp, int *order) {
    struct ordering ordering = {.ilp = ilp};
    enum status status = find_neighbours(&ordering);
    double min = INFINITY;
    for (int start = 0; start < ilp->count && start < STARTS_MAX && status == STATUS_OK; start++) {
        double sum = order_from(&ordering, start);
        if (start > 0 && sum >= min * (1 - 1e-9)) continue;
        min = sum;
        memcpy(order, ordering.order, (size_t)ilp->count * sizeof *order);
    }
    scratch_free(&ordering.scratch);
    return status;
}
