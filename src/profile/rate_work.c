#include "profile/rate_work.h"

enum { PRODUCT_ROWS = 512, PRODUCT_WIDTH = 768, STREAM_ELEMENTS = 1 << 20 };
static const int64_t COPY_BYTES = (int64_t)16 << 20;

/* A product of the size that a layer of a small model has: 0.6 GFLOP. */
static struct node *add_product(struct graph *graph) {
    struct tensor *x = graph_tensor(graph, TENSOR_INPUT, "x", shape_make(DTYPE_F32, 3, 1, PRODUCT_ROWS, PRODUCT_WIDTH));
    struct tensor *weight = graph_parameter(graph, "weight", 2, PRODUCT_WIDTH, PRODUCT_WIDTH);
    struct tensor *y =
        ops_linear(graph, "product", x, weight, NULL, NULL, (struct linear_attributes){.weight_is_kn = false});
    return y ? y->producer : NULL;
}

/* The update of a million weights: 28 MB that come from memory and go there. */
static struct node *add_update(struct graph *graph) {
    struct shape shape = shape_make(DTYPE_F32, 1, STREAM_ELEMENTS, 0, 0);
    struct tensor *gradient = graph_tensor(graph, TENSOR_GRADIENT, "gradient", shape);
    struct tensor *clip = graph_tensor(graph, TENSOR_RESULT, "clip", shape_make(DTYPE_F64, 1, 2, 0, 0));
    struct tensor *in[OP_INPUTS_MAX] = {gradient, clip};
    struct tensor *into[OP_OUTPUTS_MAX] = {graph_parameter(graph, "weight", 1, STREAM_ELEMENTS, 0),
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
    struct node *node = product ? add_product(work->graph) : add_update(work->graph);
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
        TRY(arena_open(TIER_HOST, COPY_BYTES, NULL, &out->from));
        return arena_open(TIER_DEVICE, COPY_BYTES, NULL, &out->to);
    default: return arena_open(TIER_DEVICE, RATE_WORK_PIECE_BYTES, NULL, &out->to);
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
    int64_t limit = work->activity == ACTIVITY_COPY ? COPY_BYTES : RATE_WORK_DISK_BYTES, at = work->at;
    int64_t bytes = work->machine->piece_bytes;
    work->at = (at + bytes) % limit;
    switch (work->activity) {
    case ACTIVITY_COPY: return arena_read(&work->from, at, to + at, bytes, 0);
    case ACTIVITY_DISK_READ: return arena_read(disk, at, to, bytes, work->channel);
    case ACTIVITY_DISK_WRITE: return arena_write(disk, at, to, bytes, work->channel);
    default: operator_bench_run(&work->kernel); return STATUS_OK;
    }
}
