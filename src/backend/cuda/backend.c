/* The backend of NVIDIA GPUs: the GPU in use, its memory, streams and graphs. */
#include <cublasLt.h>
#include <stdatomic.h>

#include "backend/cuda/attention_cudnn.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/matmul.h"
#include "backend/cuda_constants.h"
#include "base/text.h"
#include "plan/recipe.h"

/* The lowest compute capability that the kernels are built for, the first with bf16 in hardware. */
enum { MAJOR_MIN = 8 };

/* Set by cuda_device_select before other threads are started. */
static int selected;
static char isa[CLUSTER_ISA_BYTES]; /* "" before the device was looked at */

enum status cuda_status(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return STATUS_OK;
    enum status status = status_set(STATUS_FAILED, "CUDA: %s: %s", what, cudaGetErrorString(error));
    bool in_kernel = error == cudaErrorIllegalAddress || error == cudaErrorMisalignedAddress ||
                     error == cudaErrorLaunchFailure || error == cudaErrorIllegalInstruction ||
                     error == cudaErrorAssert || error == cudaErrorHardwareStackError;
    if (!in_kernel) return status;
    return status_hint(
        status, "the call named may be later than the one that failed: CUDA_LAUNCH_BLOCKING=1 names the right one");
}

/* Makes the device current for the calling thread. */
static enum status cuda_device_enter(void) { return cuda_status(cudaSetDevice(selected), "cudaSetDevice"); }

static enum status cuda_device_select(int device) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver)
        return status_set(STATUS_BAD_INPUT, "no NVIDIA GPU can be used here: there is no driver, or one for a CUDA "
                                            "older than this build's");
    if (error != cudaSuccess || count == 0)
        return status_set(STATUS_BAD_INPUT, "no NVIDIA GPU can be used here: %s",
                          cudaGetErrorString(error != cudaSuccess ? error : cudaErrorNoDevice));
    if (device >= count)
        return status_set(STATUS_BAD_INPUT, "there is no GPU %d: they are numbered 0 to %d", device, count - 1);
    selected = device;
    isa[0] = '\0';
    return STATUS_OK;
}

static enum status look_up(struct cudaDeviceProp *out) {
    cudaError_t error = cudaGetDeviceProperties(out, selected);
    if (error == cudaSuccess) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "no NVIDIA GPU can be used here: %s", cudaGetErrorString(error));
}

/* cuBLAS gives the same bits only for the same architecture, number of multiprocessors and version. A target device
 * has the first two, "sm_90-132sm"; the rest, "+cublaslt-13.0.2", is known only on the GPU. */
static void name_isa(const struct cudaDeviceProp *properties) {
    size_t version = cublasLtGetVersion();
    snprintf(isa, sizeof isa, "sm_%d%d-%dsm" CUDA_ISA_LIBRARIES "%zu.%zu.%zu%s", properties->major, properties->minor,
             properties->multiProcessorCount, version / 10000, version / 100 % 100, version % 100,
             attention_cudnn_version());
}

/* Makes the context. Threads sleep while they wait for the device: spinning would take a core from updates on the host.
 */
static enum status make_context(void) {
    TRY(cuda_status(cudaInitDevice(selected, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid),
                    "cudaInitDevice"));
    return cuda_device_enter();
}

static enum status cuda_device_check(void) {
    struct cudaDeviceProp properties;
    if (isa[0]) return STATUS_OK;
    TRY(look_up(&properties));
    if (properties.major < MAJOR_MIN)
        return status_set(STATUS_FAILED, "%s has compute capability %d.%d; Ballast needs at least %d.0",
                          properties.name, properties.major, properties.minor, MAJOR_MIN);
    TRY(make_context());
    name_isa(&properties);
    return STATUS_OK;
}

static const char *cuda_device_isa(void) { return cuda_device_check() == STATUS_OK ? isa : "none"; }

/* Free memory less `reserve_bytes`. */
static enum status free_bytes(int64_t reserve_bytes, int64_t *out) {
    size_t there = 0, all = 0;
    TRY(cuda_status(cudaMemGetInfo(&there, &all), "cudaMemGetInfo"));
    *out = (int64_t)there > reserve_bytes ? (int64_t)there - reserve_bytes : 0;
    return STATUS_OK;
}

/* Measured after the context, cuBLASLt's handle and the code of all own kernels have taken their memory. */
static enum status cuda_device_capacity(int64_t bytes[TIER_COUNT]) {
    struct cluster_memory memory;
    TRY(cuda_device_check());
    TRY(cuda_device_enter());
    TRY(cuda_matmul_open());
    TRY(cuda_kernels_load());
    TRY(free_bytes(CUDA_GRAPH_BYTES + CUDA_CODE_BYTES, &bytes[TIER_DEVICE]));
    cluster_find_memory(&memory);
    bytes[TIER_HOST] = memory.capacity_bytes;
    bytes[TIER_DISK] = 0;
    return STATUS_OK;
}

static enum status cuda_device_left_bytes(int64_t *device_bytes) {
    TRY(cuda_device_enter());
    return free_bytes(CUDA_GRAPH_BYTES, device_bytes);
}

/* Keeps the host's cores and page size, which the host's part of the work uses. */
static enum status cuda_device_measure(struct cluster *out) {
    struct cudaDeviceProp properties;
    int64_t bytes[TIER_COUNT];
    struct cluster_device *device = &out->device;
    TRY(cluster_measure(out));
    TRY(cuda_device_check());
    TRY(look_up(&properties));
    TRY(cuda_device_capacity(bytes));
    snprintf(device->kind, sizeof device->kind, "cuda");
    snprintf(device->name, sizeof device->name, "%.*s", (int)sizeof device->name - 1, properties.name);
    snprintf(device->isa, sizeof device->isa, "%s", isa);
    device->bf16_matrix = true;
    device->tier_count = 0;
    for (enum tier tier = TIER_DEVICE; tier <= TIER_HOST; tier++) {
        struct cluster_tier *to = &device->tiers[device->tier_count++];
        snprintf(to->name, sizeof to->name, "%s", tier_name(tier));
        to->capacity_bytes = bytes[tier];
    }
    return STATUS_OK;
}

/* Another driver or cuBLASLt chooses other algorithms, of another speed; the slot identifies the link to the host. */
static enum status cuda_device_describe(char *text, size_t bytes) {
    struct cudaDeviceProp properties;
    char slot[32] = "";
    int driver = 0;
    TRY(cuda_device_check());
    TRY(look_up(&properties));
    TRY(cuda_status(cudaDeviceGetPCIBusId(slot, sizeof slot, selected), "cudaDeviceGetPCIBusId"));
    TRY(cuda_status(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
    snprintf(text, bytes, "%s of %d multiprocessors at %s, driver %d, cuBLASLt %zu", properties.name,
             properties.multiProcessorCount, slot, driver, cublasLtGetVersion());
    return STATUS_OK;
}

static int64_t cuda_device_cache_bytes(void) {
    int bytes = 0;
    return cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, selected) == cudaSuccess ? bytes : 0;
}

static int64_t cuda_device_micro_batch_tokens(int64_t layers, int64_t width, int64_t device_bytes) {
    struct cudaDeviceProp properties;
    if (look_up(&properties) != STATUS_OK) {
        status_clear();
        return GPU_MICRO_BATCH_MIN;
    }
    int64_t bytes = (int64_t)properties.totalGlobalMem;
    if (device_bytes > 0 && device_bytes < bytes) bytes = device_bytes;
    return gpu_micro_batch_tokens(properties.multiProcessorCount, bytes, layers, width);
}

/* Copies and fills outside of programs use the calling thread's own stream, which does not wait for the streams of
 * programs, nor they for it. Then the caller waits for that stream, since a copy_and_wait from pageable memory or a
 * fill may return before the GPU has done it. */
static enum status finish_copy(cudaError_t error, const char *what) {
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamPerThread);
    return cuda_status(error, what);
}

static enum status refuse(cudaError_t error) {
    size_t there = 0, all = 0;
    char text[SIZE_TEXT];
    (void)cudaGetLastError(); /* so that later calls do not report the failed allocation */
    if (error != cudaErrorMemoryAllocation || cudaMemGetInfo(&there, &all) != cudaSuccess)
        return cuda_status(error, "memory");
    return status_set(STATUS_FAILED, "the GPU has only %s of free memory", size_print((int64_t)there, text));
}

static enum status take_device(int64_t bytes, void **out) {
    cudaError_t error = cudaMalloc(out, (size_t)bytes);
    if (error != cudaSuccess) return refuse(error);
    enum status status = finish_copy(cudaMemsetAsync(*out, 0, (size_t)bytes, cudaStreamPerThread), "cudaMemset");
    if (status != STATUS_OK) (void)cudaFree(*out);
    return status;
}

/* A host block lies behind a page that records its size. */
enum { PAGE_BYTES = 4096 };
struct host_block {
    int64_t bytes; /* without this page */
};

static struct host_block *host_block_of(void *base) { return (void *)((char *)base - PAGE_BYTES); }

static void release_host(struct host_block *block) { pages_release(block, (size_t)block->bytes + PAGE_BYTES); }

/* cudaHostAlloc would take 4 KiB pages on one thread, and carves small blocks at 512 bytes, where the disk tier needs
 * 4096. */
static enum status take_host(int64_t bytes, void **out) {
    struct host_block *block = pages_take((size_t)bytes + PAGE_BYTES);
    if (!block) return status_no_memory((size_t)bytes, "the GPU's copies");
    block->bytes = bytes;
    void *base = (char *)block + PAGE_BYTES;
    cudaError_t error = cudaHostRegister(base, (size_t)bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) {
        *out = base;
        return STATUS_OK;
    }
    release_host(block);
    (void)cudaGetLastError();
    return status_set(STATUS_FAILED, "the system does not pin %" PRId64 " bytes for the GPU: %s", bytes,
                      cudaGetErrorString(error));
}

static enum status take(enum tier tier, int64_t bytes, void **out) {
    TRY(cuda_device_enter());
    return tier == TIER_DEVICE ? take_device(bytes, out) : take_host(bytes, out);
}

/* A failure here is an earlier one, which was reported then; the host's memory is released all the same. */
static void give_back(enum tier tier, void *base) {
    bool entered = cuda_device_enter() == STATUS_OK;
    if (tier == TIER_DEVICE) {
        if (entered) (void)cudaFree(base);
        return;
    }
    if (entered) (void)cudaHostUnregister(base);
    release_host(host_block_of(base));
}

static enum status copy_and_wait(void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind) {
    TRY(cuda_device_enter());
    return finish_copy(cudaMemcpyAsync(to, from, (size_t)bytes, kind, cudaStreamPerThread), "cudaMemcpy");
}

static enum status read_device(void *to, const void *from_device, int64_t bytes) {
    return copy_and_wait(to, from_device, bytes, cudaMemcpyDeviceToHost);
}

static enum status write_device(void *to_device, const void *from, int64_t bytes) {
    return copy_and_wait(to_device, from, bytes, cudaMemcpyHostToDevice);
}

static const struct backend_memory cuda_memory = {
    .take = take, .give_back = give_back, .read = read_device, .write = write_device};

/* Non-blocking: not ordered with the default stream. */
static enum status create(void **stream) {
    cudaStream_t created;
    TRY(cuda_status(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "cudaStreamCreate"));
    *stream = created;
    return STATUS_OK;
}

static void free_stream(void *stream) { (void)cudaStreamDestroy(stream); }

/* Without times, which make recording slower. Waiting threads sleep, since the processor has other work. */
static enum status create_event(void **event) {
    cudaEvent_t created;
    TRY(cuda_status(cudaEventCreateWithFlags(&created, cudaEventDisableTiming | cudaEventBlockingSync),
                    "cudaEventCreate"));
    *event = created;
    return STATUS_OK;
}

static enum status create_timed_event(void **event) {
    cudaEvent_t created;
    TRY(cuda_status(cudaEventCreateWithFlags(&created, cudaEventBlockingSync), "cudaEventCreate"));
    *event = created;
    return STATUS_OK;
}

static void free_event(void *event) { (void)cudaEventDestroy(event); }

static enum status record(void *event, void *stream) {
    return cuda_status(cudaEventRecord(event, stream), "cudaEventRecord");
}

static enum status wait(void *stream, void *event) {
    return cuda_status(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

static enum status await(void *event) { return cuda_status(cudaEventSynchronize(event), "while the GPU worked"); }

static enum status finish(void *stream) { return cuda_status(cudaStreamSynchronize(stream), "while the GPU worked"); }

static enum status check(void) { return cuda_status(cudaPeekAtLastError(), "a launch"); }

static enum status elapsed(void *begin, void *end, double *seconds) {
    float milliseconds = 0;
    TRY(cuda_status(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime"));
    *seconds = (double)milliseconds * 1e-3;
    return STATUS_OK;
}

/* The backend's tables of streams and events, graphs, and memory; backend.h says what their functions do. Each is in
 * the file of its name. */
static const struct backend_streams cuda_streams = {
    .enter = cuda_device_enter,
    .create = create,
    .free = free_stream,
    .create_event = create_event,
    .create_timed_event = create_timed_event,
    .free_event = free_event,
    .record = record,
    .wait = wait,
    .await = await,
    .finish = finish,
    .check = check,
    .elapsed = elapsed,
};

/* Graphs take device memory besides the arenas, out of the part left to CUDA itself (CUDA_GRAPH_BYTES): some 64 KiB a
 * kernel. A user of driver 470 reported 362, 395 and 458 MB in use with one graph of 500, 1000 and 2000 empty kernels
 * (NVIDIA's forum). So all graphs of the process together take about 128 MiB at most. */
struct cuda_graph {
    cudaGraphExec_t ready;
    int nodes;
};

static atomic_int nodes_taken;

static bool are_off(void) {
    const char *choice = getenv("BALLAST_CUDA_GRAPHS");
    return choice && strcmp(choice, "off") == 0;
}

/* A refusal stays the runtime's last error until someone reads it, so this reads it. The error of a device that has
 * failed returns with the next call. */
static enum status refuse_graph(cudaError_t error, const char *what) {
    (void)cudaGetLastError();
    return cuda_status(error, what);
}

/* In this mode calls that no capture allows (allocations, synchronous copies) are forbidden to this thread alone:
 * others, which may be writing a checkpoint, go on as ever. */
static enum status begin(void *stream) {
    if (are_off()) return status_set(STATUS_FAILED, "BALLAST_CUDA_GRAPHS=off");
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    return error == cudaSuccess ? STATUS_OK : refuse_graph(error, "cudaStreamBeginCapture");
}

/* Takes so many nodes off the nodes left; false when there are fewer. */
static bool take_nodes(int nodes) {
    int taken = nodes_taken;
    do
        if (nodes > CUDA_GRAPH_NODES - taken) return false;
    while (!atomic_compare_exchange_weak(&nodes_taken, &taken, taken + nodes));
    return true;
}

static void free_graph(void *of) {
    struct cuda_graph *graph = of;
    if (graph->ready) (void)cudaGraphExecDestroy(graph->ready);
    nodes_taken -= graph->nodes;
    mem_free(graph);
}

static enum status make_ready(cudaGraph_t captured, void **out) {
    size_t nodes = 0;
    cudaError_t error = cudaGraphGetNodes(captured, NULL, &nodes);
    if (error != cudaSuccess) return refuse_graph(error, "cudaGraphGetNodes");
    struct cuda_graph *graph = mem_array(1, sizeof *graph);
    if (!graph) return STATUS_FAILED;
    if (nodes > CUDA_GRAPH_NODES || !take_nodes((int)nodes)) {
        mem_free(graph);
        return status_set(STATUS_FAILED, "graphs have %d nodes already: %zu more are too many", nodes_taken, nodes);
    }
    graph->nodes = (int)nodes;
    error = cudaGraphInstantiateWithFlags(&graph->ready, captured, 0);
    if (error != cudaSuccess) {
        graph->ready = NULL;
        free_graph(graph);
        return refuse_graph(error, "cudaGraphInstantiate");
    }
    *out = graph;
    return STATUS_OK;
}

/* A failure within the capture is reported by the runtime's last error (a fill) or by this call alone. */
static enum status end(void *stream, void **out) {
    cudaGraph_t captured = NULL;
    cudaError_t error = cudaStreamEndCapture(stream, &captured);
    if (error == cudaSuccess) error = cudaPeekAtLastError();
    if (error == cudaSuccess && !captured) error = cudaErrorStreamCaptureInvalidated;
    enum status status = error == cudaSuccess ? make_ready(captured, out) : refuse_graph(error, "cudaStreamEndCapture");
    if (captured) (void)cudaGraphDestroy(captured);
    return status;
}

static enum status launch(void *of, void *stream) {
    return cuda_status(cudaGraphLaunch(((const struct cuda_graph *)of)->ready, stream), "cudaGraphLaunch");
}

const struct backend_graphs cuda_graphs = {.begin = begin, .end = end, .launch = launch, .free = free_graph};

/* The backend of NVIDIA GPUs. */

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
