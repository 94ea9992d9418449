/* Compares attention and its gradient in Ballast's kernels with cuDNN's deterministic ones, in one process on the same
 * operands. The cases are GPT-2 124M's heads of 64 and Llama 8B's of 128, with sequences of 1024 in a micro-batch of
 * 16384 tokens. Prints which kernels this machine or build lacks.
 *
 *     build/bench/attention_ways
 *
 * Compares the results of both, and those of one kernel from call to call, because cuDNN does not state whether its
 * attention engines are deterministic. Exits with 1 if they differ, and with 77 without a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/attention_cudnn.h"
#include "base/half.h"
#include "gpu/gpu_clock.h"
#include "support/op_cases.h"

enum { CALLS = 20, OUTPUTS = 3, RESULT_BYTES = 512 };
/* Largest difference of two bf16 kernels, relative to the norm (tests allow each kernel 1e-2 from fp64's results). */
static const double APART_MAX = 2e-2;

static const struct {
    const char *name;
    struct op_sizes sizes;
} models[] = {
    {"GPT-2 124M", {.sequences = 16, .length = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64}},
    {"Llama 8B", {.sequences = 16, .length = 1024, .heads = 32, .kv_heads = 8, .head_dim = 128}},
};

/* The operator case of the gradient, which contains the forward. */
struct subject {
    const struct gpu_clock *clock;
    struct graph *graph;
    void **data; /* on the device, by tensor id */
};

enum way { OWN, CUDNN, WAYS };
static const char *const way_names[WAYS] = {"own", "cuDNN"};

static const struct op_case *find_case(const char *name) {
    for (int i = 0; i < op_case_count; i++)
        if (strcmp(op_cases[i].name, name) == 0) return &op_cases[i];
    BUG("no case %s", name);
}

/* Fills with numbers of either sign, from 0.25 to 0.5. */
static enum status fill(void *device, const struct shape *shape, uint32_t *state) {
    int64_t bytes = shape_bytes(shape);
    uint16_t *values = malloc((size_t)bytes);
    if (!values) return status_no_memory((size_t)bytes, "an operand");
    for (int64_t i = 0; i < bytes / 2; i++) {
        *state = *state * 1664525 + 1013904223;
        values[i] = (uint16_t)((*state >> 16 & 0x80ff) | 0x3e80);
    }
    enum status status = backend_cuda.memory->write(device, values, bytes);
    free(values);
    return status;
}

static enum status open_subject(const struct op_sizes *sizes, struct subject *out) {
    uint32_t state = 1;
    out->graph = op_case_build(find_case("attention_grad"), DTYPE_BF16, sizes);
    if (!out->graph) return STATUS_FAILED;
    out->data = mem_array(out->graph->tensors.count, sizeof *out->data);
    if (!out->data) return STATUS_FAILED;
    for (size_t i = 0; i < out->graph->tensors.count; i++) {
        const struct tensor *tensor = out->graph->tensors.items[i];
        TRY(backend_cuda.memory->take(TIER_DEVICE, shape_bytes(&tensor->shape), &out->data[i]));
        if (!tensor->producer) TRY(fill(out->data[i], &tensor->shape, &state));
    }
    return STATUS_OK;
}

static void close_subject(struct subject *subject) {
    for (size_t i = 0; subject->data && i < subject->graph->tensors.count; i++)
        if (subject->data[i]) backend_cuda.memory->give_back(TIER_DEVICE, subject->data[i]);
    mem_free(subject->data);
    graph_free(subject->graph);
}

struct call {
    struct kernel *kernel;
    struct kernel_call with;
};

static enum status enqueue(void *context) {
    struct call *call = context;
    TRY(call->kernel->run(call->kernel, &call->with));
    return backend_cuda.streams->check();
}

static enum status read_output(const struct subject *subject, const struct tensor *tensor, uint16_t **out) {
    int64_t bytes = shape_bytes(&tensor->shape);
    *out = malloc((size_t)bytes);
    if (!*out) return status_no_memory((size_t)bytes, "a result");
    return backend_cuda.memory->read(*out, subject->data[tensor->id], bytes);
}

/* Calls the kernel again. The outputs must have the same bits. */
static enum status call_again(const struct subject *subject, struct call *call) {
    const struct node *node = call->kernel->node;
    double seconds;
    for (int i = 0; i < OUTPUTS; i++) {
        uint16_t *before = NULL, *after = NULL;
        if (!node->out[i]) continue;
        enum status status = read_output(subject, node->out[i], &before);
        if (status == STATUS_OK) status = gpu_clock_time(subject->clock, enqueue, call, 1, &seconds);
        if (status == STATUS_OK) status = read_output(subject, node->out[i], &after);
        bool same = status == STATUS_OK && memcmp(before, after, (size_t)shape_bytes(&node->out[i]->shape)) == 0;
        free(before);
        free(after);
        TRY(status);
        if (!same) return status_set(STATUS_FAILED, "%s: %s differs from call to call", node->name, node->out[i]->name);
    }
    return STATUS_OK;
}

static enum status time_kernel(const struct subject *subject, struct kernel *kernel, double *seconds) {
    const struct node *node = kernel->node;
    struct call call = {kernel, {.stream = subject->clock->stream}};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.with.in[i] = node->in[i] ? subject->data[node->in[i]->id] : NULL;
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.with.out[i] = node->out[i] ? subject->data[node->out[i]->id] : NULL;
    TRY(backend_cuda.memory->take(TIER_DEVICE, kernel->workspace_bytes + 64, &call.with.workspace));
    enum status status = gpu_clock_call(subject->clock, enqueue, &call, CALLS, seconds);
    if (status == STATUS_OK) status = call_again(subject, &call);
    backend_cuda.memory->give_back(TIER_DEVICE, call.with.workspace);
    return status;
}

/* Creating a kernel reads the choice from the environment. *out is NULL if the library has no kernel for the node. */
static enum status make(const struct node *node, enum way way, struct kernel **out) {
    if (way == OWN) return backend_kernel_create(&backend_cuda, node, out);
    setenv("BALLAST_ATTENTION", "cudnn-both", 1);
    enum status status =
        node->op == &op_attention ? attention_cudnn_kernel(node, out) : attention_cudnn_grad_kernel(node, out);
    unsetenv("BALLAST_ATTENTION");
    return status;
}

/* *seconds is 0 if there is no such kernel. */
static enum status time_way(const struct subject *subject, const struct node *node, enum way way, double *seconds) {
    struct kernel *kernel = NULL;
    struct op_cost cost;
    *seconds = 0;
    if (make(node, way, &kernel) != STATUS_OK || !kernel) {
        printf("  %-16s %-6s none: %s\n", node->op->name, way_names[way], status_message());
        status_clear();
        return STATUS_OK;
    }
    enum status status = time_kernel(subject, kernel, seconds);
    op_cost(node, &cost);
    if (status == STATUS_OK)
        printf("  %-16s %-6s %8.1f us, %6.1f TFLOP/s, workspace %.1f MiB\n", node->op->name, way_names[way],
               *seconds * 1e6, cost.flops / *seconds * 1e-12, (double)kernel->workspace_bytes / 1048576);
    kernel->release(kernel);
    return status;
}

/* The norm of the difference, over the norm. */
static double apart(const uint16_t *found, const uint16_t *expected, int64_t count) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = (double)bf16_to_float(expected[i]), off = (double)bf16_to_float(found[i]) - value;
        difference += off * off;
        norm += value * value;
    }
    return sqrt(difference / norm);
}

/* The largest of the node's outputs in bf16. */
static enum status compare(const struct subject *subject, const struct node *node, uint16_t *const own[OUTPUTS],
                           double *max) {
    for (int i = 0; i < OUTPUTS; i++) {
        const struct tensor *tensor = node->out[i];
        uint16_t *found = NULL;
        if (!own[i]) continue;
        enum status status = read_output(subject, tensor, &found);
        double error = status == STATUS_OK ? apart(found, own[i], shape_elements(&tensor->shape)) : 0;
        free(found);
        TRY(status);
        if (!(error <= *max)) *max = error;
    }
    return STATUS_OK;
}

static enum status time_node(const struct subject *subject, const struct node *node, double seconds[WAYS],
                             double *max) {
    uint16_t *own[OUTPUTS] = {NULL};
    TRY(time_way(subject, node, OWN, &seconds[OWN]));
    enum status status = STATUS_OK;
    for (int i = 0; i < OUTPUTS && status == STATUS_OK; i++)
        if (node->out[i] && node->out[i]->shape.dtype == DTYPE_BF16)
            status = read_output(subject, node->out[i], &own[i]);
    if (status == STATUS_OK) status = time_way(subject, node, CUDNN, &seconds[CUDNN]);
    if (status == STATUS_OK && seconds[CUDNN] > 0) status = compare(subject, node, own, max);
    for (int i = 0; i < OUTPUTS; i++)
        free(own[i]);
    return status;
}

static void print_result(const char *what, const double seconds[WAYS], char *result) {
    size_t used = strlen(result);
    snprintf(result + used, RESULT_BYTES - used, "%s own %.0f us, cuDNN ", what, seconds[OWN] * 1e6);
    used = strlen(result);
    if (seconds[CUDNN] > 0)
        snprintf(result + used, RESULT_BYTES - used, "%.0f us", seconds[CUDNN] * 1e6);
    else
        snprintf(result + used, RESULT_BYTES - used, "none");
}

/* The forward comes first: its results are the gradient's operands. */
static enum status measure_model(const struct subject *subject, double *max, char *result) {
    double seconds[WAYS];
    TRY(time_node(subject, subject->graph->nodes.items[0], seconds, max));
    print_result(" forward", seconds, result);
    TRY(time_node(subject, subject->graph->nodes.items[1], seconds, max));
    print_result(", gradient", seconds, result);
    return STATUS_OK;
}

static enum status measure_all(const struct gpu_clock *clock, double *max, char *result) {
    enum status first = STATUS_OK;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct subject subject = {.clock = clock};
        size_t used = strlen(result);
        printf("%s\n", models[i].name);
        snprintf(result + used, RESULT_BYTES - used, "%s%s:", i ? "; " : "", models[i].name);
        enum status status = open_subject(&models[i].sizes, &subject);
        if (status == STATUS_OK) status = measure_model(&subject, max, result);
        close_subject(&subject);
        if (status != STATUS_OK) printf("ERROR: %s\n", status_message());
        if (first == STATUS_OK) first = status;
    }
    return first;
}

static enum status measure(const struct gpu_clock *clock) {
    char result[RESULT_BYTES] = "";
    double max = 0;
    enum status status = measure_all(clock, &max, result);
    printf("= %s; results at most %.1e apart\n", result, max);
    if (status != STATUS_OK || max <= APART_MAX) return status;
    return status_set(STATUS_FAILED, "cuDNN's results are %.1e from the own kernels'", max);
}

int main(void) { return gpu_clock_main("attention_ways", measure); }
