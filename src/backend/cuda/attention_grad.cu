/* The gradient of attention in tiles (FlashAttention, arXiv 2205.14135, appendix B): the probabilities are made again
 * from the scores and the saved log of their sum. Two passes, so that each sum is one block's and has one order: one
 * whose rows are queries, for dq, and one whose rows are keys, for dk and dv. */
#include "backend/cuda/attention.cuh"

/* delta = dy . y of each query and head: a warp each. */
template <typename T> __global__ void __launch_bounds__(THREADS) delta_kernel(struct attention at) {
    int64_t index = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, row = index / at.heads;
    int head = (int)(index % at.heads), sequence = (int)(row / at.length), position = (int)(row % at.length);
    if (sequence >= at.sequences) return;
    const T *dy = head_data<const T>(at, at.dy, sequence, head) + position * at.dy.stride;
    const T *y = head_data<const T>(at, at.y, sequence, head) + position * at.y.stride;
    float sum = 0;
    for (int i = (int)threadIdx.x % WARP; i < at.head_dim; i += WARP)
        sum = fmaf(widen(dy[i]), widen(y[i]), sum);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) at.delta[((int64_t)sequence * at.heads + head) * at.length + position] = sum;
}

/* Shared memory of a block: two tiles of rows, two of columns, the columns' statistics, scratch memory. */
template <class TILES> struct grad_memory {
    typedef typename TILES::element T;
    static constexpr int ROWS = TILES::ROWS * TILES::STRIDE, COLUMNS = TILES::COLUMNS * TILES::STRIDE;
    static constexpr size_t BYTES = sizeof(T) * (size_t)(2 * ROWS + 2 * COLUMNS) +
                                    sizeof(float) * (size_t)(2 * TILES::COLUMNS + TILES::SCRATCH_FLOATS);
    T *rows1, *rows2, *columns1, *columns2;
    float *lse, *delta, *scratch;

    __device__ explicit grad_memory(void *shared) {
        rows1 = (T *)shared;
        rows2 = rows1 + ROWS;
        columns1 = rows2 + ROWS;
        columns2 = columns1 + COLUMNS;
        lse = (float *)(columns2 + COLUMNS);
        delta = lse + TILES::COLUMNS;
        scratch = delta + TILES::COLUMNS;
    }
};

/* The log2 of a query's sum, and its delta; zeros after the sequence's end. */
__device__ inline void statistics_at(const struct attention &at, int sequence, int head, int query, float *lse,
                                     float *delta) {
    int64_t index = ((int64_t)sequence * at.heads + head) * at.length + query;
    bool inside = query < at.length;
    *lse = inside ? at.lse[index] * LOG2_E : 0.0f;
    *delta = inside ? at.delta[index] : 0.0f;
}

/* Scores become probabilities p = exp(s - lse), and dp = dy . v becomes ds = p (dp - delta). */
__device__ inline void score_gradient(bool sees, float factor, float lse, float delta, float *score, float *dscore) {
    float p = sees ? exp2f(fmaf(*score, factor, -lse)) : 0.0f;
    *dscore = sees ? p * (*dscore - delta) : 0.0f;
    *score = p;
}

/* dq of a tile of queries: rows are q and dy, columns k and v. */
template <class TILES> __global__ void __launch_bounds__(ATTENTION_THREADS) dq_kernel(struct attention at) {
    DYNAMIC_SHARED(shared);
    grad_memory<TILES> memory(shared);
    struct attention_place place = place_of(at, TILES::ROWS, at.heads, true);
    int kv_head = place.head * at.kv_heads / at.heads, q0 = place.row, segments[2];
    int end = min(q0 + TILES::ROWS, at.length), first = max(q0 - at.window + 1, 0);
    float dq[2][TILES::OUTPUTS] = {}, lse[2], delta[2], factor = at.scale * LOG2_E;
    for (int r = 0; r < 2; r++) {
        statistics_at(at, place.sequence, place.head, q0 + TILES::row(r), &lse[r], &delta[r]);
        segments[r] = segment_at(at, place.sequence, q0 + TILES::row(r));
    }
    tile_load<TILES, TILES::ROWS>(at, at.q, place.sequence, place.head, q0, memory.rows1);
    tile_load<TILES, TILES::ROWS>(at, at.dy, place.sequence, place.head, q0, memory.rows2);
    for (int k0 = first / TILES::COLUMNS * TILES::COLUMNS; k0 < end; k0 += TILES::COLUMNS) {
        if (!segments_meet<TILES>(at, place.sequence, segments, k0)) continue;
        __syncthreads(); /* the tiles before have been read */
        tile_load<TILES, TILES::COLUMNS>(at, at.k, place.sequence, kv_head, k0, memory.columns1);
        tile_load<TILES, TILES::COLUMNS>(at, at.v, place.sequence, kv_head, k0, memory.columns2);
        __syncthreads();
        float scores[2][TILES::SCORES] = {}, dscores[2][TILES::SCORES] = {};
        TILES::product(memory.rows1, memory.columns1, scores);
        TILES::product(memory.rows2, memory.columns2, dscores);
#pragma unroll
        for (int n = 0; n < TILES::SCORES; n++) {
            int key = k0 + TILES::column(n), key_segment = segment_at(at, place.sequence, key);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                bool sees = is_visible(at, q0 + TILES::row(r), key, segments[r], key_segment);
                score_gradient(sees, factor, lse[r], delta[r], &scores[r][n], &dscores[r][n]);
            }
        }
        TILES::accumulate(dscores, memory.columns1, memory.scratch, dq);
    }
    float factors[2] = {at.scale, at.scale};
    __syncthreads(); /* the queries have been read: their gradients take their place */
    tile_write<TILES>(dq, factors, memory.rows1);
    __syncthreads();
    tile_store<TILES>(at, at.dq, place.sequence, place.head, q0, memory.rows1);
}

/* dk and dv of a tile of keys: rows are k and v, columns q and dy of all heads that share the keys, one after the
 * other. Where registers do not hold both results, a kernel makes one. */
template <class TILES, bool DK, bool DV>
__global__ void __launch_bounds__(ATTENTION_THREADS) dkv_kernel(struct attention at) {
    DYNAMIC_SHARED(shared);
    grad_memory<TILES> memory(shared);
    struct attention_place place = place_of(at, TILES::ROWS, at.kv_heads, false);
    int group = at.heads / at.kv_heads, k0 = place.row, segments[2];
    int end = min(at.length, k0 + TILES::ROWS - 1 + at.window);
    float dk[2][TILES::OUTPUTS] = {}, dv[2][TILES::OUTPUTS] = {}, factor = at.scale * LOG2_E;
    for (int r = 0; r < 2; r++)
        segments[r] = segment_at(at, place.sequence, k0 + TILES::row(r));
    tile_load<TILES, TILES::ROWS>(at, at.k, place.sequence, place.head, k0, memory.rows1);
    tile_load<TILES, TILES::ROWS>(at, at.v, place.sequence, place.head, k0, memory.rows2);
    for (int head = place.head * group; head < (place.head + 1) * group; head++)
        for (int q0 = k0 / TILES::COLUMNS * TILES::COLUMNS; q0 < end; q0 += TILES::COLUMNS) {
            if (!segments_meet<TILES>(at, place.sequence, segments, q0)) continue;
            __syncthreads(); /* the tiles before have been read */
            tile_load<TILES, TILES::COLUMNS>(at, at.q, place.sequence, head, q0, memory.columns1);
            tile_load<TILES, TILES::COLUMNS>(at, at.dy, place.sequence, head, q0, memory.columns2);
            if (threadIdx.x < TILES::COLUMNS)
                statistics_at(at, place.sequence, head, q0 + (int)threadIdx.x, &memory.lse[threadIdx.x],
                              &memory.delta[threadIdx.x]);
            __syncthreads();
            float scores[2][TILES::SCORES] = {}, dscores[2][TILES::SCORES] = {};
            TILES::product(memory.rows1, memory.columns1, scores);
            if (DK) TILES::product(memory.rows2, memory.columns2, dscores);
#pragma unroll
            for (int n = 0; n < TILES::SCORES; n++) {
                int column = TILES::column(n), query = q0 + column;
                int query_segment = segment_at(at, place.sequence, query);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    bool sees = is_visible(at, query, k0 + TILES::row(r), query_segment, segments[r]);
                    score_gradient(sees, factor, memory.lse[column], memory.delta[column], &scores[r][n],
                                   &dscores[r][n]);
                }
            }
            if (DV) TILES::accumulate(scores, memory.columns2, memory.scratch, dv);
            if (DK) TILES::accumulate(dscores, memory.columns1, memory.scratch, dk);
        }
    float scales[2] = {at.scale, at.scale}, ones[2] = {1, 1};
    __syncthreads(); /* keys and values have been read: their gradients take their place */
    if (DK) tile_write<TILES>(dk, scales, memory.rows1);
    if (DV) tile_write<TILES>(dv, ones, memory.rows2);
    __syncthreads();
    if (DK) tile_store<TILES>(at, at.dk, place.sequence, place.head, k0, memory.rows1);
    if (DV) tile_store<TILES>(at, at.dv, place.sequence, place.head, k0, memory.rows2);
}

/* The passes of one kind of tiles. */
struct grad_passes {
    struct attention_pass queries, keys, values; /* values.kernel NULL: `keys` does it */
};

struct attention_grad_kernel {
    struct kernel kernel;
    struct grad_passes passes;
};

template <class TILES> static struct grad_passes passes_of(void) {
    constexpr size_t bytes = grad_memory<TILES>::BYTES;
    struct grad_passes passes = {.queries = {dq_kernel<TILES>, bytes, TILES::ROWS}};
    if constexpr (TILES::OUTPUTS * 4 <= 128) {
        passes.keys = {dkv_kernel<TILES, true, true>, bytes, TILES::ROWS};
    } else {
        passes.keys = {dkv_kernel<TILES, true, false>, bytes, TILES::ROWS};
        passes.values = {dkv_kernel<TILES, false, true>, bytes, TILES::ROWS};
    }
    return passes;
}

static struct grad_passes grad_passes_of(enum dtype dtype, int64_t head_dim) {
    if (dtype == DTYPE_BF16)
        return head_dim <= 64    ? passes_of<bf16_tiles<64, 64>>()
               : head_dim <= 128 ? passes_of<bf16_tiles<128, 32>>()
                                 : passes_of<bf16_tiles<256, 16>>();
    return head_dim <= 64    ? passes_of<f32_tiles<64>>()
           : head_dim <= 128 ? passes_of<f32_tiles<128>>()
                             : passes_of<f32_tiles<256>>();
}

template <typename T> static void delta_launch(const struct attention &at, cudaStream_t stream) {
    int64_t warps = (int64_t)at.sequences * at.length * at.heads;
    launch(delta_kernel<T>, grid_size(divide_up(warps, THREADS / WARP)), THREADS, 0, stream, at);
}

static void attention_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct grad_passes *passes = &((const struct attention_grad_kernel *)kernel)->passes;
    cudaStream_t stream = stream_of(call);
    struct attention at = attention_of(node, call, 1, 6);
    at.dy = heads_of(node->in[0], call->in[0], at.head_dim);
    at.y = heads_of(node->in[4], call->in[4], at.head_dim);
    at.lse = (float *)call->in[5];
    at.dq = heads_of(node->out[0], call->out[0], at.head_dim);
    at.dk = heads_of(node->out[1], call->out[1], at.head_dim);
    at.dv = heads_of(node->out[2], call->out[2], at.head_dim);
    at.delta = (float *)call->workspace;
    FOR_ELEMENT(node->in[1]->shape.dtype, delta_launch, at, stream);
    attention_pass_run(&passes->queries, at, at.heads, stream);
    attention_pass_run(&passes->keys, at, at.kv_heads, stream);
    if (passes->values.kernel) attention_pass_run(&passes->values, at, at.kv_heads, stream);
}

enum status cuda_attention_grad_create(const struct node *node, struct kernel **out) {
    const struct attention_attributes *attributes = NODE_ATTRIBUTES(node, attention_attributes);
    const struct shape *q = &node->in[1]->shape;
    TRY(attention_check(attributes));
    struct grad_passes passes = grad_passes_of(q->dtype, attributes->head_dim);
    TRY(attention_pass_prepare(&passes.queries));
    TRY(attention_pass_prepare(&passes.keys));
    if (passes.values.kernel) TRY(attention_pass_prepare(&passes.values));
    struct attention_grad_kernel *kernel =
        (struct attention_grad_kernel *)kernel_new(node, sizeof *kernel, attention_grad_run);
    if (!kernel) return STATUS_FAILED;
    kernel->passes = passes;
    kernel->kernel.workspace_bytes = shape_rows(q) * attributes->heads * (int64_t)sizeof(float);
    *out = &kernel->kernel;
    return STATUS_OK;
}
