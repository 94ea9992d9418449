/* The gradient of attention's sinks. A head is a block's work: its warps take the queries in turn, and their sums are
 * added in order. */
#include "backend/cuda/device.cuh"

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

enum status cuda_attention_sinks_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, sinks_grad_run, 0, out);
}
