/* Compares a layer of experts, forward and backward, with a dense gated MLP of the same FLOPs: one as wide as all the
 * experts of a token together.
 *
 *     build/bench/experts [fp32|bf16 [SLOTS]]
 *
 * Logits are random, so the loads of experts are as uneven as those of a new model. Times are processor time of all
 * threads, which other programs hardly affect: the minimum over several runs of each node, summed. The two layers run
 * in turns. "the same FLOPs" are those of three GEMMs forward and six backward. Recomputation in the experts and
 * padding rows of tiles count as lost time.
 *
 * "at most" is the ratio for an ideal layer: its GEMMs, two of which backward recomputes, are as fast as the dense
 * layer's. Each phase also reads all weights once and adds to all gradients once, at the memory rate of arrays of these
 * sizes. The longer of the two counts in each phase. Weights and gradients have experts / chosen times the bytes of the
 * dense layer's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/kernel.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/terminal.h"
#include "ir/differentiate.h"
#include "support/op_instance.h"

enum { ROUNDS = 3 };

static const struct layer_size {
    const char *name;
    int64_t tokens, columns, inner, experts, chosen;
} sizes[] = {
    {"341 slots an expert", 1024, 768, 3072, 12, 4},
    {"64 slots an expert", 512, 2048, 768, 16, 2},
    {"256 slots an expert", 1024, 2048, 768, 16, 4},
    {"1024 slots an expert", 2048, 1024, 2048, 8, 4},
};

static struct tensor *input(struct graph *graph, const char *name, int64_t columns) {
    return graph_tensor(graph, TENSOR_ACTIVATION, name,
                        shape_make(graph->dtype, 3, graph->micro_batch_sequences, graph->sequence_length, columns));
}

static struct expert_weights weights_of(struct graph *graph, int64_t number, int64_t inner, int64_t columns) {
    return (struct expert_weights){
        graph_parameter(graph, graph_format(graph, "gate.%lld", (long long)number), 2, inner, columns),
        graph_parameter(graph, graph_format(graph, "up.%lld", (long long)number), 2, inner, columns),
        graph_parameter(graph, graph_format(graph, "down.%lld", (long long)number), 2, columns, inner)};
}

static void add_experts(struct graph *graph, const struct layer_size *size) {
    struct tensor *x = input(graph, "x", size->columns), *result = NULL;
    struct routing routing = ops_route(graph, "route", input(graph, "logits", size->experts), NULL,
                                       (struct route_attributes){.chosen = size->chosen, .normalised = true});
    struct dispatch_attributes all = {.experts = size->experts};
    struct tensor *rows = ops_dispatch(graph, "dispatch", x, routing, all);
    struct expert_attributes expert = {
        .experts = size->experts, .slots = size->tokens * size->chosen, .function = ACTIVATION_SILU};
    for (; expert.expert < size->experts; expert.expert++) {
        struct expert_weights weights = weights_of(graph, expert.expert, size->inner, size->columns);
        result = ops_expert_mlp(graph, "expert", rows, routing, &weights, result, expert);
    }
    ops_combine(graph, "combine", result, routing, NULL, all);
}

static void add_dense(struct graph *graph, const struct layer_size *size) {
    const struct linear_attributes plain = {.weight_is_kn = false};
    struct tensor *x = input(graph, "x", size->columns);
    struct expert_weights weights = weights_of(graph, 0, size->inner * size->chosen, size->columns);
    struct tensor *gate = ops_linear(graph, "gate", x, weights.gate, NULL, NULL, plain);
    struct tensor *up = ops_linear(graph, "up", x, weights.up, NULL, NULL, plain);
    struct tensor *active = ops_gated_activation(graph, "active", gate, up, ACTIVATION_SILU);
    ops_linear(graph, "down", active, weights.down, NULL, NULL, plain);
}

static void write_logits(struct op_instance *instance) {
    struct tensor *logits = op_case_tensor(instance->graph, "logits");
    if (!logits) return;
    int64_t count = shape_elements(&logits->shape);
    double *values = mem_array((size_t)count, sizeof *values);
    BUG_IF(!values, "no memory");
    for (int64_t i = 0; i < count; i++)
        values[i] = random_uniform(1, RANDOM_TEST, 0, (uint64_t)i);
    op_instance_write(instance, logits, values);
    mem_free(values);
}

/* As in compiled programs, a result reuses the bytes of the operand that it replaces. */
static void share_buffers(struct op_instance *instance) {
    for (int node = 0; node < instance->nodes; node++) {
        int input = node_in_place_input(instance->graph->nodes.items[node]);
        if (input < 0) continue;
        void *from = instance->calls[node].out[0], *to = instance->calls[node].in[input];
        for (int later = node; later < instance->nodes; later++) {
            struct kernel_call *call = &instance->calls[later];
            for (int i = 0; i < OP_INPUTS_MAX; i++)
                if (call->in[i] == from) call->in[i] = to;
            for (int i = 0; i < OP_OUTPUTS_MAX; i++)
                if (call->out[i] == from) call->out[i] = to;
        }
    }
}

struct layer {
    struct op_instance instance;
    double seconds[OP_INSTANCE_NODES]; /* processor time by node: the minimum so far */
};

static enum status layer_create(const struct layer_size *size, enum dtype dtype,
                                void (*add)(struct graph *graph, const struct layer_size *size), struct layer *out) {
    struct graph *graph = graph_create(dtype, 1, size->tokens);
    if (!graph) return STATUS_FAILED;
    graph_begin_block(graph, "layer");
    add(graph, size);
    TRY(graph_differentiate_part(graph));
    TRY(op_instance_create(graph, &out->instance));
    op_instance_fill(&out->instance, 1);
    write_logits(&out->instance);
    op_instance_run_all(&out->instance);
    share_buffers(&out->instance);
    for (int node = 0; node < OP_INSTANCE_NODES; node++)
        out->seconds[node] = 1e9;
    return STATUS_OK;
}

static double processor_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void layer_time(struct layer *layer) {
    for (int node = 0; node < layer->instance.nodes; node++) {
        struct kernel *kernel = layer->instance.kernels[node];
        double begin = processor_s();
        BUG_IF(kernel->run(kernel, &layer->instance.calls[node]) != STATUS_OK, "%s", status_message());
        double taken = processor_s() - begin;
        if (taken < layer->seconds[node]) layer->seconds[node] = taken;
    }
}

/* Seconds of the nodes of a phase; with `name`, only those of one operator. */
static double layer_seconds(const struct layer *layer, enum phase phase, const char *name) {
    double sum = 0;
    for (int node = 0; node < layer->instance.nodes; node++) {
        const struct node *of = layer->instance.graph->nodes.items[node];
        if (of->phase == phase && (!name || strcmp(of->op->name, name) == 0)) sum += layer->seconds[node];
    }
    return sum;
}

/* Seconds to read all weights of the experts, and to add to all of their gradients, one after the other. */
struct byte_seconds {
    double read, added;
};

enum { PIECE = 4096 };

/* Reads `large`, or with `adds` adds to it. */
static double pass_seconds(enum dtype dtype, int64_t elements, char *large, float *small, bool adds) {
    double min = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = processor_s();
        for (int64_t at = 0; at + PIECE <= elements; at += PIECE) {
            if (adds)
                cpu_simd()->accumulate(DTYPE_F32, PIECE, small, (float *)(void *)large + at);
            else
                cpu_simd()->accumulate(dtype, PIECE, large + at * dtype_bytes(dtype), small);
        }
        double taken = processor_s() - begin;
        if (taken < min) min = taken;
    }
    return min;
}

static enum status measure_bytes(const struct layer_size *size, enum dtype dtype, struct byte_seconds *out) {
    int64_t elements = 3 * size->experts * size->inner * size->columns;
    char *large = mem_array((size_t)elements, sizeof(float));
    float *small = mem_array(PIECE, sizeof *small);
    if (large && small) {
        memset(large, 0, (size_t)elements * sizeof(float));
        out->read = pass_seconds(dtype, elements, large, small, false);
        out->added = pass_seconds(dtype, elements, large, small, true);
    }
    enum status status = large && small ? STATUS_OK : STATUS_FAILED;
    mem_free(large), mem_free(small);
    return status;
}

static double larger(double a, double b) { return a > b ? a : b; }

static void print_layers(const struct layer_size *size, enum dtype dtype, const struct layer *experts,
                         const struct layer *dense, const struct byte_seconds *bytes) {
    double flops = 6.0 * (double)(size->tokens * size->chosen * size->columns * size->inner);
    double forward = layer_seconds(experts, PHASE_FORWARD, NULL),
           backward = layer_seconds(experts, PHASE_BACKWARD, NULL);
    double dense_forward = layer_seconds(dense, PHASE_FORWARD, NULL);
    double dense_backward = layer_seconds(dense, PHASE_BACKWARD, NULL);
    double alone = layer_seconds(experts, PHASE_FORWARD, "expert_mlp"),
           alone_backward = layer_seconds(experts, PHASE_BACKWARD, "expert_mlp_grad");
    double min_forward = larger(dense_forward, bytes->read);
    double min_backward = larger(dense_backward * 8 / 6, bytes->read + bytes->added);
    printf("%-21s %-5s %7.1f + %7.1f ms, routing %4.1f + %4.1f ms of it; dense %7.1f + %7.1f ms, %4.0f GFLOP/s; "
           "of dense: forward %.2f, backward %.2f, both %.2f; counting recomputation %.2f; at most %.2f (bytes alone "
           "%.1f + %.1f ms)\n",
           size->name, dtype_name(dtype), forward * 1e3, backward * 1e3, (forward - alone) * 1e3,
           (backward - alone_backward) * 1e3, dense_forward * 1e3, dense_backward * 1e3,
           3 * flops / (dense_forward + dense_backward) * 1e-9, dense_forward / forward, dense_backward / backward,
           (dense_forward + dense_backward) / (forward + backward),
           11.0 / 9 * (dense_forward + dense_backward) / (forward + backward),
           (dense_forward + dense_backward) / (min_forward + min_backward), bytes->read * 1e3,
           (bytes->read + bytes->added) * 1e3);
    fflush(stdout);
}

static enum status measure(const struct layer_size *size, enum dtype dtype) {
    struct layer experts, dense;
    struct byte_seconds bytes = {0};
    TRY(measure_bytes(size, dtype, &bytes));
    TRY(layer_create(size, dtype, add_experts, &experts));
    TRY(layer_create(size, dtype, add_dense, &dense));
    for (int round = 0; round < ROUNDS; round++) {
        layer_time(&experts);
        layer_time(&dense);
    }
    print_layers(size, dtype, &experts, &dense, &bytes);
    op_instance_free(&experts.instance);
    op_instance_free(&dense.instance);
    return STATUS_OK;
}

int main(int argc, char **argv) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    printf("isa %s\n", backend_cpu.isa());
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int bf16 = 1; bf16 >= 0; bf16--) {
            enum dtype dtype = bf16 ? DTYPE_BF16 : DTYPE_F32;
            if (argc > 1 && strcmp(argv[1], dtype_name(dtype)) != 0) continue;
            if (argc > 2 && atoi(sizes[i].name) != atoi(argv[2])) continue;
            if (measure(&sizes[i], dtype) == STATUS_OK) continue;
            fprintf(stderr, "%s: %s\n", sizes[i].name, status_message());
            return 1;
        }
    return 0;
}
