/* Measures how well timing a part of a large operator predicts the time of the whole (profile/points.h).
 *
 *     build/bench/parts [MODEL_DIR|PRESET [LENGTH [ROUNDS [OPERATOR]]]]
 *
 * Measures each distinct large operator of a training step, and its parts. Times are processor time of one thread,
 * which other programs hardly affect: the minimum over some calls. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cli/program.h"
#include "ir/differentiate.h"
#include "model/model.h"
#include "profile/operator_bench.h"
#include "profile/points.h"

static const double LARGE_FLOPS = 20e9; /* per thread, as in profile/model.c */

struct bench {
    struct graph *graph;
    struct scratch keys;
    VEC(const char *) seen;
    double large_flops;
    int rounds;
    const char *only; /* NULL: all operators */
    double worst, sum;
    int count;
};

static enum status build_graph(const char *name, int64_t length, struct graph **out) {
    static const struct optimizer_options optimizer = {
        .moments = DTYPE_F32, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 1};
    struct model *model;
    struct tensor *loss;
    TRY(model_open_outline(name, &model));
    enum status status = model_build_graph(model, MODEL_LOSS, backend_cpu.fastest_dtype(), 1, length, out, &loss);
    if (status == STATUS_OK) status = graph_differentiate(*out, loss);
    if (status == STATUS_OK) status = ops_add_optimizer(*out, &optimizer);
    model_free(model);
    return status;
}

static double cpu_now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The minimum over some calls after the first. */
static enum status time_calls(const struct operands *operands, int rounds, double *min) {
    struct bench_memory memory = {.max_bytes = (int64_t)512 << 20};
    struct operator_bench bench;
    *min = INFINITY;
    enum status status = operator_bench_open(&backend_cpu, operands, false, &memory, &bench);
    for (int round = 0; round <= rounds && status == STATUS_OK; round++) {
        double begin = cpu_now_s();
        status = operator_bench_run(&bench);
        if (round > 0) *min = fmin(*min, cpu_now_s() - begin);
    }
    if (bench.kernel) operator_bench_close(&bench);
    bench_memory_free(&memory);
    return status;
}

static enum status compare(struct bench *bench, const struct operands *operands, const struct parts *parts) {
    double whole, seconds[PARTS_MAX] = {0};
    TRY(time_calls(operands, bench->rounds, &whole));
    for (int i = 0; i < parts->count; i++) {
        struct part_node part;
        part_node_make(operands, &parts->part[i], &part);
        TRY(time_calls(&part.operands, bench->rounds, &seconds[i]));
    }
    double error = parts_seconds(operands, parts, seconds) / whole - 1, measured = seconds[0] + seconds[1];
    printf("%-16s %-34.34s %9.1f ms %+6.1f%%, from %7.1f ms\n", operands->node->op->name, operands->node->name,
           1e3 * whole, 100 * error, 1e3 * measured);
    fflush(stdout);
    bench->worst = fmax(bench->worst, fabs(error));
    bench->sum += fabs(error);
    bench->count++;
    return STATUS_OK;
}

static enum status compare_node(struct bench *bench, const struct node *node) {
    struct operands operands;
    struct parts parts = parts_of(node, bench->large_flops);
    if (parts.count == 0 || (bench->only && strcmp(bench->only, node->op->name) != 0)) return STATUS_OK;
    operands_find(bench->graph, node, &operands);
    const char *key = operator_key(&operands, &bench->keys);
    for (size_t i = 0; i < bench->seen.count; i++)
        if (strcmp(bench->seen.items[i], key) == 0) return STATUS_OK;
    TRY(vec_push(&bench->seen, key));
    return compare(bench, &operands, &parts);
}

static enum status run(struct bench *bench, const char *name, int64_t length) {
    TRY(build_graph(name, length, &bench->graph));
    for (size_t i = 0; i < bench->graph->nodes.count; i++)
        TRY(compare_node(bench, bench->graph->nodes.items[i]));
    printf("%d operators, off by %.1f%% in the mean, %.1f%% at most\n", bench->count,
           100 * bench->sum / (bench->count > 0 ? bench->count : 1), 100 * bench->worst);
    return STATUS_OK;
}

int main(int count, char **arguments) {
    limit_spinning(arguments);
    struct bench bench = {.large_flops = LARGE_FLOPS,
                          .rounds = count > 3 ? atoi(arguments[3]) : 3,
                          .only = count > 4 ? arguments[4] : NULL};
    backend_cpu.set_threads(1);
    enum status status = run(&bench, count > 1 ? arguments[1] : "llama-3.1-8b", count > 2 ? atoll(arguments[2]) : 1024);
    if (status != STATUS_OK) fprintf(stderr, "%s: %s\n", arguments[0], status_message());
    vec_free(&bench.seen);
    scratch_free(&bench.keys);
    graph_free(bench.graph);
    return (int)status;
}
