#include "session/layout_report.h"

#include <math.h>
#include <stdio.h>

bool layout_report_applies(const struct session_plan *plan) {
    const struct recipe *recipe = &plan->chosen.recipe;
    return recipe->layout == TENSOR_LAYOUT_SOLVER && recipe_tensor_parallel(recipe) > 1;
}

static enum status solve(const struct plan *plan, struct layout_report *report) {
    struct intra_op_solution solution = {0};
    enum status status = tensor_layout_solve(plan, &report->program, &solution);
    if (status == STATUS_OK) status = shard_program_choices(&report->program, solution.choice, &report->chosen);
    if (status == STATUS_OK) report->seconds = (double)solution.cost * report->program.unit_s;
    intra_op_solution_free(&solution);
    return status;
}

/* At the solver's costs; none where it does not divide, or costs something that ranks do not execute so. */
static enum status weigh_megatron(struct layout_report *report, int64_t parts) {
    int64_t cost, peak;
    int *choice = mem_array((size_t)report->program.program.node_count, sizeof *choice);
    if (!choice) return STATUS_FAILED;
    enum status status = shard_choices_make(report->graph, parts, false, &report->megatron);
    if (status == STATUS_OK && shard_program_find_choice(&report->program, &report->megatron, choice)) {
        intra_op_evaluate(&report->program.program, choice, &cost, &peak);
        if (cost != INTRA_OP_FORBIDDEN) report->megatron_s = (double)cost * report->program.unit_s;
    }
    if (status == STATUS_BAD_INPUT) shard_choices_free(&report->megatron), status = STATUS_OK;
    mem_free(choice);
    return status;
}

enum status layout_report_make(const struct session_plan *plan, struct layout_report *out) {
    struct plan alone = plan->chosen;
    *out = (struct layout_report){.seconds = NAN, .megatron_s = NAN};
    alone.recipe.tensor_parallel = alone.place.tensor_parallel = 1;
    TRY(program_build_graph(plan->session, &plan->request.set, PROGRAM_LOSS, &alone, &out->graph));
    struct shard_question question = tensor_layout_question(&plan->chosen, out->graph);
    TRY(shard_program_make(&question, &out->program));
    TRY(solve(&plan->chosen, out));
    return weigh_megatron(out, recipe_tensor_parallel(&plan->chosen.recipe));
}

void layout_report_free(struct layout_report *report) {
    shard_choices_free(&report->chosen);
    shard_choices_free(&report->megatron);
    if (report->program.graph) shard_program_free(&report->program);
    graph_free(report->graph);
    *report = (struct layout_report){0};
}

/* What all ranks together take, each axis takes. */
static int axis_of_choice(const struct shard_choices *choices, int axis) { return choices->mesh.axes == 1 ? 0 : axis; }

bool layout_report_differs(const struct layout_report *report, const struct node *node) {
    if (!report->megatron.nodes || report->program.block_like[node->id] != node->id) return false;
    const struct shard_choice *a = &report->chosen.nodes[node->id], *b = &report->megatron.nodes[node->id];
    bool any = false, differs = false;
    for (int axis = 0; axis < report->chosen.mesh.axes; axis++) {
        int other = axis_of_choice(&report->megatron, axis);
        any |= a->index[axis] != OP_INDEX_NONE;
        differs |= a->index[axis] != b->index[other] || a->positions[axis] != b->positions[other];
    }
    return differs || (any && a->way != b->way);
}

char *layout_report_print(const struct node *node, const struct shard_choices *choices, char text[LAYOUT_REPORT_TEXT]) {
    const struct shard_choice *choice = &choices->nodes[node->id];
    struct op_loops loops;
    int axes = choices->mesh.axes, used = 0;
    bool known = op_loops_of(node, choice->way, &loops);
    bool alike = axes == 1 || choice->index[0] == choice->index[1];
    snprintf(text, LAYOUT_REPORT_TEXT, "all of it on each rank");
    for (int axis = 0; axis < (alike ? 1 : axes) && known; axis++) {
        char where[32] = "";
        if (choice->index[axis] == OP_INDEX_NONE) continue;
        if (!alike) snprintf(where, sizeof where, " along axis %d", axis);
        used += snprintf(text + used, (size_t)(LAYOUT_REPORT_TEXT - used), "%sby %s%s%s", used > 0 ? ", " : "",
                         strategy_index_name(loops.indices[choice->index[axis]].letter), where,
                         choice->positions[axis] ? ", positions cut outside" : "");
    }
    return text;
}

static enum status add_differences(const struct layout_report *report, json_t *array) {
    char own[LAYOUT_REPORT_TEXT], other[LAYOUT_REPORT_TEXT];
    for (size_t n = 0; n < report->graph->nodes.count; n++) {
        const struct node *node = report->graph->nodes.items[n];
        if (!layout_report_differs(report, node)) continue;
        json_t *one = json_pack("{s:s, s:s, s:s, s:s}", "name", node->name, "operator", node->op->name, "layout",
                                layout_report_print(node, &report->chosen, own), "megatron",
                                layout_report_print(node, &report->megatron, other));
        if (json_array_append_new(array, one) != 0) return STATUS_FAILED;
    }
    return STATUS_OK;
}

json_t *layout_report_to_json(const struct layout_report *report) {
    json_t *differs = json_array();
    enum status status = differs ? add_differences(report, differs) : STATUS_FAILED;
    json_t *object =
        json_pack("{s:f, s:o, s:o}", "seconds", report->seconds, "megatron_seconds",
                  isnan(report->megatron_s) ? json_null() : json_real(report->megatron_s), "differs", differs);
    if (status == STATUS_OK) return object;
    json_decref(object);
    return NULL;
}
