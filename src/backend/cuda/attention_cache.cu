/* Attention over caches, for generating text: new keys and values are appended, then each query of each head is a
 * block's work, whose warps share the keys among them. */
#include <float.h>

#include "backend/cuda/device.cuh"

constexpr int CACHE_WARPS = 16, CACHE_THREADS = CACHE_WARPS * WARP, CACHE_HEAD_DIM_MOST = 256;

struct cache_query {
    const void *q, *keys, *values;
    void *y;
    int64_t q_stride, k_stride, v_stride, y_stride; /* elements from one position to the next */
    int64_t length, positions, start, tokens, window;
    int heads, kv_heads, head_dim;
    float scale;
};

/* What a warp has seen of its keys: the largest score, the sum of exponentials, and the sum of values so weighted. */
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

/* Block: heads of a token before the next token, tokens before the next sequence. */
template <typename T, int EACH>
__global__ void __launch_bounds__(CACHE_THREADS) cache_kernel(struct cache_query query) {
    __shared__ float largest[CACHE_WARPS], sums[CACHE_WARPS], parts[CACHE_WARPS][EACH * WARP];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int head = (int)(blockIdx.x % (unsigned)query.heads);
    int64_t row = blockIdx.x / (unsigned)query.heads, sequence = row / query.length, token = row % query.length;
    T *y = (T *)query.y + row * query.y_stride + (int64_t)head * query.head_dim;
    if (token >= query.tokens) {
        for (int i = (int)threadIdx.x; i < query.head_dim; i += CACHE_THREADS)
            y[i] = narrow<T>(0);
        return;
    }
    int64_t end = query.start + token + 1, first = query.window > 0 && end > query.window ? end - query.window : 0;
    int64_t kv_head = (int64_t)head * query.kv_heads / query.heads, at = sequence * query.positions;
    const T *q = (const T *)query.q + row * query.q_stride + (int64_t)head * query.head_dim;
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
    float most = largest[0], total = 0;
    for (int w = 1; w < CACHE_WARPS; w++)
        most = fmaxf(most, largest[w]);
    for (int w = 0; w < CACHE_WARPS; w++)
        total = fmaf(sums[w], expf(largest[w] - most), total);
    for (int i = (int)threadIdx.x; i < query.head_dim; i += CACHE_THREADS) {
        float value = 0;
        for (int w = 0; w < CACHE_WARPS; w++)
            value = fmaf(parts[w][i], expf(largest[w] - most), value);
        y[i] = narrow<T>(value / total);
    }
}

static const struct attention_cache_attributes *cache_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, attention_cache_attributes);
}

/* The new rows of one sequence go to rows of its cache. */
static void append_rows(const struct node *node, const struct kernel_call *call, int which, int64_t sequence,
                        int64_t start, int64_t tokens) {
    const struct tensor *from = node->in[which], *cache = node->out[which];
    size_t element = (size_t)dtype_bytes(from->shape.dtype), bytes = (size_t)shape_columns(&from->shape) * element;
    void *to = operand_row(cache, call->out[which], sequence * cache->shape.dims[1] + start);
    const void *rows = operand_row(from, call->in[which], sequence * from->shape.dims[1]);
    cuda_require(cudaMemcpy2DAsync(to, (size_t)tensor_row_stride(cache) * element, rows,
                                   (size_t)tensor_row_stride(from) * element, bytes, (size_t)tokens,
                                   cudaMemcpyDeviceToDevice, stream_of(call)),
                 "a copy");
}

template <typename T> static void cache_launch(const struct cache_query &query, int64_t rows, cudaStream_t stream) {
    void (*kernel)(struct cache_query) = query.head_dim <= 64    ? cache_kernel<T, 2>
                                         : query.head_dim <= 128 ? cache_kernel<T, 4>
                                                                 : cache_kernel<T, 8>;
    launch(kernel, grid_size(rows * query.heads), CACHE_THREADS, 0, stream, query);
}

static enum status attention_cache_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct attention_attributes *attention = &cache_of(node)->attention;
    const struct shape *q = &node->in[0]->shape;
    int64_t start = (int64_t)call->scalars[SCALAR_CACHE_START], tokens = (int64_t)call->scalars[SCALAR_NEW_TOKENS];
    BUG_IF(start < 0 || tokens < 1 || tokens > q->dims[1] || start + tokens > cache_of(node)->positions,
           "%s: tokens outside the cache", node->name);
    for (int64_t s = 0; s < q->dims[0]; s++) {
        append_rows(node, call, 1, s, start, tokens);
        append_rows(node, call, 2, s, start, tokens);
    }
    struct cache_query query = {
        .q = call->in[0],
        .keys = call->out[1],
        .values = call->out[2],
        .y = call->out[0],
        .q_stride = tensor_row_stride(node->in[0]),
        .k_stride = tensor_row_stride(node->out[1]),
        .v_stride = tensor_row_stride(node->out[2]),
        .y_stride = tensor_row_stride(node->out[0]),
        .length = q->dims[1],
        .positions = cache_of(node)->positions,
        .start = start,
        .tokens = tokens,
        .window = attention->window,
        .heads = (int)attention->heads,
        .kv_heads = (int)attention->kv_heads,
        .head_dim = (int)attention->head_dim,
        .scale = (float)attention->scale,
    };
    FOR_ELEMENT(q->dtype, cache_launch, query, shape_rows(q), stream_of(call));
    return cuda_outcome();
}

enum status cuda_attention_cache_create(const struct node *node, struct kernel **out) {
    int64_t head_dim = cache_of(node)->attention.head_dim;
    if (head_dim > CACHE_HEAD_DIM_MOST)
        return status_set(STATUS_BAD_INPUT, "heads of %lld features: CUDA takes at most %d", (long long)head_dim,
                          CACHE_HEAD_DIM_MOST);
    return kernel_plain(node, attention_cache_run, 0, out);
}
