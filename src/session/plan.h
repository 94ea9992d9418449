/* A session's plan: its compiled programs and their properties before any weight is read. `ballast plan` prints it,
 * `ballast simulate` predicts its step, and an engine executes it.
 *
 * The plan owns its compiled programs for its lifetime. Engines and readers of a graph borrow them. */
#pragma once

#include <jansson.h>

#include "search/sim/step_summary.h"
#include "session/candidate.h"

/* Sizes of the plan's model. */
struct model_figures {
    int64_t parameters, matrix_parameters; /* all parameters; those in GEMMs */
    int64_t trained_parameters;            /* parameters that are not frozen */
    /* Model FLOPs. In training: 6 per matrix parameter (4 if frozen), and 6 x heads x head size x (T + 1) per layer for
     * causal attention. Without training: a third of that */
    double flops_per_token;
};

struct session_plan {
    const struct session *session; /* borrowed */
    struct plan_request request;   /* the request of the plan */
    struct rank_shapes shapes;     /* the open rank layouts, with their outcomes; with several ranks, on rank 0 only */
    struct plan chosen;            /* the chosen recipe and policy */
    struct programs programs;      /* compiled under it; they may exceed the capacity: session_plan_check_memory */
    int64_t min_bytes;             /* minimum bytes on the device, over the policies that were tried */
    struct search_result search;   /* the search for the policy; all zero: the policy was given, or the plain one
                                    * fits */
    struct costs costs;            /* for the main program's graph; no kernels until they are requested */
    struct stage_steps stages;     /* of the main program's pipeline, or its single step; empty until predicted */
    struct memory_report memory[TIER_COUNT]; /* of the main program */
    struct model_figures figures;
};

/* Compiles the request. If it does not fit and the policy is free, searches for one that fits. BAD_INPUT if the model
 * or the plan is wrong. NO_FIT only if there are too many collectives, whatever the memory. Takes the request's shapes
 * over, also on failure. The caller frees with session_plan_free. */
enum status session_plan_make(const struct session *session, const struct plan_request *request,
                              struct session_plan *out);
void session_plan_free(struct session_plan *plan);

/* Makes a plan of the same recipe with another policy. `policy` NULL: the policy is chosen for the machine as it is now
 * described. The choice is free, except for a requested partition and the pipeline's cut. `costs`: known costs of the
 * main program's graph, which become the new plan's; NULL: none. `now` and open engines do not change. Collective.
 * Otherwise like session_plan_make. */
enum status session_plan_renew(const struct session_plan *now, const struct policy *policy, const struct costs *costs,
                               struct session_plan *out);

/* Opens a session and makes its plan in one call: from options (plan_request_make), for a plan with a decided recipe,
 * or for the step of an existing plan. Neither `session` nor `plan` may be moved from then on. The caller frees the
 * plan, then closes the session. */
enum status session_begin(const char *model_folder, unsigned uses, const struct plan_options *options,
                          const struct train_options *training, struct session *session, struct session_plan *plan);
enum status session_begin_decided(const char *model_folder, const struct plan *decided,
                                  const struct plan_options *options, const struct train_options *training,
                                  struct session *session, struct session_plan *plan);
enum status session_begin_step(const char *model_folder, const struct plan *decided, const char *origin,
                               const struct plan_options *options, struct session *session, struct session_plan *plan);

/* NO_FIT if a tier's programs exceed its capacity. The message says by how much. The hint names settings that would
 * fit; it compiles others to find them. */
enum status session_plan_check_memory(const struct session_plan *plan);

/* Finds plan->costs (machine_costs.h) and measures unknown ones. Does nothing if they are there. */
enum status session_plan_measure(struct session_plan *plan);
/* Finds costs without measuring. They have no kernels if some are unknown. */
enum status session_plan_find_costs(struct session_plan *plan);
/* Simulates a step of the main program with the pipeline's other stages. Sets plan->stages, and `out` to this rank's
 * step. The costs must be there. */
enum status session_plan_predict(struct session_plan *plan, struct step_summary *out);

/* plan.json: a plan with its properties, as `ballast plan -o` and every run write it. */

/* Contribution of each part of a plan: the seconds by which the best plan without it is slower. */

enum plan_part {
    PART_TENSOR,    /* without it: each rank has whole tensors */
    PART_CUT,       /* without it: tensors are partitioned as in Megatron-LM, without sequence parallelism */
    PART_STAGES,    /* without it: one stage */
    PART_PARTITION, /* without it: each data rank has all model states; same rank layout */
    PART_MEMORY,    /* without it: nothing is moved or recomputed; same rank layout */
    PART_COUNT
};

struct plan_gain {
    bool used;     /* the plan has it; otherwise it gains nothing */
    bool possible; /* a plan without it, or a bound on all such plans, was found; otherwise none that was tried fits */
    bool exact;    /* otherwise `seconds` is a lower bound on the gain, or an expectation if layouts were not tried */
    double seconds;
};

/* Finds the gains of a plan whose rank layout was chosen. */
void plan_gains_find(const struct session_plan *plan, struct plan_gain out[PART_COUNT]);

/* {"version", "recipe", "policy", "model", "model_shape", "step_s",
 *  "tiers": [{"name", "program_bytes", "capacity_bytes", "by_kind"}],
 *  "streams": [{"role", "busy_s", "waiting_s"}], "binds": [{"what", "seconds"}],
 *  "extrapolated_operators" (profile/points.h), "runners_up", "pareto_front",
 *  "tried": [{"step_s", "device_bytes", "host_bytes", "disk_bytes", "policy"}],
 *  "search": {"enumerated", "compiled", "proved"} or null}.
 *
 * "tried" has all policies that the search compiled; their step_s is null if they do not fit. `prediction` NULL: there
 * is none, and step_s is null. `model_folder` is absolute, or a preset's name. FAILED without memory or if it is not
 * UTF-8. The caller drops the document. */
enum status plan_document_make(const struct session_plan *plan, const struct step_summary *prediction,
                               const char *model_folder, json_t **out);
/* Reads a plan file's prediction of a step of `plan`. Empty if it has none, or if its recipe or policy differs. */
enum status plan_document_read_prediction(const char *path, const struct plan *plan, struct step_summary *out);
/* BAD_INPUT if a plan file has the shape of another model (model_shape_check). Older files have no shape. */
enum status plan_document_check_model(const char *path, const struct model_config *config);
/* Writes RUN_DIR/plan.json, replacing an earlier one. */
enum status plan_document_write(const char *run_folder, const struct session_plan *plan,
                                const struct step_summary *prediction, const char *model_folder);
