#include "plan/layout/tensor_layout.h"

#include <math.h>

#include "plan/layout/joint_solution.h"
#include "plan/layout/strategy_lines.h"
#include "plan/recipe_lines.h"

/* Axes of all ranks of the tensor-parallel group: those of the recipe's strategies. Before there are any, nodes and the
 * ranks of each, else two as equal as they can be; one where the number of ranks is prime. Every layout along one axis
 * is one along two as well. */
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

/* The strategies that the recipe names. */
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

/* The program of a forward graph, and its solution. */
struct solved {
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
}

static enum status keep_strategies(const struct solved *solved, struct recipe *recipe) {
    char *lines;
    TRY(strategy_lines_print(&solved->program, solved->solution.choice, &lines));
    enum status status = recipe_lines_keep(lines, &recipe->strategies);
    mem_free(lines);
    return status;
}

bool tensor_layout_is_open(const struct recipe *recipe) {
    return recipe->layout == TENSOR_LAYOUT_SOLVER && recipe_tensor_parallel(recipe) > 1 && !recipe->strategies;
}

enum status tensor_layout_fill_in(const struct graph *graph, struct plan *plan) {
    struct solved solved = {.program = {.graph = NULL}};
    enum status status = solve_graph(plan, graph, &solved);
    if (status == STATUS_OK) status = keep_strategies(&solved, &plan->recipe);
    free_solved(&solved);
    return status;
}

enum status tensor_layout_choose(const struct plan *plan, const struct graph *graph, struct shard_choices *out) {
    *out = (struct shard_choices){0};
    if (plan->recipe.layout != TENSOR_LAYOUT_SOLVER)
        return shard_choices_make(graph, recipe_tensor_parallel(&plan->recipe), plan->recipe.sequence_parallel, out);
    struct solved solved = {.program = {.graph = NULL}};
    enum status status = solve_graph(plan, graph, &solved);
    if (status == STATUS_OK) status = shard_program_choices(&solved.program, solved.solution.choice, out);
    free_solved(&solved);
    return status;
}
