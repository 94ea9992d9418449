#include "session/plan_strategies.h"

#include <math.h>

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

/* Nodes across, ranks within; an axis of one rank is none. */
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

/* The best of the plan's kernels. */
static void find_rates(const struct session_plan *plan, struct device_rates *out) {
    const struct graph *graph = programs_main(&plan->programs)->graph;
    *out = (struct device_rates){1, 1, 1};
    for (size_t n = 0; n < graph->nodes.count; n++) {
        struct op_cost cost;
        double seconds = plan->costs.kernels[n].seconds;
        if (graph->nodes.items[n]->phase > PHASE_BACKWARD || seconds <= 0) continue;
        op_cost(graph->nodes.items[n], &cost);
        out->flops_per_s = fmax(out->flops_per_s, cost.flops / seconds);
        out->bytes_per_s = fmax(out->bytes_per_s, cost.bytes / seconds);
    }
}

/* All ranks' micro-batches are one; as many as divide the step's batch share a sum of gradients. */
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
    find_rates(plan, &out->question.rates);
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

static enum status append(json_t *array, json_t *value) {
    return json_array_append_new(array, value) == 0 ? STATUS_OK : STATUS_FAILED;
}

static enum status add_inputs(const struct node *node, const struct strategy *one, json_t *array) {
    char text[LAYOUT_TEXT];
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i]) TRY(append(array, json_string(layout_print(&one->operand[i], node->in[i]->shape.rank, text))));
    return STATUS_OK;
}

static enum status add_dropped(const struct plan_strategies *strategies, const struct node *node, json_t *array) {
    const struct strategies *made = &strategies->program.strategies[node->id];
    char text[STRATEGY_TEXT];
    for (size_t i = 0; i < made->dropped.count; i++)
        TRY(append(array, json_string(strategy_print_dropped(node, &made->dropped.items[i], text))));
    return STATUS_OK;
}

/* Of a node of the first block of its kind. */
static json_t *node_to_json(const struct plan_strategies *strategies, const struct node *node) {
    char text[LAYOUT_TEXT];
    json_t *inputs = json_array(), *dropped = json_array();
    enum status status = add_dropped(strategies, node, dropped);
    const struct strategy *one =
        strategies->fits
            ? shard_program_strategy(&strategies->program, node->id, strategies->solution.strategies.choice[node->id])
            : &strategies->program.strategies[node->id].kept.items[0];
    if (status == STATUS_OK) status = add_inputs(node, one, inputs);
    const char *output = layout_print(&one->operand[OP_INPUTS_MAX], node->out[0]->shape.rank, text);
    json_t *object = json_pack("{s:s, s:s, s:o, s:s, s:f, s:f, s:f, s:o}", "name", node->name, "operator",
                               node->op->name, "inputs", inputs, "output", output, "compute_s", one->compute_s,
                               "forward_s", one->forward_s, "backward_s", one->backward_s, "dropped", dropped);
    if (status == STATUS_OK) return object;
    json_decref(object);
    return NULL;
}

static enum status add_nodes(const struct plan_strategies *strategies, json_t *array) {
    for (size_t i = 0; i < strategies->graph->nodes.count; i++)
        if (strategies->program.block_like[i] == (int)i)
            TRY(append(array, node_to_json(strategies, strategies->graph->nodes.items[i])));
    return STATUS_OK;
}

static enum status add_repeated(const struct plan_strategies *strategies, json_t *array) {
    for (size_t block = 0; block < strategies->graph->blocks.count; block++)
        if (plan_strategies_repeats(strategies, (int)block))
            TRY(append(array, json_string(strategies->graph->blocks.items[block])));
    return STATUS_OK;
}

json_t *plan_strategies_to_json(const struct plan_strategies *strategies) {
    const struct device_mesh *mesh = &strategies->question.mesh;
    json_t *sizes = json_array(), *nodes = json_array(), *repeated = json_array();
    enum status status = add_nodes(strategies, nodes);
    for (int axis = 0; axis < mesh->axes && status == STATUS_OK; axis++)
        status = append(sizes, json_integer((json_int_t)mesh->sizes[axis]));
    if (status == STATUS_OK) status = add_repeated(strategies, repeated);
    bool fits = strategies->fits;
    json_t *object = json_pack("{s:o, s:o, s:o, s:o, s:o}", "mesh", sizes, "seconds",
                               fits ? json_real(strategies->solution.seconds) : json_null(), "peak_bytes",
                               fits ? json_integer((json_int_t)strategies->solution.peak_bytes) : json_null(),
                               "recomputed", repeated, "nodes", nodes);
    if (status == STATUS_OK) return object;
    json_decref(object);
    return NULL;
}
