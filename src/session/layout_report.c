#include "session/layout_report.h"

#include <math.h>

#include "base/json.h"
#include "base/text.h"
#include "session/machine_costs.h"

static const enum mesh_axis order[MESH_AXES] = {MESH_ACROSS, MESH_IN_NODE};

static const struct mesh *mesh_of(const struct session_plan *plan) {
    return &programs_main(&plan->programs)->program->place.mesh;
}

static int length_of(const struct mesh *mesh, enum mesh_axis axis) {
    return axis == MESH_ACROSS ? mesh->nodes : mesh->per_node;
}

bool plan_strategies_are_known(const struct session_plan *plan) {
    const struct mesh *mesh = mesh_of(plan);
    for (int i = 0; i < MESH_AXES; i++)
        if (length_of(mesh, order[i]) > 1 && plan->costs.rates.links.message[order[i]].bytes_per_s <= 0) return false;
    return mesh_ranks(mesh) > 1;
}

/* Nodes along one axis, ranks of a node along the other. An axis of one rank is omitted. */
static void make_mesh(const struct session_plan *plan, struct device_mesh *out) {
    for (int i = 0; i < MESH_AXES; i++) {
        const struct transfer_rate *rate = &plan->costs.rates.links.message[order[i]];
        int length = length_of(mesh_of(plan), order[i]);
        if (length == 1) continue;
        out->sizes[out->axes] = length;
        out->latency_s[out->axes] = rate->latency_s;
        out->s_per_byte[out->axes++] = 1 / rate->bytes_per_s;
    }
}

/* All ranks' micro-batches form one. Micro-batches that divide the step's batch share a gradient sum. */
static enum status make_graph(const struct session_plan *plan, struct plan_strategies *out) {
    const struct recipe *recipe = &plan->chosen.recipe;
    struct tensor *loss;
    int64_t sequences = recipe->micro_batch_sequences * mesh_ranks(mesh_of(plan));
    if (sequences > recipe->batch) sequences = recipe->batch;
    TRY(model_build_graph(plan->session->model, MODEL_LOSS, recipe->dtype, sequences, recipe->sequence_length,
                          &out->graph, &loss));
    out->question.graph = out->graph;
    out->question.rates.micro_batches = fmax(1, (double)recipe->batch / (double)sequences);
    return STATUS_OK;
}

enum status plan_strategies_find(const struct session_plan *plan, struct plan_strategies *out) {
    *out = (struct plan_strategies){.question.memory_limit = INTRA_OP_NO_LIMIT};
    make_mesh(plan, &out->question.mesh);
    const struct layout_rates best = machine_costs_best_rates(&plan->programs, &plan->costs);
    out->question.rates = (struct device_rates){best.flops_per_s, best.bytes_per_s, 1};
    out->question.state_bytes_per_byte = recipe_state_bytes_per_byte(&plan->chosen.recipe);
    TRY(make_graph(plan, out));
    out->too_large = out->graph->nodes.count > SHARD_PROGRAM_NODES_MAX;
    if (out->too_large) return STATUS_OK;
    TRY(shard_program_make(&out->question, &out->program));
    enum status status =
        joint_solve(&out->program, plan->session->machine.capacity_bytes[TIER_DEVICE], 0, &out->solution);
    out->fits = status == STATUS_OK;
    return status == STATUS_NO_FIT ? STATUS_OK : status;
}

void plan_strategies_free(struct plan_strategies *strategies) {
    joint_solution_free(&strategies->solution);
    shard_program_free(&strategies->program);
    graph_free(strategies->graph);
}

bool plan_strategies_repeats(const struct plan_strategies *strategies, int block) {
    int forwards = 0;
    for (size_t i = 0; i < strategies->solution.schedule.count; i++) {
        const struct recompute_step *step = &strategies->solution.schedule.items[i];
        forwards += step->operation != BACKWARD && step->block == block;
    }
    return forwards > 1;
}

/* --- as JSON --- */

/* Node of the first block of its kind. */
static json_t *node_to_json(const struct plan_strategies *strategies, const struct node *node) {
    const struct strategies *made = &strategies->program.strategies[node->id];
    const struct strategy *one =
        strategies->fits
            ? shard_program_strategy(&strategies->program, node->id, strategies->solution.strategies.choice[node->id])
            : &made->kept.items[0];
    char text[LAYOUT_TEXT], reason[STRATEGY_TEXT];
    json_t *inputs = json_array(), *dropped = json_array();
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i]) json_push(&inputs, json_string(layout_print(&one->operand[i], node->in[i]->shape.rank, text)));
    for (size_t i = 0; i < made->dropped.count; i++)
        json_push(&dropped, json_string(strategy_print_dropped(node, &made->dropped.items[i], reason)));
    const char *output = layout_print(&one->operand[OP_INPUTS_MAX], node->out[0]->shape.rank, text);
    return json_pack("{s:s, s:s, s:o, s:s, s:f, s:f, s:f, s:o}", "name", node->name, "operator", node->op->name,
                     "inputs", inputs, "output", output, "compute_s", one->compute_s, "forward_s", one->forward_s,
                     "backward_s", one->backward_s, "dropped", dropped);
}

json_t *plan_strategies_to_json(const struct plan_strategies *strategies) {
    const struct device_mesh *mesh = &strategies->question.mesh;
    const struct graph *graph = strategies->graph;
    json_t *sizes = json_array(), *nodes = json_array(), *repeated = json_array();
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (strategies->program.block_like[i] == (int)i)
            json_push(&nodes, node_to_json(strategies, graph->nodes.items[i]));
    for (int axis = 0; axis < mesh->axes; axis++)
        json_push(&sizes, json_integer((json_int_t)mesh->sizes[axis]));
    for (size_t block = 0; block < graph->blocks.count; block++)
        if (plan_strategies_repeats(strategies, (int)block))
            json_push(&repeated, json_string(graph->blocks.items[block]));
    bool fits = strategies->fits;
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "mesh", sizes, "seconds",
                     fits ? json_real(strategies->solution.seconds) : json_null(), "peak_bytes",
                     fits ? json_integer((json_int_t)strategies->solution.peak_bytes) : json_null(), "recomputed",
                     repeated, "nodes", nodes);
}

bool layout_report_applies(const struct session_plan *plan) {
    const struct recipe *recipe = &plan->chosen.recipe;
    return recipe->layout == TENSOR_LAYOUT_SOLVER && recipe_tensor_parallel(recipe) > 1;
}

static enum status solve(const struct plan *plan, struct layout_report *report) {
    AUTO(intra_op_solution_free) struct intra_op_solution solution = {0};
    TRY(tensor_layout_solve(plan, &report->program, &solution));
    TRY(shard_program_choices(&report->program, solution.choice, &report->chosen));
    report->seconds = (double)solution.cost * report->program.unit_s;
    return STATUS_OK;
}

/* Evaluates Megatron-LM's partition at the solver's costs. There is none if it does not divide, or if a chosen sharding
 * is not executable. */
static enum status weigh_megatron(struct layout_report *report, int64_t parts) {
    int64_t cost, peak;
    AUTO_FREE int *choice = mem_array((size_t)report->program.program.node_count, sizeof *choice);
    if (!choice) return STATUS_FAILED;
    enum status status = shard_choices_make(report->graph, parts, false, &report->megatron);
    if (status == STATUS_OK && shard_program_find_choice(&report->program, &report->megatron, choice)) {
        intra_op_evaluate(&report->program.program, choice, &cost, &peak);
        if (cost != INTRA_OP_FORBIDDEN) report->megatron_s = (double)cost * report->program.unit_s;
    }
    if (status == STATUS_BAD_INPUT) shard_choices_free(&report->megatron), status = STATUS_OK;
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

/* Each axis takes the sharding chosen for all ranks together. */
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
    int axes = choices->mesh.axes;
    bool known = op_loops_of(node, choice->way, &loops);
    bool alike = axes == 1 || choice->index[0] == choice->index[1];
    text[0] = '\0';
    for (int axis = 0; axis < (alike ? 1 : axes) && known; axis++) {
        char where[32] = "";
        if (choice->index[axis] == OP_INDEX_NONE) continue;
        if (!alike) snprintf(where, sizeof where, " along axis %d", axis);
        text_add(text, LAYOUT_REPORT_TEXT, "%sby %s%s%s", text[0] ? ", " : "",
                 strategy_index_name(loops.indices[choice->index[axis]].letter), where,
                 choice->positions[axis] ? ", positions cut outside" : "");
    }
    if (!text[0]) text_add(text, LAYOUT_REPORT_TEXT, "all of it on each rank");
    return text;
}

json_t *layout_report_to_json(const struct layout_report *report) {
    char own[LAYOUT_REPORT_TEXT], other[LAYOUT_REPORT_TEXT];
    json_t *differs = json_array();
    for (size_t n = 0; n < report->graph->nodes.count; n++) {
        const struct node *node = report->graph->nodes.items[n];
        if (!layout_report_differs(report, node)) continue;
        json_push(&differs, json_pack("{s:s, s:s, s:s, s:s}", "name", node->name, "operator", node->op->name, "layout",
                                      layout_report_print(node, &report->chosen, own), "megatron",
                                      layout_report_print(node, &report->megatron, other)));
    }
    return json_pack("{s:f, s:o, s:o}", "seconds", report->seconds, "megatron_seconds",
                     isnan(report->megatron_s) ? json_null() : json_real(report->megatron_s), "differs", differs);
}
