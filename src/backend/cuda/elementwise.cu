/* Operators that compute each element by itself: sums, scaling, activations. */
#include "backend/cuda/device.cuh"

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

static_assert(ACTIVATION_COUNT == 4, "a function that is not in activate() would be taken for silu");
/* f(x), and its derivative. gelu_tanh is x sigmoid(2u), since 1 + tanh(u) = 2 sigmoid(2u), without the cancellation. */
__device__ inline float activate(enum activation function, float x, float *slope) {
    if (function == ACTIVATION_RELU) {
        *slope = x > 0 ? 1.0f : 0.0f;
        return 0.0f > x ? 0.0f : x; /* keeps NaN */
    }
    if (function == ACTIVATION_GELU_ERF) {
        float below = normcdff(x);
        *slope = fmaf(x * expf(x * x * -0.5f), 0.39894228f, below);
        return x * below;
    }
    float doubled = x, doubled_slope = 1;
    if (function == ACTIVATION_GELU_TANH) {
        float square = x * x; /* 2u = 2 sqrt(2/pi) (x + 0.044715 x^3) */
        doubled = x * fmaf(square, 0.07135481627f, 1.59576912161f);
        doubled_slope = fmaf(square, 0.2140644488f, 1.59576912161f);
    }
    float gate = 1.0f / (1.0f + expf(-doubled)), value = x * gate;
    *slope = fmaf(value * (1.0f - gate), doubled_slope, gate);
    return value;
}

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

enum status cuda_add_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, add_run, 0, out);
}

enum status cuda_add_bias_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, add_bias_run, 0, out);
}

enum status cuda_gradient_sum_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, add_run, 0, out);
}

enum status cuda_scale_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, scale_run, 0, out);
}

enum status cuda_activation_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, activation_run<activation_element>, 0, out);
}

enum status cuda_activation_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, activation_run<activation_grad_element>, 0, out);
}

enum status cuda_gated_activation_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, activation_run<gated_element>, 0, out);
}

enum status cuda_gated_activation_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, activation_run<gated_grad_element>, 0, out);
}
