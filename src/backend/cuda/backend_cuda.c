/* The backend of NVIDIA GPUs. */
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_kernel.h"
#include "backend/cuda/cuda_matmul.h"
#include "backend/cuda_constants.h"
#include "plan/gpu_micro_batch.h"

static enum dtype fastest_dtype(void) { return DTYPE_BF16; }

/* Kernels of the host tier use the CPU's threads. */
static void set_threads(int threads) { backend_cpu.set_threads(threads); }

static enum status prepare(void) {
    TRY(cuda_device_check());
    return cuda_device_enter();
}

/* Like cuda_add_sums, these return no status; callers find a failure by backend_streams.check. */
static void zero(void *to, int64_t bytes, void *stream) { (void)cudaMemsetAsync(to, 0, (size_t)bytes, stream); }

static void copy(void *to, const void *from, int64_t bytes, void *stream) {
    (void)cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, stream);
}

static const struct backend_peers peers = {.pack_bf16 = cuda_pack_bf16, .unpack_bf16 = cuda_unpack_bf16};

const struct backend backend_cuda = {
    .name = "cuda",
    .isa_prefix = "sm_",
    .isa_libraries = CUDA_ISA_LIBRARIES,
    .select = cuda_device_select,
    .check = cuda_device_check,
    .isa = cuda_device_isa,
    .fastest_dtype = fastest_dtype,
    .capacity = cuda_device_capacity,
    .left_bytes = cuda_device_left_bytes,
    .measure = cuda_device_measure,
    .describe = cuda_device_describe,
    .cache_bytes = cuda_device_cache_bytes,
    .kernels_version = CUDA_KERNELS_VERSION,
    .micro_batch_tokens = GPU_MICRO_BATCH_MIN,
    .choose_micro_batch_tokens = cuda_device_micro_batch_tokens,
    .set_threads = set_threads,
    .maker = cuda_maker,
    .prepare = prepare,
    .pin_products = cuda_matmul_pin,
    .list_products = cuda_matmul_list,
    .zero = zero,
    .add = cuda_add_sums,
    .copy = copy,
    .streams = &cuda_streams,
    .graphs = &cuda_graphs,
    .memory = &cuda_memory,
    .peers = &peers,
    .host = &backend_cpu,
};
