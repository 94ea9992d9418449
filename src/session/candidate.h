/* Evaluates one candidate for a session's plan: a lower bound before anything is compiled, then its programs, then a
 * simulated step (candidate.c). Which candidates there are, and which one is taken, is the choice of choose.c.
 *
 * A candidate is a complete `struct plan`: the rank layout (place), the partition of tensors (recipe.layout,
 * strategies), tiles, selective recomputation, pipeline cut, schedule, partition of states and tiers (policy). */
#pragma once

#include "search/search.h"
#include "session/plan_request.h"

struct plan_candidate {
    const struct session *session;      /* borrowed, as is the request */
    const struct plan_request *request; /* the programs, the objective, and what is fixed */
    struct plan plan;
    struct policy requested; /* the policy that the choice starts from */
    double faster_than_s;    /* of several candidates: one that is not faster is of no use, nor one that does not fit;
                                INFINITY: none fits yet; 0: it is the only one */

    /* What evaluation found. */
    struct programs programs;    /* compiled, not proved */
    int64_t min_bytes;           /* of the device, under the policy that takes least of it, of those tried */
    struct costs costs;          /* of the main program's graph; without kernels until they are needed */
    struct search_result search; /* of policies; all zero: the policy was given, or the plain one fits */
    struct trial fastest;        /* of the search, the one that was taken; not compiled: the search took none */
};

/* A candidate that is not evaluated. `plan` needs the mesh and the axes of its place alone. Both are borrowed. */
struct plan_candidate candidate_begin(const struct session *session, const struct plan_request *request,
                                      const struct plan *plan);
/* Drops what evaluation found. */
void candidate_free(struct plan_candidate *candidate);
/* The place of this rank, or of the first one that is planned for: where mesh and axes are known. */
struct rank_place candidate_place(const struct session *session, const struct rank_place *requested);

/* The graph of its main program. The caller frees it. */
enum status candidate_build_graph(const struct plan_candidate *candidate, struct graph **out);
/* BAD_INPUT if an option asks for flat collectives and the ranks' devices use NCCL,
 * which chooses its algorithm itself. A plan file may have them: there they change nothing. */
enum status candidate_check_collectives(const struct plan_candidate *candidate);

/* What its search is told of the main program's graph; `costs` and `workspace` are of that graph. With several data
 * ranks and no fixed partition the search chooses among all of them: `*partitions`, which the caller frees. */
enum status candidate_search_input(const struct plan_candidate *candidate, const struct graph *graph,
                                   const struct workspace_table *workspace, const struct costs *costs,
                                   const int64_t capacity_bytes[TIER_COUNT], struct search_input *out,
                                   struct partition **partitions);

/* Time and memory that no policy of the candidate goes below. Compiles nothing. `graph`: of its main program. */
enum status candidate_bound(const struct plan_candidate *candidate, const struct graph *graph,
                            struct search_bound *out);
/* Compiles its programs. NO_FIT: they have more operations between ranks than there can be. */
enum status candidate_compile(struct plan_candidate *candidate);
/* Whether these fit the machine's tiers. */
bool candidate_fits(const struct plan_candidate *candidate);
/* Finds its costs, measuring what is not known. Does nothing where they are there. */
enum status candidate_measure(struct plan_candidate *candidate);
/* A step as the search sees it; step_s 0: it does not fit. Measures the costs if there are none. */
enum status candidate_simulate(struct plan_candidate *candidate, struct trial *out);
/* The seconds of a trial that the request compares. */
double candidate_seconds(const struct plan_candidate *candidate, const struct trial *trial);

/* The costs of the main program's graph: a copy of request->costs, else by measuring what is not known (at most a
 * second). The caller frees with costs_free. */
enum status programs_measure_costs(const struct session *session, const struct plan_request *request,
                                   const struct programs *programs, struct costs *out);

/* Compute and link rates of a machine for a micro-batch of so many sequences, whatever the tensor parallelism. */
struct machine_rates {
    int64_t micro_batch_sequences;
    struct layout_rates work; /* without links */
    struct transfer_rate message[MESH_AXES];
};
/* Those that were measured; zero-initialise, vec_free. */
struct known_rates {
    VEC(struct machine_rates) list;
};
/* Where the solver partitions the tensors: sets recipe.layout_rates where they are unknown, by the best rates of the
 * model's kernels, measured on one rank's graph of its micro-batch, and those of the links between the ranks of a
 * tensor-parallel group (without such a tenth of the memory's); the memory limit is that of the devices of all stages
 * together. Then fills recipe.strategies in. */
enum status candidate_solve(struct plan_candidate *candidate, struct known_rates *known);
/* Fills recipe.strategies in where the solver partitions the tensors and has not yet, at the recipe's rates. */
enum status plan_fill_in_strategies(const struct session *session, struct plan *plan);

/* The policy that the choice for a plan starts from: the plain one, but for what options fix and the pipeline's cut. */
struct policy policy_begin(const struct plan_request *request, const struct policy *policy);
/* Cuts a pipeline that is not cut yet, by FLOPs. `graph`: of the main program. BAD_INPUT: it has too few blocks. */
enum status candidate_cut_stages(struct plan_candidate *candidate, const struct graph *graph);
/* Fills in all that the candidate leaves open, but for tiles and the policy, and compiles it: strategies, larger
 * micro-batches if there are too many operations between ranks, the pipeline's cut, selective recomputation. */
enum status candidate_fill_in(struct plan_candidate *candidate, struct known_rates *known);

/* ---- the choice among the candidates that a request leaves open (choose.c) ---- */

/* The best candidate. If the request's rank layouts are open (`shapes`), each of them gets its outcome: all are
 * bounded before one is compiled, and those that cannot be faster than the best so far are not compiled. If none fits,
 * it is the layout that needs the least device memory. Else it is the request's plan and, where that does not fit or
 * moves or recomputes, the same with tiles of a few sizes. BAD_INPUT if the model cannot have that layout. The caller
 * frees `out` with candidate_free. */
enum status choose_candidate(const struct session *session, const struct plan_request *request,
                             struct rank_shapes *shapes, struct plan_candidate *out);

/* What a request takes under the policy that takes least of the device, of those that tiers of `capacity_bytes` below
 * it hold. Measures nothing. */
struct min_memory {
    int64_t min_bytes;              /* of the device: candidate.min_bytes */
    int64_t tier_bytes[TIER_COUNT]; /* of the programs that were compiled last */
    bool fits;                      /* all of them, compiled and proved, fit */
};
enum status choose_min_memory(const struct session *session, const struct plan_request *request,
                              const int64_t capacity_bytes[TIER_COUNT], struct min_memory *out);
