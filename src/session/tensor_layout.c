#include "session/tensor_layout.h"

#include <math.h>
#include <string.h>

#include "plan/layout/strategy_lines.h"
#include "plan/recipe_lines.h"
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
static void find_link_rates(const struct plan *plan, const struct transfer_rate message[MESH_AXES],
                            struct layout_rates *out) {
    bool within = plan->place.mesh.per_node % recipe_tensor_parallel(&plan->recipe) == 0;
    const struct transfer_rate *rate = &message[within ? MESH_IN_NODE : MESH_ACROSS];
    out->latency_s = rate->latency_s;
    out->link_bytes_per_s = rate->bytes_per_s;
    if (rate->bytes_per_s <= 0) out->latency_s = 0, out->link_bytes_per_s = out->bytes_per_s / 10;
}

/* One rank's plan of the whole model: what the machine does of it in a second does not depend on its parts. */
static struct plan plan_alone(const struct plan *plan) {
    struct plan alone = *plan;
    alone.recipe.tensor_parallel = 1;
    alone.recipe.lanes = (struct lane_shape){1, 1};
    alone.place = (struct rank_place){.mesh = {1, 1}};
    alone.policy = (struct policy){.micro_batches_per_wave = 1};
    return alone;
}

enum status tensor_layout_measure(const struct session_plan *plan, struct machine_rates *out) {
    struct plan alone = plan_alone(&plan->chosen);
    struct programs programs;
    struct machine_costs costs;
    TRY(programs_compile(plan->session, &plan->request.set, &alone, &programs));
    const struct measuring measuring = {.budget_s = 1};
    enum status status = machine_costs_measure(&plan->session->machine, &programs, &measuring, &costs);
    if (status == STATUS_OK) {
        *out = (struct machine_rates){.micro_batch_sequences = alone.recipe.micro_batch_sequences,
                                      .work = {.flops_per_s = 1, .bytes_per_s = 1}};
        find_work_rates(programs_main(&programs)->graph, &costs.costs, &out->work);
        memcpy(out->message, costs.costs.rates.links.message, sizeof out->message);
        machine_costs_free(&costs);
    }
    programs_free(&programs);
    return status;
}

bool tensor_layout_lacks_rates(const struct recipe *recipe) {
    bool known = recipe->layout_rates.flops_per_s > 0;
    return recipe->layout == TENSOR_LAYOUT_SOLVER && recipe_tensor_parallel(recipe) > 1 && !known;
}

void tensor_layout_take_rates(const struct session *session, const struct machine_rates *rates, struct plan *plan) {
    plan->recipe.layout_rates = rates->work;
    find_link_rates(plan, rates->message, &plan->recipe.layout_rates);
    double stages = rank_place_pipeline_parallel(&plan->place);
    plan->recipe.layout_rates.device_bytes = stages * (double)session->machine.capacity_bytes[TIER_DEVICE];
}

enum status tensor_layout_find_rates(struct session_plan *plan) {
    struct machine_rates rates;
    if (!tensor_layout_lacks_rates(&plan->chosen.recipe)) return STATUS_OK;
    TRY(tensor_layout_measure(plan, &rates));
    tensor_layout_take_rates(plan->session, &rates, &plan->chosen);
    return STATUS_OK;
}

/* ---- choices ---- */

/* Axes of all ranks that share a tensor: those of the recipe's strategies. Before there are any, nodes and the ranks of
 * each, else two as equal as they can be; one where the number of ranks is prime. Every layout along one axis is one
 * along two as well. */
static struct device_mesh mesh_of(const struct plan *plan) {
    const struct layout_rates *rates = &plan->recipe.layout_rates;
    int64_t ranks = recipe_tensor_parallel(&plan->recipe), rows = plan->place.mesh.per_node;
    struct device_mesh mesh;
    strategy_lines_mesh(plan->recipe.strategies, ranks, &mesh);
    bool spans_nodes = rows > 1 && rows < ranks && ranks % rows == 0;
    rows = spans_nodes ? ranks / rows : (int64_t)sqrt((double)ranks);
    while (ranks % rows != 0)
        rows--;
    if (!plan->recipe.strategies && rows > 1) mesh.axes = 2, mesh.sizes[0] = rows, mesh.sizes[1] = ranks / rows;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++)
        mesh.latency_s[axis] = rates->latency_s, mesh.s_per_byte[axis] = 1 / rates->link_bytes_per_s;
    return mesh;
}

struct shard_question tensor_layout_question(const struct plan *plan, const struct graph *graph) {
    const struct recipe *recipe = &plan->recipe;
    const struct layout_rates *rates = &recipe->layout_rates;
    double micro_batches = (double)recipe_micro_batches(recipe) / rank_place_data(&plan->place);
    return (struct shard_question){
        .graph = graph,
        .mesh = mesh_of(plan),
        .rates = {rates->flops_per_s, rates->bytes_per_s, fmax(1, micro_batches)},
        .state_bytes_per_byte = recipe_state_bytes_per_byte(recipe),
        .memory_limit = INTRA_OP_NO_LIMIT,
        .executable = true,
    };
}

/* What the recipe names. */
static enum status take_strategies(const char *lines, const struct shard_program *program,
                                   struct intra_op_solution *out) {
    out->choice = mem_array((size_t)program->program.node_count, sizeof *out->choice);
    if (!out->choice) return STATUS_FAILED;
    TRY(strategy_lines_find(program, lines, out->choice));
    intra_op_evaluate(&program->program, out->choice, &out->cost, &out->peak);
    return STATUS_OK;
}

static enum status solve(const struct plan *plan, const struct shard_program *program, struct intra_op_solution *out) {
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

enum status tensor_layout_solve(const struct plan *plan, const struct shard_program *program,
                                struct intra_op_solution *out) {
    const char *lines = plan->recipe.strategies;
    *out = (struct intra_op_solution){0};
    return lines ? take_strategies(lines, program, out) : solve(plan, program, out);
}

/* The plan's forward graph for one rank, the program of it, and its solution. */
struct solved {
    struct graph *graph; /* NULL: somebody else's */
    struct shard_program program;
    struct intra_op_solution solution;
};

static enum status solve_graph(const struct plan *plan, const struct graph *graph, struct solved *out) {
    struct shard_question question = tensor_layout_question(plan, graph);
    TRY(shard_program_make(&question, &out->program));
    return tensor_layout_solve(plan, &out->program, &out->solution);
}

static void free_solved(struct solved *solved) {
    intra_op_solution_free(&solved->solution);
    if (solved->program.graph) shard_program_free(&solved->program);
    graph_free(solved->graph);
}

static enum status keep_strategies(const struct solved *solved, struct recipe *recipe) {
    char *lines;
    TRY(strategy_lines_print(&solved->program, solved->solution.choice, &lines));
    enum status status = recipe_lines_keep(lines, &recipe->strategies);
    mem_free(lines);
    return status;
}

enum status tensor_layout_find_strategies(const struct session *session, struct plan *plan) {
    static const struct program_set set = {.uses = 1u << PROGRAM_LOSS};
    struct recipe *recipe = &plan->recipe;
    struct solved solved = {NULL};
    if (recipe->layout != TENSOR_LAYOUT_SOLVER || recipe_tensor_parallel(recipe) == 1 || recipe->strategies)
        return STATUS_OK;
    enum status status = programs_build_whole(session, &set, plan, &solved.graph);
    if (status == STATUS_OK) status = solve_graph(plan, solved.graph, &solved);
    if (status == STATUS_OK) status = keep_strategies(&solved, recipe);
    free_solved(&solved);
    return status;
}

enum status tensor_layout_choose(const struct plan *plan, const struct graph *graph, struct shard_choices *out) {
    *out = (struct shard_choices){0};
    if (plan->recipe.layout != TENSOR_LAYOUT_SOLVER)
        return shard_choices_make(graph, recipe_tensor_parallel(&plan->recipe), plan->recipe.sequence_parallel, out);
    struct solved solved = {NULL};
    enum status status = solve_graph(plan, graph, &solved);
    if (status == STATUS_OK) status = shard_program_choices(&solved.program, solved.solution.choice, out);
    free_solved(&solved);
    return status;
}
