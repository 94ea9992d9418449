/* The integer program of a model's graph: its costs are those of strategies and conversions, repeated blocks have
 * one choice, and the memory limit holds. The plan of a small GPT is Megatron-LM's. */
#include "plan/layout/tensor_layout.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/model.h"
#include "support/fault_sweep.h"
#include "support/sized_graph.h"
#include "support/unit.h"

static struct shard_question question_of(const struct graph *graph, int64_t rows, int64_t columns) {
    return (struct shard_question){
        .graph = graph,
        .mesh = {.axes = 2, .sizes = {rows, columns}, .latency_s = {2e-6, 1e-6}, .s_per_byte = {1e-9, 1e-11}},
        .rates = {1e12, 1e12, 8},
        .state_bytes_per_byte = 9,
        .memory_limit = INTRA_OP_NO_LIMIT};
}

/* Seconds of all nodes, and of what lies between them, from the strategies alone. */
static double count_seconds(const struct shard_program *program, const struct intra_op_solution *solution) {
    const struct graph *graph = program->graph;
    double sum = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        const struct strategy *one = shard_program_strategy(program, (int)i, solution->choice[i]);
        sum += one->compute_s + one->forward_s + one->backward_s;
        for (int k = 0; k < OP_INPUTS_MAX; k++) {
            const struct tensor *tensor = node->in[k], *storage = tensor && tensor->base ? tensor->base : tensor;
            if (!storage || !storage->producer) continue;
            int output = 0;
            while (storage->producer->out[output] != storage)
                output++;
            const struct strategy *left =
                shard_program_strategy(program, storage->producer->id, solution->choice[storage->producer->id]);
            struct layout_shape shape = strategy_shape(tensor);
            struct conversions conversions;
            assert_int_equal(conversions_create(&program->conversions.mesh, &shape, dtype_bytes(tensor->shape.dtype),
                                                conversion_price_s, &conversions),
                             STATUS_OK);
            sum += conversions_price(&conversions, &left->operand[OP_INPUTS_MAX + output], &one->operand[k]);
            conversions_free(&conversions);
        }
    }
    return sum;
}

/* Lines of a solution say all of it. */
static void check_lines(const struct shard_program *program, const struct intra_op_solution *solution) {
    char *lines;
    int *choice = mem_array((size_t)program->program.node_count, sizeof *choice);
    assert_non_null(choice);
    assert_int_equal(strategy_lines_print(program, solution->choice, &lines), STATUS_OK);
    if (strategy_lines_find(program, lines, choice) != STATUS_OK) fail_msg("%s: %s", lines, status_message());
    assert_memory_equal(choice, solution->choice, (size_t)program->program.node_count * sizeof *choice);
    mem_free(lines);
    mem_free(choice);
}

static void check_family(const char *family) {
    const struct sized_graph sizes = {4, 48, 12, 96, 4, 16};
    struct graph *graph = sized_graph_make(family, &sizes);
    struct shard_question question = question_of(graph, 2, 4);
    struct shard_program program;
    struct intra_op_solution solution;
    assert_int_equal(shard_program_make(&question, &program), STATUS_OK);
    if (intra_op_solve(&program.program, 0, &solution) != STATUS_OK) fail_msg("%s: %s", family, status_message());
    check_lines(&program, &solution);
    double seconds = count_seconds(&program, &solution), solved = (double)solution.cost * program.unit_s;
    bool ilp_parameters = program.program.edge_count > 0 && seconds <= solved * (1 + 1e-9);
    if (!ilp_parameters || solved > seconds * 1.5) fail_msg("%s: %g s, not %g s", family, solved, seconds);
    int like = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        like += program.block_like[i] != (int)i;
        assert_int_equal(solution.choice[i], solution.choice[program.block_like[i]]);
    }
    assert_true(like > 0 && solution.exact && solution.first);
    intra_op_solution_free(&solution);
    shard_program_free(&program);
    graph_free(graph);
}

static void costs_are_those_of_strategies_and_conversions(void **state) {
    (void)state;
#define CHECK_FAMILY(name) check_family(#name);
    MODEL_FAMILY_LIST(CHECK_FAMILY)
#undef CHECK_FAMILY
}

/* With a choice for every node of every block nothing is cheaper than the least, and that is not above the tied. */
static void ties_cost_no_more_than_they_save(void **state) {
    (void)state;
    const struct sized_graph sizes = {3, 32, 4, 64, 2, 8};
    struct graph *graph = sized_graph_make("gpt2", &sizes);
    struct shard_question question = question_of(graph, 1, 2);
    struct shard_program program;
    struct intra_op_solution ilp, loose;
    assert_int_equal(shard_program_make(&question, &program), STATUS_OK);
    assert_int_equal(intra_op_solve(&program.program, 0, &ilp), STATUS_OK);
    struct intra_op_node *nodes = (struct intra_op_node *)program.program.nodes;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (nodes[i].same_as == program.block_like[i]) nodes[i].same_as = (int)i;
    assert_int_equal(intra_op_solve(&program.program, 0, &loose), STATUS_OK);
    assert_true(loose.cost <= ilp.cost);
    print_message("tied %lld, loose %lld\n", (long long)ilp.cost, (long long)loose.cost);
    intra_op_solution_free(&ilp);
    intra_op_solution_free(&loose);
    shard_program_free(&program);
    graph_free(graph);
}

static const char *layout_of(const struct shard_program *program, const struct intra_op_solution *solution,
                             const char *name, int operand, char text[LAYOUT_TEXT]) {
    for (size_t i = 0; i < program->graph->nodes.count; i++) {
        const struct node *node = program->graph->nodes.items[i];
        if (strcmp(node->name, name) != 0) continue;
        const struct strategy *one = shard_program_strategy(program, (int)i, solution->choice[i]);
        const struct tensor *tensor = operand < OP_INPUTS_MAX ? node->in[operand] : node->out[operand - OP_INPUTS_MAX];
        return layout_print(&one->operand[operand], tensor->shape.rank, text);
    }
    fail_msg("no node %s", name);
    return "";
}

/* Slow across rows, fast within: sequences across, heads and columns within, then rows, positions cut between. */
static void a_gpt_is_cut_as_megatron_cuts_it(void **state) {
    (void)state;
    const struct sized_graph sizes = {4, 1024, 16, 4096, 8, 512};
    struct graph *graph = sized_graph_make("gpt2", &sizes);
    struct shard_question question = question_of(graph, 2, 4);
    struct shard_program program;
    struct intra_op_solution solution;
    char text[LAYOUT_TEXT];
    assert_int_equal(shard_program_make(&question, &program), STATUS_OK);
    assert_int_equal(intra_op_solve(&program.program, 0, &solution), STATUS_OK);
    assert_string_equal(layout_of(&program, &solution, "layer.1.attn.c_attn", 1, text), "RS1");
    assert_string_equal(layout_of(&program, &solution, "layer.1.attention", 0, text), "S0RS1");
    assert_string_equal(layout_of(&program, &solution, "layer.1.attn.c_proj", 1, text), "S1R");
    assert_string_equal(layout_of(&program, &solution, "layer.1.mlp.c_fc", 1, text), "RS1");
    assert_string_equal(layout_of(&program, &solution, "layer.1.mlp.c_proj", 1, text), "S1R");
    assert_string_equal(layout_of(&program, &solution, "layer.1.ln_2", OP_INPUTS_MAX, text), "S0S1R");
    intra_op_solution_free(&solution);
    shard_program_free(&program);
    graph_free(graph);
}

static void memory_is_kept(void **state) {
    (void)state;
    const struct sized_graph sizes = {3, 64, 4, 128, 4, 32};
    struct graph *graph = sized_graph_make("gpt2", &sizes);
    struct shard_question question = question_of(graph, 2, 2);
    struct shard_program program;
    struct intra_op_solution free_choice, limited;
    assert_int_equal(shard_program_make(&question, &program), STATUS_OK);
    assert_int_equal(intra_op_solve(&program.program, 0, &free_choice), STATUS_OK);
    program.program.memory_limit = free_choice.peak * 9 / 10;
    enum status status = intra_op_solve(&program.program, 0, &limited);
    if (status == STATUS_NO_FIT) fail_msg("%s", status_message());
    assert_true(limited.peak <= program.program.memory_limit && limited.cost >= free_choice.cost && limited.exact);
    intra_op_solution_free(&limited);
    program.program.memory_limit = 1;
    assert_int_equal(intra_op_solve(&program.program, 0, &limited), STATUS_NO_FIT);
    intra_op_solution_free(&free_choice);
    shard_program_free(&program);
    graph_free(graph);
}

/* 12 heads on 8 devices, 1, 2 and 7 devices, a sequence of one token, a prime vocabulary. */
static void odd_sizes_have_a_plan(void **state) {
    (void)state;
    static const int64_t meshes[][2] = {{1, 1}, {1, 2}, {1, 8}, {7, 1}, {3, 2}};
    static const struct sized_graph odd[] = {{1, 12, 12, 97, 1, 1}, {2, 36, 12, 101, 1, 5}, {2, 24, 3, 7, 6, 8}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct graph *graph = sized_graph_make("gpt2", &odd[i]);
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
            struct shard_question question = question_of(graph, meshes[m][0], meshes[m][1]);
            struct shard_program program;
            struct intra_op_solution solution;
            assert_int_equal(shard_program_make(&question, &program), STATUS_OK);
            assert_int_equal(intra_op_solve(&program.program, 0, &solution), STATUS_OK);
            assert_true(solution.exact);
            intra_op_solution_free(&solution);
            shard_program_free(&program);
        }
        graph_free(graph);
    }
}

static void wrong_lines_are_refused(void **state) {
    (void)state;
    const struct sized_graph sizes = {2, 48, 12, 96, 4, 16};
    struct graph *graph = sized_graph_make("gpt2", &sizes);
    struct shard_question question = question_of(graph, 1, 4);
    struct shard_program program;
    struct intra_op_solution solution;
    char *lines, *cut;
    assert_int_equal(shard_program_make(&question, &program), STATUS_OK);
    assert_int_equal(intra_op_solve(&program.program, 0, &solution), STATUS_OK);
    assert_int_equal(strategy_lines_print(&program, solution.choice, &lines), STATUS_OK);
    assert_int_equal(strategy_lines_find(&program, "", solution.choice), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "recipe: strategies: "));
    assert_non_null(strstr(status_message(), " has none"));
    cut = strchr(lines, '\n');
    assert_non_null(cut);
    cut[-1] = '9';
    assert_int_equal(strategy_lines_find(&program, lines, solution.choice), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "there is no '"));
    mem_free(lines);
    intra_op_solution_free(&solution);
    shard_program_free(&program);
    graph_free(graph);
}

static void expect_mesh(const char *lines, int64_t ranks, int axes, int64_t first) {
    struct device_mesh mesh;
    strategy_lines_mesh(lines, ranks, &mesh);
    assert_int_equal(mesh.axes, axes);
    assert_int_equal(mesh.sizes[0], first);
}

static void lines_name_their_mesh(void **state) {
    (void)state;
    expect_mesh("mesh 2/4\nhead v/v\n", 8, 2, 2);
    expect_mesh("head v\n", 8, 1, 8);
    expect_mesh(NULL, 8, 1, 8);
    expect_mesh("mesh 2/4\nhead v/v\n", 6, 1, 6);   /* not so many ranks */
    expect_mesh("mesh 2/2/2\nhead v/v\n", 8, 1, 8); /* more axes than ranks have */
    expect_mesh("mesh 2/\nhead v/v\n", 2, 1, 2);
}

static void wrong_questions_are_refused(void **state) {
    (void)state;
    const struct sized_graph sizes = {1, 32, 4, 64, 2, 8};
    struct graph *graph = sized_graph_make("gpt2", &sizes);
    struct shard_program program;
    struct shard_question question = question_of(graph, 0, 2);
    assert_int_equal(shard_program_make(&question, &program), STATUS_BAD_INPUT);
    shard_program_free(&program);
    question = question_of(graph, 1, 2), question.state_bytes_per_byte = 0;
    assert_int_equal(shard_program_make(&question, &program), STATUS_BAD_INPUT);
    shard_program_free(&program);
    question = question_of(graph, 1, 2), question.rates.micro_batches = 0;
    assert_int_equal(shard_program_make(&question, &program), STATUS_BAD_INPUT);
    shard_program_free(&program);
    graph_free(graph);
}

static enum status make_and_free(void *payload) {
    struct shard_question question = question_of(payload, 1, 2);
    struct shard_program program;
    enum status status = shard_program_make(&question, &program);
    shard_program_free(&program);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    const struct sized_graph sizes = {2, 32, 4, 64, 2, 8};
    struct graph *graph = sized_graph_make("gpt2", &sizes);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, make_and_free, graph) > 30);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_are_those_of_strategies_and_conversions),
        cmocka_unit_test(ties_cost_no_more_than_they_save),
        cmocka_unit_test(a_gpt_is_cut_as_megatron_cuts_it),
        cmocka_unit_test(memory_is_kept),
        cmocka_unit_test(odd_sizes_have_a_plan),
        cmocka_unit_test(wrong_lines_are_refused),
        cmocka_unit_test(lines_name_their_mesh),
        cmocka_unit_test(wrong_questions_are_refused),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
