/* The gradient of attention: a tile of keys is a task, with all tiles of queries that see it. dk and dv are then the
 * task's own. dq is a sum over tasks, in the order of their keys: before a task adds its part of a tile of queries, it
 * waits for the task of the keys before.
 *
 * Of a head tasks begin in the order of their keys, the longest first, and pass their queries from the last on: where
 * all begin at once, each follows the one before at a distance of one tile and all end together. A task waits only for
 * tasks that began before it, so that the wait ends with any number of threads. */
#include <sched.h>

#include "backend/cpu/kernel_attention.h"

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
