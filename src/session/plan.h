/* A session's plan: the programs that will be executed and all that is known of them before any weight is read.
 * `ballast plan` prints it, `ballast simulate` predicts its step, and an engine executes it.
 *
 * The plan owns its compiled programs from the beginning to the end; engines and whoever looks at a graph borrow them.
 */
#pragma once

#include <jansson.h>

#include "search/sim/step_summary.h"
#include "session/candidate.h"

/* Sizes of the model that a plan is for. */
struct model_figures {
    int64_t parameters, matrix_parameters; /* all; those in GEMMs */
    int64_t trained_parameters;            /* those that are not frozen */
    /* Model FLOPs: of a training step 6 a matrix parameter (4 where it is frozen) and 6 x heads x head size x (T + 1) a
     * layer for causal attention; without one a third of that */
    double flops_per_token;
};

struct session_plan {
    const struct session *session; /* borrowed */
    struct plan_request request;   /* what was asked for */
    struct rank_shapes shapes;     /* those that were open, and what came of each; with several ranks on rank 0 alone */
    struct plan chosen;            /* what was chosen: the recipe, and the policy */
    struct programs programs;      /* compiled under it; they may take more than there is: session_plan_check_memory */
    int64_t min_bytes;             /* of the device, under the policy that takes least of it, of those tried */
    struct search_result search;   /* by which the policy was chosen; all zero: it was given, or the plain one fits */
    struct costs costs;            /* of the main program's graph; without kernels until they are asked for */
    struct stage_steps stages;     /* of the main program's pipeline, or its one step; none until predicted */
    struct memory_report memory[TIER_COUNT]; /* of the main program */
    struct model_figures figures;
};

/* Compiles what is asked for and, where that does not fit and the policy is free, finds one with which it does.
 * BAD_INPUT for what is wrong with the model or the plan; NO_FIT only for more
 * operations between ranks than there can be, whatever memory there is. Takes the request's shapes over, also on
 * failure. The caller frees with session_plan_free. */
enum status session_plan_make(const struct session *session, const struct plan_request *request,
                              struct session_plan *out);
void session_plan_free(struct session_plan *plan);

/* A plan of the same recipe with another policy: this one, or (NULL) what is chosen for the machine as it is now
 * described, whatever policy there was, but for a partition that was asked for and where a pipeline is cut. `costs`:
 * what is known of the main program's graph, and the new plan's costs then; NULL: nothing. `now` stays as it is, open
 * engines too. Collective. As session_plan_make. */
enum status session_plan_renew(const struct session_plan *now, const struct policy *policy, const struct costs *costs,
                               struct session_plan *out);

/* A session with its plan, in one call: by options (plan_request_make), of a plan whose recipe is decided, of the step
 * of a plan as it is. Neither `session` nor `plan` may be moved from then on. The caller frees the plan, then closes
 * the session. */
enum status session_begin(const char *model_folder, unsigned uses, const struct plan_options *options,
                          const struct train_options *training, struct session *session, struct session_plan *plan);
enum status session_begin_decided(const char *model_folder, const struct plan *decided,
                                  const struct plan_options *options, const struct train_options *training,
                                  struct session *session, struct session_plan *plan);
enum status session_begin_step(const char *model_folder, const struct plan *decided, const char *origin,
                               const struct plan_options *options, struct session *session, struct session_plan *plan);

/* NO_FIT when a tier's programs are larger than its capacity: the message says by how much, the hint which settings
 * would fit (it compiles others to find out). */
enum status session_plan_check_memory(const struct session_plan *plan);

/* Finds plan->costs (machine_costs.h), measuring what is not known. Does nothing where they are there. */
enum status session_plan_measure(struct session_plan *plan);
/* The same without measuring: the costs stay without kernels where some are not known. */
enum status session_plan_find_costs(struct session_plan *plan);
/* A step of the main program, simulated with those of a pipeline's other stages: sets plan->stages, and `out` to this
 * rank's step. The costs must be there. */
enum status session_plan_predict(struct session_plan *plan, struct step_summary *out);

/* plan.json: a plan with what is known of it, as `ballast plan -o` writes it and every run keeps it. */

/* What each part of a plan contributed: the seconds by which the best plan without it is slower. */

enum plan_part {
    PART_TENSOR,    /* without: each rank has whole tensors */
    PART_CUT,       /* without: tensors are cut as Megatron-LM does, with positions whole between GEMMs */
    PART_STAGES,    /* without: one stage */
    PART_PARTITION, /* without: each data rank has all model states; of the plan's shape */
    PART_MEMORY,    /* without: nothing is moved or computed again; of the plan's shape */
    PART_COUNT
};

struct plan_gain {
    bool used;     /* the plan has it; else it gains nothing */
    bool possible; /* without it a plan was found, or a bound of all of them; else none fits that was tried */
    bool exact;    /* else `seconds` is the least that it gains, or against shapes that were not tried expected */
    double seconds;
};

/* Of a plan whose shape was chosen. */
void plan_gains_find(const struct session_plan *plan, struct plan_gain out[PART_COUNT]);

/* {"version", "recipe", "policy", "model", "model_shape", "step_s",
 *  "tiers": [{"name", "program_bytes", "capacity_bytes", "by_kind"}],
 *  "streams": [{"role", "busy_s", "waiting_s"}], "binds": [{"what", "seconds"}],
 *  "extrapolated_operators" (profile/points.h), "runners_up", "pareto_front", "tried":
 *  [{"step_s", "device_bytes", "host_bytes", "disk_bytes", "policy"}], "search": {"enumerated", "compiled", "proved"}
 * or null}. "tried" are all policies that the search compiled; a step_s of null: it does not fit. prediction: NULL
 * where none was made: step_s is null then. `model_folder` is absolute, or a preset's name. FAILED without memory or
 * where it is not UTF-8. The caller drops the document. */
enum status plan_document_make(const struct session_plan *plan, const struct step_summary *prediction,
                               const char *model_folder, json_t **out);
/* What a plan file says of a step of `plan`: empty where it says nothing, or is of another recipe or policy. */
enum status plan_document_read_prediction(const char *path, const struct plan *plan, struct step_summary *out);
/* BAD_INPUT where a plan file has the shape of another model (model_shape_check). Older files have none. */
enum status plan_document_check_model(const char *path, const struct model_config *config);
/* RUN_DIR/plan.json, in place of one that is there. */
enum status plan_document_write(const char *run_folder, const struct session_plan *plan,
                                const struct step_summary *prediction, const char *model_folder);
