/* Counts of experts' slots, and the loss that balances them (backend/cpu/routing.c has the formulas). */
#include <float.h>

#include "backend/cuda/kernels/device.cuh"

constexpr int LOAD_WARPS = 4, LOAD_THREADS = LOAD_WARPS * WARP;
constexpr int64_t LOAD_TOKENS = CUDA_LOAD_TOKENS; /* of a block */

struct loaded {
    const void *logits;
    const int32_t *targets;
    const float *slopes; /* of the gradient: of each expert's sum of probabilities */
    void *dlogits;
    double *sums; /* [blocks][experts] */
    int64_t tokens, stride, dstride;
    int experts;
};

/* A warp's token's probabilities, by its lanes, in fp32. */
template <typename T> __device__ inline void probabilities(const struct loaded &at, int64_t token, float *out) {
    int lane = (int)threadIdx.x % WARP;
    float largest = -FLT_MAX, sum = 0;
    for (int e = lane; e < at.experts; e += WARP) {
        out[e] = widen(((const T *)at.logits)[token * at.stride + e]);
        largest = fmaxf(largest, out[e]);
    }
    for (int step = WARP / 2; step > 0; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    for (int e = lane; e < at.experts; e += WARP)
        sum += expf(out[e] - largest);
    sum = warp_sum(sum);
    for (int e = lane; e < at.experts; e += WARP)
        out[e] = expf(out[e] - largest) / sum;
}

/* Sums of probabilities of a block's tokens that are not padding: each warp's own in their order, then the warps'. */
template <typename T> __global__ void __launch_bounds__(LOAD_THREADS) load_kernel(struct loaded at) {
    __shared__ float values[LOAD_WARPS][ROUTING_EXPERTS_MAX];
    __shared__ double sums[LOAD_WARPS][ROUTING_EXPERTS_MAX];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t begin = (int64_t)blockIdx.x * LOAD_TOKENS;
    int64_t end = begin + LOAD_TOKENS < at.tokens ? begin + LOAD_TOKENS : at.tokens;
    for (int e = lane; e < at.experts; e += WARP)
        sums[warp][e] = 0;
    for (int64_t token = begin + warp; token < end; token += LOAD_WARPS) {
        if (at.targets[token] == TARGET_PADDING) continue; /* the whole warp does */
        probabilities<T>(at, token, values[warp]);
        for (int e = lane; e < at.experts; e += WARP)
            sums[warp][e] += (double)values[warp][e];
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < at.experts; e += LOAD_THREADS) {
        double sum = 0;
        for (int w = 0; w < LOAD_WARPS; w++)
            sum += sums[w][e];
        at.sums[(int64_t)blockIdx.x * at.experts + e] = sum;
    }
}

__global__ void __launch_bounds__(THREADS) load_sum_kernel(const double *sums, int64_t blocks, int experts,
                                                           const int32_t *slots, const float *previous, float *load) {
    for (int e = (int)threadIdx.x; e < experts; e += THREADS) {
        double sum = 0;
        for (int64_t b = 0; b < blocks; b++)
            sum += sums[b * experts + e];
        load[e] = (float)slots[e] + (previous ? previous[e] : 0.0f);
        load[experts + e] = (float)(sum + (previous ? (double)previous[experts + e] : 0.0));
    }
}

template <typename T> static void load_launch(const struct loaded &at, cudaStream_t stream) {
    launch(known<load_kernel<T>>(), grid_size(divide_up(at.tokens, LOAD_TOKENS)), LOAD_THREADS, 0, stream, at);
}

static struct loaded loaded_of(const struct tensor *logits, const void *data, const void *targets) {
    struct loaded at = {};
    at.logits = data;
    at.targets = (const int32_t *)targets;
    at.tokens = shape_rows(&logits->shape);
    at.stride = tensor_row_stride(logits);
    at.experts = (int)shape_columns(&logits->shape);
    return at;
}

static enum status expert_load_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct loaded at = loaded_of(node->in[0], call->in[0], call->in[2]);
    at.sums = (double *)call->workspace;
    FOR_ELEMENT(node->in[0]->shape.dtype, load_launch, at, stream_of(call));
    launch(known<load_sum_kernel>(), 1, THREADS, 0, stream_of(call), at.sums, divide_up(at.tokens, LOAD_TOKENS),
           at.experts, (const int32_t *)call->in[1], (const float *)call->in[3], (float *)call->out[0]);
    return cuda_outcome();
}

enum status cuda_expert_load_create(const struct node *node, struct kernel **out) {
    int64_t blocks = divide_up(shape_rows(&node->in[0]->shape), LOAD_TOKENS);
    int64_t bytes = blocks * shape_columns(&node->in[0]->shape) * (int64_t)sizeof(double);
    return kernel_plain(node, expert_load_run, workspace_align(bytes), out);
}

/* With p the probabilities and g the slopes: p_j (g_j - sum of g p), 0 for padding. A warp takes a token. */
template <typename T> __global__ void __launch_bounds__(LOAD_THREADS) load_grad_kernel(struct loaded at) {
    __shared__ float values[LOAD_WARPS][ROUTING_EXPERTS_MAX];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t token = (int64_t)blockIdx.x * LOAD_WARPS + warp;
    if (token >= at.tokens) return;
    bool pads = at.targets[token] == TARGET_PADDING;
    double mean = 0;
    probabilities<T>(at, token, values[warp]);
    for (int e = lane; e < at.experts; e += WARP)
        mean += (double)at.slopes[e] * (double)values[warp][e];
    mean = warp_sum(mean);
    for (int e = lane; e < at.experts; e += WARP)
        ((T *)at.dlogits)[token * at.dstride + e] =
            narrow<T>(pads ? 0.0f : values[warp][e] * (float)((double)at.slopes[e] - mean));
}

template <typename T> static void load_grad_launch(const struct loaded &at, cudaStream_t stream) {
    launch(known<load_grad_kernel<T>>(), grid_size(divide_up(at.tokens, LOAD_WARPS)), LOAD_THREADS, 0, stream, at);
}

static enum status expert_load_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct loaded at = loaded_of(node->in[1], call->in[1], call->in[2]);
    at.slopes = (const float *)call->in[0] + at.experts;
    at.dlogits = call->out[0];
    at.dstride = tensor_row_stride(node->out[0]);
    FOR_ELEMENT(node->out[0]->shape.dtype, load_grad_launch, at, stream_of(call));
    return cuda_outcome();
}

CUDA_KERNEL(expert_load_grad, expert_load_grad_run)

__global__ void __launch_bounds__(THREADS) count_slots_kernel(const int32_t *own, int64_t experts, double *slots) {
    for (int64_t e = threadIdx.x; e < experts; e += THREADS)
        slots[e] += (double)own[e];
}

static enum status count_slots_run(const struct kernel *kernel, const struct kernel_call *call) {
    launch(known<count_slots_kernel>(), 1, THREADS, 0, stream_of(call), (const int32_t *)call->in[0],
           shape_elements(&kernel->node->out[0]->shape), (double *)call->out[0]);
    return cuda_outcome();
}

CUDA_KERNEL(count_slots, count_slots_run)

struct balanced {
    const float *y, *load;
    const int32_t *targets;
    const double *scalars;
    double *loss;
    float *dy, *dload; /* NULL: not wanted */
    int64_t tokens, layers;
    int experts;
    double coefficient; /* times experts */
};

/* There are few numbers: one block goes through them. */
__global__ void __launch_bounds__(THREADS) balanced_kernel(struct balanced at) {
    double scale = at.dy ? at.scalars[SCALAR_LOSS_SCALE] : 0.0, sum = 0, counted = 0, unpadded = 0, products = 0;
    for (int64_t i = threadIdx.x; i < at.tokens; i += THREADS) {
        bool counts = at.targets[i] >= 0;
        if (counts) sum -= (double)at.y[i], counted += 1;
        unpadded += at.targets[i] != TARGET_PADDING;
        if (at.dy) at.dy[i] = counts ? (float)-scale : 0.0f;
    }
    for (int e = (int)threadIdx.x; e < at.experts; e += THREADS)
        products += (double)at.load[e] * (double)at.load[at.experts + e];
    sum = team_sum<THREADS>(sum);
    counted = team_sum<THREADS>(counted);
    double rows = team_sum<THREADS>(unpadded) * (double)at.layers;
    double factor = rows > 0 ? at.coefficient / (rows * rows) : 0;
    products = team_sum<THREADS>(products);
    if (threadIdx.x == 0) *at.loss += sum + counted * factor * products;
    for (int e = (int)threadIdx.x; at.dload && e < at.experts; e += THREADS) {
        at.dload[e] = (float)(scale * counted * factor * (double)at.load[at.experts + e]);
        at.dload[at.experts + e] = (float)(scale * counted * factor * (double)at.load[e]);
    }
}

static enum status balanced_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    bool gradient = node->op == &op_balanced_loss_grad;
    const struct balance_attributes *attributes =
        gradient ? &NODE_ATTRIBUTES(node, balance_grad_attributes)->balance : NODE_ATTRIBUTES(node, balance_attributes);
    struct balanced at = {};
    at.y = (const float *)call->in[0], at.targets = (const int32_t *)call->in[1], at.load = (const float *)call->in[2];
    at.scalars = call->scalars;
    at.loss = (double *)call->out[0];
    if (gradient) at.dy = (float *)call->out[1], at.dload = (float *)call->out[2];
    at.tokens = shape_rows(&node->in[0]->shape);
    at.experts = (int)shape_columns(&node->in[2]->shape);
    at.layers = attributes->layers;
    at.coefficient = attributes->coefficient * (double)at.experts;
    launch(known<balanced_kernel>(), 1, THREADS, 0, stream_of(call), at);
    return cuda_outcome();
}

CUDA_KERNEL(balanced_loss, balanced_run)
CUDA_KERNEL(balanced_loss_grad, balanced_run)
