/* Shared by attention and its gradient: operands, tiles of positions of one head in shared memory, GEMMs of tiles.
 *
 * A block works on a tile of rows (queries, or keys) while tiles of columns (keys, or queries) pass. Scores [rows]
 * [columns] are held in registers, spread over the block's threads: a thread has parts of two rows, shared with the
 * ROW_LANES - 1 lanes next to it. Two kinds of tiles, for fp32 and for bf16, define the parts; all else is common
 * code. */
#pragma once

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/mma.cuh"

constexpr int ATTENTION_THREADS = 128, HEAD_DIM_MAX = 256;
/* Scores are in units of ln 2: exponentials are then powers of 2. */
constexpr float LOG2_E = 1.44269504089f, LN_2 = 0.69314718056f;

/* [sequences][length][heads][head_dim]; stride: elements from one position to the next. */
struct heads {
    void *data;
    int64_t stride;
    bool vectors; /* heads may be moved 16 bytes at a time */
};

struct attention {
    struct heads q, k, v, y;
    struct heads dy, dq, dk, dv;
    float *lse, *delta;      /* [sequences][heads][length]; delta: dy . y */
    const int32_t *segments; /* [sequences][length] or NULL */
    const void *sinks;       /* [heads] or NULL; of attention alone */
    int sequences, length, heads, kv_heads, head_dim;
    int window;           /* at most length */
    float scale, softcap; /* softcap 0: none */
};

/* On the host. NULL tensors give empty operands. */
struct heads heads_of(const struct tensor *tensor, void *data, int64_t head_dim);
struct attention attention_of(const struct node *node, const struct kernel_call *call, int q, int segments);
/* Heads that no tile holds are BAD_INPUT. */
enum status attention_check(const struct attention_attributes *attributes);

/* First feature of a head at position 0 of a sequence. */
template <typename T>
__device__ inline T *head_data(const struct attention &at, const struct heads &heads, int sequence, int head) {
    return (T *)heads.data + (int64_t)sequence * at.length * heads.stride + (int64_t)head * at.head_dim;
}

/* The factor of the GEMMs of queries and keys: scores are then in units of ln 2 or, until they are capped, of the soft
 * cap. */
template <bool CAPPED> __device__ inline float score_factor(const struct attention &at) {
    return CAPPED ? at.scale / at.softcap : at.scale * LOG2_E;
}
/* tanh within 2e-7, in few registers. */
__device__ inline float bend(float score) { return 1.0f - __fdividef(2.0f, 1.0f + exp2f(score * (2 * LOG2_E))); }

__device__ inline bool is_visible(const struct attention &at, int query, int key, int query_segment, int key_segment) {
    return key <= query && query - key < at.window && query < at.length && query_segment == key_segment;
}

/* Position `at` of a sequence without segments is in segment 0. */
__device__ inline int segment_at(const struct attention &at, int sequence, int position) {
    bool inside = at.segments && position < at.length;
    return inside ? at.segments[(int64_t)sequence * at.length + position] : 0;
}

/* The next tile of columns. */
struct tile_place {
    int column; /* its first */
    bool alike; /* the thread's rows and columns are of one segment */
};

/* The first tile of columns from `column` on that shares a segment with the block's rows; tiles before it need neither
 * be read nor multiplied. At `end` or after when there is none. All threads must call it. */
template <class TILES>
__device__ struct tile_place next_tile(const struct attention &at, int sequence, const int row_segments[2], int column,
                                       int end) {
    struct tile_place place = {column, true};
    for (; at.segments && place.column < end; place.column += TILES::COLUMNS) {
        bool meet = false;
        place.alike = row_segments[0] == row_segments[1];
        for (int n = 0; n < TILES::SCORES; n++) {
            int segment = segment_at(at, sequence, place.column + TILES::column(n));
            meet = meet || segment == row_segments[0] || segment == row_segments[1];
            place.alike = place.alike && segment == row_segments[0];
        }
        if (__syncthreads_or(meet)) break;
    }
    return place;
}

/* Whether each of a warp's queries sees each key of the tile, so that no pair needs a check. Positions after the
 * sequence's end may count as seen: they are zero, add nothing and are not written. */
__device__ inline bool all_visible(const struct attention &at, int query, int queries, int key, int keys, bool alike) {
    int last = min(query + queries, at.length) - 1;
    return key + keys - 1 <= query && last - key < at.window && __all_sync(0xffffffffu, alike);
}

/* bf16, by the tensor cores: each warp has 16 rows. */
template <int D_, int COLUMNS_> struct bf16_tiles {
    typedef __nv_bfloat16 element;
    static constexpr int D = D_, ROWS = 64, COLUMNS = COLUMNS_, ROW_LANES = 4;
    static constexpr int STRIDE = D + 8;                        /* eight rows then begin in banks of their own */
    static constexpr int SCORES = COLUMNS / 4, OUTPUTS = D / 4; /* a thread's of each of its two rows */
    static constexpr int SCRATCH_FLOATS = 0;

    static __device__ int row(int r) { return (int)threadIdx.x / WARP * 16 + (int)threadIdx.x % WARP / 4 + 8 * r; }
    static __device__ int column(int n) { return n / 2 * 8 + (int)threadIdx.x % 4 * 2 + n % 2; }
    static __device__ int output(int m) { return column(m); }

    /* scores += rows columns^t */
    static __device__ void product(const element *rows, const element *columns, float scores[2][SCORES]) {
        int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
        const element *a_at = rows + (warp * 16 + lane % 16) * STRIDE + lane / 16 * 8;
        const element *b_at = columns + (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll
        for (int k = 0; k < D; k += 16) {
            uint32_t a[4], b[4];
            load_matrices(a, a_at + k);
#pragma unroll
            for (int n = 0; n < COLUMNS; n += 16) {
                load_matrices(b, b_at + n * STRIDE + k);
                multiply_add(&scores[0][n / 4], &scores[1][n / 4], a, b[0], b[1]);
                multiply_add(&scores[0][n / 4 + 2], &scores[1][n / 4 + 2], a, b[2], b[3]);
            }
        }
    }

    /* outputs += weights columns, with the weights rounded to bf16. The layout of c is that of a. */
    static __device__ void accumulate(const float weights[2][SCORES], const element *columns, float *,
                                      float outputs[2][OUTPUTS]) {
        int lane = (int)threadIdx.x % WARP;
        const element *b_at = columns + lane % 16 * STRIDE + lane / 16 * 8;
#pragma unroll
        for (int k = 0; k < COLUMNS; k += 16) {
            const float *top = &weights[0][k / 4], *bottom = &weights[1][k / 4];
            uint32_t a[4] = {pack_bf16(top[0], top[1]), pack_bf16(bottom[0], bottom[1]), pack_bf16(top[2], top[3]),
                             pack_bf16(bottom[2], bottom[3])};
            uint32_t b[4];
#pragma unroll
            for (int d = 0; d < D; d += 16) {
                load_matrices_turned(b, b_at + k * STRIDE + d);
                multiply_add(&outputs[0][d / 4], &outputs[1][d / 4], a, b[0], b[1]);
                multiply_add(&outputs[0][d / 4 + 2], &outputs[1][d / 4 + 2], a, b[2], b[3]);
            }
        }
    }
};

/* fp32, by the ordinary units: each warp has 8 rows, every 8 lanes two of them. */
template <int D_, int COLUMNS_> struct f32_tiles {
    typedef float element;
    static constexpr int D = D_, ROWS = 32, COLUMNS = COLUMNS_, ROW_LANES = 8;
    static constexpr int STRIDE = D + 4; /* eight rows then begin in banks of their own */
    static constexpr int SCORES = COLUMNS / 8, OUTPUTS = D / 8;
    static constexpr int SCRATCH_ROW = COLUMNS + 1, SCRATCH_FLOATS = ROWS * SCRATCH_ROW;

    static __device__ int row(int r) { return (int)threadIdx.x / 8 * 2 + r; }
    static __device__ int column(int n) { return (int)threadIdx.x % 8 + 8 * n; }
    static __device__ int output(int m) { return m / 4 * 32 + (int)threadIdx.x % 8 * 4 + m % 4; }

    static __device__ void product(const element *rows, const element *columns, float scores[2][SCORES]) {
#pragma unroll 4
        for (int d = 0; d < D; d += 4) {
            float4 a[2], b[SCORES];
            for (int r = 0; r < 2; r++)
                a[r] = *(const float4 *)(rows + row(r) * STRIDE + d);
            for (int n = 0; n < SCORES; n++)
                b[n] = *(const float4 *)(columns + column(n) * STRIDE + d);
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int n = 0; n < SCORES; n++) {
                    float sum = fmaf(a[r].x, b[n].x, scores[r][n]);
                    sum = fmaf(a[r].y, b[n].y, sum);
                    sum = fmaf(a[r].z, b[n].z, sum);
                    scores[r][n] = fmaf(a[r].w, b[n].w, sum);
                }
        }
    }

    /* The weights of a row are in 8 lanes of a warp, and go through the scratch memory to all of them. */
    static __device__ void accumulate(const float weights[2][SCORES], const element *columns, float *scratch,
                                      float outputs[2][OUTPUTS]) {
        __syncwarp(); /* what was there before has been read */
        for (int r = 0; r < 2; r++)
            for (int n = 0; n < SCORES; n++)
                scratch[row(r) * SCRATCH_ROW + column(n)] = weights[r][n];
        __syncwarp();
        for (int c = 0; c < COLUMNS; c++) {
            float top = scratch[row(0) * SCRATCH_ROW + c], bottom = scratch[row(1) * SCRATCH_ROW + c];
#pragma unroll
            for (int m = 0; m < OUTPUTS; m += 4) {
                float4 value = *(const float4 *)(columns + c * STRIDE + output(m));
                const float values[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    outputs[0][m + i] = fmaf(top, values[i], outputs[0][m + i]);
                    outputs[1][m + i] = fmaf(bottom, values[i], outputs[1][m + i]);
                }
            }
        }
    }
};

/* POSITIONS positions of a head from `start` on, into a tile; zeros after the head's features and the sequence's end.
 */
template <class TILES, int POSITIONS>
__device__ void tile_load(const struct attention &at, const struct heads &heads, int sequence, int head, int start,
                          typename TILES::element *tile) {
    typedef typename TILES::element T;
    constexpr int W = VECTOR<T>, PIECES = TILES::D / W;
    const T *from = head_data<const T>(at, heads, sequence, head);
    for (int i = (int)threadIdx.x; i < POSITIONS * PIECES; i += ATTENTION_THREADS) {
        int position = start + i / PIECES, feature = i % PIECES * W;
        int64_t index = position * heads.stride + feature;
        vector<T, W> value;
        for (int w = 0; w < W; w++)
            value.at[w] = narrow<T>(0);
        if (position < at.length && heads.vectors && feature < at.head_dim)
            value = load<T, W>(from, index);
        else if (position < at.length && !heads.vectors)
            for (int w = 0; w < W; w++)
                if (feature + w < at.head_dim) value.at[w] = from[index + w];
        *(vector<T, W> *)(tile + i / PIECES * TILES::STRIDE + feature) = value;
    }
}

/* The same by asynchronous copies, one group. Heads that cannot be moved 16 bytes at a time are copied at once. */
template <class TILES, int POSITIONS>
__device__ void tile_request(const struct attention &at, const struct heads &heads, int sequence, int head, int start,
                             typename TILES::element *tile) {
    typedef typename TILES::element T;
    constexpr int W = VECTOR<T>, PIECES = TILES::D / W;
    const T *from = head_data<const T>(at, heads, sequence, head);
    if (!heads.vectors) tile_load<TILES, POSITIONS>(at, heads, sequence, head, start, tile);
    for (int i = (int)threadIdx.x; heads.vectors && i < POSITIONS * PIECES; i += ATTENTION_THREADS) {
        int position = start + i / PIECES, feature = i % PIECES * W;
        bool inside = position < at.length && feature < at.head_dim;
        copy_later(tile + i / PIECES * TILES::STRIDE + feature,
                   inside ? from + position * heads.stride + feature : from, inside);
    }
    copies_end();
}

/* A thread's outputs, each of its rows times a factor, into a tile of rows. */
template <class TILES>
__device__ void tile_write(const float outputs[2][TILES::OUTPUTS], const float factors[2],
                           typename TILES::element *tile) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int m = 0; m < TILES::OUTPUTS; m++)
            tile[TILES::row(r) * TILES::STRIDE + TILES::output(m)] =
                narrow<typename TILES::element>(outputs[r][m] * factors[r]);
}

/* A tile of rows to positions from `start` on. */
template <class TILES>
__device__ void tile_store(const struct attention &at, const struct heads &heads, int sequence, int head, int start,
                           const typename TILES::element *tile) {
    typedef typename TILES::element T;
    constexpr int W = VECTOR<T>, PIECES = TILES::D / W;
    T *to = head_data<T>(at, heads, sequence, head);
    for (int i = (int)threadIdx.x; i < TILES::ROWS * PIECES; i += ATTENTION_THREADS) {
        int position = start + i / PIECES, feature = i % PIECES * W;
        if (position >= at.length || feature >= at.head_dim) continue;
        int64_t index = position * heads.stride + feature;
        vector<T, W> value = load<T, W>(tile, i / PIECES * TILES::STRIDE + feature);
        if (heads.vectors)
            store<T, W>(to, index, value);
        else
            for (int w = 0; w < W; w++)
                if (feature + w < at.head_dim) to[index + w] = value.at[w];
    }
}

/* Sum, and largest, over the lanes that share a row. */
template <class TILES> __device__ inline float row_sum(float value) {
    for (int step = TILES::ROW_LANES / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}
template <class TILES> __device__ inline float row_largest(float value) {
    for (int step = TILES::ROW_LANES / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}

/* A kernel with its launch parameters; its blocks take `rows` positions of a head each. */
struct attention_pass {
    struct known_kernel<struct attention> kernel; /* of function NULL: none */
    size_t shared_bytes;
    int rows;
};

/* Allows the kernel its shared memory: more than 48 KiB must be set as an attribute. */
enum status attention_pass_prepare(const struct attention_pass *pass);
/* One block for each tile of each head. */
void attention_pass_run(const struct attention_pass *pass, const struct attention &at, int heads, cudaStream_t stream);

/* The block's place: its first row, of `heads` heads. Blocks with the most work begin first: later queries see more
 * keys, earlier keys are seen by more queries. */
struct attention_place {
    int row, sequence, head;
};
__device__ inline struct attention_place place_of(const struct attention &at, int rows, int heads, bool last_first) {
    unsigned all = (unsigned)(at.sequences * heads), tiles = (unsigned)((at.length + rows - 1) / rows);
    int pair = (int)(blockIdx.x % all), tile = (int)(blockIdx.x / all);
    return {(last_first ? (int)tiles - 1 - tile : tile) * rows, pair / heads, pair % heads};
}
