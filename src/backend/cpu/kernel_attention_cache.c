/* Attention over caches, for generating text: new keys and values are appended, then each query is a task. */
#include <string.h>

#include "backend/cpu/cpu_kernel.h"

struct cache_kernel {
    struct kernel kernel;
    int threads;
    int64_t scores; /* floats of a thread's workspace */
};

/* The runtime values of a call. */
struct cache_run {
    const struct cache_kernel *kernel;
    const struct kernel_call *call;
    int64_t start, tokens;
};

static const struct attention_cache_attributes *cache_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, attention_cache_attributes);
}

/* Rows of one sequence go to rows of its cache. */
static void append_rows(const struct cache_run *run, int which, int64_t sequence) {
    const struct node *node = run->kernel->kernel.node;
    const struct tensor *from = node->in[which], *cache = node->out[which];
    size_t bytes = (size_t)(shape_columns(&from->shape) * dtype_bytes(from->shape.dtype));
    for (int64_t t = 0; t < run->tokens; t++)
        memcpy(operand_row(cache, run->call->out[which], sequence * cache->shape.dims[1] + run->start + t),
               operand_row(from, run->call->in[which], sequence * from->shape.dims[1] + t), bytes);
}

static void *head_at(const struct tensor *tensor, void *data, int64_t row, int64_t head, int64_t head_dim) {
    return (char *)operand_row(tensor, data, row) + head * head_dim * dtype_bytes(tensor->shape.dtype);
}

/* Tasks are ordered by token first, since later tokens see more. */
static void query_task(const void *context, int64_t task, int thread) {
    const struct cache_run *run = context;
    const struct node *node = run->kernel->kernel.node;
    const struct kernel_call *call = run->call;
    const struct attention_attributes *attention = &cache_of(node)->attention;
    const struct shape *shape = &node->in[0]->shape;
    int64_t heads = attention->heads, dim = attention->head_dim, sequences = shape->dims[0];
    int64_t token = task / (heads * sequences), sequence = task / heads % sequences, head = task % heads;
    int64_t row = sequence * shape->dims[1] + token, kv_head = head * attention->kv_heads / heads;
    int64_t end = run->start + token + 1, window = attention->window;
    int64_t first = window > 0 && end > window ? end - window : 0;
    int64_t cache_row = sequence * cache_of(node)->positions + first;
    struct attention_query query = {
        .dtype = shape->dtype,
        .head_dim = dim,
        .keys = end - first,
        .scale = (float)attention->scale,
        .q = head_at(node->in[0], call->in[0], row, head, dim),
        .k = head_at(node->out[1], call->out[1], cache_row, kv_head, dim),
        .v = head_at(node->out[2], call->out[2], cache_row, kv_head, dim),
        .k_stride = tensor_row_stride(node->out[1]),
        .v_stride = tensor_row_stride(node->out[2]),
        .y = head_at(node->out[0], call->out[0], row, head, dim),
    };
    cpu_simd()->attention_query(&query, (float *)call->workspace + thread * run->kernel->scores);
}

static void clear_rest(const struct cache_run *run, int64_t sequence) {
    const struct tensor *y = run->kernel->kernel.node->out[0];
    size_t bytes = (size_t)(shape_columns(&y->shape) * dtype_bytes(y->shape.dtype));
    for (int64_t t = run->tokens; t < y->shape.dims[1]; t++)
        memset(operand_row(y, run->call->out[0], sequence * y->shape.dims[1] + t), 0, bytes);
}

static enum status attention_cache_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct shape *q = &node->in[0]->shape;
    struct cache_run run = {.kernel = (const struct cache_kernel *)kernel,
                            .call = call,
                            .start = (int64_t)call->scalars[SCALAR_CACHE_START],
                            .tokens = (int64_t)call->scalars[SCALAR_NEW_TOKENS]};
    BUG_IF(run.start < 0 || run.tokens < 1 || run.tokens > q->dims[1] ||
               run.start + run.tokens > cache_of(node)->positions,
           "%s: tokens outside the cache", node->name);
    for (int64_t s = 0; s < q->dims[0]; s++) {
        append_rows(&run, 1, s);
        append_rows(&run, 2, s);
        clear_rest(&run, s);
    }
    int64_t tasks = run.tokens * q->dims[0] * cache_of(node)->attention.heads;
    parallel_tasks(tasks, run.kernel->threads, query_task, &run);
    return STATUS_OK;
}

enum status cpu_attention_cache_create(const struct node *node, struct kernel **out) {
    struct cache_kernel *kernel = kernel_new(node, sizeof *kernel, attention_cache_run);
    if (!kernel) return STATUS_FAILED;
    kernel->threads = parallel_threads();
    kernel->scores = workspace_align(cache_of(node)->positions * (int64_t)sizeof(float)) / (int64_t)sizeof(float);
    kernel->kernel.workspace_bytes = kernel->threads * kernel->scores * (int64_t)sizeof(float);
    *out = &kernel->kernel;
    return STATUS_OK;
}

static enum status last_token_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct tensor *x = kernel->node->in[0], *y = kernel->node->out[0];
    int64_t length = x->shape.dims[1], last = (int64_t)call->scalars[SCALAR_NEW_TOKENS] - 1;
    BUG_IF(last < 0 || last >= length, "%s: no token %lld", kernel->node->name, (long long)last);
    size_t bytes = (size_t)(shape_columns(&x->shape) * dtype_bytes(x->shape.dtype));
    for (int64_t s = 0; s < x->shape.dims[0]; s++)
        memcpy(operand_row(y, call->out[0], s), operand_row(x, call->in[0], s * length + last), bytes);
    return STATUS_OK;
}

enum status cpu_last_token_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, last_token_run, 0, out);
}
