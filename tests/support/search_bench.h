/* A small model on an invented machine for tests of the search, with the cost of every policy of its space. */
#pragma once

#include "search/search.h"

enum { SEARCH_BENCH_MICRO_BATCHES = 2 };

struct search_bench {
    struct graph *graph;
    int64_t *bytes;
    struct workspace_table workspace;
    struct plan plan;
    struct costs costs;
    struct search_input input; /* capacities are the test's */
};

/* With synthetic_costs of that machine and seed; the seed is also the graph's form. Ends the test on any failure, as do
 * all of these. The input points into *out, which stays where it is. */
void search_bench_open(int layers, enum dtype dtype, int machine, uint64_t seed, struct search_bench *out);
void search_bench_close(struct search_bench *bench);

struct measured {
    int64_t bytes[TIER_COUNT];
    double step_s;
};
/* What a policy's program takes, fitting or not, simulated with the bench's costs. */
struct measured search_bench_measure(const struct search_bench *bench, const struct policy *policy);
bool search_bench_fits(const struct search_bench *bench, const struct measured *measured);
/* The device's bytes of the plain policy. */
int64_t search_bench_plain_bytes(const struct search_bench *bench);
/* Sets the capacities: of the device `part` of what lies between the least that is needed and the plain policy's, of
 * the host half of the plain policy's, of the disk more than anything takes. The search is left to the micro-batches of
 * the input.
 */
void search_bench_limit(struct search_bench *bench, double part, bool host, bool disk);

struct brute_force {
    int64_t tried, fitting, distinct; /* distinct: of those that fit, by their time */
    double best_s;                    /* infinite where none fits */
    struct measured smallest;         /* on the device, of those that fit; the faster of equals */
};
/* Compiles and simulates every policy of the search's space. */
struct brute_force search_bench_try_all(const struct search_bench *bench);
/* The same with chunks of the sizes that the search tries near its best policy alone (space_list_near). */
struct brute_force search_bench_try_finer(const struct search_bench *bench);
