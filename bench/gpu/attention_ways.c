/* Attention's forward by the own kernel and by cuDNN's, and its gradient, in one process: GPT-2 124M's heads of 64 and
 * Llama 8B's of 128, sequences of 1024 in a grain of 16384 tokens. What this build has not is named.
 *
 *     build/bench/attention_ways        Needs a GPU; without one it ends with 77. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/attention_cudnn.h"
#include "gpu/gpu_clock.h"
#include "support/op_cases.h"

enum { CALLS = 20 };
static const struct {
    const char *name;
    struct op_sizes sizes;
} models[] = {
    {"GPT-2 124M", {.sequences = 16, .length = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64}},
    {"Llama 8B", {.sequences = 16, .length = 1024, .heads = 32, .kv_heads = 8, .head_dim = 128}},
};

struct way {
    const struct gpu_clock *clock;
    struct graph *graph;
    struct kernel *kernel;
    struct kernel_call call;
};

static const struct op_case *find_case(const char *name) {
    for (int i = 0; i < op_case_count; i++)
        if (strcmp(op_cases[i].name, name) == 0) return &op_cases[i];
    BUG("no case %s", name);
}

static enum status ask(void *context) {
    struct way *way = context;
    (void)way->kernel->run(way->kernel, &way->call);
    return backend_cuda.streams->check();
}

static enum status take_operand(const struct tensor *tensor, void **out) {
    if (!tensor) return STATUS_OK;
    return backend_cuda.memory->take(TIER_DEVICE, shape_bytes(&tensor->shape), out);
}

static enum status open_way(const char *name, const struct op_sizes *sizes, struct way *way) {
    way->graph = op_case_build(find_case(name), DTYPE_BF16, sizes);
    if (!way->graph) return STATUS_FAILED;
    const struct node *node = way->graph->nodes.items[way->graph->nodes.count - 1];
    TRY(backend_kernel_create(&backend_cuda, node, &way->kernel));
    way->call.stream = way->clock->stream;
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        TRY(take_operand(node->in[i], &way->call.in[i]));
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        TRY(take_operand(node->out[i], &way->call.out[i]));
    return backend_cuda.memory->take(TIER_DEVICE, way->kernel->workspace_bytes + 64, &way->call.workspace);
}

static void close_way(struct way *way) {
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (way->call.in[i]) backend_cuda.memory->give_back(TIER_DEVICE, way->call.in[i]);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (way->call.out[i]) backend_cuda.memory->give_back(TIER_DEVICE, way->call.out[i]);
    if (way->call.workspace) backend_cuda.memory->give_back(TIER_DEVICE, way->call.workspace);
    if (way->kernel) way->kernel->release(way->kernel);
    graph_free(way->graph);
}

static enum status time_way(const struct gpu_clock *clock, const char *name, const struct op_sizes *sizes,
                            double *seconds) {
    struct way way = {.clock = clock};
    enum status status = open_way(name, sizes, &way);
    if (status == STATUS_OK) status = gpu_clock_call(clock, ask, &way, CALLS, seconds);
    if (status == STATUS_OK) {
        struct op_cost cost;
        op_cost(way.kernel->node, &cost);
        printf("  %-16s %8.1f us, %6.1f TFLOP/s\n", name, *seconds * 1e6, cost.flops / *seconds * 1e-12);
    }
    close_way(&way);
    return status;
}

/* The choice is read when a kernel is made. */
static enum status time_both(const struct gpu_clock *clock, const struct op_sizes *sizes, double *own,
                             double *library) {
    *library = 0;
    unsetenv("BALLAST_ATTENTION");
    printf("own kernels\n");
    TRY(time_way(clock, "attention", sizes, own));
    setenv("BALLAST_ATTENTION", "cudnn", 1);
    if (attention_cudnn_wanted()) printf("cuDNN\n");
    enum status status = !attention_cudnn_wanted() ? STATUS_OK : time_way(clock, "attention", sizes, library);
    unsetenv("BALLAST_ATTENTION");
    return status;
}

static enum status measure(const struct gpu_clock *clock) {
    char result[512] = "";
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        double own, library, gradient;
        printf("%s\n", models[i].name);
        TRY(time_both(clock, &models[i].sizes, &own, &library));
        TRY(time_way(clock, "attention_grad", &models[i].sizes, &gradient));
        size_t used = strlen(result);
        snprintf(result + used, sizeof result - used, "%s%s: own %.0f us, cuDNN %s%.0f us, own gradient %.0f us",
                 i ? "; " : "", models[i].name, own * 1e6, library > 0 ? "" : "not in this build, ", library * 1e6,
                 gradient * 1e6);
    }
    printf("= %s; cuDNN's deterministic backward: not written, so not measured\n", result);
    return STATUS_OK;
}

int main(void) { return gpu_clock_main("attention_ways", measure); }
