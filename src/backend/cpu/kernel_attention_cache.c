/* Attention over caches, for generating text: new keys and values are appended, then each query is a task. */
#include <string.h>

#include "backend/cpu/kernel_attention.h"

struct cache_kernel {
    struct kernel kernel;
    int threads;
    int64_t scores; /* floats of a thread's workspace */
};

struct cache_run {
    const struct cache_kernel *kernel;
    const struct kernel_call *call;
    const int32_t *rows; /* of the caches, by token */
};

static const struct attention_cache_attributes *cache_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, attention_cache_attributes);
}

static size_t row_bytes(const struct tensor *tensor) {
    return (size_t)(shape_columns(&tensor->shape) * dtype_bytes(tensor->shape.dtype));
}

static void append_row(const struct cache_run *run, int which, int64_t token) {
    const struct node *node = run->kernel->kernel.node;
    memcpy(operand_row(node->out[which], run->call->out[which], run->rows[token]),
           operand_row(node->in[which], run->call->in[which], token), row_bytes(node->in[which]));
}

static void take_token(const struct cache_run *run, int64_t token) {
    const struct node *node = run->kernel->kernel.node;
    int64_t all = cache_of(node)->texts * cache_of(node)->positions;
    BUG_IF(run->rows[token] < -1 || run->rows[token] >= all, "%s: row %d of the caches", node->name, run->rows[token]);
    if (run->rows[token] < 0) {
        memset(operand_row(node->out[0], run->call->out[0], token), 0, row_bytes(node->out[0]));
        return;
    }
    append_row(run, 1, token);
    append_row(run, 2, token);
}

static void *head_at(const struct tensor *tensor, void *data, int64_t row, int64_t head, int64_t head_dim) {
    return (char *)operand_row(tensor, data, row) + head * head_dim * dtype_bytes(tensor->shape.dtype);
}

static void query_task(const void *context, int64_t task, int thread) {
    const struct cache_run *run = context;
    const struct node *node = run->kernel->kernel.node;
    const struct kernel_call *call = run->call;
    const struct attention_attributes *attention = &cache_of(node)->attention;
    int64_t heads = attention->heads, dim = attention->head_dim, token = task / heads, head = task % heads;
    if (run->rows[token] < 0) return;
    int64_t kv_head = head * attention->kv_heads / heads, window = attention->window;
    int64_t end = run->rows[token] % cache_of(node)->positions + 1;
    int64_t seen = window > 0 && end > window ? window : end, first = run->rows[token] + 1 - seen;
    struct attention_query query = {
        .dtype = node->in[0]->shape.dtype,
        .head_dim = dim,
        .keys = seen,
        .scale = (float)attention->scale,
        .softcap = (float)attention->softcap,
        .sink = attention_sink(node->in[4], call->in[4], head),
        .rounds = attention_kernels_of(node)->rounds,
        .q = head_at(node->in[0], call->in[0], token, head, dim),
        .k = head_at(node->out[1], call->out[1], first, kv_head, dim),
        .v = head_at(node->out[2], call->out[2], first, kv_head, dim),
        .k_stride = tensor_row_stride(node->out[1]),
        .v_stride = tensor_row_stride(node->out[2]),
        .y = head_at(node->out[0], call->out[0], token, head, dim),
    };
    cpu_simd()->attention_query(&query, (float *)call->workspace + thread * run->kernel->scores);
}

static enum status attention_cache_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    int64_t tokens = shape_rows(&node->in[0]->shape);
    struct cache_run run = {(const struct cache_kernel *)kernel, call, call->in[3]};
    for (int64_t t = 0; t < tokens; t++)
        take_token(&run, t);
    parallel_tasks(tokens * cache_of(node)->attention.heads, run.kernel->threads, query_task, &run);
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
