/* Measures each operator at the sizes of GPT-2 124M (one sequence of 1024 tokens), compared with the machine's matrix
 * rate and memory bandwidth in the same run.
 *
 *     build/bench/ops [PART]      only cases whose name contains PART
 *
 * Times are the best of several runs. Bytes count each operand once. "of peak" is the larger of the fractions of the
 * matrix rate and of the bandwidth. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/terminal.h"
#include "support/op_instance.h"

enum { MATRIX = 2048, RUNS_MIN = 3 };
static const int64_t time_min_ns = 200 * 1000 * 1000;

struct rates {
    double matrix[2]; /* FLOP/s in fp32 and bf16 */
    double memory;    /* bytes/s of adding two large arrays */
};

static int failed(const char *name) {
    fprintf(stderr, "%s: %s\n", name, status_message());
    return 1;
}

static double best_ns(struct op_instance *instance) {
    int last = instance->nodes - 1;
    struct kernel *kernel = instance->kernels[last];
    int64_t best = INT64_MAX, total = 0;
    for (int run = 0; run < RUNS_MIN || total < time_min_ns; run++) {
        int64_t start = clock_now_ns();
        BUG_IF(kernel->run(kernel, &instance->calls[last]) != STATUS_OK, "%s", status_message());
        int64_t taken = clock_now_ns() - start;
        if (taken < best) best = taken;
        total += taken;
    }
    return (double)best;
}

static enum status prepare(const struct op_case *op_case, enum dtype dtype, const struct op_sizes *sizes,
                           struct op_instance *out) {
    TRY(op_instance_create(op_case_build(op_case, dtype, sizes), out));
    op_instance_fill(out, 1);
    op_instance_run_all(out);
    return STATUS_OK;
}

static const struct op_case *find_case(const char *name) {
    for (int i = 0; i < op_case_count; i++)
        if (strcmp(op_cases[i].name, name) == 0) return &op_cases[i];
    BUG("no case %s", name);
}

static enum status measure_rates(struct rates *out) {
    const struct op_sizes square = {.sequences = 1, .length = MATRIX, .columns = MATRIX, .inner = MATRIX};
    const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    struct op_instance instance;
    for (int d = 0; d < 2; d++) {
        TRY(prepare(find_case("linear"), dtypes[d], &square, &instance));
        out->matrix[d] = 2.0 * MATRIX * MATRIX * MATRIX / best_ns(&instance) * 1e9;
        op_instance_free(&instance);
    }
    TRY(prepare(find_case("gradient_sum"), DTYPE_F32, &op_sizes_gpt2, &instance));
    struct op_cost cost;
    op_cost(instance.node, &cost);
    out->memory = cost.bytes / best_ns(&instance) * 1e9;
    op_instance_free(&instance);
    return STATUS_OK;
}

static enum status measure_case(const struct op_case *op_case, enum dtype dtype, const struct rates *rates) {
    struct op_instance instance;
    TRY(prepare(op_case, dtype, &op_sizes_gpt2, &instance));
    double ns = best_ns(&instance);
    struct op_cost cost;
    op_cost(instance.node, &cost);
    double matrix = rates->matrix[dtype == DTYPE_BF16];
    double of_matrix = cost.flops / ns * 1e9 / matrix, of_memory = cost.bytes / ns * 1e9 / rates->memory;
    printf("%-22s %-5s %9.3f ms %8.1f GFLOP/s %7.1f GB/s %5.0f%% of peak %9.1f MiB workspace\n", op_case->name,
           dtype_name(dtype), ns * 1e-6, cost.flops / ns, cost.bytes / ns,
           100 * (of_matrix > of_memory ? of_matrix : of_memory),
           (double)instance.kernels[instance.nodes - 1]->workspace_bytes / 1048576);
    fflush(stdout);
    op_instance_free(&instance);
    return STATUS_OK;
}

int main(int argc, char **argv) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    struct rates rates;
    if (measure_rates(&rates) != STATUS_OK) return failed("rates");
    printf("isa %s: GEMM %.0f GFLOP/s in fp32, %.0f in bf16; memory %.1f GB/s\n", backend_cpu.isa(),
           rates.matrix[0] * 1e-9, rates.matrix[1] * 1e-9, rates.memory * 1e-9);
    for (int i = 0; i < op_case_count; i++) {
        if (!(op_cases[i].flags & CASE_TIMED) || (argc > 1 && !strstr(op_cases[i].name, argv[1]))) continue;
        if (measure_case(&op_cases[i], DTYPE_F32, &rates) != STATUS_OK) return failed(op_cases[i].name);
        if (measure_case(&op_cases[i], DTYPE_BF16, &rates) != STATUS_OK) return failed(op_cases[i].name);
    }
    return 0;
}
