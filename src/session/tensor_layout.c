#include "session/tensor_layout.h"

#include <math.h>

#include "session/machine_costs.h"

/* ---- rates ---- */

/* The best of the graph's kernels. */
static void find_work_rates(const struct graph *graph, const struct costs *costs, struct layout_rates *out) {
    for (size_t n = 0; n < graph->nodes.count; n++) {
        struct op_cost cost;
        double seconds = costs->kernels[n].seconds;
        if (graph->nodes.items[n]->phase > PHASE_BACKWARD || seconds <= 0) continue;
        op_cost(graph->nodes.items[n], &cost);
        out->flops_per_s = fmax(out->flops_per_s, cost.flops / seconds);
        out->bytes_per_s = fmax(out->bytes_per_s, cost.bytes / seconds);
    }
}

/* Between neighbours: within a node where the group fits into one. */
static void find_link_rates(const struct session_plan *plan, const struct cluster_links *links,
                            struct layout_rates *out) {
    const struct mesh *mesh = &plan->chosen.place.mesh;
    bool within = mesh->per_node % recipe_tensor(&plan->chosen.recipe) == 0;
    const struct transfer_rate *rate = &links->message[within ? MESH_IN_NODE : MESH_ACROSS];
    out->latency_s = rate->latency_s;
    out->link_bytes_per_s = rate->bytes_per_s;
    if (rate->bytes_per_s <= 0) out->latency_s = 0, out->link_bytes_per_s = out->bytes_per_s / 10;
}

/* One rank's plan of the whole model: what the machine does of it in a second does not depend on its parts. */
static struct plan plan_alone(const struct plan *plan) {
    struct plan alone = *plan;
    alone.recipe.tensor = 1;
    alone.recipe.lanes = (struct lane_shape){1, 1};
    alone.place = (struct rank_place){.mesh = {1, 1}};
    alone.policy = (struct policy){.grains_per_pass = 1};
    return alone;
}

static enum status measure(const struct session_plan *plan, struct layout_rates *out) {
    struct plan alone = plan_alone(&plan->chosen);
    struct programs programs;
    struct machine_costs costs;
    TRY(programs_compile(plan->session, &plan->request.set, &alone, &programs));
    const struct measuring measuring = {.budget_s = 1};
    enum status status = machine_costs_measure(&plan->session->machine, &programs, &measuring, &costs);
    if (status == STATUS_OK) {
        *out = (struct layout_rates){.flops_per_s = 1, .bytes_per_s = 1};
        find_work_rates(programs_main(&programs)->graph, &costs.costs, out);
        find_link_rates(plan, &costs.costs.rates.links, out);
        machine_costs_free(&costs);
    }
    programs_free(&programs);
    return status;
}

enum status tensor_layout_find_rates(struct session_plan *plan) {
    struct recipe *recipe = &plan->chosen.recipe;
    bool known = recipe->layout_rates.flops_per_s > 0;
    if (recipe->layout != TENSOR_LAYOUT_SOLVER || recipe_tensor(recipe) == 1 || known) return STATUS_OK;
    TRY(measure(plan, &recipe->layout_rates));
    recipe->layout_rates.device_bytes = (double)plan->session->machine.capacity_bytes[TIER_DEVICE];
    return STATUS_OK;
}

/* ---- choices ---- */

struct shard_question tensor_layout_question(const struct plan *plan, const struct graph *graph) {
    const struct recipe *recipe = &plan->recipe;
    const struct layout_rates *rates = &recipe->layout_rates;
    double grains = (double)recipe_grains(recipe) / rank_place_data(&plan->place);
    return (struct shard_question){
        .graph = graph,
        .mesh = {.axes = 1,
                 .sizes = {recipe_tensor(recipe)},
                 .latency_s = {rates->latency_s},
                 .s_per_byte = {1 / rates->link_bytes_per_s}},
        .rates = {rates->flops_per_s, rates->bytes_per_s, fmax(1, grains)},
        .state_bytes_per_byte = recipe_state_bytes_per_byte(recipe),
        .memory_limit = INTRA_OP_NO_LIMIT,
        .executable = true,
    };
}

enum status tensor_layout_solve(const struct plan *plan, const struct shard_program *program,
                                struct intra_op_solution *out) {
    double bytes = plan->recipe.layout_rates.device_bytes;
    struct joint_solution joint;
    if (bytes > 0) {
        enum status status = joint_solve(program, (int64_t)bytes, 0, &joint);
        if (status == STATUS_OK) *out = joint.strategies, joint.strategies = (struct intra_op_solution){0};
        joint_solution_free(&joint);
        if (status != STATUS_NO_FIT) return status;
    }
    return intra_op_solve(&program->program, 0, out);
}

static enum status solve(const struct plan *plan, const struct graph *graph, struct shard_choices *out) {
    struct shard_question question = tensor_layout_question(plan, graph);
    struct shard_program program;
    struct intra_op_solution solution = {0};
    enum status status = shard_program_make(&question, &program);
    if (status == STATUS_OK) status = tensor_layout_solve(plan, &program, &solution);
    if (status == STATUS_OK) status = shard_program_choices(&program, solution.choice, out);
    intra_op_solution_free(&solution);
    shard_program_free(&program);
    return status;
}

enum status tensor_layout_choose(const struct plan *plan, const struct graph *graph, struct shard_choices *out) {
    *out = (struct shard_choices){0};
    if (plan->recipe.layout == TENSOR_LAYOUT_SOLVER) return solve(plan, graph, out);
    return shard_choices_make(graph, recipe_tensor(&plan->recipe), plan->recipe.sequence, out);
}
