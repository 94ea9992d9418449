/* Routing: which experts tokens go to, and their rows there and back. A token's or row's values are made by one warp or
 * block, in one order. */
#include <float.h>

#include "backend/cuda/kernels/device.cuh"

constexpr int ROUTE_WARPS = 4, ROUTE_THREADS = ROUTE_WARPS * WARP, SLOTS_BLOCK = CUDA_SLOTS_BLOCK;
static_assert(SLOTS_BLOCK == THREADS, "a thread takes a slot");

/* ---- route ---- */

struct routed {
    const void *logits;
    float *weights;
    int32_t *chosen; /* the experts of each token's slots, which become their places */
    int64_t tokens, stride;
    int experts, count;
    bool normalised;
};

struct scored_expert {
    float value;
    int expert;
};

/* The larger value, of equal ones the lower expert. */
__device__ inline bool goes_before(struct scored_expert a, struct scored_expert b) {
    return a.value > b.value || (a.value == b.value && a.expert < b.expert);
}

__device__ inline struct scored_expert warp_first(struct scored_expert own) {
    for (int step = WARP / 2; step > 0; step /= 2) {
        struct scored_expert other = {__shfl_xor_sync(0xffffffffu, own.value, step),
                                      __shfl_xor_sync(0xffffffffu, own.expert, step)};
        if (goes_before(other, own)) own = other;
    }
    return own;
}

/* The logits of a warp's token in fp32, by its lanes. */
template <typename T>
__device__ inline void read_logits(const void *logits, int64_t row, int64_t stride, int experts, float *out) {
    for (int e = (int)threadIdx.x % WARP; e < experts; e += WARP)
        out[e] = widen(((const T *)logits)[row * stride + e]);
    __syncwarp();
}

struct exponentials {
    float largest, sum;
};

__device__ inline struct exponentials sum_exponentials(const float *logits, int experts) {
    struct exponentials found = {-FLT_MAX, 0};
    for (int e = (int)threadIdx.x % WARP; e < experts; e += WARP)
        found.largest = fmaxf(found.largest, logits[e]);
    for (int step = WARP / 2; step > 0; step /= 2)
        found.largest = fmaxf(found.largest, __shfl_xor_sync(0xffffffffu, found.largest, step));
    for (int e = (int)threadIdx.x % WARP; e < experts; e += WARP)
        found.sum += expf(logits[e] - found.largest);
    found.sum = warp_sum(found.sum);
    return found;
}

/* A warp takes a token. */
template <typename T> __global__ void __launch_bounds__(ROUTE_THREADS) route_kernel(struct routed at) {
    __shared__ float values[ROUTE_WARPS][ROUTING_EXPERTS_MAX];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t token = (int64_t)blockIdx.x * ROUTE_WARPS + warp;
    if (token >= at.tokens) return;
    float *logits = values[warp], chosen_sum = 0;
    read_logits<T>(at.logits, token, at.stride, at.experts, logits);
    struct exponentials all = sum_exponentials(logits, at.experts);
    struct scored_expert last = {FLT_MAX, -1};
    for (int i = 0; i < at.count; i++) {
        struct scored_expert best = {-INFINITY, at.experts};
        for (int e = lane; e < at.experts; e += WARP) {
            struct scored_expert own = {logits[e] == logits[e] ? logits[e] : -INFINITY, e}; /* NaN is no place */
            if ((i == 0 || goes_before(last, own)) && goes_before(own, best)) best = own;
        }
        last = warp_first(best);
        float weight = expf(logits[last.expert] - all.largest) / all.sum;
        chosen_sum += weight;
        if (lane == 0) at.chosen[token * at.count + i] = last.expert, at.weights[token * at.count + i] = weight;
    }
    __syncwarp();
    for (int i = lane; at.normalised && i < at.count; i += WARP)
        at.weights[token * at.count + i] /= chosen_sum;
}

/* How many slots of a block each expert has: [blocks][experts] of all, then of padding. */
__global__ void __launch_bounds__(THREADS) count_kernel(const int32_t *chosen, const int32_t *targets, int64_t slots,
                                                        int per_token, int experts, int32_t *counts) {
    __shared__ int32_t own[SLOTS_BLOCK];
    __shared__ bool pads[SLOTS_BLOCK];
    int64_t slot = (int64_t)blockIdx.x * SLOTS_BLOCK + threadIdx.x;
    own[threadIdx.x] = slot < slots ? chosen[slot] : -1;
    pads[threadIdx.x] = targets && slot < slots && targets[slot / per_token] == TARGET_PADDING;
    __syncthreads();
    for (int e = (int)threadIdx.x; e < experts; e += THREADS) {
        int32_t count = 0, padding = 0;
        for (int i = 0; i < SLOTS_BLOCK; i++) {
            count += own[i] == e;
            padding += own[i] == e && pads[i];
        }
        counts[(int64_t)blockIdx.x * experts + e] = count;
        counts[((int64_t)gridDim.x + blockIdx.x) * experts + e] = padding;
    }
}

/* One block: each expert's rows, its slots of tokens that are not padding, and in place of each block's counts where
 * its slots begin. */
__global__ void __launch_bounds__(THREADS)
    range_kernel(int32_t *counts, int blocks, int experts, int tile, int32_t *ranges, int32_t *kept) {
    __shared__ int32_t totals[ROUTING_EXPERTS_MAX], starts[ROUTING_EXPERTS_MAX];
    for (int e = (int)threadIdx.x; e < experts; e += THREADS) {
        int32_t padding = 0;
        totals[e] = 0;
        for (int b = 0; b < blocks; b++) {
            totals[e] += counts[(int64_t)b * experts + e];
            padding += counts[((int64_t)blocks + b) * experts + e];
        }
        kept[e] = totals[e] - padding;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int e = 0, start = 0; e < experts; e++) {
            starts[e] = start;
            start += (totals[e] + tile - 1) / tile * tile;
        }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < experts; e += THREADS) {
        int32_t next = starts[e];
        ranges[2 * e] = next;
        ranges[2 * e + 1] = next + totals[e];
        for (int b = 0; b < blocks; b++) {
            int32_t count = counts[(int64_t)b * experts + e];
            counts[(int64_t)b * experts + e] = next;
            next += count;
        }
    }
}

/* Slots of a block that are an expert's lie in their order. */
__global__ void __launch_bounds__(THREADS)
    place_kernel(int32_t *chosen, int64_t slots, int experts, const int32_t *starts) {
    __shared__ int32_t own[SLOTS_BLOCK];
    int64_t slot = (int64_t)blockIdx.x * SLOTS_BLOCK + threadIdx.x;
    int32_t expert = slot < slots ? chosen[slot] : -1, before = 0;
    own[threadIdx.x] = expert;
    __syncthreads();
    for (int i = 0; i < (int)threadIdx.x; i++)
        before += own[i] == expert;
    if (slot < slots) chosen[slot] = starts[(int64_t)blockIdx.x * experts + expert] + before;
}

template <typename T> static void route_launch(const struct routed &at, cudaStream_t stream) {
    launch(known<route_kernel<T>>(), grid_size(divide_up(at.tokens, ROUTE_WARPS)), ROUTE_THREADS, 0, stream, at);
}

static int64_t slot_blocks(const struct node *node) {
    return divide_up(shape_elements(&node->out[1]->shape), SLOTS_BLOCK);
}

static enum status route_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct route_attributes *attributes = NODE_ATTRIBUTES(node, route_attributes);
    const struct shape *logits = &node->in[0]->shape;
    int64_t slots = shape_elements(&node->out[1]->shape), experts = shape_columns(logits);
    unsigned blocks = grid_size(slot_blocks(node));
    struct routed at = {
        .logits = call->in[0],
        .weights = (float *)call->out[0],
        .chosen = (int32_t *)call->out[1],
        .tokens = shape_rows(logits),
        .stride = tensor_row_stride(node->in[0]),
        .experts = (int)experts,
        .count = (int)attributes->chosen,
        .normalised = attributes->normalised,
    };
    int32_t *counts = (int32_t *)call->workspace;
    FOR_ELEMENT(logits->dtype, route_launch, at, stream_of(call));
    launch(known<count_kernel>(), blocks, THREADS, 0, stream_of(call), at.chosen, (const int32_t *)call->in[1], slots,
           at.count, at.experts, counts);
    launch(known<range_kernel>(), 1, THREADS, 0, stream_of(call), counts, (int)blocks, at.experts,
           (int)routing_tile(slots, experts), (int32_t *)call->out[2], (int32_t *)call->out[3]);
    launch(known<place_kernel>(), blocks, THREADS, 0, stream_of(call), at.chosen, slots, at.experts, counts);
    return cuda_outcome();
}

enum status cuda_route_create(const struct node *node, struct kernel **out) {
    int64_t bytes = 2 * slot_blocks(node) * shape_columns(&node->in[0]->shape) * (int64_t)sizeof(int32_t);
    return kernel_plain(node, route_run, workspace_align(bytes), out);
}

struct route_gradient {
    const float *dweights, *weights;
    const void *logits;
    const int32_t *places, *ranges;
    void *dlogits;
    int64_t tokens, stride, dstride;
    int experts, count;
    bool normalised;
};

/* The expert whose rows hold a place: the last that begins at it or before. */
__device__ inline int expert_at(const int32_t *ranges, int experts, int32_t place) {
    int first = 0, last = experts - 1;
    while (first < last) {
        int middle = (first + last + 1) / 2;
        if (ranges[2 * middle] <= place)
            first = middle;
        else
            last = middle - 1;
    }
    return first;
}

/* backend/cpu/routing.c has what is computed. A warp takes a token. */
template <typename T> __global__ void __launch_bounds__(ROUTE_THREADS) route_grad_kernel(struct route_gradient at) {
    __shared__ float values[ROUTE_WARPS][ROUTING_EXPERTS_MAX];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t token = (int64_t)blockIdx.x * ROUTE_WARPS + warp;
    if (token >= at.tokens) return;
    float *own = values[warp], sum = 0;
    const float *dweights = at.dweights + token * at.count, *weights = at.weights + token * at.count;
    for (int i = 0; i < at.count; i++)
        sum = fmaf(dweights[i], weights[i], sum);
    read_logits<T>(at.logits, token, at.stride, at.experts, own);
    struct exponentials all = sum_exponentials(own, at.experts);
    __syncwarp();
    for (int e = lane; e < at.experts; e += WARP)
        own[e] = at.normalised ? 0.0f : -sum * (expf(own[e] - all.largest) / all.sum);
    __syncwarp();
    for (int i = lane; i < at.count; i += WARP) /* a token's experts differ */
        own[expert_at(at.ranges, at.experts, at.places[token * at.count + i])] +=
            weights[i] * (at.normalised ? dweights[i] - sum : dweights[i]);
    __syncwarp();
    for (int e = lane; e < at.experts; e += WARP)
        ((T *)at.dlogits)[token * at.dstride + e] = narrow<T>(own[e]);
}

template <typename T> static void route_grad_launch(const struct route_gradient &at, cudaStream_t stream) {
    launch(known<route_grad_kernel<T>>(), grid_size(divide_up(at.tokens, ROUTE_WARPS)), ROUTE_THREADS, 0, stream, at);
}

static enum status route_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct route_attributes *attributes = NODE_ATTRIBUTES(node, route_attributes);
    struct route_gradient at = {
        .dweights = (const float *)call->in[0],
        .weights = (const float *)call->in[2],
        .logits = call->in[1],
        .places = (const int32_t *)call->in[3],
        .ranges = (const int32_t *)call->in[4],
        .dlogits = call->out[0],
        .tokens = shape_rows(&node->in[1]->shape),
        .stride = tensor_row_stride(node->in[1]),
        .dstride = tensor_row_stride(node->out[0]),
        .experts = (int)shape_columns(&node->in[1]->shape),
        .count = (int)attributes->chosen,
        .normalised = attributes->normalised,
    };
    FOR_ELEMENT(node->in[1]->shape.dtype, route_grad_launch, at, stream_of(call));
    return cuda_outcome();
}

CUDA_KERNEL(route_grad, route_grad_run)

/* ---- rows of experts ---- */

/* Tokens [tokens][columns] and the rows of experts, by slots. Strides in elements. */
struct slot_rows {
    const void *tokens, *rows;
    void *out;
    const float *weights; /* NULL: 1 */
    const int32_t *places;
    float *dweights;
    const void *addend;
    int64_t token_stride, row_stride, out_stride, addend_stride, columns, count;
};

template <typename T>
__global__ void __launch_bounds__(THREADS) zero_rows_kernel(T *out, int64_t stride, int64_t columns) {
    for (int64_t c = threadIdx.x; c < columns; c += THREADS)
        out[(int64_t)blockIdx.x * stride + c] = narrow<T>(0);
}

template <typename T> static void zero_rows(const struct tensor *tensor, void *out, cudaStream_t stream) {
    launch(known<zero_rows_kernel<T>>(), grid_size(shape_rows(&tensor->shape)), THREADS, 0, stream, (T *)out,
           tensor_row_stride(tensor), shape_columns(&tensor->shape));
}

/* A slot's row is its token's, times its weight; with dweights the GEMM of the token's row and that of `rows`, too.
 * A block takes a slot. */
template <typename T> __global__ void __launch_bounds__(THREADS) scatter_kernel(struct slot_rows at) {
    int64_t slot = blockIdx.x, token = slot / at.count, place = at.places[slot];
    const T *from = (const T *)at.tokens + token * at.token_stride;
    const T *row = (const T *)at.rows + place * at.row_stride;
    T *to = (T *)at.out + place * at.out_stride;
    float weight = at.weights ? at.weights[slot] : 1.0f, dot = 0;
    for (int64_t c = threadIdx.x; c < at.columns; c += THREADS) {
        float value = widen(from[c]);
        if (at.dweights) dot = fmaf(value, widen(row[c]), dot);
        to[c] = narrow<T>(value * weight);
    }
    if (!at.dweights) return;
    dot = team_sum<THREADS>(dot);
    if (threadIdx.x == 0) at.dweights[slot] = dot;
}

/* The sum over a token's slots, in their order, of rows times weights, + addend. A block takes a token. */
template <typename T> __global__ void __launch_bounds__(THREADS) gather_kernel(struct slot_rows at) {
    int64_t token = blockIdx.x;
    for (int64_t c = threadIdx.x; c < at.columns; c += THREADS) {
        float sum = 0;
        for (int64_t i = token * at.count; i < (token + 1) * at.count; i++) {
            float value = widen(((const T *)at.rows)[at.places[i] * at.row_stride + c]);
            sum += at.weights ? value * at.weights[i] : value;
        }
        if (at.addend) sum += widen(((const T *)at.addend)[token * at.addend_stride + c]);
        ((T *)at.out)[token * at.out_stride + c] = narrow<T>(sum);
    }
}

template <typename T>
static void scatter_launch(const struct slot_rows &at, const struct node *node, int64_t slots, cudaStream_t stream) {
    zero_rows<T>(node->out[0], at.out, stream);
    launch(known<scatter_kernel<T>>(), grid_size(slots), THREADS, 0, stream, at);
}

template <typename T> static void gather_launch(const struct slot_rows &at, int64_t tokens, cudaStream_t stream) {
    launch(known<gather_kernel<T>>(), grid_size(tokens), THREADS, 0, stream, at);
}

/* `places`, `weights`, `rows` and `addend`: inputs, -1 for none. Input 0 is the tokens of a scatter, or the rows of a
 * gather. */
static struct slot_rows slot_rows_of(const struct node *node, const struct kernel_call *call, int places, int weights) {
    struct slot_rows at = {};
    at.out = call->out[0];
    at.out_stride = tensor_row_stride(node->out[0]);
    at.columns = shape_columns(&node->out[0]->shape);
    at.places = (const int32_t *)call->in[places];
    at.count = shape_columns(&node->in[places]->shape);
    if (weights >= 0) at.weights = (const float *)call->in[weights];
    return at;
}

static enum status scatter(const struct node *node, const struct kernel_call *call, struct slot_rows at, int places) {
    at.tokens = call->in[0];
    at.token_stride = tensor_row_stride(node->in[0]);
    FOR_ELEMENT(node->out[0]->shape.dtype, scatter_launch, at, node, shape_elements(&node->in[places]->shape),
                stream_of(call));
    return cuda_outcome();
}

static enum status gather(const struct node *node, const struct kernel_call *call, struct slot_rows at, int addend) {
    at.rows = call->in[0];
    at.row_stride = tensor_row_stride(node->in[0]);
    at.addend = call->in[addend];
    if (at.addend) at.addend_stride = tensor_row_stride(node->in[addend]);
    FOR_ELEMENT(node->out[0]->shape.dtype, gather_launch, at, shape_rows(&node->out[0]->shape), stream_of(call));
    return cuda_outcome();
}

static enum status dispatch_run(const struct kernel *kernel, const struct kernel_call *call) {
    return scatter(kernel->node, call, slot_rows_of(kernel->node, call, 1, -1), 1);
}
static enum status dispatch_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    return gather(kernel->node, call, slot_rows_of(kernel->node, call, 1, -1), 2);
}
static enum status combine_run(const struct kernel *kernel, const struct kernel_call *call) {
    return gather(kernel->node, call, slot_rows_of(kernel->node, call, 2, 1), 3);
}
static enum status combine_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct slot_rows at = slot_rows_of(node, call, 3, 2);
    at.rows = call->in[1];
    at.row_stride = tensor_row_stride(node->in[1]);
    at.dweights = (float *)call->out[1];
    return scatter(node, call, at, 3);
}

CUDA_KERNEL(dispatch, dispatch_run)
CUDA_KERNEL(dispatch_grad, dispatch_grad_run)
CUDA_KERNEL(combine, combine_run)
CUDA_KERNEL(combine_grad, combine_grad_run)

/* ---- the gate of an expert that all tokens take ---- */

struct token_gates {
    const void *dy, *x, *gate, *residual;
    void *out, *dgate;
    int64_t dy_stride, x_stride, gate_stride, residual_stride, out_stride, dgate_stride, columns;
};

template <typename T> __device__ inline float gate_at(const struct token_gates &at, int64_t token) {
    return 1.0f / (1.0f + expf(-widen(((const T *)at.gate)[token * at.gate_stride])));
}

/* A block takes a token. */
template <typename T> __global__ void __launch_bounds__(THREADS) token_gate_kernel(struct token_gates at) {
    int64_t token = blockIdx.x;
    float gate = gate_at<T>(at, token);
    for (int64_t c = threadIdx.x; c < at.columns; c += THREADS) {
        float value = widen(((const T *)at.x)[token * at.x_stride + c]) * gate;
        if (at.residual) value += widen(((const T *)at.residual)[token * at.residual_stride + c]);
        ((T *)at.out)[token * at.out_stride + c] = narrow<T>(value);
    }
}

template <typename T> __global__ void __launch_bounds__(THREADS) token_gate_grad_kernel(struct token_gates at) {
    int64_t token = blockIdx.x;
    float gate = gate_at<T>(at, token), dot = 0;
    for (int64_t c = threadIdx.x; c < at.columns; c += THREADS) {
        float dy = widen(((const T *)at.dy)[token * at.dy_stride + c]);
        dot = fmaf(dy, widen(((const T *)at.x)[token * at.x_stride + c]), dot);
        ((T *)at.out)[token * at.out_stride + c] = narrow<T>(dy * gate);
    }
    dot = team_sum<THREADS>(dot);
    if (threadIdx.x == 0) ((T *)at.dgate)[token * at.dgate_stride] = narrow<T>(dot * gate * (1.0f - gate));
}

template <typename T>
static void token_gate_launch(const struct token_gates &at, int64_t tokens, bool gradient, cudaStream_t stream) {
    launch(gradient ? known<token_gate_grad_kernel<T>>() : known<token_gate_kernel<T>>(), grid_size(tokens), THREADS, 0,
           stream, at);
}

/* x is input `first`, the gate follows. */
static struct token_gates token_gates_of(const struct node *node, const struct kernel_call *call, int first) {
    struct token_gates at = {};
    at.x = call->in[first], at.x_stride = tensor_row_stride(node->in[first]);
    at.gate = call->in[first + 1], at.gate_stride = tensor_row_stride(node->in[first + 1]);
    at.out = call->out[0], at.out_stride = tensor_row_stride(node->out[0]);
    at.columns = shape_columns(&node->out[0]->shape);
    return at;
}

static enum status token_gate_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct token_gates at = token_gates_of(node, call, 0);
    at.residual = call->in[2];
    if (at.residual) at.residual_stride = tensor_row_stride(node->in[2]);
    FOR_ELEMENT(node->out[0]->shape.dtype, token_gate_launch, at, shape_rows(&node->out[0]->shape), false,
                stream_of(call));
    return cuda_outcome();
}

static enum status token_gate_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    struct token_gates at = token_gates_of(node, call, 1);
    at.dy = call->in[0], at.dy_stride = tensor_row_stride(node->in[0]);
    at.dgate = call->out[1], at.dgate_stride = tensor_row_stride(node->out[1]);
    FOR_ELEMENT(node->out[0]->shape.dtype, token_gate_launch, at, shape_rows(&node->out[0]->shape), true,
                stream_of(call));
    return cuda_outcome();
}

CUDA_KERNEL(token_gate, token_gate_run)
CUDA_KERNEL(token_gate_grad, token_gate_grad_run)
