/* Operators that compute each element by itself: sums, scaling, activations. */
#include "backend/cuda/kernels/activation.cuh"

enum { ROWS_INPUTS = 3, ROWS_OUTPUTS = 2 };

/* Operands of one shape; strides in elements. Each thread reads its elements of all inputs before it writes any, so
 * that an output may be an input. */
struct rows {
    const void *in[ROWS_INPUTS];
    void *out[ROWS_OUTPUTS];
    int64_t in_stride[ROWS_INPUTS], out_stride[ROWS_OUTPUTS];
    int64_t columns;
    unsigned chunks; /* blocks that a row takes */
    float factor;
    enum activation function;
};

/* The function of each operator, for one element of each input. */
struct add_element {
    enum { INPUTS = 2, OUTPUTS = 1 };
    static __device__ void apply(const struct rows &, const float *in, float *out) { out[0] = in[0] + in[1]; }
};
struct add_three_element {
    enum { INPUTS = 3, OUTPUTS = 1 };
    static __device__ void apply(const struct rows &, const float *in, float *out) { out[0] = in[0] + in[1] + in[2]; }
};
static __device__ float through_bf16(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }
struct add_rounded_element {
    enum { INPUTS = 2, OUTPUTS = 1 };
    static __device__ void apply(const struct rows &, const float *in, float *out) {
        out[0] = through_bf16(in[0]) + through_bf16(in[1]);
    }
};
struct round_element {
    enum { INPUTS = 1, OUTPUTS = 1 };
    static __device__ void apply(const struct rows &, const float *in, float *out) { out[0] = through_bf16(in[0]); }
};
struct scale_element {
    enum { INPUTS = 1, OUTPUTS = 1 };
    static __device__ void apply(const struct rows &rows, const float *in, float *out) { out[0] = in[0] * rows.factor; }
};
struct activation_element {
    enum { INPUTS = 1, OUTPUTS = 1 };
    static __device__ void apply(const struct rows &rows, const float *in, float *out) {
        float slope;
        out[0] = activate(rows.function, in[0], &slope);
    }
};
struct activation_grad_element {
    enum { INPUTS = 2, OUTPUTS = 1 };
    static __device__ void apply(const struct rows &rows, const float *in, float *out) {
        float slope;
        activate(rows.function, in[1], &slope);
        out[0] = in[0] * slope;
    }
};
struct gated_element {
    enum { INPUTS = 2, OUTPUTS = 1 };
    static __device__ void apply(const struct rows &rows, const float *in, float *out) {
        float slope;
        out[0] = activate(rows.function, in[0], &slope) * in[1];
    }
};
struct gated_grad_element {
    enum { INPUTS = 3, OUTPUTS = 2 };
    static __device__ void apply(const struct rows &rows, const float *in, float *out) {
        float slope, value = activate(rows.function, in[1], &slope);
        out[0] = in[0] * in[2] * slope;
        out[1] = in[0] * value;
    }
};

template <typename E, typename T, int W> __global__ void __launch_bounds__(THREADS) rows_kernel(struct rows rows) {
    int64_t row = blockIdx.x / rows.chunks;
    int64_t column = ((int64_t)(blockIdx.x % rows.chunks) * THREADS + threadIdx.x) * W;
    if (column >= rows.columns) return;
    vector<T, W> in[E::INPUTS], out[E::OUTPUTS];
#pragma unroll
    for (int i = 0; i < E::INPUTS; i++)
        in[i] = load<T, W>(rows.in[i], row * rows.in_stride[i] + column);
#pragma unroll
    for (int w = 0; w < W; w++) {
        float values[E::INPUTS], results[E::OUTPUTS];
        for (int i = 0; i < E::INPUTS; i++)
            values[i] = widen(in[i].at[w]);
        E::apply(rows, values, results);
        for (int i = 0; i < E::OUTPUTS; i++)
            out[i].at[w] = narrow<T>(results[i]);
    }
#pragma unroll
    for (int i = 0; i < E::OUTPUTS; i++)
        store<T, W>(rows.out[i], row * rows.out_stride[i] + column, out[i]);
}

template <typename E, typename T, int W> static void rows_launch(struct rows rows, int64_t count, cudaStream_t stream) {
    rows.chunks = grid_size(divide_up(rows.columns, THREADS * W));
    launch(known<rows_kernel<E, T, W>>(), grid_size(count * rows.chunks), THREADS, 0, stream, rows);
}

/* Operands without gaps between their rows are one long row; one of a single row goes with each of the output's.
 * `inputs`: the node's that the function takes; NULL: its first. */
template <typename E>
static void rows_run(const struct node *node, const struct kernel_call *call, struct rows rows,
                     const int *inputs = nullptr) {
    const struct shape *shape = &node->out[0]->shape;
    int64_t columns = shape_columns(shape), count = shape_rows(shape);
    bool dense = true, vectors = true;
    for (int i = 0; i < E::INPUTS; i++) {
        int input = inputs ? inputs[i] : i;
        bool repeats = count > 1 && shape_rows(&node->in[input]->shape) == 1;
        rows.in[i] = call->in[input];
        rows.in_stride[i] = repeats ? 0 : tensor_row_stride(node->in[input]);
        dense = dense && rows.in_stride[i] == columns;
        vectors = vectors && (uintptr_t)rows.in[i] % 16 == 0;
    }
    for (int i = 0; i < E::OUTPUTS; i++) {
        rows.out[i] = call->out[i];
        rows.out_stride[i] = tensor_row_stride(node->out[i]);
        dense = dense && rows.out_stride[i] == columns;
        vectors = vectors && (uintptr_t)rows.out[i] % 16 == 0;
    }
    rows.columns = dense ? count * columns : columns;
    int64_t width = 16 / dtype_bytes(shape->dtype);
    vectors = vectors && rows.columns % width == 0;
    for (int i = 0; i < E::INPUTS && !dense; i++)
        vectors = vectors && rows.in_stride[i] % width == 0;
    for (int i = 0; i < E::OUTPUTS && !dense; i++)
        vectors = vectors && rows.out_stride[i] % width == 0;
    if (dense) count = 1;
    cudaStream_t stream = stream_of(call);
    if (shape->dtype == DTYPE_BF16 && vectors)
        rows_launch<E, __nv_bfloat16, VECTOR<__nv_bfloat16>>(rows, count, stream);
    else if (shape->dtype == DTYPE_BF16)
        rows_launch<E, __nv_bfloat16, 1>(rows, count, stream);
    else if (vectors)
        rows_launch<E, float, VECTOR<float>>(rows, count, stream);
    else
        rows_launch<E, float, 1>(rows, count, stream);
}

/* Sums begin at multiples of 16 bytes, as buffers do. */
template <typename E> static void launch_sums(struct rows rows, void *stream) {
    if (rows.columns % VECTOR<float> == 0)
        rows_launch<E, float, VECTOR<float>>(rows, 1, (cudaStream_t)stream);
    else
        rows_launch<E, float, 1>(rows, 1, (cudaStream_t)stream);
}

void cuda_add_sums(void *to, const void *from, int64_t count, bool round_bf16, void *stream) {
    struct rows rows = {.in = {to, from}, .out = {to}, .columns = count};
    if (!from)
        launch_sums<round_element>(rows, stream);
    else if (round_bf16)
        launch_sums<add_rounded_element>(rows, stream);
    else
        launch_sums<add_element>(rows, stream);
}

static enum status add_run(const struct kernel *kernel, const struct kernel_call *call) {
    rows_run<add_element>(kernel->node, call, {});
    return cuda_outcome();
}

/* Bias and residual may be missing. */
static enum status add_bias_run(const struct kernel *kernel, const struct kernel_call *call) {
    static const int without_bias[] = {0, 2};
    const struct node *node = kernel->node;
    if (node->in[1] && node->in[2])
        rows_run<add_three_element>(node, call, {});
    else if (node->in[1])
        rows_run<add_element>(node, call, {});
    else if (node->in[2])
        rows_run<add_element>(node, call, {}, without_bias);
    else
        rows_run<scale_element>(node, call, {.factor = 1});
    return cuda_outcome();
}

static enum status scale_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct rows rows = {.factor = (float)NODE_ATTRIBUTES(kernel->node, scale_attributes)->factor};
    rows_run<scale_element>(kernel->node, call, rows);
    return cuda_outcome();
}

template <typename E> static enum status activation_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct rows rows = {.function = NODE_ATTRIBUTES(kernel->node, activation_attributes)->function};
    rows_run<E>(kernel->node, call, rows);
    return cuda_outcome();
}

CUDA_KERNEL(add, add_run)

CUDA_KERNEL(add_bias, add_bias_run)

CUDA_KERNEL(gradient_sum, add_run)

CUDA_KERNEL(scale, scale_run)

CUDA_KERNEL(activation, activation_run<activation_element>)

CUDA_KERNEL(activation_grad, activation_run<activation_grad_element>)

CUDA_KERNEL(gated_activation, activation_run<gated_element>)

CUDA_KERNEL(gated_activation_grad, activation_run<gated_grad_element>)

/* Sums over rows: the gradients of biases and of norms. */

constexpr int SUM_LANES = THREADS / WARP;
constexpr int64_t SUM_ROWS_MIN = 64, SUM_BLOCKS_MAX = 256;

int64_t cuda_sum_block_rows(int64_t rows) {
    int64_t share = divide_up(divide_up(rows, SUM_BLOCKS_MAX), SUM_LANES) * SUM_LANES;
    return share > SUM_ROWS_MIN ? share : SUM_ROWS_MIN;
}

int64_t cuda_sum_blocks(int64_t rows) { return divide_up(rows, cuda_sum_block_rows(rows)); }

int64_t cuda_sum_workspace(int64_t rows, int64_t columns) {
    return workspace_align(cuda_sum_blocks(rows) * columns * (int64_t)sizeof(float));
}

/* Block (c, b) of the grid sums rows [b * block_rows, …) of WARP * W columns: each of SUM_LANES lanes every
 * SUM_LANES-th row, then the lanes in order. Row b of `out` is overwritten, or added to. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS) sum_kernel(const T *data, int64_t row_stride, int64_t rows, int64_t columns,
                                                      int64_t block_rows, float *out, bool adds) {
    int64_t first = (int64_t)blockIdx.x * WARP * W, column = first + threadIdx.x * W, begin = blockIdx.y * block_rows;
    int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
    float own[W] = {};
    for (int64_t row = begin + threadIdx.y; column < columns && row < end; row += SUM_LANES) {
        vector<T, W> values = load<T, W>(data, row * row_stride + column);
#pragma unroll
        for (int w = 0; w < W; w++)
            own[w] += widen(values.at[w]);
    }
    lanes_sum<W>(own, out + blockIdx.y * columns + first, columns - first, adds);
}

template <typename T>
static void sum(cudaStream_t stream, const void *data, int64_t row_stride, int64_t rows, int64_t columns,
                int64_t block_rows, float *out, bool adds) {
    constexpr int W = VECTOR<T>;
    bool vectors = (uintptr_t)data % 16 == 0 && row_stride % W == 0 && columns % W == 0;
    dim3 grid(grid_size(divide_up(columns, WARP * (vectors ? W : 1))), (unsigned)divide_up(rows, block_rows));
    launch(vectors ? known<sum_kernel<T, W>>() : known<sum_kernel<T, 1>>(), grid, dim3(WARP, SUM_LANES), 0, stream,
           (const T *)data, row_stride, rows, columns, block_rows, out, adds);
}

void cuda_sum_combine(cudaStream_t stream, int64_t blocks, int64_t columns, const float *partials, float *out) {
    sum<float>(stream, partials, columns, blocks, columns, blocks, out, true);
}

void cuda_sum_columns(cudaStream_t stream, enum dtype dtype, int64_t rows, int64_t columns, const void *data,
                      int64_t row_stride, void *workspace, float *out) {
    float *partials = (float *)workspace;
    FOR_ELEMENT(dtype, sum, stream, data, row_stride, rows, columns, cuda_sum_block_rows(rows), partials, false);
    cuda_sum_combine(stream, cuda_sum_blocks(rows), columns, partials, out);
}

/* Sums that travel between devices as bf16 (backend_peers). A thread has 16 bytes of these, or one. */

static constexpr int WIDTH = VECTOR<__nv_bfloat16>;

template <int W> __global__ void __launch_bounds__(THREADS) pack_kernel(void *to, const float *from, int64_t count) {
    int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    if (first >= count) return;
    float in[W];
    load_floats<W>(from + first, in);
    vector<__nv_bfloat16, W> out;
#pragma unroll
    for (int w = 0; w < W; w++)
        out.at[w] = narrow<__nv_bfloat16>(in[w]);
    store<__nv_bfloat16, W>(to, first, out);
}

template <int W, bool ADDS>
__global__ void __launch_bounds__(THREADS) unpack_kernel(float *to, const void *from, int64_t count) {
    constexpr int PART = W < VECTOR<float> ? 1 : VECTOR<float>;
    int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    if (first >= count) return;
    vector<__nv_bfloat16, W> came = load<__nv_bfloat16, W>(from, first);
    float own[W] = {};
    if (ADDS) load_floats<W>(to + first, own);
#pragma unroll
    for (int w = 0; w < W; w += PART) {
        vector<float, PART> part;
#pragma unroll
        for (int i = 0; i < PART; i++)
            part.at[i] =
                ADDS ? widen(narrow<__nv_bfloat16>(own[w + i])) + widen(came.at[w + i]) : widen(came.at[w + i]);
        store<float, PART>(to, first + w, part);
    }
}

static bool has_vectors(const void *plain, const void *packed, int64_t count) {
    return (uintptr_t)plain % 16 == 0 && (uintptr_t)packed % 16 == 0 && count % WIDTH == 0;
}

static dim3 blocks_of(int64_t count, bool vectors) {
    return dim3(grid_size(divide_up(count, THREADS * (vectors ? WIDTH : 1))));
}

void cuda_pack_bf16(void *to, const float *from, int64_t count, void *stream) {
    bool vectors = has_vectors(from, to, count);
    launch(vectors ? known<pack_kernel<WIDTH>>() : known<pack_kernel<1>>(), blocks_of(count, vectors), THREADS, 0,
           (cudaStream_t)stream, to, from, count);
}

template <bool ADDS> static void unpack(float *to, const void *from, int64_t count, void *stream) {
    bool vectors = has_vectors(to, from, count);
    launch(vectors ? known<unpack_kernel<WIDTH, ADDS>>() : known<unpack_kernel<1, ADDS>>(), blocks_of(count, vectors),
           THREADS, 0, (cudaStream_t)stream, to, from, count);
}

void cuda_unpack_bf16(float *to, const void *from, int64_t count, bool adds, void *stream) {
    if (adds)
        unpack<true>(to, from, count, stream);
    else
        unpack<false>(to, from, count, stream);
}
