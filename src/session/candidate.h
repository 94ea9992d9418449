/* Evaluates one candidate for a session's plan (candidate.c): computes a lower bound, compiles its programs, then
 * simulates a step. choose.c enumerates the candidates and chooses one.
 *
 * A candidate is a complete `struct plan`: the rank layout (place), the partition of tensors (recipe.layout,
 * strategies), tiles, selective recomputation, pipeline cut, schedule, partition of states and tiers (policy). */
#pragma once

#include "search/search.h"
#include "session/plan_request.h"

struct plan_candidate {
    const struct session *session;      /* borrowed, like the request */
    const struct plan_request *request; /* the programs, the objective, and the fixed settings */
    struct plan plan;
    struct policy requested; /* the policy that the choice starts from */
    double faster_than_s;    /* best step so far: a candidate that is slower or does not fit is useless; INFINITY: none
                              * fits yet; 0: the only candidate */

    /* Results of the evaluation. */
    struct programs programs;    /* compiled, not proved */
    int64_t min_bytes;           /* minimum bytes on the device, over the policies that were tried */
    struct costs costs;          /* for the main program's graph; no kernels until they are needed */
    struct search_result search; /* search for a policy; all zero: the policy was given, or the plain one fits */
    struct trial fastest;        /* the trial that was chosen; not compiled: the search chose none */
};

/* A candidate before evaluation. `plan` needs only the mesh and the axes of its place. Both are borrowed. */
struct plan_candidate candidate_begin(const struct session *session, const struct plan_request *request,
                                      const struct plan *plan);
/* Frees the results of the evaluation. */
void candidate_free(struct plan_candidate *candidate);
/* The place of this rank, or of the first planned rank. Mesh and axes must be known. */
struct rank_place candidate_place(const struct session *session, const struct rank_place *requested);

/* The graph of its main program. The caller frees it. */
enum status candidate_build_graph(const struct plan_candidate *candidate, struct graph **out);
/* BAD_INPUT if an option asks for flat collectives and the ranks' devices use NCCL, which chooses its own algorithm. A
 * plan file may ask for them; they have no effect then. */
enum status candidate_check_collectives(const struct plan_candidate *candidate);

/* Fills in the search's input for the main program's graph; `costs` and `workspace` belong to that graph. With several
 * data ranks and no fixed partition, the search chooses among all `*partitions`. The caller frees `*partitions`. */
enum status candidate_search_input(const struct plan_candidate *candidate, const struct graph *graph,
                                   const struct workspace_table *workspace, const struct costs *costs,
                                   const int64_t capacity_bytes[TIER_COUNT], struct search_input *out,
                                   struct partition **partitions);

/* Lower bounds on time and memory over all policies of the candidate. Compiles nothing. `graph`: the main program's. */
enum status candidate_bound(const struct plan_candidate *candidate, const struct graph *graph,
                            struct search_bound *out);
/* Compiles its programs. NO_FIT if they have too many collectives. */
enum status candidate_compile(struct plan_candidate *candidate);
/* Whether the compiled programs fit the machine's tiers. */
bool candidate_fits(const struct plan_candidate *candidate);
/* Finds its costs and measures unknown ones. Does nothing if the costs are there. */
enum status candidate_measure(struct plan_candidate *candidate);
/* Simulates a step for the search. step_s is 0 if it does not fit. Measures the costs if there are none. */
enum status candidate_simulate(struct plan_candidate *candidate, struct trial *out);
/* The seconds of a trial that the request compares. */
double candidate_seconds(const struct plan_candidate *candidate, const struct trial *trial);

/* Costs of the main program's graph: a copy of request->costs if given, else found or measured (for at most a second).
 * The caller frees with costs_free. */
enum status programs_measure_costs(const struct session *session, const struct plan_request *request,
                                   const struct programs *programs, struct costs *out);

/* Compute and link rates of a machine for a micro-batch of so many sequences, at any tensor parallelism. */
struct machine_rates {
    int64_t micro_batch_sequences;
    struct layout_rates work; /* without links */
    struct transfer_rate message[MESH_AXES];
};
/* Rates measured so far. Zero-initialize; free with vec_free. */
struct known_rates {
    VEC(struct machine_rates) list;
};
/* Partitions the tensors if the layout asks for the solver. First sets recipe.layout_rates if they are unknown:
 * - compute: the best rates of the model's kernels, measured on one rank's graph of its micro-batch;
 * - links: those between the ranks of a tensor-parallel group; if there are none, a tenth of the memory's rate;
 * - memory limit: the devices of all stages together.
 *
 * Then fills in recipe.strategies. */
enum status candidate_solve(struct plan_candidate *candidate, struct known_rates *known);
/* Fills in recipe.strategies at the recipe's rates, if the layout asks for the solver and strategies are missing. */
enum status plan_fill_in_strategies(const struct session *session, struct plan *plan);

/* The initial policy: the plain one, with the fixed options and the pipeline's cut. */
struct policy policy_begin(const struct plan_request *request, const struct policy *policy);
/* Cuts an uncut pipeline by FLOPs. `graph`: the main program's. BAD_INPUT if it has too few blocks. */
enum status candidate_cut_stages(struct plan_candidate *candidate, const struct graph *graph);
/* Fills in everything that the candidate leaves open except tiles and the policy, then compiles it. It chooses
 * strategies, larger micro-batches if there are too many collectives, the pipeline's cut, and selective
 * recomputation. */
enum status candidate_fill_in(struct plan_candidate *candidate, struct known_rates *known);

/* ---- the choice among the candidates that a request leaves open (choose.c) ---- */

/* Finds the best candidate.
 * - If the rank layouts (`shapes`) are open, each gets its outcome. All are bounded before one is compiled. Layouts
 *   that cannot be faster than the best so far are not compiled. If none fits, the result is the layout that needs the
 *   least device memory.
 * - Otherwise the candidates are the request's plan and, if that does not fit, moves tensors or recomputes, the same
 *   plan with tiles of a few sizes.
 *
 * BAD_INPUT if the model cannot have that layout. The caller frees `out` with candidate_free. */
enum status choose_candidate(const struct session *session, const struct plan_request *request,
                             struct rank_shapes *shapes, struct plan_candidate *out);

/* Minimum memory that a request takes on the device, over the policies that fit lower tiers of `capacity_bytes`.
 * Measures nothing. */
struct min_memory {
    int64_t min_bytes;              /* of the device: candidate.min_bytes */
    int64_t tier_bytes[TIER_COUNT]; /* of the programs compiled last */
    bool fits;                      /* all programs are compiled and proved, and fit */
};
enum status choose_min_memory(const struct session *session, const struct plan_request *request,
                              const int64_t capacity_bytes[TIER_COUNT], struct min_memory *out);
