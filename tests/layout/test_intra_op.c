/* The integer program: small ones against all choices, elimination against CBC on larger ones, and refusals. */
#include "plan/layout/intra_op.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "plan/layout/ilp_program.h"
#include "support/fault_sweep.h"
#include "support/intra_op_check.h"
#include "support/unit.h"

enum { NODES_MAX = 40, CHOICES_MAX = 6, EDGES_MAX = 80, MOMENTS_MAX = 8 };

/* A program with its arrays. */
struct made {
    struct intra_op_program program;
    struct intra_op_node nodes[NODES_MAX];
    struct intra_op_edge edges[EDGES_MAX];
    struct intra_op_moment moments[MOMENTS_MAX];
    int64_t cost[NODES_MAX][CHOICES_MAX], memory[NODES_MAX][CHOICES_MAX];
    int64_t pair[EDGES_MAX][CHOICES_MAX * CHOICES_MAX];
    int live[MOMENTS_MAX][2 * NODES_MAX];
    uint64_t seed, at;
};

static int64_t draw(struct made *made, int64_t limit) {
    return (int64_t)(random_u64(made->seed, RANDOM_TEST, 2, made->at++) % (uint64_t)limit);
}

/* How large costs and memory are: small ones tie often. */
static int64_t draw_scale(struct made *made) {
    static const int64_t scales[] = {3, 10, 1000, (int64_t)1 << 40};
    return scales[draw(made, 4)];
}

static void draw_nodes(struct made *made, int nodes, int max_choices) {
    int64_t cost = draw_scale(made), memory = draw_scale(made);
    for (int i = 0; i < nodes; i++) {
        struct intra_op_node *node = &made->nodes[i];
        *node = (struct intra_op_node){1 + (int)draw(made, max_choices), i, made->cost[i], made->memory[i]};
        int other = (int)draw(made, nodes);
        if (draw(made, 4) == 0 && other < i) node->same_as = other, node->choices = made->nodes[other].choices;
        for (int k = 0; k < node->choices; k++)
            made->cost[i][k] = draw(made, cost), made->memory[i][k] = draw(made, memory);
    }
}

/* Edges between neighbours and some others, as residuals make them. */
static void draw_edges(struct made *made, int edges) {
    int64_t cost = draw_scale(made);
    int nodes = made->program.node_count;
    for (int i = 0; i < edges; i++) {
        int from = (int)draw(made, nodes), near = from + (int)draw(made, 4);
        int to = near < nodes ? near : (int)draw(made, nodes);
        made->edges[i] = (struct intra_op_edge){from, to, made->pair[i]};
        int entries = made->nodes[from].choices * made->nodes[to].choices;
        for (int k = 0; k < entries; k++)
            made->pair[i][k] = draw(made, 12) == 0 ? INTRA_OP_FORBIDDEN : draw(made, cost);
    }
}

static void draw_moments(struct made *made, int moments) {
    int64_t min = 0, max = 0;
    for (int i = 0; i < moments; i++) {
        int count = (int)draw(made, 2 * made->program.node_count), low = 0;
        int64_t sum = 0;
        for (int n = 0; n < count; n++) {
            int node = made->live[i][n] = (int)draw(made, made->program.node_count);
            int64_t lightest = INT64_MAX;
            for (int k = 0; k < made->nodes[node].choices; k++)
                lightest = made->memory[node][k] < lightest ? made->memory[node][k] : lightest;
            for (int k = 0; k < made->nodes[node].choices && k == 0; k++)
                sum += made->memory[node][k];
            min += lightest, low++;
        }
        max = sum > max ? sum : max;
        made->moments[i] = (struct intra_op_moment){count, made->live[i]};
    }
    made->program.memory_limit = draw(made, 3) == 0 ? INTRA_OP_NO_LIMIT : draw(made, max + min / (moments + 1) + 1);
}

static void draw_program(struct made *made, uint64_t seed, int nodes, int edges, int choices) {
    memset(made, 0, sizeof *made);
    made->seed = seed;
    made->program = (struct intra_op_program){
        .node_count = nodes, .edge_count = edges, .nodes = made->nodes, .edges = made->edges, .moments = made->moments};
    draw_nodes(made, nodes, choices);
    draw_edges(made, edges);
    made->program.moment_count = (int)draw(made, MOMENTS_MAX);
    draw_moments(made, made->program.moment_count);
}

/* The first of the cheapest by going through all; INTRA_OP_FORBIDDEN where none fits. */
static int64_t try_all(const struct intra_op_program *program, int *best) {
    int choice[NODES_MAX] = {0}, at = 0;
    int64_t min = INTRA_OP_FORBIDDEN, cost, peak;
    while (at >= 0) {
        bool ilp = true;
        for (int i = 0; i < program->node_count; i++)
            ilp = ilp && choice[i] == choice[program->nodes[i].same_as];
        if (ilp) {
            intra_op_evaluate(program, choice, &cost, &peak);
            if (cost < min && peak <= program->memory_limit) {
                min = cost;
                memcpy(best, choice, (size_t)program->node_count * sizeof *best);
            }
        }
        for (at = program->node_count - 1; at >= 0 && ++choice[at] == program->nodes[at].choices; at--)
            choice[at] = 0;
    }
    return min;
}

static void check_against_all(struct made *made) {
    int best[NODES_MAX];
    struct intra_op_solution solution;
    int64_t min = try_all(&made->program, best);
    enum status status = intra_op_solve(&made->program, 0, &solution);
    if (min == INTRA_OP_FORBIDDEN) {
        assert_int_equal(status, STATUS_NO_FIT);
        return;
    }
    if (status != STATUS_OK) fail_msg("seed %llu: %s", (unsigned long long)made->seed, status_message());
    assert_true(solution.exact && solution.first);
    assert_true(solution.cost == min && solution.bound == min);
    assert_true(solution.peak <= made->program.memory_limit);
    assert_memory_equal(solution.choice, best, (size_t)made->program.node_count * sizeof *best);
    intra_op_solution_free(&solution);
}

static void the_first_of_the_cheapest_is_found(void **state) {
    (void)state;
    static struct made made;
    int limited = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(300, 10000); seed++) {
        int nodes = 1 + (int)(seed % 7);
        draw_program(&made, seed, nodes, (int)(seed % 11), 4);
        limited += made.program.memory_limit != INTRA_OP_NO_LIMIT;
        check_against_all(&made);
    }
    print_message("seeds 1 on; %d with a memory limit\n", limited);
    assert_true(limited > 100);
}

/* How many choices that fit cost the least. */
static int count_cheapest(const struct intra_op_program *program, int64_t min) {
    int choice[NODES_MAX] = {0}, at = 0, count = 0;
    int64_t cost, peak;
    while (at >= 0) {
        intra_op_evaluate(program, choice, &cost, &peak);
        count += cost == min && peak <= program->memory_limit;
        for (at = program->node_count - 1; at >= 0 && ++choice[at] == program->nodes[at].choices; at--)
            choice[at] = 0;
    }
    return count;
}

/* Costs of 0 to 2 and memory of 0 to 3, untied, under half of the fastest's memory: nearly all have ties. */
static void draw_ties(struct made *made, uint64_t seed) {
    int64_t cost, peak;
    int first[NODES_MAX] = {0};
    draw_program(made, seed, 3 + (int)(seed % 5), (int)(seed % 9), 4);
    for (int i = 0; i < made->program.node_count; i++) {
        made->nodes[i].same_as = i, made->nodes[i].choices = 2 + (int)draw(made, 3);
        for (int k = 0; k < made->nodes[i].choices; k++)
            made->cost[i][k] = draw(made, 3), made->memory[i][k] = draw(made, 4);
    }
    for (int i = 0; i < made->program.edge_count; i++) {
        struct intra_op_edge *edge = &made->edges[i];
        for (int k = 0; k < made->nodes[edge->from].choices * made->nodes[edge->to].choices; k++)
            made->pair[i][k] = draw(made, 9) == 0 ? INTRA_OP_FORBIDDEN : draw(made, 2);
    }
    made->program.moment_count = 1 + (int)draw(made, MOMENTS_MAX);
    draw_moments(made, made->program.moment_count);
    intra_op_evaluate(&made->program, first, &cost, &peak);
    made->program.memory_limit = draw(made, peak + 2);
}

static void of_equal_costs_under_a_limit_the_first_is_taken(void **state) {
    (void)state;
    static struct made made;
    int best[NODES_MAX], several = 0, bound = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(400, 20000); seed++) {
        draw_ties(&made, seed);
        check_against_all(&made);
        int64_t min = try_all(&made.program, best);
        if (min == INTRA_OP_FORBIDDEN) continue;
        several += count_cheapest(&made.program, min) > 1;
        struct intra_op_program free = made.program;
        free.memory_limit = INTRA_OP_NO_LIMIT;
        bound += try_all(&free, best) < min;
    }
    print_message("seeds 1 on: %d with several cheapest choices, the limit binds in %d\n", several, bound);
    assert_true(several > 100 && bound > 50);
}

/* CBC and the search by elimination agree on programs that are too large to try all. */
static void elimination_agrees_with_cbc(void **state) {
    (void)state;
    static struct made made;
    int compared = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(16, 1000); seed++) {
        struct ilp_program ilp;
        struct cbc_result cbc;
        struct intra_op_solution solution;
        int choice[NODES_MAX];
        draw_program(&made, seed, NODES_MAX, NODES_MAX + 10, CHOICES_MAX);
        if (seed % 2) made.program.memory_limit = INTRA_OP_NO_LIMIT;
        assert_int_equal(ilp_program_make(&made.program, &ilp), STATUS_OK);
        assert_int_equal(ilp_solve_cbc(&ilp, 100000, choice, &cbc), STATUS_OK);
        enum status status = intra_op_solve(&made.program, 0, &solution);
        if (status == STATUS_OK) {
            assert_true(cbc.found && cbc.proven && solution.exact && solution.first);
            assert_true(solution.cost <= cbc.cost);
            assert_true((double)(cbc.cost - solution.cost) <= 1e-7 * (double)cbc.cost);
            compared += solution.first;
            intra_op_solution_free(&solution);
        } else {
            assert_int_equal(status, STATUS_NO_FIT);
            assert_true(cbc.proven && !cbc.found);
        }
        ilp_program_free(&ilp);
    }
    print_message("seeds 1 on; %d compared\n", compared);
    assert_true(compared > 5);
}

/* Nodes that repeat a block are solved as one block of which each cost counts so often. */
static void repeated_blocks_share_their_choices(void **state) {
    (void)state;
    enum { BLOCKS = 12, LENGTH = 3 };
    static struct made made;
    draw_program(&made, 7, BLOCKS * LENGTH, 0, 4);
    for (int i = 0; i < BLOCKS * LENGTH; i++) {
        made.nodes[i].choices = 3, made.nodes[i].same_as = i % LENGTH;
        made.edges[i] = (struct intra_op_edge){i, i + 1, made.pair[i]};
        for (int k = 0; k < 3; k++)
            made.cost[i][k] = 5 * (k + 1), made.memory[i][k] = 30 - 10 * k;
        for (int k = 0; k < 9; k++)
            made.pair[i][k] = k % 4 == 0 ? 0 : 2;
        made.live[0][i] = i;
    }
    made.program.edge_count = BLOCKS * LENGTH - 1;
    made.program.moment_count = 1;
    made.moments[0] = (struct intra_op_moment){BLOCKS * LENGTH, made.live[0]};
    made.program.memory_limit = BLOCKS * (30 + 30 + 20);
    struct intra_op_solution solution;
    assert_int_equal(intra_op_solve(&made.program, 0, &solution), STATUS_OK);
    for (int i = LENGTH; i < BLOCKS * LENGTH; i++)
        assert_int_equal(solution.choice[i], solution.choice[i % LENGTH]);
    assert_int_equal(solution.choice[0] + solution.choice[1] + solution.choice[2], 1);
    assert_int_equal(solution.choice[2], 1); /* the block's end, which the last block leaves without an edge */
    assert_int_equal(solution.peak, BLOCKS * 80);
    intra_op_solution_free(&solution);
}

static void expect_refused(struct made *made, const char *expected) {
    assert_int_equal(intra_op_check(&made->program), STATUS_BAD_INPUT);
    if (!strstr(status_message(), expected)) fail_msg("expected '%s' in '%s'", expected, status_message());
    draw_program(made, 3, 4, 4, 3);
}

static void wrong_programs_are_refused(void **state) {
    (void)state;
    static struct made made;
    draw_program(&made, 3, 4, 4, 3);
    made.program.node_count = 0, expect_refused(&made, "0 nodes");
    made.nodes[2].choices = 0, expect_refused(&made, "node 2: 0 choices");
    made.nodes[1].same_as = 4, expect_refused(&made, "node 1: is the same as node 4");
    made.nodes[1].same_as = 2, made.nodes[2].same_as = 1, expect_refused(&made, "same as itself");
    made.nodes[3].same_as = 3, made.nodes[2].same_as = 3, made.nodes[2].choices = made.nodes[3].choices % 3 + 1;
    expect_refused(&made, "node 2: has");
    made.cost[1][0] = -1, expect_refused(&made, "node 1: cost[0] is -1");
    made.memory[1][0] = -1, expect_refused(&made, "node 1: memory[0] is -1");
    made.edges[2].to = 9, expect_refused(&made, "edge 2: from node");
    made.pair[3][0] = -5, expect_refused(&made, "edge 3: cost[0] is -5");
    made.cost[0][0] = INTRA_OP_COST_MAX + 1, expect_refused(&made, "costs that add up");
    made.program.moment_count = 1, made.moments[0].count = 1, made.live[0][0] = 4, made.moments[0].nodes = made.live[0];
    expect_refused(&made, "moment 0: node 4");
    made.program.memory_limit = -1, expect_refused(&made, "limit below 0");
}

static void a_node_limit_reports_its_progress(void **state) {
    (void)state;
    static struct made made;
    struct intra_op_solution solution;
    draw_program(&made, 5, NODES_MAX, NODES_MAX, CHOICES_MAX);
    made.program.memory_limit = INTRA_OP_NO_LIMIT;
    assert_int_equal(intra_op_solve(&made.program, 1, &solution), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "within 1 nodes"));
}

/* A limit that is met leaves the best found, and a bound that no choices that fit are below; twice the same. */
static void a_limit_of_nodes_leaves_the_best_with_its_gap(void **state) {
    (void)state;
    static struct made made;
    int open = 0, found = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct intra_op_solution whole, first, second;
        draw_program(&made, seed, 10, 14, CHOICES_MAX);
        enum status status = intra_op_solve(&made.program, 0, &whole);
        enum status limited = intra_op_solve(&made.program, 2, &first);
        if (limited == STATUS_OK) {
            int64_t cost, peak;
            assert_int_equal(status, STATUS_OK);
            assert_int_equal(intra_op_solve(&made.program, 2, &second), STATUS_OK);
            assert_memory_equal(first.choice, second.choice, (size_t)made.program.node_count * sizeof *first.choice);
            intra_op_evaluate(&made.program, first.choice, &cost, &peak);
            assert_true(cost == first.cost && peak == first.peak && peak <= made.program.memory_limit);
            assert_true(first.bound <= whole.cost && whole.cost <= first.cost);
            assert_true(!first.exact || (first.cost == whole.cost && first.bound == first.cost));
            found++, open += !first.first;
            intra_op_solution_free(&first);
            intra_op_solution_free(&second);
        }
        if (status == STATUS_OK) intra_op_solution_free(&whole);
    }
    print_message("seeds 1 to 120: within 2 nodes %d solved, %d of them not proven to be the first\n", found, open);
    assert_true(found > 10 && open > 0);
}

static enum status solve_and_free(void *payload) {
    const struct made *made = payload;
    struct intra_op_solution solution;
    enum status status = intra_op_solve(&made->program, 0, &solution);
    if (status == STATUS_OK) intra_op_solution_free(&solution);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    static struct made made;
    draw_program(&made, 11, 6, 6, 3);
    for (int i = 0; i < 6; i++)
        made.live[0][i] = i;
    made.program.moment_count = 1, made.moments[0] = (struct intra_op_moment){6, made.live[0]};
    made.program.memory_limit = 0;
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 3; k++)
            made.memory[i][k] = 1 + k, made.program.memory_limit += k == 1 ? 1 : 0;
    made.program.memory_limit += 1;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, solve_and_free, &made) >= 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_the_cheapest_is_found),
        cmocka_unit_test(of_equal_costs_under_a_limit_the_first_is_taken),
        cmocka_unit_test(elimination_agrees_with_cbc),
        cmocka_unit_test(repeated_blocks_share_their_choices),
        cmocka_unit_test(wrong_programs_are_refused),
        cmocka_unit_test(a_node_limit_reports_its_progress),
        cmocka_unit_test(a_limit_of_nodes_leaves_the_best_with_its_gap),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
