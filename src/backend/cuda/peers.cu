/* Sums that travel between devices as bf16 (backend_peers). A thread has 16 bytes of these, or one. */
#include "backend/cuda/device.cuh"

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
