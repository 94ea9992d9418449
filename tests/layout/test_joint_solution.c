/* Strategies and recomputation chosen together are never slower than either phase alone and fit in the device's
 * memory. On small models they are as fast as the best strategies with the best schedule. */
#include "plan/layout/joint_solution.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "model/model.h"
#include "support/fault_sweep.h"
#include "support/sized_graph.h"
#include "support/unit.h"

enum { SEEDS = 12 };

static struct shard_question question_of(const struct graph *graph, int64_t rows, int64_t columns, double slow) {
    return (struct shard_question){
        .graph = graph,
        .mesh = {.axes = 2, .sizes = {rows, columns}, .latency_s = {2e-6, 1e-6}, .s_per_byte = {slow, slow / 8}},
        .rates = {1e12, 1e12, 8},
        .state_bytes_per_byte = 9,
        .memory_limit = INTRA_OP_NO_LIMIT};
}

/* Of one solution's schedule: what shard_chain says and a walk finds, within the device. */
static void check_solution(const struct shard_program *program, const struct joint_solution *solution, int64_t device) {
    struct shard_chain chain;
    struct recompute_cost cost;
    assert_int_equal(shard_chain_make(program, solution->strategies.choice, &chain), STATUS_OK);
    assert_int_equal(recompute_simulate(&chain.chain, &solution->schedule, &cost), STATUS_OK);
    assert_true(cost.time == solution->seconds && cost.peak + chain.state_bytes == solution->peak_bytes);
    assert_true(solution->peak_bytes <= device);
    assert_true(solution->seconds <= solution->kept_s && solution->seconds <= solution->checkpoints_s);
    shard_chain_free(&chain);
}

/* A chain that keeps all costs what the program says, and needs what its largest moment has. */
static void chains_have_the_seconds_and_the_bytes_of_programs(void **state) {
    (void)state;
    const struct sized_graph sizes = {3, 64, 4, 128, 4, 32};
    static const char *const families[] = {"gpt2", "llama", "qwen3", "gemma2"};
    for (int i = 0; i < 4; i++) {
        struct graph *graph = sized_graph_make(families[i], &sizes);
        struct shard_question question = question_of(graph, 2, 2, 1e-10);
        struct shard_program program;
        struct intra_op_solution solution;
        assert_int_equal(shard_program_make(&question, &program), STATUS_OK);
        assert_int_equal(intra_op_solve(&program.program, 0, &solution), STATUS_OK);
        struct recompute_schedule schedule;
        double seconds;
        int64_t peak;
        assert_int_equal(joint_checkpoints(&program, solution.choice, INT64_MAX / 2, &schedule, &seconds, &peak),
                         STATUS_OK);
        double solved = (double)solution.cost * program.unit_s;
        if (fabs(seconds - solved) > 1e-6 * solved) fail_msg("%s: %g s, not %g s", families[i], seconds, solved);
        if (peak < solution.peak)
            fail_msg("%s: %lld bytes of %lld", families[i], (long long)peak, (long long)solution.peak);
        print_message("%s: a chain of %lld bytes, a program of %lld\n", families[i], (long long)peak,
                      (long long)solution.peak);
        vec_free(&schedule);
        intra_op_solution_free(&solution);
        shard_program_free(&program);
        graph_free(graph);
    }
}

/* Goes through all choices; those that are faster than `best_s` without recomputation get their fastest schedules. */
struct exhaustive {
    const struct shard_program *program;
    int64_t device;
    int *choice;
    double best_s;
    long tried;
};
static void try_all(struct exhaustive *all, int node) {
    const struct intra_op_program *program = &all->program->program;
    if (node < program->node_count) {
        const struct intra_op_node *one = &program->nodes[node];
        int first = one->same_as == node ? 0 : all->choice[one->same_as];
        int end = one->same_as == node ? one->choices : first + 1;
        for (all->choice[node] = first; all->choice[node] < end; all->choice[node]++) {
            int kept = all->choice[node];
            try_all(all, node + 1);
            all->choice[node] = kept;
        }
        return;
    }
    int64_t cost, peak;
    double seconds;
    struct recompute_schedule schedule = {0};
    intra_op_evaluate(program, all->choice, &cost, &peak);
    all->tried++;
    if (cost == INTRA_OP_FORBIDDEN || (double)cost * all->program->unit_s >= all->best_s) return;
    if (joint_checkpoints(all->program, all->choice, all->device, &schedule, &seconds, &peak) == STATUS_OK)
        all->best_s = fmin(all->best_s, seconds);
    vec_free(&schedule);
}

/* On two devices of one axis: an axis of one would only multiply the choices. */
static struct shard_question small_question(const struct graph *graph, double s_per_byte) {
    struct shard_question question = question_of(graph, 2, 1, s_per_byte);
    question.mesh.axes = 1;
    question.state_bytes_per_byte = 2;
    return question;
}

/* An embedding, blocks of two products and what is between them, a loss: few enough choices to go through. */
static struct graph *make_small(uint64_t seed) {
    int64_t width = 8 << random_u64(seed, RANDOM_TEST, 3, 0) % 3,
            inner = width * (1 + (int64_t)(random_u64(seed, RANDOM_TEST, 3, 1) % 4));
    int blocks = 2 + (int)(random_u64(seed, RANDOM_TEST, 3, 2) % 4);
    int64_t length = 8 << random_u64(seed, RANDOM_TEST, 3, 3) % 3;
    struct graph *graph = graph_create(DTYPE_BF16, 2, length);
    struct shape ids = shape_make(DTYPE_I32, 2, 2, length, 1);
    struct tensor *tokens = graph_tensor(graph, TENSOR_INPUT, "tokens", ids),
                  *targets = graph_tensor(graph, TENSOR_INPUT, "targets", ids);
    char name[32];
    graph_begin_block(graph, "embedding");
    struct tensor *x = ops_embedding(graph, "x", tokens, graph_parameter(graph, "table", 2, 32, width));
    for (int b = 0; b < blocks; b++) {
        graph_begin_block(graph, "block");
        snprintf(name, sizeof name, "up.%d", b);
        struct tensor *up = ops_linear(graph, name, x, graph_parameter(graph, name, 2, inner, width), NULL, NULL,
                                       (struct linear_attributes){0});
        snprintf(name, sizeof name, "act.%d", b);
        up = ops_activation(graph, name, up, ACTIVATION_SILU);
        snprintf(name, sizeof name, "down.%d", b);
        x = ops_linear(graph, name, up, graph_parameter(graph, name, 2, width, inner), NULL, x,
                       (struct linear_attributes){0});
    }
    graph_begin_block(graph, "head");
    ops_head_loss(graph, "loss", x, graph_parameter(graph, "head", 2, 32, width), targets, NULL,
                  (struct head_attributes){0});
    assert_int_equal(graph_status(graph), STATUS_OK);
    return graph;
}

/* Solves with a device whose bytes are some share of what the fastest strategies take. */
static void check_small(uint64_t seed, double *worst, int *joined, long *tried) {
    struct graph *graph = make_small(seed);
    struct shard_question question =
        small_question(graph, 1e-9 * (double)(1 + random_u64(seed, RANDOM_TEST, 3, 4) % 40));
    struct shard_program program;
    struct intra_op_solution fastest;
    struct joint_solution joint;
    assert_int_equal(shard_program_make(&question, &program), STATUS_OK);
    assert_int_equal(intra_op_solve(&program.program, 0, &fastest), STATUS_OK);
    int64_t device =
        (int64_t)((double)fastest.peak * (0.4 + 0.05 * (double)(random_u64(seed, RANDOM_TEST, 3, 5) % 14)));
    enum status status = joint_solve(&program, device, 0, &joint);
    struct exhaustive all = {.program = &program, .device = device, .best_s = joint.seconds};
    all.choice = mem_array((size_t)program.program.node_count, sizeof *all.choice);
    try_all(&all, 0);
    if (status == STATUS_NO_FIT) {
        assert_true(isinf(all.best_s));
    } else {
        assert_int_equal(status, STATUS_OK);
        check_solution(&program, &joint, device);
        *worst = fmax(*worst, joint.seconds / all.best_s - 1);
        if (joint.seconds > all.best_s * (1 + 1e-9))
            print_message("seed %d: %.3g\n", (int)seed, joint.seconds / all.best_s - 1);
        *joined += joint.seconds < joint.kept_s && joint.seconds < joint.checkpoints_s;
    }
    *tried += all.tried;
    mem_free(all.choice);
    joint_solution_free(&joint);
    intra_op_solution_free(&fastest);
    shard_program_free(&program);
    graph_free(graph);
}

static void nothing_that_fits_is_faster(void **state) {
    (void)state;
    double worst = 0;
    int joined = 0;
    long tried = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        check_small(seed, &worst, &joined, &tried);
    print_message("seeds 1 to %d, %ld choices gone through: worst gap %.3g, faster than either stage %d times\n", SEEDS,
                  tried, worst, joined);
    assert_true(worst < 1e-9 && joined > 0);
}

static void models_that_fit_no_device_are_refused(void **state) {
    (void)state;
    struct graph *graph = make_small(1);
    struct shard_question question = small_question(graph, 1e-9);
    struct shard_program program;
    struct joint_solution joint;
    assert_int_equal(shard_program_make(&question, &program), STATUS_OK);
    assert_int_equal(joint_solve(&program, 100, 0, &joint), STATUS_NO_FIT);
    joint_solution_free(&joint);
    assert_int_equal(joint_solve(&program, 0, 0, &joint), STATUS_BAD_INPUT);
    joint_solution_free(&joint);
    shard_program_free(&program);
    graph_free(graph);
}

/* With space for all, and the second phase with little. */
struct tight {
    struct shard_program program;
    struct intra_op_solution fastest;
};
static enum status solve_and_free(void *payload) {
    struct tight *tight = payload;
    struct joint_solution joint;
    struct recompute_schedule schedule = {0};
    double seconds;
    int64_t peak;
    enum status status = joint_solve(&tight->program, INT64_MAX / 4, 0, &joint);
    if (status == STATUS_OK)
        status = joint_checkpoints(&tight->program, tight->fastest.choice, tight->fastest.peak * 9 / 10, &schedule,
                                   &seconds, &peak);
    joint_solution_free(&joint);
    vec_free(&schedule);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    struct graph *graph = make_small(2);
    struct shard_question question = small_question(graph, 1e-9);
    struct tight tight;
    assert_int_equal(shard_program_make(&question, &tight.program), STATUS_OK);
    assert_int_equal(intra_op_solve(&tight.program.program, 0, &tight.fastest), STATUS_OK);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, solve_and_free, &tight) > 20);
    intra_op_solution_free(&tight.fastest);
    shard_program_free(&tight.program);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_have_the_seconds_and_the_bytes_of_programs),
        cmocka_unit_test(nothing_that_fits_is_faster),
        cmocka_unit_test(models_that_fit_no_device_are_refused),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
