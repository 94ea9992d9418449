/* Attention over caches, for generating texts: new keys and values go to their rows, then each query of each head is a
 * block's work, whose warps share the keys among them. */
#include <float.h>

#include "backend/cuda/kernels/device.cuh"

constexpr int CACHE_WARPS = 16, CACHE_THREADS = CACHE_WARPS * WARP, CACHE_HEAD_DIM_MAX = 256;

struct cache_query {
    const void *q, *keys, *values;
    void *y;
    const void *sinks;                              /* [heads] or NULL */
    const int32_t *rows;                            /* of the caches, by token */
    int64_t q_stride, k_stride, v_stride, y_stride; /* elements from one position to the next */
    int64_t positions, window;
    int heads, kv_heads, head_dim;
    float scale, softcap; /* softcap 0: none */
};

/* A warp's state over its keys so far: the largest score, the sum of exponentials, the weighted sum of values. */
template <int EACH> struct seen { float largest, sum, values[EACH]; };

/* Keys first + warp, first + warp + CACHE_WARPS, … up to `end`. Lane i has features i, i + 32, … */
template <typename T, int EACH>
__device__ struct seen<EACH> see_keys(const struct cache_query &query, const T *q, const T *keys, const T *values,
                                      int64_t first, int64_t end) {
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    struct seen<EACH> seen;
    seen.largest = -FLT_MAX;
    seen.sum = 0;
    float own[EACH];
    for (int i = 0; i < EACH; i++)
        seen.values[i] = 0;
    for (int i = 0; i < EACH; i++)
        own[i] = lane + i * WARP < query.head_dim ? widen(q[lane + i * WARP]) * query.scale : 0.0f;
    for (int64_t key = first + warp; key < end; key += CACHE_WARPS) {
        float score = 0;
        for (int i = 0; i < EACH; i++)
            if (lane + i * WARP < query.head_dim)
                score = fmaf(own[i], widen(keys[key * query.k_stride + lane + i * WARP]), score);
        score = warp_sum(score);
        if (query.softcap > 0) score = query.softcap * tanhf(score / query.softcap);
        float now = fmaxf(seen.largest, score), shrink = expf(seen.largest - now), weight = expf(score - now);
        seen.largest = now;
        seen.sum = fmaf(seen.sum, shrink, weight);
        for (int i = 0; i < EACH; i++)
            if (lane + i * WARP < query.head_dim)
                seen.values[i] =
                    fmaf(weight, widen(values[key * query.v_stride + lane + i * WARP]), seen.values[i] * shrink);
    }
    return seen;
}

/* Block: heads of a token before the next token. */
template <typename T, int EACH>
__global__ void __launch_bounds__(CACHE_THREADS) cache_kernel(struct cache_query query) {
    __shared__ float largest[CACHE_WARPS], sums[CACHE_WARPS], parts[CACHE_WARPS][EACH * WARP];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int head = (int)(blockIdx.x % (unsigned)query.heads);
    int64_t token = blockIdx.x / (unsigned)query.heads, row = query.rows[token];
    T *y = (T *)query.y + token * query.y_stride + (int64_t)head * query.head_dim;
    if (row < 0) {
        for (int i = (int)threadIdx.x; i < query.head_dim; i += CACHE_THREADS)
            y[i] = narrow<T>(0);
        return;
    }
    int64_t end = row % query.positions + 1, first = query.window > 0 && end > query.window ? end - query.window : 0;
    int64_t kv_head = (int64_t)head * query.kv_heads / query.heads, at = row - row % query.positions;
    const T *q = (const T *)query.q + token * query.q_stride + (int64_t)head * query.head_dim;
    const T *keys = (const T *)query.keys + at * query.k_stride + kv_head * query.head_dim;
    const T *values = (const T *)query.values + at * query.v_stride + kv_head * query.head_dim;
    struct seen<EACH> seen = see_keys<T, EACH>(query, q, keys, values, first, end);
    for (int i = 0; i < EACH; i++)
        parts[warp][lane + i * WARP] = seen.values[i];
    if (lane == 0) {
        largest[warp] = seen.largest;
        sums[warp] = seen.sum;
    }
    __syncthreads();
    float sink = query.sinks ? widen(((const T *)query.sinks)[head]) : -FLT_MAX, max = sink;
    for (int w = 0; w < CACHE_WARPS; w++)
        max = fmaxf(max, largest[w]);
    float total = query.sinks ? expf(sink - max) : 0.0f;
    for (int w = 0; w < CACHE_WARPS; w++)
        total = fmaf(sums[w], expf(largest[w] - max), total);
    for (int i = (int)threadIdx.x; i < query.head_dim; i += CACHE_THREADS) {
        float value = 0;
        for (int w = 0; w < CACHE_WARPS; w++)
            value = fmaf(parts[w][i], expf(largest[w] - max), value);
        y[i] = narrow<T>(value / total);
    }
}

static const struct attention_cache_attributes *cache_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, attention_cache_attributes);
}

/* Copies the tokens' keys or values into a cache. Block: a token. */
template <typename T> struct appending {
    const T *from;
    T *to;
    const int32_t *rows;
    int64_t from_stride, to_stride, columns;
};

template <typename T> __global__ void append_kernel(struct appending<T> appending) {
    int64_t row = appending.rows[blockIdx.x];
    if (row < 0) return;
    const T *from = appending.from + (int64_t)blockIdx.x * appending.from_stride;
    T *to = appending.to + row * appending.to_stride;
    for (int64_t i = threadIdx.x; i < appending.columns; i += THREADS)
        to[i] = from[i];
}

template <typename T> static void append_launch(const struct node *node, const struct kernel_call *call, int which) {
    const struct tensor *from = node->in[which], *to = node->out[which];
    struct appending<T> appending = {
        .from = (const T *)call->in[which], .to = (T *)call->out[which], .rows = (const int32_t *)call->in[3],
        .from_stride = tensor_row_stride(from), .to_stride = tensor_row_stride(to),
        .columns = shape_columns(&from->shape),
    };
    launch(known<append_kernel<T>>(), grid_size(shape_rows(&from->shape)), THREADS, 0, stream_of(call), appending);
}

template <typename T> static void cache_launch(const struct cache_query &query, int64_t rows, cudaStream_t stream) {
    auto kernel = query.head_dim <= 64    ? known<cache_kernel<T, 2>>()
                  : query.head_dim <= 128 ? known<cache_kernel<T, 4>>()
                                          : known<cache_kernel<T, 8>>();
    launch(kernel, grid_size(rows * query.heads), CACHE_THREADS, 0, stream, query);
}

static enum status attention_cache_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct attention_attributes *attention = &cache_of(node)->attention;
    for (int which = 1; which <= 2; which++)
        FOR_ELEMENT(node->in[which]->shape.dtype, append_launch, node, call, which);
    struct cache_query query = {
        .q = call->in[0],
        .keys = call->out[1],
        .values = call->out[2],
        .y = call->out[0],
        .sinks = call->in[4],
        .rows = (const int32_t *)call->in[3],
        .q_stride = tensor_row_stride(node->in[0]),
        .k_stride = tensor_row_stride(node->out[1]),
        .v_stride = tensor_row_stride(node->out[2]),
        .y_stride = tensor_row_stride(node->out[0]),
        .positions = cache_of(node)->positions,
        .window = attention->window,
        .heads = (int)attention->heads,
        .kv_heads = (int)attention->kv_heads,
        .head_dim = (int)attention->head_dim,
        .scale = (float)attention->scale,
        .softcap = (float)attention->softcap,
    };
    const struct shape *q = &node->in[0]->shape;
    FOR_ELEMENT(q->dtype, cache_launch, query, shape_rows(q), stream_of(call));
    return cuda_outcome();
}

enum status cuda_attention_cache_create(const struct node *node, struct kernel **out) {
    int64_t head_dim = cache_of(node)->attention.head_dim;
    if (head_dim > CACHE_HEAD_DIM_MAX)
        return status_set(STATUS_BAD_INPUT, "heads of %lld features: CUDA takes at most %d", (long long)head_dim,
                          CACHE_HEAD_DIM_MAX);
    return kernel_plain(node, attention_cache_run, 0, out);
}

/* Key-value heads that a part of the query heads reads, and the sums of their gradients: an element of the result a
 * thread. */

struct selection {
    const void *from;
    void *to;
    int64_t count, columns; /* elements of the result, and those of its row */
    int64_t from_stride, to_stride;
    int head_dim, selected, first, step, group; /* struct select_heads_attributes */
};

/* select_heads_find of ops.h. */
__device__ inline int selected_head(const struct selection &own, int i) {
    return (own.first + i * own.step) / own.group;
}

template <typename T> __global__ void __launch_bounds__(THREADS) select_kernel(struct selection own) {
    int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (index >= own.count) return;
    int64_t row = index / own.columns;
    int column = (int)(index % own.columns), head = selected_head(own, column / own.head_dim);
    ((T *)own.to)[row * own.to_stride + column] =
        ((const T *)own.from)[row * own.from_stride + head * own.head_dim + column % own.head_dim];
}

/* The first use of a head is the first selected one whose query is not before the head's. */
template <typename T> __global__ void __launch_bounds__(THREADS) select_grad_kernel(struct selection own) {
    int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (index >= own.count) return;
    int64_t row = index / own.columns;
    int column = (int)(index % own.columns), head = column / own.head_dim, at = column % own.head_dim;
    int behind = head * own.group - own.first, ahead = behind + own.group;
    const T *dy = (const T *)own.from + row * own.from_stride + at;
    int first = behind > 0 ? (behind + own.step - 1) / own.step : 0;
    int end = ahead > 0 ? min((ahead + own.step - 1) / own.step, own.selected) : 0;
    float sum = 0;
    for (int i = first; i < end; i++)
        sum += widen(dy[(int64_t)i * own.head_dim]);
    ((T *)own.to)[row * own.to_stride + column] = narrow<T>(sum);
}

static struct selection selection_of(const struct node *node, const struct kernel_call *call) {
    const struct select_heads_attributes *attributes = NODE_ATTRIBUTES(node, select_heads_attributes);
    struct selection own = {};
    own.from = call->in[0];
    own.to = call->out[0];
    own.count = shape_elements(&node->out[0]->shape);
    own.columns = shape_columns(&node->out[0]->shape);
    own.from_stride = tensor_row_stride(node->in[0]);
    own.to_stride = tensor_row_stride(node->out[0]);
    own.head_dim = (int)attributes->head_dim;
    own.selected = (int)attributes->selected;
    own.first = (int)attributes->first;
    own.step = (int)attributes->step;
    own.group = (int)attributes->group;
    return own;
}

static enum status select_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct selection own = selection_of(kernel->node, call);
    unsigned blocks = grid_size(divide_up(own.count, THREADS));
    if (kernel->node->out[0]->shape.dtype == DTYPE_BF16)
        launch(known<select_kernel<__nv_bfloat16>>(), blocks, THREADS, 0, stream_of(call), own);
    else
        launch(known<select_kernel<float>>(), blocks, THREADS, 0, stream_of(call), own);
    return cuda_outcome();
}

static enum status select_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct selection own = selection_of(kernel->node, call);
    unsigned blocks = grid_size(divide_up(own.count, THREADS));
    if (kernel->node->out[0]->shape.dtype == DTYPE_BF16)
        launch(known<select_grad_kernel<__nv_bfloat16>>(), blocks, THREADS, 0, stream_of(call), own);
    else
        launch(known<select_grad_kernel<float>>(), blocks, THREADS, 0, stream_of(call), own);
    return cuda_outcome();
}

CUDA_KERNEL(select_heads, select_run)

CUDA_KERNEL(select_heads_grad, select_grad_run)
