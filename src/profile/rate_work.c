#include "profile/rate_work.h"

enum { PRODUCT_ROWS = 512, PRODUCT_WIDTH = 768, STREAM_ELEMENTS = 1 << 20, ELEMENT_BYTES = 16 };

struct rate_machine rate_machine_make(const struct backend *backend, int threads, int64_t memory_bytes) {
    struct rate_machine machine = {.backend = backend,
                                   .threads = threads,
                                   .piece_bytes = RATE_WORK_PIECE_BYTES,
                                   .block_bytes = RATE_WORK_BLOCK_BYTES};
    if (memory_bytes >= PROFILE_MEMORY_BYTES) return machine;
    machine.kernel_bytes = memory_bytes / 8;
    while (machine.block_bytes > memory_bytes / 16)
        machine.block_bytes /= 2;
    if (machine.piece_bytes > machine.block_bytes) machine.piece_bytes = machine.block_bytes;
    return machine;
}

/* A product of the size that a layer of a small model has: 0.6 GFLOP. */
static struct node *add_product(struct graph *graph) {
    struct tensor *x = graph_tensor(graph, TENSOR_INPUT, "x", shape_make(DTYPE_F32, 3, 1, PRODUCT_ROWS, PRODUCT_WIDTH));
    struct tensor *weight = graph_parameter(graph, "weight", 2, PRODUCT_WIDTH, PRODUCT_WIDTH);
    struct tensor *y =
        ops_linear(graph, "product", x, weight, NULL, NULL, (struct linear_attributes){.weight_is_kn = false});
    return y ? y->producer : NULL;
}

/* The update of a million weights, where there is memory for them: 28 MB that come from memory and go there. */
static struct node *add_update(struct graph *graph, int64_t memory_bytes) {
    int64_t elements = memory_bytes / ELEMENT_BYTES;
    if (memory_bytes == 0 || elements > STREAM_ELEMENTS) elements = STREAM_ELEMENTS;
    struct shape shape = shape_make(DTYPE_F32, 1, elements, 0, 0);
    struct tensor *gradient = graph_tensor(graph, TENSOR_GRADIENT, "gradient", shape);
    struct tensor *clip = graph_tensor(graph, TENSOR_RESULT, "clip", shape_make(DTYPE_F64, 1, 2, 0, 0));
    struct tensor *in[OP_INPUTS_MAX] = {gradient, clip};
    struct tensor *into[OP_OUTPUTS_MAX] = {graph_parameter(graph, "weight", 1, elements, 0),
                                           graph_tensor(graph, TENSOR_STATE, "exp_avg", shape),
                                           graph_tensor(graph, TENSOR_STATE, "exp_avg_sq", shape)};
    struct adamw_attributes attributes = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
    return graph_add(graph, &op_adamw, "update", in, &attributes, into);
}

static enum status open_kernel(struct rate_work *work) {
    bool product = work->activity == ACTIVITY_PRODUCT;
    struct operands operands;
    work->graph = graph_create(DTYPE_F32, 1, PRODUCT_ROWS);
    if (!work->graph) return STATUS_FAILED;
    graph_begin_block(work->graph, "rate");
    struct node *node = product ? add_product(work->graph) : add_update(work->graph, work->machine->kernel_bytes);
    work->memory.most_bytes = work->machine->kernel_bytes;
    TRY(graph_status(work->graph));
    operands_find(work->graph, node, &operands);
    return operator_bench_open(work->machine->backend, &operands, &work->memory, &work->kernel);
}

enum status rate_work_open(const struct rate_machine *machine, enum activity activity, int channel,
                           struct rate_work *out) {
    *out = (struct rate_work){.machine = machine, .activity = activity, .channel = channel};
    switch (activity) {
    case ACTIVITY_PRODUCT:
    case ACTIVITY_STREAMING: return open_kernel(out);
    case ACTIVITY_COPY:
        TRY(arena_open(TIER_HOST, machine->block_bytes, NULL, &out->from));
        return arena_open(TIER_DEVICE, machine->block_bytes, NULL, &out->to);
    default: return arena_open(TIER_DEVICE, machine->piece_bytes, NULL, &out->to);
    }
}

void rate_work_close(struct rate_work *work) {
    operator_bench_close(&work->kernel);
    bench_memory_free(&work->memory);
    graph_free(work->graph);
    arena_close(&work->from);
    arena_close(&work->to);
}

enum status rate_work_run(struct rate_work *work) {
    const struct arena *disk = &work->machine->disk;
    char *to = work->to.base;
    int64_t limit = work->activity == ACTIVITY_COPY ? work->machine->block_bytes : RATE_WORK_DISK_BYTES;
    int64_t bytes = work->machine->piece_bytes, at = work->at;
    work->at = (at + bytes) % limit;
    switch (work->activity) {
    case ACTIVITY_COPY: return arena_read(&work->from, at, to + at, bytes, 0);
    case ACTIVITY_DISK_READ: return arena_read(disk, at, to, bytes, work->channel);
    case ACTIVITY_DISK_WRITE: return arena_write(disk, at, to, bytes, work->channel);
    default: operator_bench_run(&work->kernel); return STATUS_OK;
    }
}
