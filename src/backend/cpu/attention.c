/* Attention: tiles of queries are tasks that threads take in any order; none depends on another. */
#include "backend/cpu/attention.h"

#include <math.h>
#include <sched.h>

#include "base/half.h"

/* The place of task `number`: tiles go in order within a head, and as many heads at a time as there are threads, so
 * that a head's rows stay in the caches while its tiles pass. */
static inline struct head_tile head_tile_at(int64_t number, int64_t heads, int64_t tiles, int threads) {
    int64_t first = number / (threads * tiles) * threads, within = number - first * tiles;
    int64_t together = heads - first < threads ? heads - first : threads;
    return (struct head_tile){first + within % together, within / together};
}

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

static void *head_at(const struct tensor *tensor, void *data, int64_t row, int64_t head, int64_t head_dim) {
    return (char *)operand_row(tensor, data, row) + head * head_dim * dtype_bytes(tensor->shape.dtype);
}

void *attention_head_data(const struct tensor *tensor, void *data, struct head_place place, int64_t head_dim) {
    return head_at(tensor, data, place.sequence * tensor->shape.dims[1], place.head, head_dim);
}

float *attention_row_values(const struct node *node, void *values, int64_t length, struct head_place place) {
    return (float *)values + (place.sequence * attention_of(node)->heads + place.head) * length;
}

/* A head's sink; -infinity where there are none (NULL). */
static float attention_sink(const struct tensor *sinks, const void *data, int64_t head) {
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
    struct attention_run run = {.node = node,
                                .call = call,
                                .simd = attention_kernels_of(node),
                                .threads = attention_threads(kernel),
                                .workspace = thread_workspace(node)};
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

/* The gradient of attention. A task handles a tile of keys, with all tiles of queries that see it, so that it owns dk
 * and dv. dq is a sum over tasks, in the order of their keys. Before a task adds its part of a tile of queries, it
 * waits for the task of the previous keys.
 *
 * The tasks of a head start in the order of their keys, the longest first, and process their queries from last to
 * first. If all start at once, each follows the previous one at a distance of one tile, and all end together. A task
 * waits only for tasks that began before it, so that the wait ends with any number of threads. */

struct gradient_run {
    const struct node *node;
    const struct kernel_call *call;
    const struct attention_kernels *simd;
    int64_t sequences, heads, kv_heads, head_dim, length, window;
    int64_t tile, tiles;
    int threads;
    int64_t sums, workspace; /* floats of dq_sums of one head; of one thread's workspace */
    /* In the call's workspace: */
    int64_t *begun; /* tasks */
    int32_t *next;  /* [sequences][heads][tiles]: the tile of keys whose turn it is */
    float *delta;   /* [sequences][heads][length] */
    float *dq_sums; /* [sequences][heads][sums] */
    float *own;     /* [threads][workspace] */
};

/* Parts of the workspace in floats, shared by the threads. */
enum { BEGUN_FLOATS = WORKSPACE_ALIGN / 4 };

static int64_t gradient_heads(const struct gradient_run *run) { return run->sequences * run->heads; }
static int64_t next_floats(const struct gradient_run *run) { return aligned_floats(gradient_heads(run) * run->tiles); }
static int64_t delta_floats(const struct gradient_run *run) {
    return aligned_floats(gradient_heads(run) * run->length);
}

static struct gradient_run gradient_layout(const struct node *node) {
    const struct attention_attributes *attributes = attention_of(node);
    const struct shape *q = &node->in[1]->shape;
    struct gradient_run run = {
        .node = node,
        .simd = attention_kernels_of(node),
        .sequences = q->dims[0],
        .heads = attributes->heads,
        .kv_heads = attributes->kv_heads,
        .head_dim = attributes->head_dim,
        .length = q->dims[1],
        .window = attributes->window > 0 ? attributes->window : q->dims[1],
    };
    run.tile = run.simd->tile;
    run.workspace = aligned_floats(run.simd->grad_workspace(run.head_dim));
    run.tiles = (run.length + run.tile - 1) / run.tile;
    run.sums = aligned_floats(run.tiles * run.tile * run.simd->columns(run.head_dim));
    return run;
}

static int64_t shared_floats(const struct gradient_run *run) {
    return BEGUN_FLOATS + next_floats(run) + delta_floats(run) + gradient_heads(run) * run->sums;
}

static struct attention_head gradient_head(const struct gradient_run *run, struct head_place place) {
    const struct node *node = run->node;
    const struct kernel_call *call = run->call;
    struct attention_head head = attention_head_of(node, call, 1, 6, place);
    struct head_place shared = {place.sequence, place.head * run->kv_heads / run->heads};
    head.dy = attention_head_data(node->in[0], call->in[0], place, run->head_dim);
    head.dy_stride = tensor_row_stride(node->in[0]);
    head.y = attention_head_data(node->in[4], call->in[4], place, run->head_dim);
    head.y_stride = tensor_row_stride(node->in[4]);
    head.lse = attention_row_values(node, call->in[5], run->length, place);
    head.dq = attention_head_data(node->out[0], call->out[0], place, run->head_dim);
    head.dq_stride = tensor_row_stride(node->out[0]);
    head.dk = attention_head_data(node->out[1], call->out[1], shared, run->head_dim);
    head.dk_stride = tensor_row_stride(node->out[1]);
    head.dv = attention_head_data(node->out[2], call->out[2], shared, run->head_dim);
    head.dv_stride = tensor_row_stride(node->out[2]);
    head.delta = attention_row_values(node, run->delta, run->length, place);
    head.dq_sums = run->dq_sums + (place.sequence * run->heads + place.head) * run->sums;
    return head;
}

static int32_t *next_of(const struct gradient_run *run, struct head_place place, int64_t query_tile) {
    return run->next + (place.sequence * run->heads + place.head) * run->tiles + query_tile;
}

static void prepare_task(const void *context, int64_t task, int thread) {
    (void)thread;
    const struct gradient_run *run = context;
    int64_t row = task / run->tiles, query_tile = task % run->tiles;
    struct head_place place = {row / run->heads, row % run->heads};
    struct attention_head head = gradient_head(run, place);
    run->simd->grad_prepare(&head, query_tile);
    int64_t first = query_tile * run->tile - run->window + 1;
    *next_of(run, place, query_tile) = (int32_t)(first > 0 ? first / run->tile : 0);
}

static void head_pairs(const struct gradient_run *run, struct head_place place, int64_t key_tile, float *workspace) {
    struct attention_head head = gradient_head(run, place);
    int64_t last = ((key_tile + 1) * run->tile - 1 + run->window - 1) / run->tile;
    for (int64_t tile = last < run->tiles ? last : run->tiles - 1; tile >= key_tile; tile--) {
        run->simd->grad_pair(&head, key_tile, tile, workspace);
        int32_t *next = next_of(run, place, tile);
        while (__atomic_load_n(next, __ATOMIC_ACQUIRE) != key_tile)
            sched_yield();
        run->simd->grad_queries(&head, key_tile, tile, workspace);
        __atomic_store_n(next, (int32_t)key_tile + 1, __ATOMIC_RELEASE);
    }
}

/* Takes the next tile in order instead of its own number: parallel_tasks does not say in which order tasks begin. */
static void key_task(const void *context, int64_t number, int thread) {
    (void)number;
    const struct gradient_run *run = context;
    int64_t task = __atomic_fetch_add(run->begun, 1, __ATOMIC_RELAXED), group = run->heads / run->kv_heads;
    struct head_tile at = head_tile_at(task, run->sequences * run->kv_heads, run->tiles, run->threads);
    struct head_place place = {at.head / run->kv_heads, at.head % run->kv_heads * group};
    struct attention_head head = gradient_head(run, place);
    float *workspace = run->own + thread * run->workspace;
    run->simd->grad_start(&head, at.tile, workspace);
    for (int64_t i = 0; i < group; i++, place.head++)
        head_pairs(run, place, at.tile, workspace);
    run->simd->grad_finish(&head, at.tile, workspace);
}

static enum status attention_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct gradient_run run = gradient_layout(kernel->node);
    float *workspace = call->workspace;
    run.call = call;
    run.begun = call->workspace;
    run.next = (int32_t *)(workspace + BEGUN_FLOATS);
    run.delta = workspace + BEGUN_FLOATS + next_floats(&run);
    run.dq_sums = run.delta + delta_floats(&run);
    run.own = workspace + shared_floats(&run);
    run.threads = attention_threads(kernel);
    *run.begun = 0;
    parallel_tasks(gradient_heads(&run) * run.tiles, run.threads, prepare_task, &run);
    parallel_tasks(run.sequences * run.kv_heads * run.tiles, run.threads, key_task, &run);
    return STATUS_OK;
}

enum status cpu_attention_grad_create(const struct node *node, struct kernel **out) {
    if (attention_of(node)->queries.parts > 1) return attention_part_grad_create(node, out);
    struct gradient_run run = gradient_layout(node);
    return attention_kernel_create(node, attention_grad_run, shared_floats(&run), run.workspace, out);
}

/* The gradient of attention's sinks: a head is a task, which goes through its queries in order. */

static void sink_task(const void *context, int64_t head, int thread) {
    (void)thread;
    const struct node_call *run = context;
    const struct node *node = run->node;
    const struct shape *shape = &node->in[0]->shape;
    int64_t dim = attention_of(node)->head_dim, length = shape->dims[1];
    float sink = attention_sink(node->in[3], run->call->in[3], head);
    double sum = 0;
    for (int64_t s = 0; s < shape->dims[0]; s++) {
        struct head_place place = {s, head};
        const char *dy = attention_head_data(node->in[0], run->call->in[0], place, dim);
        const char *y = attention_head_data(node->in[1], run->call->in[1], place, dim);
        const float *lse = attention_row_values(node, run->call->in[2], length, place);
        int64_t size = dtype_bytes(shape->dtype), dy_row = tensor_row_stride(node->in[0]) * size,
                y_row = tensor_row_stride(node->in[1]) * size;
        for (int64_t t = 0; t < length; t++)
            sum += (double)(expf(sink - lse[t]) * dot_rows(shape->dtype, dim, dy + t * dy_row, y + t * y_row));
    }
    ((float *)run->call->out[0])[head] -= (float)sum;
}

static enum status sinks_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node_call run = {kernel->node, call};
    parallel_tasks(attention_of(kernel->node)->heads, attention_threads(kernel), sink_task, &run);
    return STATUS_OK;
}

enum status cpu_attention_sinks_grad_create(const struct node *node, struct kernel **out) {
    return attention_kernel_create(node, sinks_grad_run, 0, 0, out);
}

/* Attention over caches, for generating text: new keys and values are appended, then each query is a task. */

struct cache_run {
    const struct node *node;
    const struct kernel_call *call;
    const int32_t *rows; /* of the caches, by token */
};

static const struct attention_cache_attributes *cache_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, attention_cache_attributes);
}

/* Score floats of a thread's workspace. */
static int64_t score_floats(const struct node *node) { return aligned_floats(cache_of(node)->positions); }

static size_t row_bytes(const struct tensor *tensor) {
    return (size_t)(shape_columns(&tensor->shape) * dtype_bytes(tensor->shape.dtype));
}

static void take_token(const struct cache_run *run, int64_t token) {
    const struct node *node = run->node;
    int64_t all = cache_of(node)->texts * cache_of(node)->positions;
    BUG_IF(run->rows[token] < -1 || run->rows[token] >= all, "%s: row %d of the caches", node->name, run->rows[token]);
    if (run->rows[token] < 0) {
        memset(out_row(node, run->call, 0, token), 0, row_bytes(node->out[0]));
        return;
    }
    for (int i = 1; i <= 2; i++)
        memcpy(out_row(node, run->call, i, run->rows[token]), in_row(node, run->call, i, token),
               row_bytes(node->in[i]));
}

static void query_task(const void *context, int64_t task, int thread) {
    const struct cache_run *run = context;
    const struct node *node = run->node;
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
    cpu_simd()->attention_query(&query, (float *)call->workspace + thread * score_floats(node));
}

static enum status attention_cache_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    int64_t tokens = shape_rows(&node->in[0]->shape);
    struct cache_run run = {node, call, call->in[3]};
    for (int64_t t = 0; t < tokens; t++)
        take_token(&run, t);
    parallel_tasks(tokens * cache_of(node)->attention.heads, attention_threads(kernel), query_task, &run);
    return STATUS_OK;
}

enum status cpu_attention_cache_create(const struct node *node, struct kernel **out) {
    return attention_kernel_create(node, attention_cache_run, 0, score_floats(node), out);
}

static enum status last_token_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct tensor *x = kernel->node->in[0], *y = kernel->node->out[0];
    int64_t length = x->shape.dims[1], last = (int64_t)call->scalars[SCALAR_NEW_TOKENS] - 1;
    BUG_IF(last < 0 || last >= length, "%s: no token %lld", kernel->node->name, (long long)last);
    for (int64_t s = 0; s < x->shape.dims[0]; s++)
        memcpy(operand_row(y, call->out[0], s), operand_row(x, call->in[0], s * length + last), row_bytes(x));
    return STATUS_OK;
}

CPU_KERNEL(last_token, last_token_run)

/* Key-value heads that a part of the query heads reads, and the sums of their gradients. */

static const struct select_heads_attributes *selection_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, select_heads_attributes);
}

static void select_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    const struct select_heads_attributes *own = selection_of(node);
    int64_t bytes = own->head_dim * dtype_bytes(dtype_of(node));
    for (int64_t row = begin; row < end; row++)
        for (int64_t i = 0; i < own->selected; i++)
            memcpy((char *)out_row(node, call, 0, row) + i * bytes,
                   (const char *)in_row(node, call, 0, row) + select_heads_find(own, i) * bytes, (size_t)bytes);
}

CPU_ROWS_KERNEL(select_heads, select_rows)

/* dx [head_dim] = the sum of `count` adjacent heads of dy [count][head_dim]. */
static inline void sum_heads(bool bf16, const void *dy, int64_t count, int64_t head_dim, void *dx) {
    for (int64_t c = 0; c < head_dim; c++) {
        float sum = 0;
        for (int64_t i = 0; i < count; i++)
            sum +=
                bf16 ? bf16_to_float(((const uint16_t *)dy)[i * head_dim + c]) : ((const float *)dy)[i * head_dim + c];
        if (bf16)
            ((uint16_t *)dx)[c] = bf16_from_float(sum);
        else
            ((float *)dx)[c] = sum;
    }
}

/* The uses of a head lie side by side. */
static void select_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    const struct select_heads_attributes *own = selection_of(node);
    int64_t bytes = own->head_dim * dtype_bytes(dtype_of(node));
    for (int64_t row = begin; row < end; row++) {
        const char *dy = in_row(node, call, 0, row);
        char *dx = out_row(node, call, 0, row);
        for (int64_t head = 0, first = 0, i = 0; head < own->heads; head++, first = i) {
            while (i < own->selected && select_heads_find(own, i) == head)
                i++;
            if (dtype_of(node) == DTYPE_BF16)
                sum_heads(true, dy + first * bytes, i - first, own->head_dim, dx + head * bytes);
            else
                sum_heads(false, dy + first * bytes, i - first, own->head_dim, dx + head * bytes);
        }
    }
}

CPU_ROWS_KERNEL(select_heads_grad, select_grad_rows)
