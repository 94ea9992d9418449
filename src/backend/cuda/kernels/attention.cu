/* Attention in tiles with a running softmax (Dao et al., FlashAttention, arXiv 2205.14135). */
#include <float.h>

#include "backend/cuda/attention_cudnn.h"
#include "backend/cuda/kernels/attention.cuh"
#include "backend/cuda/kernels/device.cuh"

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
    return cuda_status(error, "shared memory");
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
    TRY(attention_cudnn_kernel(node, out));
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

/* The gradient of attention in tiles (FlashAttention, arXiv 2205.14135, appendix B): the probabilities are recomputed
 * from the scores and the saved log of their sum. Two passes, so that each sum is one block's and has one order: one
 * whose rows are queries, for dq, and one whose rows are keys, for dk and dv. */

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

/* Shared memory of a block: two tiles of rows, and twice two of columns: while one pair is multiplied, the next comes.
 * A column's statistics lie where its row of a tile is padded: the log of its sum in the first tile, delta in the
 * second.
 */
template <class TILES> struct grad_memory {
    typedef typename TILES::element T;
    static constexpr int ROWS = TILES::ROWS * TILES::STRIDE, COLUMNS = TILES::COLUMNS * TILES::STRIDE;
    static constexpr size_t BYTES =
        sizeof(T) * (size_t)(2 * ROWS + 4 * COLUMNS) + sizeof(float) * (size_t)TILES::SCRATCH_FLOATS;
    static_assert(sizeof(T) * (TILES::STRIDE - TILES::D) >= sizeof(float), "rows are padded");
    T *rows1, *rows2, *columns;
    float *scratch;

    __device__ explicit grad_memory(void *shared) {
        rows1 = (T *)shared;
        rows2 = rows1 + ROWS;
        columns = rows2 + ROWS;
        scratch = (float *)(columns + 4 * COLUMNS);
    }
    __device__ T *first(int turn) const { return columns + turn * 2 * COLUMNS; }
    __device__ T *second(int turn) const { return first(turn) + COLUMNS; }
    static __device__ float *statistic(T *tile, int column) {
        return (float *)(tile + column * TILES::STRIDE + TILES::D);
    }
};

/* The log of a query's sum, and its delta, of [length] each, into tiles of columns; zeros after the sequence's end. */
template <class TILES>
__device__ void statistics_request(const struct attention &at, int sequence, int head, int q0,
                                   const grad_memory<TILES> &memory, int turn) {
    int column = (int)threadIdx.x, query = q0 + column;
    if (column >= TILES::COLUMNS) return;
    bool inside = query < at.length;
    int64_t index = ((int64_t)sequence * at.heads + head) * at.length + (inside ? query : 0);
    copy_word_later(memory.statistic(memory.first(turn), column), at.lse + index, inside);
    copy_word_later(memory.statistic(memory.second(turn), column), at.delta + index, inside);
}

/* Scores become probabilities p = exp(s - lse), and dp = dy . v becomes ds = p (dp - delta), times the slope of a soft
 * cap. lse and cap in units of ln 2. */
template <bool CAPPED>
__device__ inline void score_gradient(float factor, float cap, float lse, float delta, float *score, float *dscore) {
    if constexpr (CAPPED) {
        float bent = bend(*score * factor);
        *score = exp2f(fmaf(bent, cap, -lse));
        *dscore = *score * (*dscore - delta) * fmaf(-bent, bent, 1.0f);
    } else {
        *score = exp2f(fmaf(*score, factor, -lse));
        *dscore = *score * (*dscore - delta);
    }
}

/* dq of a tile of queries: rows are q and dy, columns k and v. */
template <class TILES, bool CAPPED>
__global__ void __launch_bounds__(ATTENTION_THREADS) dq_kernel(struct attention at) {
    DYNAMIC_SHARED(shared);
    grad_memory<TILES> memory(shared);
    struct attention_place place = place_of(at, TILES::ROWS, at.heads, true);
    int kv_head = place.head * at.kv_heads / at.heads, q0 = place.row, segments[2];
    int end = min(q0 + TILES::ROWS, at.length), first = max(q0 - at.window + 1, 0);
    float dq[2][TILES::OUTPUTS] = {}, lse[2], delta[2];
    float factor = score_factor<CAPPED>(at), cap = at.softcap * LOG2_E;
    for (int r = 0; r < 2; r++) {
        int query = q0 + TILES::row(r);
        int64_t index = ((int64_t)place.sequence * at.heads + place.head) * at.length + query;
        lse[r] = query < at.length ? at.lse[index] * LOG2_E : 0.0f;
        delta[r] = query < at.length ? at.delta[index] : 0.0f;
        segments[r] = segment_at(at, place.sequence, query);
    }
    struct tile_place now =
        next_tile<TILES>(at, place.sequence, segments, first / TILES::COLUMNS * TILES::COLUMNS, end);
    tile_request<TILES, TILES::ROWS>(at, at.q, place.sequence, place.head, q0, memory.rows1);
    tile_request<TILES, TILES::ROWS>(at, at.dy, place.sequence, place.head, q0, memory.rows2);
    tile_request<TILES, TILES::COLUMNS>(at, at.k, place.sequence, kv_head, now.column, memory.first(0));
    tile_request<TILES, TILES::COLUMNS>(at, at.v, place.sequence, kv_head, now.column, memory.second(0));
    for (int turn = 0; now.column < end; turn ^= 1) {
        int k0 = now.column;
        bool alike = now.alike;
        now = next_tile<TILES>(at, place.sequence, segments, k0 + TILES::COLUMNS, end);
        copies_wait<0>();
        __syncthreads(); /* the tiles are there, and those before have been read */
        if (now.column < end) {
            tile_request<TILES, TILES::COLUMNS>(at, at.k, place.sequence, kv_head, now.column, memory.first(turn ^ 1));
            tile_request<TILES, TILES::COLUMNS>(at, at.v, place.sequence, kv_head, now.column, memory.second(turn ^ 1));
        }
        float scores[2][TILES::SCORES] = {}, dscores[2][TILES::SCORES] = {};
        TILES::product(memory.rows1, memory.first(turn), scores);
        TILES::product(memory.rows2, memory.second(turn), dscores);
#pragma unroll
        for (int n = 0; n < TILES::SCORES; n++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                score_gradient<CAPPED>(factor, cap, lse[r], delta[r], &scores[r][n], &dscores[r][n]);
        if (!all_visible(at, q0, TILES::ROWS, k0, TILES::COLUMNS, alike))
#pragma unroll
            for (int n = 0; n < TILES::SCORES; n++) {
                int key = k0 + TILES::column(n), key_segment = segment_at(at, place.sequence, key);
#pragma unroll
                for (int r = 0; r < 2; r++)
                    if (!is_visible(at, q0 + TILES::row(r), key, segments[r], key_segment)) dscores[r][n] = 0;
            }
        TILES::accumulate(dscores, memory.first(turn), memory.scratch, dq);
    }
    float factors[2] = {at.scale, at.scale};
    __syncthreads(); /* the queries have been read: their gradients take their place */
    tile_write<TILES>(dq, factors, memory.rows1);
    __syncthreads();
    tile_store<TILES>(at, at.dq, place.sequence, place.head, q0, memory.rows1);
}

/* The tiles of queries that see a tile of keys, of all heads that share the keys, one head after the other. */
template <class TILES> struct query_tiles {
    const struct attention &at;
    int sequence, first, end, heads_end;
    int segments[2];
    int head;
    struct tile_place tile;

    /* `k0`: the first of the block's keys. */
    __device__ query_tiles(const struct attention &at, int sequence, int kv_head, int k0) : at(at), sequence(sequence) {
        int group = at.heads / at.kv_heads;
        first = k0 / TILES::COLUMNS * TILES::COLUMNS;
        end = min(at.length, k0 + TILES::ROWS - 1 + at.window);
        head = kv_head * group;
        heads_end = head + group;
        for (int r = 0; r < 2; r++)
            segments[r] = segment_at(at, sequence, k0 + TILES::row(r));
        tile = next_tile<TILES>(at, sequence, segments, first, end);
    }
    /* A key's own query sees it, so that each head has a tile. */
    __device__ bool more(void) const { return head < heads_end; }
    __device__ void advance(void) {
        tile = next_tile<TILES>(at, sequence, segments, tile.column + TILES::COLUMNS, end);
        if (tile.column < end) return;
        head++;
        tile = next_tile<TILES>(at, sequence, segments, first, end);
    }
    __device__ void request(const grad_memory<TILES> &memory, int turn) const {
        if (!more()) return;
        statistics_request<TILES>(at, sequence, head, tile.column, memory, turn);
        tile_request<TILES, TILES::COLUMNS>(at, at.q, sequence, head, tile.column, memory.first(turn));
        tile_request<TILES, TILES::COLUMNS>(at, at.dy, sequence, head, tile.column, memory.second(turn));
    }
};

/* dk and dv of a tile of keys: rows are k and v, columns q and dy. If registers cannot hold both results, a kernel
 * makes one of them. */
template <class TILES, bool DK, bool DV, bool CAPPED>
__global__ void __launch_bounds__(ATTENTION_THREADS) dkv_kernel(struct attention at) {
    DYNAMIC_SHARED(shared);
    grad_memory<TILES> memory(shared);
    struct attention_place place = place_of(at, TILES::ROWS, at.kv_heads, false);
    int k0 = place.row;
    query_tiles<TILES> queries(at, place.sequence, place.head, k0);
    float dk[2][TILES::OUTPUTS] = {}, dv[2][TILES::OUTPUTS] = {};
    float factor = score_factor<CAPPED>(at), cap = at.softcap * LOG2_E;
    tile_request<TILES, TILES::ROWS>(at, at.k, place.sequence, place.head, k0, memory.rows1);
    tile_request<TILES, TILES::ROWS>(at, at.v, place.sequence, place.head, k0, memory.rows2);
    queries.request(memory, 0);
    for (int turn = 0; queries.more(); turn ^= 1) {
        struct tile_place now = queries.tile;
        queries.advance();
        copies_wait<0>();
        __syncthreads(); /* the tiles are there, and those before have been read */
        queries.request(memory, turn ^ 1);
        float scores[2][TILES::SCORES] = {}, dscores[2][TILES::SCORES] = {};
        TILES::product(memory.rows1, memory.first(turn), scores);
        if (DK) TILES::product(memory.rows2, memory.second(turn), dscores);
#pragma unroll
        for (int n = 0; n < TILES::SCORES; n++) {
            float lse = *memory.statistic(memory.first(turn), TILES::column(n)) * LOG2_E;
            float delta = *memory.statistic(memory.second(turn), TILES::column(n));
#pragma unroll
            for (int r = 0; r < 2; r++)
                score_gradient<CAPPED>(factor, cap, lse, delta, &scores[r][n], &dscores[r][n]);
        }
        if (!all_visible(at, now.column, TILES::COLUMNS, k0, TILES::ROWS, now.alike))
#pragma unroll
            for (int n = 0; n < TILES::SCORES; n++) {
                int query = now.column + TILES::column(n), segment = segment_at(at, place.sequence, query);
#pragma unroll
                for (int r = 0; r < 2; r++)
                    if (!is_visible(at, query, k0 + TILES::row(r), segment, queries.segments[r]))
                        scores[r][n] = dscores[r][n] = 0;
            }
        if (DV) TILES::accumulate(scores, memory.second(turn), memory.scratch, dv);
        if (DK) TILES::accumulate(dscores, memory.first(turn), memory.scratch, dk);
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
    struct attention_pass queries, keys, values; /* values.kernel.function NULL: `keys` does it */
};

struct attention_grad_kernel {
    struct kernel kernel;
    struct grad_passes passes;
};

template <class TILES, bool CAPPED> static struct grad_passes passes_of(void) {
    constexpr size_t bytes = grad_memory<TILES>::BYTES;
    struct grad_passes passes = {.queries = {known<dq_kernel<TILES, CAPPED>>(), bytes, TILES::ROWS}};
    if constexpr (TILES::OUTPUTS * 4 <= 128) {
        passes.keys = {known<dkv_kernel<TILES, true, true, CAPPED>>(), bytes, TILES::ROWS};
    } else {
        passes.keys = {known<dkv_kernel<TILES, true, false, CAPPED>>(), bytes, TILES::ROWS};
        passes.values = {known<dkv_kernel<TILES, false, true, CAPPED>>(), bytes, TILES::ROWS};
    }
    return passes;
}

template <bool CAPPED> static struct grad_passes grad_passes_of(enum dtype dtype, int64_t head_dim) {
    if (dtype == DTYPE_BF16)
        return head_dim <= 64    ? passes_of<bf16_tiles<64, 64>, CAPPED>()
               : head_dim <= 128 ? passes_of<bf16_tiles<128, 32>, CAPPED>()
                                 : passes_of<bf16_tiles<256, 16>, CAPPED>();
    return head_dim <= 64    ? passes_of<f32_tiles<64, 32>, CAPPED>()
           : head_dim <= 128 ? passes_of<f32_tiles<128, 16>, CAPPED>()
                             : passes_of<f32_tiles<256, 16>, CAPPED>();
}

template <typename T> static void delta_launch(const struct attention &at, cudaStream_t stream) {
    int64_t warps = (int64_t)at.sequences * at.length * at.heads;
    launch(known<delta_kernel<T>>(), grid_size(divide_up(warps, THREADS / WARP)), THREADS, 0, stream, at);
}

static enum status attention_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
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
    if (passes->values.kernel.function) attention_pass_run(&passes->values, at, at.kv_heads, stream);
    return cuda_outcome();
}

enum status cuda_attention_grad_create(const struct node *node, struct kernel **out) {
    const struct attention_attributes *attributes = NODE_ATTRIBUTES(node, attention_attributes);
    const struct shape *q = &node->in[1]->shape;
    TRY(attention_cudnn_grad_kernel(node, out));
    if (*out) return STATUS_OK;
    TRY(attention_check(attributes));
    struct grad_passes passes = attributes->softcap > 0 ? grad_passes_of<true>(q->dtype, attributes->head_dim)
                                                        : grad_passes_of<false>(q->dtype, attributes->head_dim);
    TRY(attention_pass_prepare(&passes.queries));
    TRY(attention_pass_prepare(&passes.keys));
    if (passes.values.kernel.function) TRY(attention_pass_prepare(&passes.values));
    struct attention_grad_kernel *kernel =
        (struct attention_grad_kernel *)kernel_new(node, sizeof *kernel, attention_grad_run);
    if (!kernel) return STATUS_FAILED;
    kernel->passes = passes;
    kernel->kernel.workspace_bytes = shape_rows(q) * attributes->heads * (int64_t)sizeof(float);
    *out = &kernel->kernel;
    return STATUS_OK;
}

/* The gradient of attention's sinks. A head is a block's work: its warps take the queries in turn, and their sums are
 * added in order. */

constexpr int SINK_WARPS = 16, SINK_THREADS = SINK_WARPS * WARP;

template <typename T> struct sink_rows {
    const T *dy, *y, *sinks;
    const float *lse; /* [sequences][heads][length] */
    float *dsinks;
    int64_t dy_stride, y_stride, length, rows;
    int heads, head_dim;
};

template <typename T> __global__ void __launch_bounds__(SINK_THREADS) sinks_kernel(struct sink_rows<T> at) {
    __shared__ float sums[SINK_WARPS];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, head = (int)blockIdx.x;
    float sink = widen(at.sinks[head]), sum = 0;
    for (int64_t row = warp; row < at.rows; row += SINK_WARPS) {
        const T *dy = at.dy + row * at.dy_stride + (int64_t)head * at.head_dim;
        const T *y = at.y + row * at.y_stride + (int64_t)head * at.head_dim;
        float dot = 0;
        for (int i = lane; i < at.head_dim; i += WARP)
            dot = fmaf(widen(dy[i]), widen(y[i]), dot);
        dot = warp_sum(dot);
        float lse = at.lse[(row / at.length * at.heads + head) * at.length + row % at.length];
        sum = fmaf(expf(sink - lse), dot, sum);
    }
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    float total = 0;
    for (int w = 0; w < SINK_WARPS; w++)
        total += sums[w];
    at.dsinks[head] -= total;
}

template <typename T> static void sinks_launch(const struct node *node, const struct kernel_call *call) {
    const struct attention_attributes *attributes = NODE_ATTRIBUTES(node, attention_attributes);
    struct sink_rows<T> at = {
        .dy = (const T *)call->in[0], .y = (const T *)call->in[1], .sinks = (const T *)call->in[3],
        .lse = (const float *)call->in[2], .dsinks = (float *)call->out[0], .dy_stride = tensor_row_stride(node->in[0]),
        .y_stride = tensor_row_stride(node->in[1]), .length = node->in[0]->shape.dims[1],
        .rows = shape_rows(&node->in[0]->shape), .heads = (int)attributes->heads, .head_dim = (int)attributes->head_dim,
    };
    launch(known<sinks_kernel<T>>(), grid_size(attributes->heads), SINK_THREADS, 0, stream_of(call), at);
}

static enum status sinks_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    FOR_ELEMENT(kernel->node->in[0]->shape.dtype, sinks_launch, kernel->node, call);
    return cuda_outcome();
}

CUDA_KERNEL(attention_sinks_grad, sinks_grad_run)
