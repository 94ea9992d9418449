/* Measures the time from a model's forward graph to strategies for all nodes on a described mesh, by number of blocks.
 * Building the program (strategies, conversions, costs) and solving it are timed separately, with and without a memory
 * limit.
 *
 *     build/bench/solve [--explain | BLOCKS]
 *
 * The model is GPT-3 175B (96 blocks of width 12288; Brown et al., arXiv 2005.14165) in bf16. Its vocabulary is 51200,
 * as Megatron-LM pads it. A micro-batch has 8 sequences of 2048 tokens, a step 24 micro-batches. The mesh has 8 nodes
 * of 8 devices with an H100's rates, NVLink within a node, and 400 Gbit/s per device across nodes. Times are this
 * thread's, the minimum over three runs. --explain prints the strategies of the first layer, and those that were
 * dropped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/terminal.h"
#include "plan/layout/shard_program.h"
#include "support/step_graph.h"

enum { RUNS = 3, SEQUENCES = 8 };
#define STATE_BYTES_PER_BYTE 9.0 /* of a bf16 weight: weight, fp32 gradient, fp32 master weight, two fp32 moments */

static const struct shard_question described = {
    .mesh = {.axes = 2, .sizes = {8, 8}, .latency_s = {12e-6, 6e-6}, .s_per_byte = {1 / 50e9, 1 / 450e9}},
    .rates = {600e12, 3.3e12, 24},
    .state_bytes_per_byte = STATE_BYTES_PER_BYTE,
    .memory_limit = INTRA_OP_NO_LIMIT,
};

struct times {
    double make_s, solve_s;
};

static enum status solve_once(const struct shard_question *question, struct shard_program *program,
                              struct intra_op_solution *solution, struct times *times) {
    double start = step_graph_now_s();
    TRY(shard_program_make(question, program));
    double made = step_graph_now_s();
    TRY(intra_op_solve(&program->program, 0, solution));
    *times = (struct times){made - start, step_graph_now_s() - made};
    return STATUS_OK;
}

static void print_row(int64_t layers, const struct shard_question *question, const struct shard_program *program,
                      const struct intra_op_solution *solution, const struct times *times) {
    char limit[32] = "none";
    if (question->memory_limit != INTRA_OP_NO_LIMIT)
        snprintf(limit, sizeof limit, "%.1f GiB", (double)question->memory_limit / (1 << 30));
    printf("%6lld  %6d  %9s  %9.1f  %9.1f  %9.1f  %10.4f  %9.1f  %6lld  %s\n", (long long)layers,
           (int)program->graph->nodes.count, limit, 1e3 * times->make_s, 1e3 * times->solve_s,
           1e3 * (times->make_s + times->solve_s), (double)solution->cost * program->unit_s,
           (double)solution->peak / (1 << 30), (long long)solution->nodes_searched,
           solution->first ? "exact" : (solution->exact ? "exact, ties open" : "limit met"));
}

static void explain(const struct shard_program *program, const struct intra_op_solution *solution) {
    for (size_t i = 0; i < program->graph->nodes.count; i++) {
        const struct node *node = program->graph->nodes.items[i];
        const struct strategy *one = shard_program_strategy(program, (int)i, solution->choice[i]);
        char operand[LAYOUT_TEXT], text[STRATEGY_TEXT];
        if (program->block_like[i] != (int)i) continue;
        printf("%-28s", node->name);
        for (int k = 0; k < OP_INPUTS_MAX; k++)
            if (node->in[k]) printf(" %s", layout_print(&one->operand[k], node->in[k]->shape.rank, operand));
        printf(" -> %s  compute %.3g ms, forward %.3g ms, backward %.3g ms\n",
               layout_print(&one->operand[OP_INPUTS_MAX], node->out[0]->shape.rank, operand), 1e3 * one->compute_s,
               1e3 * one->forward_s, 1e3 * one->backward_s);
        for (size_t k = 0; k < program->strategies[i].dropped.count; k++)
            printf("    dropped: %s\n", strategy_print_dropped(node, &program->strategies[i].dropped.items[k], text));
    }
}

/* Minimum times over all runs. The limit is a fraction of the peak without a limit. */
static enum status measure(int64_t layers, double limit_share, bool explained) {
    const struct step_graph_size size = {"gpt-3", layers, 12288, 96, 51200, 2048, 1};
    struct shard_question question = described;
    struct times best = {INFINITY, INFINITY}, times = {0};
    struct tensor *loss;
    struct graph *graph;
    static int64_t peak;
    TRY(step_graph_forward(&size, SEQUENCES, &graph, &loss));
    question.graph = graph;
    if (limit_share > 0) question.memory_limit = (int64_t)(limit_share * (double)peak);
    enum status status = STATUS_OK;
    for (int run = 0; run < RUNS && status == STATUS_OK; run++) {
        struct shard_program program;
        struct intra_op_solution solution = {0};
        status = solve_once(&question, &program, &solution, &times);
        best.make_s = fmin(best.make_s, times.make_s), best.solve_s = fmin(best.solve_s, times.solve_s);
        if (status == STATUS_OK && run + 1 == RUNS) {
            print_row(layers, &question, &program, &solution, &best);
            if (explained) explain(&program, &solution);
        }
        if (status == STATUS_OK && limit_share == 0) peak = solution.peak;
        intra_op_solution_free(&solution);
        shard_program_free(&program);
    }
    graph_free(graph);
    return status;
}

/* `only`: this number of blocks; 0: all numbers. */
static enum status run(int64_t only) {
    static const int64_t layers[] = {12, 24, 48, 96, 192};
    static const double shares[] = {0, 0.9, 0.7, 0.5};
    printf(
        "blocks   nodes      limit  program ms  solve ms   both ms  seconds a micro-batch  peak GiB  nodes  result\n");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        if (only != 0 && only != layers[i]) continue;
        for (size_t k = 0; k < sizeof shares / sizeof *shares; k++) {
            enum status status = measure(layers[i], shares[k], false);
            if (status == STATUS_NO_FIT) {
                printf("%6lld  a limit of %.0f%%: %s\n", (long long)layers[i], 100 * shares[k], status_message());
                continue;
            }
            TRY(status);
        }
    }
    return STATUS_OK;
}

int main(int argc, char **argv) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    bool explained = argc == 2 && strcmp(argv[1], "--explain") == 0;
    int64_t only = argc == 2 && !explained ? strtoll(argv[1], NULL, 10) : 0;
    if (argc > 2 || (argc == 2 && !explained && only < 1)) {
        fprintf(stderr, "usage: solve [--explain | BLOCKS]\n");
        return STATUS_BAD_INPUT;
    }
    enum status status = explained ? measure(2, 0, true) : run(only);
    if (status != STATUS_OK) fprintf(stderr, "solve: %s\n", status_message());
    return (int)status;
}
