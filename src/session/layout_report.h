/* Compares the solver's partition of a tensor-parallel plan (recipe.layout) with Megatron-LM's at the same costs, for
 * `ballast plan --explain`. */
#pragma once

#include <jansson.h>

#include "plan/layout/joint_solution.h"
#include "plan/layout/tensor_layout.h"
#include "session/plan.h"

/* Proposes how to partition a plan's model: strategies of least cost on the mesh of its nodes, and strategies that do
 * not divide (plan/layout/joint_solution.h). Covers all ranks. session/layout_report.h reports the partition that
 * tensor-parallel ranks execute. */

struct plan_strategies {
    struct graph *graph; /* forward pass, with one micro-batch of each rank */
    struct shard_question question;
    struct shard_program program;
    struct joint_solution solution;
    bool too_large; /* the graph has too many nodes for the integer program: only `graph` is set */
    bool fits;      /* else `solution` is empty: nothing fits a rank's device */
};

/* Whether the plan has several ranks and known link bandwidth. */
bool plan_strategies_are_known(const struct session_plan *plan);
/* Finds strategies for a plan with plan_strategies_are_known. The mesh is its nodes and the ranks of each, at the rates
 * of its links. A rank computes at the best rate of the plan's kernels, which must have been measured
 * (session_plan_measure). Free with plan_strategies_free, also after a failure. */
enum status plan_strategies_find(const struct session_plan *plan, struct plan_strategies *out);
void plan_strategies_free(struct plan_strategies *strategies);

/* {"mesh": [2, 4], "seconds", "peak_bytes", "recomputed": ["layer.0", …], "nodes": [{"name", "operator", "inputs":
 * ["S0RR", …], "output", "compute_s", "forward_s", "backward_s", "dropped": ["12 heads …", …]}]}: one node of each kind
 * of block. Seconds are per micro-batch and rank. NULL if out of memory. */
json_t *plan_strategies_to_json(const struct plan_strategies *strategies);
/* Whether the schedule recomputes a block. */
bool plan_strategies_repeats(const struct plan_strategies *strategies, int block);

struct layout_report {
    struct graph *graph; /* forward pass of one rank's micro-batch */
    struct shard_program program;
    struct shard_choices chosen, megatron; /* megatron.nodes is NULL if Megatron-LM's partition does not divide */
    double seconds, megatron_s;            /* per micro-batch, by the solver's costs; NAN if there is none */
};

/* Whether the plan's layout is the solver's. */
bool layout_report_applies(const struct session_plan *plan);
/* Makes the report of a plan with layout_report_applies. Free with layout_report_free, also after a failure. */
enum status layout_report_make(const struct session_plan *plan, struct layout_report *out);
void layout_report_free(struct layout_report *report);

/* Whether the node, of the first block of its kind, is partitioned otherwise than in Megatron-LM. */
bool layout_report_differs(const struct layout_report *report, const struct node *node);
/* "by features, positions cut outside"; "by sequences along axis 0, by heads along axis 1"; "all of it on each rank".
 * Returns `text`. */
enum { LAYOUT_REPORT_TEXT = 160 };
char *layout_report_print(const struct node *node, const struct shard_choices *choices, char text[LAYOUT_REPORT_TEXT]);

/* {"seconds", "megatron_seconds", "differs": [{"name", "operator", "layout", "megatron"}]}. NULL if out of memory. */
json_t *layout_report_to_json(const struct layout_report *report);
