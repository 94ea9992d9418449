/* What the solver chose of a plan whose ranks share tensors (recipe.layout), next to Megatron-LM's assignment at the
 * same costs: for `ballast plan --explain`. */
#ifndef BALLAST_SESSION_LAYOUT_REPORT_H
#define BALLAST_SESSION_LAYOUT_REPORT_H

#include <jansson.h>

#include "plan/layout/tensor_layout.h"
#include "session/session_plan.h"

struct layout_report {
    struct graph *graph; /* forward, of one rank's micro-batch */
    struct shard_program program;
    struct shard_choices chosen, megatron; /* megatron.nodes is NULL where Megatron-LM's does not divide */
    double seconds, megatron_s;            /* of one micro-batch by the solver's costs; NAN where there is none */
};

/* Whether the plan's layout is the solver's. */
bool layout_report_applies(const struct session_plan *plan);
/* Of such a plan. Free with layout_report_free, also after a failure. */
enum status layout_report_make(const struct session_plan *plan, struct layout_report *out);
void layout_report_free(struct layout_report *report);

/* Whether the node, of the first block of its kind, is cut otherwise than Megatron-LM would. */
bool layout_report_differs(const struct layout_report *report, const struct node *node);
/* "by features, positions cut outside"; "by sequences along axis 0, by heads along axis 1"; "all of it on each rank".
 * Returns `text`. */
enum { LAYOUT_REPORT_TEXT = 160 };
char *layout_report_print(const struct node *node, const struct shard_choices *choices, char text[LAYOUT_REPORT_TEXT]);

/* {"seconds", "megatron_seconds", "differs": [{"name", "operator", "layout", "megatron"}]}. NULL when out of memory. */
json_t *layout_report_to_json(const struct layout_report *report);

#endif
