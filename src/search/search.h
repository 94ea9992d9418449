/* Finds the fastest policy that fits the machine: bounds all policies by closed forms, then compiles and simulates the
 * best of them.
 *
 * A *candidate* is one policy of the space. A *policy class* is all candidates that share partition, schedule, chunk
 * size, micro-batches a wave, lookahead and the tiers of model states; they differ in how many chunks stay on the
 * device and in the buffers for the others. A *placement* is all policy classes of one partition and the same tiers of
 * states: with several partitions to choose from there are thousands, which are bounded as a whole before their policy
 * classes are. The *fullest* candidate keeps as many chunks as fit. Chunks of parts of a layer, and updates ahead
 * without lookahead, are looked at near the best program alone. A *bound* is what no program of a candidate or policy
 * class goes below (policy_bound.h); what is *expected* of it is the bound plus what programs like it took above
 * theirs.
 *
 * Files, in the order to read them: search (this; one policy, compiled and simulated; the order of
 * compiling), proposals (what is not tried yet, by expected time; what came of the others, and what they teach), refine
 * (the last programs: policies near the best), space (policy classes and candidates), schedule_cost (activation
 * schedules that are tried, and what one micro-batch takes under one), states (model states chunk by chunk; lanes,
 * rounds and ranks; the seconds of collectives), policy_bound (seconds and bytes from these). */
#pragma once

#include "compiler/program.h"
#include "plan/plan.h"
#include "search/sim/simulate.h"

/* Which operations between ranks are tried (policy.flat). */
enum search_collectives { COLLECTIVES_HIERARCHICAL, COLLECTIVES_FLAT, COLLECTIVES_EITHER };
/* What makes a policy the best: the time of its simulated step, or as AMSP has it (arXiv 2311.00257, section 4) the
 * plain sum of all work of all streams, with nothing hidden. */
enum search_objective { OBJECTIVE_STEP, OBJECTIVE_SUM };

struct search_input {
    const struct graph *graph;
    const struct workspace_table *workspace;
    const struct costs *costs;
    const struct recipe *recipe;
    struct rank_place place;            /* the rank whose policies are compared: the first has most to do */
    int64_t tile_tokens;                /* that the graph was made for (policy.tile_tokens) */
    bool selective_recompute;           /* the same (policy.selective_recompute) */
    const char *spans;                  /* where a pipeline is cut (policy.spans); NULL: chosen anew */
    int64_t capacity_bytes[TIER_COUNT]; /* 0: no such tier */
    int64_t micro_batches_per_wave;     /* 0: free; else no other */
    int64_t operations_beside; /* between ranks, of the plan's other programs, for each micro-batch of a wave */
    const struct partition *partitions; /* to choose from */
    int partition_count;                /* 0: all states on each rank */
    enum search_collectives collectives;
    enum search_objective objective;
    double faster_than_s; /* above 0: the best of several inputs is sought (INFINITY: none of those before fits), and
                             what is not faster is of no use. Of large graphs half of max_compiled are compiled then,
                             an eighth where the best is far behind, or none is expected to be faster */
    int max_compiled;     /* 0: as many as it takes to prove that none is faster; else at most this many;
                              below 0: none, only what precedes the first */
};

struct trial {
    struct policy policy;
    double bound_s;                 /* no program of this policy takes less */
    double step_s;                  /* simulated; 0: it was not, since it does not fit */
    double sum_s;                   /* of all streams' work in that step */
    int64_t tier_bytes[TIER_COUNT]; /* compiled; else a lower bound */
    bool compiled;
};

/* What came of one of several partitions. */
struct partition_outcome {
    struct partition partition;
    bool may_fit;      /* else none of its programs fits, by a lower bound of their bytes */
    double bound_s;    /* none of its programs that may fit takes less */
    int64_t tried;     /* programs that were compiled */
    struct trial best; /* of these, the fastest that fits; step_s 0: none does */
};

struct search_result {
    VEC(struct trial)
    pareto_front; /* compiled ones that fit, the fastest first; each needs less of the device than all faster ones */
    VEC(struct trial) runners_up;             /* the fastest simulated ones of other kinds (schedule kind and tiers) */
    VEC(struct trial) tried;                  /* all that were compiled, in that order; step_s 0: it does not fit */
    VEC(struct partition_outcome) partitions; /* of the input's, where it has several */
    int64_t enumerated, compiled;
    int64_t crowded; /* of the compiled: left out, since they have more operations than there can be between ranks */
    bool proved; /* no candidate of a policy class that is listed at once, compiled or not, is faster than the first of
                    `pareto_front` */
    double left_s;        /* none of those that were not compiled takes less; INFINITY: none of them can be faster */
    struct program *best; /* of the first of `pareto_front`, where it is one rank's; owned, NULL where it was taken */
    int64_t min_bytes;    /* the least of the device that a compiled program needs; for when nothing fits */
};

/* `max_compiled` for the start of a run. A program takes 10 ms to compile and simulate at 12 layers (546 nodes), 70 ms
 * at 96 (4242): the search then takes about a third of a second, or half of one where the least number applies. Small
 * models get more: with 24 programs instead of 57, the choice for 6 layers on a slow disk was 20% behind the best. */
int search_max_compiled(const struct graph *graph);

/* What no policy of the space goes below; nothing is compiled. Of the input the workspace may be less than it is, and
 * the costs of kernels too. */
struct search_bound {
    bool may_fit;      /* else no program of any policy fits, by a lower bound of its bytes */
    double seconds;    /* of those that may */
    double expected_s; /* with what the stages of a pipeline are expected to wait; else the same */
};
enum status search_bound(const struct search_input *input, struct search_bound *out);

/* OK with an empty Pareto front when nothing fits. Deterministic. The caller frees. */
enum status search_policies(const struct search_input *input, struct search_result *out);
/* The policy that needs least of the device, of those that fit the tiers below it. The smallest by their bounds are
 * compiled, up to the first that fits the device (capacity 0: a dozen). Needs no costs (input->costs may be NULL). */
enum status search_min_memory(const struct search_input *input, struct trial *out);
void search_result_free(struct search_result *result);

/* ---- one policy, compiled and simulated ---- */

/* The policy of `trial`: its bytes, and where it fits its seconds. Of a pipeline the programs of all stages, one
 * rank of each, which wait for each other: bytes are those of the stage that needs most. Where a stage takes more than
 * the capacities, or of the device than `enough_bytes` if that is more, later ones are not looked at. NO_FIT for more
 * operations between ranks than there can be. `out`, where it is not NULL: the program of what fits, which the caller
 * frees; NULL for one that does not, and for a pipeline. */
enum status policy_measure(const struct search_input *input, int64_t enough_bytes, struct trial *trial,
                           struct program **out);
