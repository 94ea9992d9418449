/* Attention: tiles of queries, or heads, are tasks that threads take in any order; none depends on another. */
#include "backend/cpu/cpu_kernel.h"

struct attention_kernel {
    struct kernel kernel;
    int threads;
};

struct attention_run {
    const struct node *node;
    const struct kernel_call *call;
    int64_t tiles;
    float *workspaces; /* one for each thread */
    int64_t workspace; /* floats of one */
    float *partials;   /* gradient: dk and dv of each sequence and head */
    int64_t partial;   /* floats of one */
};

static const struct attention_attributes *attributes_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, attention_attributes);
}

static int threads_of(const struct kernel *kernel) { return ((const struct attention_kernel *)kernel)->threads; }

static int64_t aligned_floats(int64_t floats) { return workspace_align(floats * 4) / 4; }

/* First element of a head's features in the first position of a sequence. */
static void *head_data(const struct tensor *tensor, void *data, int64_t sequence, int64_t head, int64_t head_dim) {
    int64_t row = sequence * tensor->shape.dims[1];
    return (char *)operand_row(tensor, data, row) + head * head_dim * dtype_bytes(tensor->shape.dtype);
}

/* `q` is the index of the input q; k, v follow it, then segments at `segments`. */
static struct attention_head head_of(const struct node *node, const struct kernel_call *call, int q, int segments,
                                     int64_t sequence, int64_t head) {
    const struct attention_attributes *attributes = attributes_of(node);
    const struct shape *shape = &node->in[q]->shape;
    int64_t dim = attributes->head_dim, kv_head = head * attributes->kv_heads / attributes->heads;
    return (struct attention_head){
        .dtype = shape->dtype,
        .length = shape->dims[1],
        .head_dim = dim,
        .window = attributes->window,
        .scale = (float)attributes->scale,
        .segments = call->in[segments] ? (const int32_t *)call->in[segments] + sequence * shape->dims[1] : NULL,
        .q = head_data(node->in[q], call->in[q], sequence, head, dim),
        .k = head_data(node->in[q + 1], call->in[q + 1], sequence, kv_head, dim),
        .v = head_data(node->in[q + 2], call->in[q + 2], sequence, kv_head, dim),
        .q_stride = tensor_row_stride(node->in[q]),
        .k_stride = tensor_row_stride(node->in[q + 1]),
        .v_stride = tensor_row_stride(node->in[q + 2]),
    };
}

static float *lse_of(const struct node *node, void *lse, const struct attention_head *head, int64_t sequence,
                     int64_t index) {
    return (float *)lse + (sequence * attributes_of(node)->heads + index) * head->length;
}

/* Tasks are ordered by tile first, since later tiles see more keys. */
static void attention_task(const void *context, int64_t task, int thread) {
    const struct attention_run *run = context;
    const struct node *node = run->node;
    int64_t heads = attributes_of(node)->heads, sequences = node->in[0]->shape.dims[0];
    int64_t tile = task / (heads * sequences), sequence = task / heads % sequences, index = task % heads;
    struct attention_head head = head_of(node, run->call, 0, 3, sequence, index);
    head.y = head_data(node->out[0], run->call->out[0], sequence, index, head.head_dim);
    head.y_stride = tensor_row_stride(node->out[0]);
    head.lse = lse_of(node, run->call->out[1], &head, sequence, index);
    cpu_simd()->attention(&head, tile, run->workspaces + thread * run->workspace);
}

static int64_t tiles_of(const struct shape *q) {
    return (q->dims[1] + cpu_simd()->attention_tile - 1) / cpu_simd()->attention_tile;
}

static void attention_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct attention_run run = {.node = node, .call = call, .workspaces = call->workspace};
    run.workspace = aligned_floats(cpu_simd()->attention_workspace(attributes_of(node)->head_dim));
    const struct shape *q = &node->in[0]->shape;
    parallel_tasks(tiles_of(q) * q->dims[0] * attributes_of(node)->heads, threads_of(kernel), attention_task, &run);
}

/* `shared` floats of workspace for all threads, and `own` for each. */
static enum status create(const struct node *node, void (*run)(const struct kernel *, const struct kernel_call *),
                          int64_t shared, int64_t own, struct kernel **out) {
    struct attention_kernel *kernel = cpu_kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->threads = parallel_threads();
    kernel->kernel.workspace_bytes = (shared + kernel->threads * own) * (int64_t)sizeof(float);
    *out = &kernel->kernel;
    return STATUS_OK;
}

enum status cpu_attention_create(const struct node *node, struct kernel **out) {
    int64_t own = aligned_floats(cpu_simd()->attention_workspace(attributes_of(node)->head_dim));
    return create(node, attention_run, 0, own, out);
}

static void gradient_task(const void *context, int64_t task, int thread) {
    const struct attention_run *run = context;
    const struct node *node = run->node;
    int64_t heads = attributes_of(node)->heads, sequence = task / heads, index = task % heads;
    struct attention_head head = head_of(node, run->call, 1, 6, sequence, index);
    head.dy = head_data(node->in[0], run->call->in[0], sequence, index, head.head_dim);
    head.dy_stride = tensor_row_stride(node->in[0]);
    head.y = head_data(node->in[4], run->call->in[4], sequence, index, head.head_dim);
    head.y_stride = tensor_row_stride(node->in[4]);
    head.lse = lse_of(node, run->call->in[5], &head, sequence, index);
    head.dq = head_data(node->out[0], run->call->out[0], sequence, index, head.head_dim);
    head.dq_stride = tensor_row_stride(node->out[0]);
    head.dk = run->partials + 2 * task * run->partial;
    head.dv = head.dk + run->partial;
    cpu_simd()->attention_grad(&head, run->workspaces + thread * run->workspace);
}

/* Adds up what the query heads of each key-value head left, in their order. The first one's row takes the sum. */
static void gradient_rows(const void *context, int64_t begin, int64_t end) {
    const struct attention_run *run = context;
    const struct node *node = run->node;
    const struct attention_attributes *attributes = attributes_of(node);
    const struct shape *shape = &node->out[1]->shape;
    int64_t dim = attributes->head_dim, group = attributes->heads / attributes->kv_heads, length = shape->dims[1];
    int64_t columns = cpu_simd()->attention_columns(dim);
    for (int64_t row = begin; row < end; row++)
        for (int64_t head = 0; head < attributes->kv_heads; head++)
            for (int which = 0; which < 2; which++) {
                int64_t first = row / length * attributes->heads + head * group;
                float *sum = run->partials + (2 * first + which) * run->partial + row % length * columns;
                for (int64_t i = 1; i < group; i++)
                    cpu_simd()->accumulate(DTYPE_F32, dim, sum + 2 * i * run->partial, sum);
                char *to = operand_row(node->out[1 + which], run->call->out[1 + which], row);
                cpu_simd()->scale(dim, DTYPE_F32, sum, 1, shape->dtype, to + head * dim * dtype_bytes(shape->dtype));
            }
}

static struct attention_run gradient_layout(const struct node *node) {
    int64_t dim = attributes_of(node)->head_dim, tile = cpu_simd()->attention_tile;
    return (struct attention_run){
        .node = node,
        .workspace = aligned_floats(cpu_simd()->attention_grad_workspace(dim)),
        .partial = aligned_floats(tiles_of(&node->in[1]->shape) * tile * cpu_simd()->attention_columns(dim)),
    };
}

static void attention_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct attention_run run = gradient_layout(node);
    int64_t tasks = node->in[1]->shape.dims[0] * attributes_of(node)->heads;
    run.call = call;
    run.partials = call->workspace;
    run.workspaces = run.partials + 2 * tasks * run.partial;
    parallel_tasks(tasks, threads_of(kernel), gradient_task, &run);
    const struct shape *dk = &node->out[1]->shape;
    parallel_for(shape_rows(dk), parallel_rows(2 * shape_columns(dk)), gradient_rows, &run);
}

enum status cpu_attention_grad_create(const struct node *node, struct kernel **out) {
    struct attention_run run = gradient_layout(node);
    int64_t tasks = node->in[1]->shape.dims[0] * attributes_of(node)->heads;
    return create(node, attention_grad_run, 2 * tasks * run.partial, run.workspace, out);
}
