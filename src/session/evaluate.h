/* Evaluates one candidate for a session's plan: a lower bound before anything is compiled, then its programs, then a
 * simulated step. Which candidates there are, and which one is taken, is the choice of session/choose.h.
 *
 * A candidate is a complete `struct plan`: the rank layout (place), the partition of tensors (recipe.layout,
 * strategies), tiles, selective recomputation, pipeline cut, schedule, partition of states and tiers (policy). */
#pragma once

#include "search/search.h"
#include "session/plan_request.h"

/* The steps of all stages of a plan's pipeline, simulated together: one rank of each, which wait for each other's
 * messages. Without a pipeline, the one step. */
struct stage_step {
    struct program *program;  /* NULL: that of `main` */
    struct timeline timeline; /* step_s: of the slowest stage */
    double compute_s;         /* the compute stream at work */
    int64_t tier_bytes[TIER_COUNT];
};
struct stage_steps {
    int count;
    struct stage_step *list; /* by stage */
    double step_s;
    double bubble; /* the part of all stages' time in which they do not compute: Megatron-LM's measure of a pipeline
                      (arXiv 2104.04473, section 2.2), with all other waiting in it */
};
/* `main`: a step of the plan's graph, and if the plan has one stage its program; `costs` are of that graph. Stages are
 * compiled, without their proof, for the ranks that differ from the plan's along this axis alone. The caller frees,
 * also after a failure. */
enum status stage_steps_make(const struct executable *main, const struct plan *plan, const struct costs *costs,
                             struct stage_steps *out);
void stage_steps_free(struct stage_steps *steps);

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
/* Adds to a BAD_INPUT the file that the plan comes from (request->origin): its policy is wrong for this model. */
enum status candidate_name_origin(const struct plan_candidate *candidate, enum status status);
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
