/* Finds the fastest policy that fits the machine: computes lower bounds of all policies by closed forms, then compiles
 * and simulates the best of them.
 *
 * - A *candidate* is one policy of the space.
 * - A *policy class* is all candidates that share partition, schedule, chunk size, micro-batches per wave, lookahead
 *   and the tiers of model states. They differ in the number of chunks that stay on the device, and in the buffers for
 *   the others.
 * - A *placement* is all policy classes of one partition and the same tiers of states. With several partitions there
 *   are thousands of policy classes, so placements are bounded as a whole first.
 * - The *fullest* candidate keeps as many chunks as fit. Chunks of parts of a layer, and updates ahead without
 *   lookahead, are tried only near the best program.
 * - A *bound* is a lower bound on all programs of a candidate or policy class (policy_bound.h).
 * - Its *expected* time is the bound plus the excess of similar programs.
 *
 * Files, in the order to read them:
 * - search: this file; one policy, compiled and simulated; the order of compiling
 * - proposals: untried proposals by expected time; results of the others, and estimates from them
 * - refine: the last programs, with policies near the best
 * - space: policy classes and candidates
 * - schedule_cost: activation schedules, and the cost of one micro-batch under one
 * - states: model states chunk by chunk; lanes, rounds and ranks; the seconds of collectives
 * - policy_bound: seconds and bytes from these */
#pragma once

#include "compiler/program.h"
#include "plan/plan.h"
#include "search/sim/simulate.h"

/* Which kinds of collectives are tried (policy.flat). */
enum search_collectives { COLLECTIVES_HIERARCHICAL, COLLECTIVES_FLAT, COLLECTIVES_EITHER };
/* Objective of the search: the time of the simulated step, or the sum of all streams' work without overlap, as in AMSP
 * (arXiv 2311.00257, section 4). */
enum search_objective { OBJECTIVE_STEP, OBJECTIVE_SUM };

struct search_input {
    const struct graph *graph;
    const struct workspace_table *workspace;
    const struct costs *costs;
    const struct recipe *recipe;
    struct rank_place place;            /* the rank whose policies are compared: the first has the most work */
    int64_t tile_tokens;                /* of the graph (policy.tile_tokens) */
    bool selective_recompute;           /* of the graph (policy.selective_recompute) */
    const char *spans;                  /* the pipeline's cut (policy.spans); NULL: chosen anew */
    int64_t capacity_bytes[TIER_COUNT]; /* 0: no such tier */
    int64_t micro_batches_per_wave;     /* 0: free; otherwise fixed */
    int64_t operations_beside;          /* collectives of the plan's other programs, per micro-batch of a wave */
    const struct partition *partitions; /* to choose from */
    int partition_count;                /* 0: each rank holds all states */
    enum search_collectives collectives;
    enum search_objective objective;
    double faster_than_s; /* time to beat. Above 0: the best of several inputs is searched for (INFINITY: none so far
                           * fits), and slower results are useless. For large graphs half of max_compiled programs are
                           * then compiled; an eighth if the best is far behind, or none is expected to be faster */
    int max_compiled;     /* 0: as many as the proof of optimality needs; above 0: at most this many; below 0: none,
                           * only the steps before the first */
};

struct trial {
    struct policy policy;
    double bound_s;                 /* lower bound on this policy's programs */
    double step_s;                  /* simulated; 0: not simulated, since it does not fit */
    double sum_s;                   /* of all streams' work in that step */
    int64_t tier_bytes[TIER_COUNT]; /* compiled; otherwise a lower bound */
    bool compiled;
};

/* Outcome of one of several partitions. */
struct partition_outcome {
    struct partition partition;
    bool may_fit;      /* otherwise none of its programs fits, by a lower bound of their bytes */
    double bound_s;    /* lower bound on its programs that may fit */
    int64_t tried;     /* number of compiled programs */
    struct trial best; /* the fastest of these that fits; step_s 0: none does */
};

struct search_result {
    VEC(struct trial)
    pareto_front; /* compiled ones that fit, the fastest first; each needs less device memory than all faster ones */
    VEC(struct trial) runners_up;             /* the fastest simulated ones of other kinds (schedule kind and tiers) */
    VEC(struct trial) tried;                  /* all that were compiled, in that order; step_s 0: it does not fit */
    VEC(struct partition_outcome) partitions; /* of the input's partitions, if there are several */
    int64_t enumerated, compiled;
    int64_t crowded;      /* compiled ones that were skipped because they have too many collectives */
    bool proved;          /* no candidate of a listed policy class, compiled or not, is faster than the first of
                           * `pareto_front` */
    double left_s;        /* lower bound on those that were not compiled; INFINITY: none of them can be faster */
    struct program *best; /* of the first of `pareto_front`, for a single stage; owned; NULL if it was taken */
    int64_t min_bytes;    /* minimum device memory of the compiled programs; for the case that nothing fits */
};

/* `max_compiled` for the start of a run. Compiling and simulating a program takes 10 ms at 12 layers (546 nodes) and 70
 * ms at 96 (4242). The search then takes about a third of a second, or half a second at the minimum number. Small
 * models get more: with 24 programs instead of 57, the choice for 6 layers on a slow disk was 20% behind the best. */
int search_max_compiled(const struct graph *graph);

/* A lower bound on all policies of the space, without compiling. The input's workspace and kernel costs may be too
 * small. */
struct search_bound {
    bool may_fit;      /* otherwise no program of any policy fits, by a lower bound of its bytes */
    double seconds;    /* of the policies that may fit */
    double expected_s; /* including a pipeline's expected waiting; without a pipeline the same */
};
enum status search_bound(const struct search_input *input, struct search_bound *out);

/* OK with an empty Pareto front if nothing fits. Deterministic. The caller frees. */
enum status search_policies(const struct search_input *input, struct search_result *out);
/* Finds the policy with the minimum device memory among those that fit the lower tiers. Compiles the smallest by their
 * bounds, up to the first that fits the device (capacity 0: a dozen). Needs no costs (input->costs may be NULL). */
enum status search_min_memory(const struct search_input *input, struct trial *out);
void search_result_free(struct search_result *result);

/* ---- one policy, compiled and simulated ---- */

/* Measures the policy of `trial`: its bytes and, if it fits, its seconds. For a pipeline, it compiles the programs of
 * all stages, one rank of each, which wait for each other. Bytes are those of the largest stage. If a stage exceeds the
 * capacities (or, on the device, `enough_bytes` if that is more), later stages are skipped. NO_FIT if there are too
 * many collectives. `out`, if not NULL, receives the program if it fits, for the caller to free; NULL otherwise, and
 * for a pipeline. */
enum status policy_measure(const struct search_input *input, int64_t enough_bytes, struct trial *trial,
                           struct program **out);
