#include "profile/rate_work.h"

#include "profile/profile_cache.h"

enum {
    CPU_MICRO_BATCH_TOKENS = 1024,
    PRODUCT_ROWS = 512,
    PRODUCT_WIDTH = 768,
    STREAM_ELEMENTS = 1 << 20,
    ELEMENT_BYTES = 16,
    PRODUCT_PART = 4,           /* of the memory: 16 MiB have space for some copies of the weight */
    CPU_KERNEL_BYTES = 64 << 20 /* two updates: they push each other out of all but the largest caches */
};

struct rate_machine rate_machine_make(const struct backend *backend, int threads, int64_t memory_bytes) {
    struct rate_machine machine = {.backend = backend,
                                   .threads = threads,
                                   .piece_bytes = RATE_WORK_PIECE_BYTES,
                                   .block_bytes = RATE_WORK_BLOCK_BYTES,
                                   .kernel_bytes = backend->streams ? 0 : CPU_KERNEL_BYTES};
    if (memory_bytes >= PROFILE_MEMORY_BYTES) return machine;
    if (memory_bytes < PROFILE_MEMORY_BYTES_MIN) memory_bytes = PROFILE_MEMORY_BYTES_MIN;
    machine.kernel_bytes = memory_bytes / 8;
    while (machine.block_bytes > memory_bytes / 16)
        machine.block_bytes /= 2;
    if (machine.piece_bytes > machine.block_bytes) machine.piece_bytes = machine.block_bytes;
    return machine;
}

/* The tokens of its micro-batches, over those of the CPU's. */
static int64_t scale_of(const struct backend *backend) {
    int64_t scale = backend->micro_batch_tokens / CPU_MICRO_BATCH_TOKENS;
    return scale > 1 ? scale : 1;
}

/* A GEMM of the size that a layer of a small model has: 0.6 GFLOP; scale^4 times that. */
static struct node *add_product(struct graph *graph, int64_t scale) {
    int64_t rows = scale * scale * PRODUCT_ROWS, width = scale * PRODUCT_WIDTH;
    struct tensor *x = graph_tensor(graph, TENSOR_INPUT, "x", shape_make(graph->dtype, 3, 1, rows, width));
    struct tensor *weight = graph_parameter(graph, "weight", 2, width, width);
    struct tensor *y =
        ops_linear(graph, "product", x, weight, NULL, NULL, (struct linear_attributes){.weight_is_kn = false});
    return y ? y->producer : NULL;
}

/* The update of a million weights, where there is memory for them: 28 MB that come from memory and go there; scale^2
 * times that. */
static struct node *add_update(struct graph *graph, int64_t scale, int64_t memory_bytes) {
    int64_t elements = scale * scale * STREAM_ELEMENTS, fitting = memory_bytes / ELEMENT_BYTES;
    if (memory_bytes > 0 && fitting < elements) elements = fitting;
    struct shape shape = shape_make(DTYPE_F32, 1, elements, 0, 0);
    struct tensor *gradient = graph_tensor(graph, TENSOR_GRADIENT, "gradient", shape);
    struct tensor *clip = graph_tensor(graph, TENSOR_RESULT, "clip", shape_make(DTYPE_F64, 1, 2, 0, 0));
    struct tensor *in[OP_INPUTS_MAX] = {gradient, clip};
    struct tensor *into[OP_OUTPUTS_MAX] = {graph_parameter(graph, "weight", 1, elements, 0),
                                           graph_tensor(graph, TENSOR_STATE, "exp_avg", shape),
                                           graph_tensor(graph, TENSOR_STATE, "exp_avg_sq", shape)};
    struct update_attributes attributes = {
        .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .parameter = DTYPE_F32, .moments = DTYPE_F32};
    return graph_add(graph, &op_adamw, "update", in, &attributes, into);
}

static enum status open_kernel(struct rate_work *work) {
    const struct backend *backend = work->machine->backend;
    bool product = work->activity == ACTIVITY_PRODUCT;
    int64_t scale = scale_of(backend);
    enum dtype dtype = product && backend->streams ? backend->fastest_dtype() : DTYPE_F32;
    struct operands operands;
    work->graph = graph_create(dtype, 1, scale * scale * PRODUCT_ROWS);
    if (!work->graph) return STATUS_FAILED;
    graph_begin_block(work->graph, "rate");
    struct node *node =
        product ? add_product(work->graph, scale) : add_update(work->graph, scale, work->machine->kernel_bytes);
    work->memory.max_bytes = product ? work->machine->kernel_bytes / PRODUCT_PART : work->machine->kernel_bytes;
    TRY(graph_status(work->graph));
    operands_find(work->graph, node, &operands);
    return operator_bench_open(backend, &operands, false, &work->memory, &work->kernel);
}

enum status rate_arena_open(const struct rate_machine *machine, enum tier tier, int64_t bytes, struct arena *out) {
    const struct arena_settings settings = {.memory = machine->backend->memory};
    return arena_open(tier, bytes, &settings, out);
}

static bool uses_disk(enum activity activity) {
    return activity == ACTIVITY_DISK_READ || activity == ACTIVITY_DISK_WRITE;
}

static enum status open_copy(struct rate_work *work) {
    const struct rate_machine *machine = work->machine;
    bool disk = uses_disk(work->activity);
    TRY(work_clock_open(machine->backend, &work->clock));
    TRY(rate_arena_open(machine, TIER_DEVICE, disk ? machine->piece_bytes : machine->block_bytes, &work->device));
    if (!disk) return rate_arena_open(machine, TIER_HOST, machine->block_bytes, &work->host);
    return machine->backend->memory ? copy_staging_open(machine->backend, &work->staging) : STATUS_OK;
}

enum status rate_work_open(const struct rate_machine *machine, enum activity activity, int channel,
                           struct rate_work *out) {
    *out = (struct rate_work){.machine = machine, .activity = activity, .channel = channel};
    return activity == ACTIVITY_PRODUCT || activity == ACTIVITY_STREAMING ? open_kernel(out) : open_copy(out);
}

void rate_work_close(struct rate_work *work) {
    if (!work->machine) return;
    operator_bench_close(&work->kernel);
    bench_memory_free(&work->memory);
    graph_free(work->graph);
    copy_staging_close(work->machine->backend, &work->staging);
    work_clock_close(&work->clock);
    arena_close(&work->host);
    arena_close(&work->device);
}

/* Moves on by a piece on the disk; the bytes in memory are always the same. */
static enum status copy_disk(struct rate_work *work) {
    const struct rate_machine *machine = work->machine;
    struct tier_place disk = {&machine->disk, work->at}, memory = {&work->device, 0};
    bool reads = work->activity == ACTIVITY_DISK_READ;
    work->at = (work->at + machine->piece_bytes) % RATE_WORK_DISK_BYTES;
    return tier_copy(machine->backend, &work->staging, reads ? disk : memory, reads ? memory : disk,
                     machine->piece_bytes, work->channel, work->clock.stream);
}

static enum status copy_memory(struct rate_work *work) {
    const struct backend *backend = work->machine->backend;
    struct tier_place host = {&work->host, work->at}, device = {&work->device, work->at};
    const struct rate_machine *machine = work->machine;
    int64_t bytes = backend->streams ? machine->block_bytes : machine->piece_bytes;
    bool in = work->channel == 0;
    work->at = (work->at + bytes) % machine->block_bytes;
    return tier_copy(backend, NULL, in ? host : device, in ? device : host, bytes, 0, work->clock.stream);
}

enum status rate_work_run(struct rate_work *work) {
    if (work->graph) {
        enum status status = operator_bench_run(&work->kernel);
        enum status finished = work_clock_finish(&work->kernel.clock);
        return status == STATUS_OK ? finished : status;
    }
    enum status status = uses_disk(work->activity) ? copy_disk(work) : copy_memory(work);
    enum status finished = work_clock_finish(&work->clock);
    return status == STATUS_OK ? finished : status;
}
