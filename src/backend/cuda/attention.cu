/* Attention in tiles with a running softmax (Dao et al., FlashAttention, arXiv 2205.14135). */
#include <float.h>

#include "backend/cuda/attention.cuh"
#include "backend/cuda/attention_cudnn.h"

struct heads heads_of(const struct tensor *tensor, void *data, int64_t head_dim) {
    if (!tensor || !data) return {};
    bool vectors = rows_are_vectors(tensor, data) && head_dim * dtype_bytes(tensor->shape.dtype) % 16 == 0;
    return {data, tensor_row_stride(tensor), vectors};
}

struct attention attention_of(const struct node *node, const struct kernel_call *call, int q, int segments) {
    const struct attention_attributes *attributes = NODE_ATTRIBUTES(node, attention_attributes);
    const struct shape *shape = &node->in[q]->shape;
    int64_t length = shape->dims[1], dim = attributes->head_dim, window = attributes->window;
    struct attention at = {
        .q = heads_of(node->in[q], call->in[q], dim),
        .k = heads_of(node->in[q + 1], call->in[q + 1], dim),
        .v = heads_of(node->in[q + 2], call->in[q + 2], dim),
        .segments = (const int32_t *)call->in[segments],
        .sequences = (int)shape->dims[0],
        .length = (int)length,
        .heads = (int)attributes->heads,
        .kv_heads = (int)attributes->kv_heads,
        .head_dim = (int)dim,
        .window = (int)(window > 0 && window < length ? window : length),
        .scale = (float)attributes->scale,
        .softcap = (float)attributes->softcap,
    };
    return at;
}

enum status attention_check(const struct attention_attributes *attributes) {
    if (attributes->queries.parts > 1)
        return status_hint(status_set(STATUS_BAD_INPUT, "CUDA has no attention of a part of a sequence's queries"),
                           "--layout megatron cuts attention by heads");
    if (attributes->head_dim <= HEAD_DIM_MAX) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "heads of %lld features: CUDA takes at most %d",
                      (long long)attributes->head_dim, HEAD_DIM_MAX);
}

enum status attention_pass_prepare(const struct attention_pass *pass) {
    cudaError_t error = cudaFuncSetAttribute((const void *)pass->kernel.function,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)pass->shared_bytes);
    return error == cudaSuccess ? STATUS_OK : cuda_failed(error, "shared memory");
}

void attention_pass_run(const struct attention_pass *pass, const struct attention &at, int heads, cudaStream_t stream) {
    int64_t tiles = divide_up(at.length, pass->rows);
    launch(pass->kernel, grid_size(tiles * at.sequences * heads), ATTENTION_THREADS, pass->shared_bytes, stream, at);
}

/* Scores of one tile of keys become powers of 2, and sums and outputs so far shrink to the rows' new maxima. */
template <class TILES>
__device__ void running_softmax(float scores[2][TILES::SCORES], float largest[2], float sum[2],
                                float outputs[2][TILES::OUTPUTS]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float now = largest[r];
#pragma unroll
        for (int n = 0; n < TILES::SCORES; n++)
            now = fmaxf(now, scores[r][n]);
        now = row_largest<TILES>(now);
        float shrink = exp2f(largest[r] - now);
        sum[r] *= shrink;
#pragma unroll
        for (int n = 0; n < TILES::SCORES; n++) {
            scores[r][n] = exp2f(scores[r][n] - now);
            sum[r] += scores[r][n];
        }
#pragma unroll
        for (int m = 0; m < TILES::OUTPUTS; m++)
            outputs[r][m] *= shrink;
        largest[r] = now;
    }
}

template <class TILES> constexpr size_t attention_shared_bytes(void) {
    return sizeof(typename TILES::element) * (size_t)(TILES::STRIDE * (TILES::ROWS + 2 * TILES::COLUMNS)) +
           sizeof(float) * (size_t)TILES::SCRATCH_FLOATS;
}

/* Scores in units of ln 2; a key that a query does not see gets a score below all others. */
template <class TILES>
__device__ void hide_scores(const struct attention &at, int sequence, int q0, int k0, const int segments[2],
                            float scores[2][TILES::SCORES]) {
#pragma unroll
    for (int n = 0; n < TILES::SCORES; n++) {
        int key = k0 + TILES::column(n), key_segment = segment_at(at, sequence, key);
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (!is_visible(at, q0 + TILES::row(r), key, segments[r], key_segment)) scores[r][n] = -INFINITY;
    }
}

/* A tile's values are copied while its keys are multiplied, and the next keys while the values are weighted. */
template <class TILES, bool CAPPED>
__global__ void __launch_bounds__(ATTENTION_THREADS) attention_kernel(struct attention at) {
    DYNAMIC_SHARED(shared);
    typedef typename TILES::element T;
    T *queries = (T *)shared, *keys = queries + TILES::ROWS * TILES::STRIDE;
    T *values = keys + TILES::COLUMNS * TILES::STRIDE;
    float *scratch = (float *)(values + TILES::COLUMNS * TILES::STRIDE);
    struct attention_place place = place_of(at, TILES::ROWS, at.heads, true);
    int kv_head = place.head * at.kv_heads / at.heads, q0 = place.row;
    int end = min(q0 + TILES::ROWS, at.length), first = max(q0 - at.window + 1, 0);
    /* The largest so far is finite from the start on: a query may see none of its first keys. */
    float start = at.sinks ? widen(((const T *)at.sinks)[place.head]) * LOG2_E : -FLT_MAX;
    float one = at.sinks && threadIdx.x % TILES::ROW_LANES == 0 ? 1.0f : 0.0f;
    float outputs[2][TILES::OUTPUTS] = {}, largest[2] = {start, start}, sum[2] = {one, one};
    float factor = score_factor<CAPPED>(at), cap = at.softcap * LOG2_E;
    int segments[2];
    for (int r = 0; r < 2; r++)
        segments[r] = segment_at(at, place.sequence, q0 + TILES::row(r));
    struct tile_place now =
        next_tile<TILES>(at, place.sequence, segments, first / TILES::COLUMNS * TILES::COLUMNS, end);
    tile_request<TILES, TILES::ROWS>(at, at.q, place.sequence, place.head, q0, queries);
    tile_request<TILES, TILES::COLUMNS>(at, at.k, place.sequence, kv_head, now.column, keys);
    while (now.column < end) {
        int k0 = now.column;
        copies_wait<0>();
        __syncthreads(); /* the keys are there, and the values before have been read */
        tile_request<TILES, TILES::COLUMNS>(at, at.v, place.sequence, kv_head, k0, values);
        float scores[2][TILES::SCORES] = {};
        TILES::product(queries, keys, scores);
        struct tile_place next = next_tile<TILES>(at, place.sequence, segments, k0 + TILES::COLUMNS, end);
        __syncthreads(); /* the keys have been read */
        tile_request<TILES, TILES::COLUMNS>(at, at.k, place.sequence, kv_head, next.column, keys);
#pragma unroll
        for (int n = 0; n < TILES::SCORES; n++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                scores[r][n] = CAPPED ? bend(scores[r][n] * factor) * cap : scores[r][n] * factor;
        if (!all_visible(at, q0, TILES::ROWS, k0, TILES::COLUMNS, now.alike))
            hide_scores<TILES>(at, place.sequence, q0, k0, segments, scores);
        running_softmax<TILES>(scores, largest, sum, outputs);
        copies_wait<1>();
        __syncthreads(); /* the values are there */
        TILES::accumulate(scores, values, scratch, outputs);
        now = next;
    }
    float factors[2];
    for (int r = 0; r < 2; r++) {
        int query = q0 + TILES::row(r);
        float total = row_sum<TILES>(sum[r]);
        factors[r] = query < at.length ? 1.0f / total : 0.0f;
        if (query < at.length && threadIdx.x % TILES::ROW_LANES == 0)
            at.lse[((int64_t)place.sequence * at.heads + place.head) * at.length + query] =
                largest[r] * LN_2 + logf(total);
    }
    copies_wait<0>();
    __syncthreads(); /* the queries have been read: outputs take their place */
    tile_write<TILES>(outputs, factors, queries);
    __syncthreads();
    tile_store<TILES>(at, at.y, place.sequence, place.head, q0, queries);
}

struct attention_kernel {
    struct kernel kernel;
    struct attention_pass pass;
};

template <class TILES> static struct attention_pass forward_pass(bool capped) {
    auto kernel = capped ? known<attention_kernel<TILES, true>>() : known<attention_kernel<TILES, false>>();
    return {kernel, attention_shared_bytes<TILES>(), TILES::ROWS};
}

static struct attention_pass forward_pass_of(enum dtype dtype, int64_t head_dim, bool capped) {
    if (dtype == DTYPE_BF16)
        return head_dim <= 64    ? forward_pass<bf16_tiles<64, 64>>(capped)
               : head_dim <= 128 ? forward_pass<bf16_tiles<128, 64>>(capped)
                                 : forward_pass<bf16_tiles<256, 64>>(capped);
    return head_dim <= 64    ? forward_pass<f32_tiles<64, 32>>(capped)
           : head_dim <= 128 ? forward_pass<f32_tiles<128, 32>>(capped)
                             : forward_pass<f32_tiles<256, 32>>(capped);
}

static enum status attention_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct attention at = attention_of(node, call, 0, 3);
    at.y = heads_of(node->out[0], call->out[0], at.head_dim);
    at.lse = (float *)call->out[1];
    at.sinks = call->in[4];
    attention_pass_run(&((const struct attention_kernel *)kernel)->pass, at, at.heads, stream_of(call));
    return cuda_outcome();
}

enum status cuda_attention_create(const struct node *node, struct kernel **out) {
    const struct attention_attributes *attributes = NODE_ATTRIBUTES(node, attention_attributes);
    TRY(attention_library_create(node, out));
    if (*out) return STATUS_OK;
    TRY(attention_check(attributes));
    struct attention_pass pass =
        forward_pass_of(node->in[0]->shape.dtype, attributes->head_dim, attributes->softcap > 0);
    TRY(attention_pass_prepare(&pass));
    struct attention_kernel *kernel = (struct attention_kernel *)kernel_new(node, sizeof *kernel, attention_run);
    if (!kernel) return STATUS_FAILED;
    kernel->pass = pass;
    *out = &kernel->kernel;
    return STATUS_OK;
}
