/* Attention of runs of the queries to the keys of all positions, and its gradient: what a rank does that has a part of
 * a sequence. The queries are copied to where tiles begin in the whole sequence, with rows of zeros around them, which
 * add nothing to any sum. Heads are tasks, in the gradient key-value heads: each adds up in one order. */

#include "backend/cpu/attention.h"

/* Positions of the queries, and of the tiles that they lie in; where the run begins in the part. */
struct query_run {
    int64_t begin, end, first, last, row;
};

/* Rows [head_dim] of the run's tiles, or a number each, in the workspace; elements take at most 4 bytes. */
struct padded {
    const struct query_run *run;
    enum dtype dtype;
    int64_t columns;
};

/* The address of position 0, which may lie before the rows. */
static void *origin_of(const struct padded *padded, float *rows) {
    return (char *)rows - padded->run->first * padded->columns * dtype_bytes(padded->dtype);
}

static void copy_in(const struct padded *padded, const void *from, int64_t stride, int64_t rows, float *to) {
    int64_t size = dtype_bytes(padded->dtype), bytes = padded->columns * size;
    char *own = (char *)to + (padded->run->begin - padded->run->first) * bytes;
    memset(to, 0, (size_t)(rows * bytes));
    for (int64_t row = 0; row < padded->run->end - padded->run->begin; row++)
        memcpy(own + row * bytes, (const char *)from + (padded->run->row + row) * stride * size, (size_t)bytes);
}

static void copy_out(const struct padded *padded, const float *from, void *to, int64_t stride) {
    int64_t size = dtype_bytes(padded->dtype), bytes = padded->columns * size;
    const char *own = (const char *)from + (padded->run->begin - padded->run->first) * bytes;
    for (int64_t row = 0; row < padded->run->end - padded->run->begin; row++)
        memcpy((char *)to + (padded->run->row + row) * stride * size, own + row * bytes, (size_t)bytes);
}

struct part_run {
    const struct node *node;
    const struct kernel_call *call;
    const struct attention_kernels *simd;
    int count;
    struct query_run runs[QUERY_RUNS_MAX];
    int64_t keys, rows, own; /* positions of keys; most rows of a head's tiles; floats of a thread's workspace */
};

/* Input q is the queries; `tile` of them are a tile. */
static struct part_run part_run_of(const struct node *node, int q, int64_t tile) {
    const struct query_part *part = &attention_of(node)->queries;
    int64_t length = node->in[q]->shape.dims[1];
    struct query_runs found = query_runs_of(part, length);
    struct part_run run = {
        .node = node, .simd = attention_kernels_of(node), .count = found.count, .keys = length * part->parts};
    for (int r = 0; r < found.count; r++) {
        int64_t begin = found.begin[r], end = begin + found.length, first = begin / tile * tile;
        int64_t rows = (end + tile - 1) / tile * tile - first; /* of tiles that hold the run */
        int64_t last = first + rows < run.keys ? first + rows : run.keys;
        run.runs[r] =
            (struct query_run){.begin = begin, .end = end, .first = first, .last = last, .row = r * found.length};
        if (rows > run.rows) run.rows = rows;
    }
    return run;
}

static float *thread_floats(const struct part_run *run, int thread) {
    return (float *)run->call->workspace + thread * run->own;
}

/* ---- forward ---- */

static void attend(const struct part_run *run, const struct query_run *queries, struct head_place place, float *q) {
    const struct node *node = run->node;
    int64_t dim = attention_of(node)->head_dim, tile = run->simd->queries;
    int64_t length = node->in[0]->shape.dims[1];
    struct attention_head head = attention_head_of(node, run->call, 0, 3, place);
    struct padded rows = {queries, head.dtype, dim}, numbers = {queries, DTYPE_F32, 1};
    float *y = q + aligned_floats(run->rows * dim);
    float *lse = y + aligned_floats(run->rows * dim), *workspace = lse + aligned_floats(run->rows);
    copy_in(&rows, head.q, head.q_stride, run->rows, q);
    head.q = origin_of(&rows, q), head.y = origin_of(&rows, y), head.lse = origin_of(&numbers, lse);
    head.q_stride = head.y_stride = dim;
    head.length = queries->last;
    for (int64_t t = queries->first / tile; t * tile < queries->last; t++)
        run->simd->attend(&head, t, workspace);
    copy_out(&rows, y, attention_head_data(node->out[0], run->call->out[0], place, dim),
             tensor_row_stride(node->out[0]));
    copy_out(&numbers, lse, attention_row_values(node, run->call->out[1], length, place), 1);
}

static void head_task(const void *context, int64_t task, int thread) {
    const struct part_run *run = context;
    int64_t heads = attention_of(run->node)->heads;
    for (int r = 0; r < run->count; r++)
        attend(run, &run->runs[r], (struct head_place){task / heads, task % heads}, thread_floats(run, thread));
}

static struct part_run forward_run(const struct node *node) {
    struct part_run run = part_run_of(node, 0, attention_kernels_of(node)->queries);
    int64_t dim = attention_of(node)->head_dim;
    run.own = 2 * aligned_floats(run.rows * dim) + aligned_floats(run.rows) + aligned_floats(run.simd->workspace(dim));
    return run;
}

static enum status forward(const struct kernel *kernel, const struct kernel_call *call) {
    struct part_run run = forward_run(kernel->node);
    run.call = call;
    parallel_tasks(kernel->node->in[0]->shape.dims[0] * attention_of(kernel->node)->heads, attention_threads(kernel),
                   head_task, &run);
    return STATUS_OK;
}

enum status attention_part_create(const struct node *node, struct kernel **out) {
    return attention_kernel_create(node, forward, 0, forward_run(node).own, out);
}

/* ---- gradient ---- */

/* A query head's rows, of the heads that share keys. */
struct grad_rows {
    float *q, *dy, *y, *dq, *lse, *delta, *sums;
};

static int64_t grad_rows_floats(const struct node *node, int64_t rows) {
    int64_t dim = attention_of(node)->head_dim;
    return 4 * aligned_floats(rows * dim) + 2 * aligned_floats(rows) +
           aligned_floats(rows * attention_kernels_of(node)->columns(dim));
}

static struct grad_rows grad_rows_at(const struct part_run *run, float *at) {
    int64_t dim = attention_of(run->node)->head_dim, each = aligned_floats(run->rows * dim);
    struct grad_rows rows = {.q = at, .dy = at + each, .y = at + 2 * each, .dq = at + 3 * each};
    rows.lse = at + 4 * each;
    rows.delta = rows.lse + aligned_floats(run->rows);
    rows.sums = rows.delta + aligned_floats(run->rows);
    return rows;
}

/* The head with a run of its rows in tiles; of each tile of queries the sums begin. */
static struct attention_head open_head(const struct part_run *run, const struct query_run *queries,
                                       struct head_place place, struct grad_rows rows) {
    const struct node *node = run->node;
    const struct kernel_call *call = run->call;
    int64_t dim = attention_of(node)->head_dim, length = node->in[1]->shape.dims[1];
    int64_t tile = run->simd->tile;
    struct attention_head head = attention_head_of(node, call, 1, 6, place);
    struct padded wide = {queries, head.dtype, dim}, numbers = {queries, DTYPE_F32, 1};
    struct padded sums = {queries, DTYPE_F32, run->simd->columns(dim)};
    copy_in(&wide, head.q, head.q_stride, run->rows, rows.q);
    copy_in(&wide, attention_head_data(node->in[0], call->in[0], place, dim), tensor_row_stride(node->in[0]), run->rows,
            rows.dy);
    copy_in(&wide, attention_head_data(node->in[4], call->in[4], place, dim), tensor_row_stride(node->in[4]), run->rows,
            rows.y);
    copy_in(&numbers, attention_row_values(node, call->in[5], length, place), 1, run->rows, rows.lse);
    head.q = origin_of(&wide, rows.q), head.dy = origin_of(&wide, rows.dy), head.y = origin_of(&wide, rows.y);
    head.dq = origin_of(&wide, rows.dq), head.lse = origin_of(&numbers, rows.lse);
    head.delta = origin_of(&numbers, rows.delta), head.dq_sums = origin_of(&sums, rows.sums);
    head.q_stride = head.dy_stride = head.y_stride = head.dq_stride = dim;
    head.length = queries->last;
    for (int64_t t = queries->first / tile; t * tile < queries->last; t++)
        run->simd->grad_prepare(&head, t);
    return head;
}

static void close_head(const struct part_run *run, const struct query_run *queries, struct head_place place,
                       const float *dq) {
    const struct node *node = run->node;
    int64_t dim = attention_of(node)->head_dim;
    struct padded wide = {queries, node->out[0]->shape.dtype, dim};
    copy_out(&wide, dq, attention_head_data(node->out[0], run->call->out[0], place, dim),
             tensor_row_stride(node->out[0]));
}

/* All queries of the run that see the tile of keys, the last tile first. */
static void add_pairs(const struct part_run *run, const struct query_run *queries, const struct attention_head *head,
                      int64_t key_tile, float *workspace) {
    int64_t tile = run->simd->tile, first = queries->first / tile;
    for (int64_t t = (queries->last + tile - 1) / tile - 1; t >= first && t >= key_tile; t--) {
        run->simd->grad_pair(head, key_tile, t, workspace);
        run->simd->grad_queries(head, key_tile, t, workspace);
    }
}

/* The keys' side of a task: their gradients are written by tiles. */
static struct attention_head open_keys(const struct part_run *run, struct head_place place, struct head_place shared) {
    const struct node *node = run->node;
    int64_t dim = attention_of(node)->head_dim;
    struct attention_head keys = attention_head_of(node, run->call, 1, 6, place);
    keys.length = run->keys;
    keys.dk = attention_head_data(node->out[1], run->call->out[1], shared, dim);
    keys.dv = attention_head_data(node->out[2], run->call->out[2], shared, dim);
    keys.dk_stride = tensor_row_stride(node->out[1]), keys.dv_stride = tensor_row_stride(node->out[2]);
    return keys;
}

static int64_t heads_floats(int64_t count) {
    return aligned_floats((count * (int64_t)sizeof(struct attention_head) + 3) / 4);
}

/* Heads that share keys, of each its runs one after the other. The last run comes first, as the tiles of a run do. */
static void key_head_task(const void *context, int64_t task, int thread) {
    const struct part_run *run = context;
    const struct attention_attributes *attributes = attention_of(run->node);
    int64_t group = attributes->heads / attributes->kv_heads, count = group * run->count;
    float *own = thread_floats(run, thread), *rows = own + heads_floats(count);
    struct attention_head *heads = (struct attention_head *)(void *)own;
    int64_t each = grad_rows_floats(run->node, run->rows);
    float *workspace = rows + count * each;
    struct head_place shared = {task / attributes->kv_heads, task % attributes->kv_heads};
    struct head_place place = {shared.sequence, shared.head * group};
    struct attention_head keys = open_keys(run, place, shared);
    for (int64_t i = 0; i < count; i++)
        heads[i] =
            open_head(run, &run->runs[i % run->count], (struct head_place){place.sequence, place.head + i / run->count},
                      grad_rows_at(run, rows + i * each));
    for (int64_t key_tile = 0; key_tile * run->simd->tile < run->keys; key_tile++) {
        run->simd->grad_start(&keys, key_tile, workspace);
        for (int64_t h = 0; h < group; h++)
            for (int r = run->count - 1; r >= 0; r--)
                add_pairs(run, &run->runs[r], &heads[h * run->count + r], key_tile, workspace);
        run->simd->grad_finish(&keys, key_tile, workspace);
    }
    for (int64_t i = 0; i < count; i++)
        close_head(run, &run->runs[i % run->count], (struct head_place){place.sequence, place.head + i / run->count},
                   grad_rows_at(run, rows + i * each).dq);
}

static struct part_run gradient_run(const struct node *node) {
    const struct attention_attributes *attributes = attention_of(node);
    int64_t group = attributes->heads / attributes->kv_heads;
    struct part_run run = part_run_of(node, 1, attention_kernels_of(node)->tile);
    run.own = heads_floats(group * run.count) + group * run.count * grad_rows_floats(node, run.rows) +
              aligned_floats(run.simd->grad_workspace(attributes->head_dim));
    return run;
}

static enum status gradient(const struct kernel *kernel, const struct kernel_call *call) {
    struct part_run run = gradient_run(kernel->node);
    run.call = call;
    parallel_tasks(kernel->node->in[1]->shape.dims[0] * attention_of(kernel->node)->kv_heads, attention_threads(kernel),
                   key_head_task, &run);
    return STATUS_OK;
}

enum status attention_part_grad_create(const struct node *node, struct kernel **out) {
    return attention_kernel_create(node, gradient, 0, gradient_run(node).own, out);
}
