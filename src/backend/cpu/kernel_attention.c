/* Attention: tiles of queries are tasks that threads take in any order; none depends on another. */
#include <math.h>

#include "backend/cpu/kernel_attention.h"

struct attention_run {
    const struct node *node;
    const struct kernel_call *call;
    const struct attention_kernels *simd;
    int64_t tasks, tiles; /* of a head */
    int threads;
    int64_t workspace; /* floats of each thread */
};

const struct attention_kernels *attention_kernels_of(const struct node *node) {
    const struct simd_kernels *simd = cpu_simd();
    const struct attention_kernels *pairs = NULL;
    if (node->out[0]->shape.dtype == DTYPE_BF16 && cpu_has_bf16_dots())
        pairs = cpu_has_bf16_tiles() ? simd->attention_amx : simd->attention_dots;
    return pairs ? pairs : &simd->attention;
}

void *attention_head_data(const struct tensor *tensor, void *data, struct head_place place, int64_t head_dim) {
    int64_t row = place.sequence * tensor->shape.dims[1];
    return (char *)operand_row(tensor, data, row) + place.head * head_dim * dtype_bytes(tensor->shape.dtype);
}

float *attention_row_values(const struct node *node, void *values, int64_t length, struct head_place place) {
    return (float *)values + (place.sequence * attention_of(node)->heads + place.head) * length;
}

float attention_sink(const struct tensor *sinks, const void *data, int64_t head) {
    float sink = -INFINITY;
    int64_t bytes = sinks ? head * dtype_bytes(sinks->shape.dtype) : 0;
    if (sinks) cpu_simd()->scale(1, sinks->shape.dtype, (const char *)data + bytes, 1, DTYPE_F32, &sink);
    return sink;
}

struct attention_head attention_head_of(const struct node *node, const struct kernel_call *call, int q, int segments,
                                        struct head_place place) {
    const struct attention_attributes *attributes = attention_of(node);
    const struct shape *shape = &node->in[q]->shape;
    int64_t dim = attributes->head_dim;
    struct head_place shared = {place.sequence, place.head * attributes->kv_heads / attributes->heads};
    return (struct attention_head){
        .dtype = shape->dtype,
        .length = shape->dims[1],
        .head_dim = dim,
        .window = attributes->window,
        .scale = (float)attributes->scale,
        .softcap = (float)attributes->softcap,
        .sink = node->op == &op_attention ? attention_sink(node->in[4], call->in[4], place.head) : -INFINITY,
        .segments = call->in[segments]
                        ? (const int32_t *)call->in[segments] + place.sequence * node->in[q + 1]->shape.dims[1]
                        : NULL,
        .q = attention_head_data(node->in[q], call->in[q], place, dim),
        .k = attention_head_data(node->in[q + 1], call->in[q + 1], shared, dim),
        .v = attention_head_data(node->in[q + 2], call->in[q + 2], shared, dim),
        .q_stride = tensor_row_stride(node->in[q]),
        .k_stride = tensor_row_stride(node->in[q + 1]),
        .v_stride = tensor_row_stride(node->in[q + 2]),
    };
}

/* Later tiles see more keys and begin first. Tasks begin from the last number on. */
static void attention_task(const void *context, int64_t task, int thread) {
    const struct attention_run *run = context;
    const struct node *node = run->node;
    int64_t heads = attention_of(node)->heads;
    struct head_tile at = head_tile_at(run->tasks - 1 - task, run->tasks / run->tiles, run->tiles, run->threads);
    struct head_place place = {at.head / heads, at.head % heads};
    struct attention_head head = attention_head_of(node, run->call, 0, 3, place);
    head.y = attention_head_data(node->out[0], run->call->out[0], place, head.head_dim);
    head.y_stride = tensor_row_stride(node->out[0]);
    head.lse = attention_row_values(node, run->call->out[1], head.length, place);
    float *workspace = (float *)run->call->workspace + thread * run->workspace;
    run->simd->attend(&head, run->tiles - 1 - at.tile, workspace);
}

static int64_t thread_workspace(const struct node *node) {
    return aligned_floats(attention_kernels_of(node)->workspace(attention_of(node)->head_dim));
}

static enum status attention_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct shape *q = &node->in[0]->shape;
    struct attention_run run = {
        .node = node,
        .call = call,
        .simd = attention_kernels_of(node),
        .threads = attention_threads(kernel),
        .workspace = thread_workspace(node),
    };
    run.tiles = (q->dims[1] + run.simd->queries - 1) / run.simd->queries;
    run.tasks = run.tiles * q->dims[0] * attention_of(node)->heads;
    parallel_tasks(run.tasks, run.threads, attention_task, &run);
    return STATUS_OK;
}

enum status attention_kernel_create(const struct node *node, kernel_run *run, int64_t shared, int64_t own,
                                    struct kernel **out) {
    struct attention_kernel *kernel = kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->threads = parallel_threads();
    kernel->kernel.workspace_bytes = (shared + kernel->threads * own) * (int64_t)sizeof(float);
    *out = &kernel->kernel;
    return STATUS_OK;
}

enum status cpu_attention_create(const struct node *node, struct kernel **out) {
    if (attention_of(node)->queries.parts > 1) return attention_part_create(node, out);
    return attention_kernel_create(node, attention_run, 0, thread_workspace(node), out);
}
