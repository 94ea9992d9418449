/* Device code that kernels share: launching, fp32 and bf16 elements, several of them at once, sums over the threads of
 * a block. Sums have one order: by halves within a warp, then the warps in order. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <type_traits>

#include "backend/cuda/kernel.h"
#include "backend/cuda/kernels/mma.cuh"

enum { WARP = 32, THREADS = 256 };

/* Shared memory of the size that the launch gives, at a multiple of 16. */
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(name) extern __shared__ uint4 name[]
#endif

/* A kernel that can be launched. Made by known<KERNEL>() alone, which also registers it for cuda_kernels_load. */
template <typename... P> struct known_kernel { void (*function)(P...); };
template <auto KERNEL> struct kernel_note { static inline const bool added = cuda_kernels_add((const void *)KERNEL); };
template <typename... P> constexpr struct known_kernel<P...> known_as(void (*kernel)(P...)) {
    return {kernel};
} template <auto KERNEL> static inline auto known(void) {
    (void)&kernel_note<KERNEL>::added;
    return known_as(KERNEL);
}

/* The kernel's arguments are converted to its parameters' types. */
template <typename... P>
static void launch(struct known_kernel<P...> kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                   std::type_identity_t<P>... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    cuda_require(cudaLaunchKernelEx(&config, kernel.function, arguments...), "a launch");
}

static inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* A grid's first dimension; it takes 2^31 - 1 blocks. */
static inline unsigned grid_size(int64_t blocks) {
    BUG_IF(blocks < 1 || blocks > 0x7fffffff, "a grid of %lld blocks", (long long)blocks);
    return (unsigned)blocks;
}

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
/* To nearest even. */
template <typename T> __device__ inline T narrow(float value);
template <> __device__ inline float narrow<float>(float value) { return value; }
template <> __device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) { return __float2bfloat16_rn(value); }

/* W neighbours, which one access moves when W elements are 16 bytes; W is that or 1. */
template <typename T> constexpr int VECTOR = 16 / (int)sizeof(T);
template <typename T, int W> struct alignas(sizeof(T) * W) vector { T at[W]; };

template <typename T, int W> __device__ inline vector<T, W> load(const void *from, int64_t index) {
    return *(const vector<T, W> *)((const T *)from + index);
}
/* W floats, which may be several times 16 bytes; their address is a multiple of 16, or W is 1. */
template <int W> __device__ inline void load_floats(const float *from, float out[W]) {
    constexpr int PART = W < VECTOR<float> ? 1 : VECTOR<float>;
#pragma unroll
    for (int w = 0; w < W; w += PART) {
        vector<float, PART> part = load<float, PART>(from, w);
#pragma unroll
        for (int i = 0; i < PART; i++)
            out[w + i] = part.at[i];
    }
}

/* Stores to device memory, and no other, in one access. The compiler would store elements that were computed one by one
 * one by one. */
template <typename T, int W> __device__ inline void store(void *to, int64_t index, const vector<T, W> &value) {
    if constexpr (sizeof value == 16)
        store_whole((T *)to + index, &value);
    else
        *(vector<T, W> *)((T *)to + index) = value;
}

/* On the host: whether an operand's rows may be read 16 bytes at a time. An operand that is left out may. */
static inline bool rows_are_vectors(const struct tensor *tensor, const void *data) {
    if (!tensor || !data) return true;
    int64_t bytes = dtype_bytes(tensor->shape.dtype);
    return (uintptr_t)data % 16 == 0 && tensor_row_stride(tensor) * bytes % 16 == 0;
}

template <typename V> __device__ inline V warp_sum(V value) {
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* The sum over each TEAM consecutive threads, for all of them: a warp, or the whole block. */
template <int TEAM, typename V> __device__ inline V team_sum(V value) {
    static_assert(TEAM % WARP == 0, "whole warps");
    value = warp_sum(value);
    if (TEAM == WARP) return value;
    __shared__ V sums[TEAM / WARP];
    __syncthreads(); /* the sums of the call before have been read */
    if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = value;
    __syncthreads();
    V total = sums[0];
    for (int i = 1; i < TEAM / WARP; i++)
        total += sums[i];
    return total;
}

/* The largest of a team's values, which are not negative. */
template <int TEAM> __device__ inline float team_largest(float value) {
    __shared__ float values[TEAM];
    __syncthreads(); /* those of the call before have been read */
    values[threadIdx.x] = value;
#pragma unroll 1
    for (int half = TEAM / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) values[threadIdx.x] = fmaxf(values[threadIdx.x], values[threadIdx.x + half]);
    }
    __syncthreads();
    return values[0];
}

/* For a block [THREADS / WARP lanes][WARP] whose threads have W columns from block column W * threadIdx.x on. Writes
 * the sums over its lanes, in their order, to the first `columns` columns of `out`, or adds them. */
template <int W> __device__ inline void lanes_sum(const float own[W], float *out, int64_t columns, bool adds) {
    constexpr int LANES = THREADS / WARP;
    alignas(16) __shared__ float sums[LANES][WARP * W];
    __syncthreads(); /* the sums of the call before have been read */
#pragma unroll
    for (int w = 0; w < W; w++)
        sums[threadIdx.y][threadIdx.x * W + w] = own[w];
    __syncthreads();
    for (int column = (int)(threadIdx.y * WARP + threadIdx.x); column < WARP * W && column < columns;
         column += THREADS) {
        float sum = sums[0][column];
#pragma unroll
        for (int lane = 1; lane < LANES; lane++)
            sum += sums[lane][column];
        out[column] = adds ? out[column] + sum : sum;
    }
}

/* Calls body<T>(...) with the element type of a dtype. */
#define FOR_ELEMENT(dtype, body, ...)                                                                                  \
    do {                                                                                                               \
        if ((dtype) == DTYPE_BF16)                                                                                     \
            body<__nv_bfloat16>(__VA_ARGS__);                                                                          \
        else                                                                                                           \
            body<float>(__VA_ARGS__);                                                                                  \
    } while (0)
