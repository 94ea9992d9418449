/* plan.json: a plan with what is known of it, as `ballast plan -o` writes it and every run keeps it. */
#pragma once

#include <jansson.h>

#include "session/session_plan.h"

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
 *  "extrapolated_operators" (profile/part_node.h), "runners_up", "pareto_front", "tried":
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
