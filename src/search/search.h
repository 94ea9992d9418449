/* Finds the policy: proposes, prunes by closed forms, compiles and simulates the best. */
#ifndef BALLAST_SEARCH_SEARCH_H
#define BALLAST_SEARCH_SEARCH_H

#include "plan/plan.h"
#include "program/program.h"
#include "sim/simulate.h"

struct search_input {
    const struct graph *graph;
    const struct workspace_table *workspace;
    const struct costs *costs;
    const struct recipe *recipe;
    int64_t capacity_bytes[TIER_COUNT]; /* 0: no such tier */
    int64_t grains_per_pass;            /* 0: free; else no other */
    int most_compiled; /* 0: as many as it takes to prove that none is faster; else that many of the best by bounds;
                          below 0: none, all is done that comes before the first */
};

struct candidate {
    struct policy policy;
    double bound_s;                 /* no program of this policy takes less */
    double step_s;                  /* simulated; 0: it was not */
    int64_t tier_bytes[TIER_COUNT]; /* compiled; else a lower bound */
    bool compiled;
};

struct search_result {
    VEC(struct candidate)
    front; /* compiled ones that fit; each needs less of the device than any faster one; fastest
              first: the first is the winner */
    VEC(struct candidate) runners_up; /* other ways (not the same choice with another number) that were simulated */
    VEC(struct candidate) tried;      /* all that were compiled, in that order; step_s 0: it does not fit */
    int64_t enumerated, compiled;
    bool proved;         /* nothing that was enumerated and not compiled can be faster than the winner */
    int64_t least_bytes; /* of the device, of all that were compiled: what would be needed when nothing fits */
};

/* `most_compiled` of a search that a run starts with. A program takes 10 ms to compile and simulate at 12 layers (546
 * nodes), 70 ms at 96 (4242), so the whole stays within about a third of a second, or half of one for the least. A
 * small model gets as many as that allows: with 24 of the 57 that 6 layers have now, the choice on a slow disk was 20%
 * behind the best of all. */
int search_most_compiled(const struct graph *graph);

/* OK with an empty front when nothing fits. Deterministic. The caller frees. */
enum status search_policies(const struct search_input *input, struct search_result *out);
/* The policy whose program takes least of the device, of those that the tiers below hold; some of the smallest by their
 * bounds are compiled, as far as the first that the device holds (capacity 0: all of them). Needs no costs
 * (input->costs may be NULL). */
enum status search_least(const struct search_input *input, struct candidate *out);
void search_result_free(struct search_result *result);

#endif
