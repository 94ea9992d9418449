/* Chooses a session's plan among the candidates that a request leaves open. Layers, each of which calls only those
 * below it: choose.c (the loop over candidates), candidates.c (fills in what one leaves open), choose_policy.c (the
 * policy), evaluate.c (bound, compile, simulate). */
#pragma once

#include "session/evaluate.h"

/* The best candidate. If the request's rank layouts are open (`shapes`), each of them gets its outcome: all are
 * bounded before one is compiled, and those that cannot be faster than the best so far are not compiled. If none fits,
 * it is the layout that needs the least device memory. Else it is the request's plan and, where that does not fit or
 * moves or recomputes, the same with tiles of a few sizes. BAD_INPUT if the model cannot have that layout. The caller
 * frees `out` with candidate_free. */
enum status choose_candidate(const struct session *session, const struct plan_request *request,
                             struct rank_shapes *shapes, struct plan_candidate *out);

/* ---- one candidate (candidates.c) ---- */

/* Compute and link rates of a machine for a micro-batch of so many sequences, whatever the tensor parallelism. */
struct machine_rates {
    int64_t micro_batch_sequences;
    struct layout_rates work; /* without links */
    struct transfer_rate message[MESH_AXES];
};
/* Whether the solver will partition the tensors and recipe.layout_rates are unknown. */
bool candidate_lacks_rates(const struct plan_candidate *candidate);
/* The best rates of the model's kernels, measured on one rank's graph of its micro-batch, and those of the links. */
enum status candidate_measure_rates(const struct plan_candidate *candidate, struct machine_rates *out);
/* Sets recipe.layout_rates: of links between the ranks of a tensor-parallel group; without such a tenth of the
 * memory's. The memory limit is that of the devices of all stages together. */
void candidate_take_rates(const struct machine_rates *rates, struct plan_candidate *candidate);
/* Fills recipe.strategies in where the solver partitions the tensors and has not yet, at the recipe's rates. */
enum status plan_fill_in_strategies(const struct session *session, struct plan *plan);

/* The policy that the choice for a plan starts from: the plain one, but for what options fix and the pipeline's cut. */
struct policy policy_begin(const struct plan_request *request, const struct policy *policy);
/* Cuts a pipeline that is not cut yet, by FLOPs. `graph`: of the main program. BAD_INPUT: it has too few blocks. */
enum status candidate_cut_stages(struct plan_candidate *candidate, const struct graph *graph);
/* Fills in all that the candidate leaves open, but for tiles, and compiles it: strategies, larger micro-batches if
 * there are too many operations between ranks, the pipeline's cut, selective recomputation, and the best policy. */
enum status candidate_complete(struct plan_candidate *candidate);

/* ---- its policy (choose_policy.c) ---- */

/* If its compiled programs do not fit the machine's tiers, or it has a partition to choose: compiles others under the
 * policies that a search finds, the fastest first, until some fit. If none does, the candidate stays as it is. */
enum status candidate_choose_policy(struct plan_candidate *candidate);

/* What a request takes under the policy that takes least of the device, of those that tiers of `capacity_bytes` below
 * it hold. Measures nothing. */
struct min_memory {
    int64_t min_bytes;              /* of the device: candidate.min_bytes */
    int64_t tier_bytes[TIER_COUNT]; /* of the programs that were compiled last */
    bool fits;                      /* all of them, compiled and proved, fit */
};
enum status choose_min_memory(const struct session *session, const struct plan_request *request,
                              const int64_t capacity_bytes[TIER_COUNT], struct min_memory *out);
