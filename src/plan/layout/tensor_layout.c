#include "plan/layout/tensor_layout.h"

#include <math.h>

#include "plan/layout/joint_solution.h"
#include "plan/recipe.h"

enum { STRATEGY_BYTES = 32, MESH_BYTES = 96 };
static const char mesh_name[] = "mesh";

static void print_strategy(const struct shard_program *program, const struct node *node,
                           const struct strategy *strategy, char text[STRATEGY_BYTES]) {
    struct op_loops loops;
    int used = 0;
    bool known = op_loops_of(node, strategy->way, &loops);
    for (int axis = 0; axis < program->conversions.mesh.axes; axis++) {
        int index = strategy->index[axis];
        char letter = known && index != OP_INDEX_NONE ? loops.indices[index].letter : '.';
        used += snprintf(text + used, (size_t)(STRATEGY_BYTES - used), "%s%c%s%s", axis > 0 ? "/" : "", letter,
                         strategy->positions[axis] ? "+" : "", strategy->passes[axis] ? "*" : "");
    }
    if (strategy->way > 0) snprintf(text + used, (size_t)(STRATEGY_BYTES - used), "%d", strategy->way);
}

static bool chooses(const struct shard_program *program, int node) {
    return program->program.nodes[node].same_as == node;
}

/* "" for one axis. */
static void print_mesh(const struct device_mesh *mesh, char text[MESH_BYTES]) {
    int used = 0;
    text[0] = '\0';
    for (int axis = 0; axis < mesh->axes && mesh->axes > 1; axis++)
        used += snprintf(text + used, (size_t)(MESH_BYTES - used), "%s%s%lld", axis > 0 ? "/" : mesh_name,
                         axis > 0 ? "" : " ", (long long)mesh->sizes[axis]);
    if (used > 0) snprintf(text + used, (size_t)(MESH_BYTES - used), "\n");
}

enum status strategy_lines_print(const struct shard_program *program, const int *choice, char **out) {
    size_t bytes = 1 + MESH_BYTES, used = 0;
    char text[STRATEGY_BYTES], mesh[MESH_BYTES];
    for (size_t n = 0; n < program->graph->nodes.count; n++)
        bytes += strlen(program->graph->nodes.items[n]->name) + STRATEGY_BYTES + 2;
    char *lines = *out = mem_array(bytes, 1);
    print_mesh(&program->conversions.mesh, mesh);
    if (lines) used = (size_t)snprintf(lines, bytes, "%s", mesh);
    for (size_t n = 0; lines && n < program->graph->nodes.count; n++) {
        const struct node *node = program->graph->nodes.items[n];
        if (!chooses(program, (int)n)) continue;
        print_strategy(program, node, shard_program_strategy(program, (int)n, choice[n]), text);
        used += (size_t)snprintf(lines + used, bytes - used, "%s %s\n", node->name, text);
    }
    return lines ? STATUS_OK : STATUS_FAILED;
}

/* The value of the line of that name; NULL: there is none. */
static const char *find_value(const char *lines, const char *name, size_t *length) {
    size_t bytes = strlen(name);
    for (const char *line = lines; line && *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, name, bytes) == 0 && line[bytes] == ' ') {
            *length = strcspn(line + bytes + 1, "\n");
            return line + bytes + 1;
        }
    return NULL;
}

void strategy_lines_mesh(const char *lines, int64_t ranks, struct device_mesh *mesh) {
    size_t length;
    const char *value = find_value(lines, mesh_name, &length);
    int64_t devices = 1;
    mesh->axes = 0;
    while (value && mesh->axes < SHARD_AXES_MAX) {
        char *end;
        int64_t size = strtoll(value, &end, 10);
        if (end == value || size < 2 || size > ranks) break;
        devices *= size;
        mesh->sizes[mesh->axes++] = size;
        value = *end == '/' ? end + 1 : NULL;
    }
    if (value || devices != ranks || mesh->axes == 0) mesh->axes = 1, mesh->sizes[0] = ranks;
}

static enum status find_strategy(const struct shard_program *program, const char *lines, int n, int *out) {
    const struct node *node = program->graph->nodes.items[n];
    size_t length;
    const char *value = find_value(lines, node->name, &length);
    if (!value) return status_set(STATUS_BAD_INPUT, "recipe: strategies: %s has none", node->name);
    for (*out = 0; *out < program->program.nodes[n].choices; ++*out) {
        char text[STRATEGY_BYTES];
        print_strategy(program, node, shard_program_strategy(program, n, *out), text);
        if (strlen(text) == length && strncmp(text, value, length) == 0) return STATUS_OK;
    }
    return status_set(STATUS_BAD_INPUT, "recipe: strategies: %s: there is no '%.*s' of it on so many ranks", node->name,
                      (int)length, value);
}

/* Lines of another mesh have strategies of another. */
static enum status check_mesh(const struct shard_program *program, const char *lines) {
    char mesh[MESH_BYTES];
    size_t length, name = sizeof mesh_name; /* with the blank behind it */
    const char *value = find_value(lines, mesh_name, &length);
    print_mesh(&program->conversions.mesh, mesh);
    bool same = value && strlen(mesh) == name + length + 1 && strncmp(mesh + name, value, length) == 0;
    if (!value || same) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "recipe: strategies: %s: there is no '%.*s' of so many ranks", mesh_name,
                      (int)length, value);
}

enum status strategy_lines_find(const struct shard_program *program, const char *lines, int *choice) {
    const struct intra_op_program *all = &program->program;
    int64_t cost, peak;
    TRY(check_mesh(program, lines));
    for (int i = 0; i < all->node_count; i++) {
        choice[i] = 0;
        if (i < (int)program->graph->nodes.count && chooses(program, i))
            TRY(find_strategy(program, lines, i, &choice[i]));
    }
    for (int i = 0; i < all->node_count; i++) {
        int kept = i;
        while (all->nodes[kept].same_as != kept)
            kept = all->nodes[kept].same_as;
        choice[i] = choice[kept];
    }
    intra_op_evaluate(all, choice, &cost, &peak);
    if (cost != INTRA_OP_FORBIDDEN) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "recipe: strategies: they do not go together");
}

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
    TRY(mem_items(&out->choice, (size_t)program->program.node_count));
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
    AUTO_FREE char *lines = NULL;
    TRY(strategy_lines_print(&solved->program, solved->solution.choice, &lines));
    return recipe_lines_keep(lines, &recipe->strategies);
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
