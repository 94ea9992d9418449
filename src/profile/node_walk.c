#include "profile/node_walk.h"

#include "base/clock.h"
#include "profile/evict.h"
#include "profile/operator_values.h"

enum { ALIGNMENT = 64, LINE_BYTES = 64 };
static const double LONG_CALL_S = 0.15; /* one call of it is enough */

static int64_t align(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Whether a call does not write all of it, but finds values there. */
static bool is_read(const struct walk_call *call, int storage) {
    const struct node *node = call->operands.node;
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (call->operands.storage[i] == storage &&
            (i < OP_INPUTS_MAX || op_updates(node) >> (i - OP_INPUTS_MAX) & 1 || operand_tensor(node, i)->base))
            return true;
    return false;
}

static void place_storage(struct walk_call *call, int storage, int64_t *places, int64_t *bytes) {
    const struct tensor *tensor = call->operands.storages[storage].tensor;
    bool shared = tensor->shape.dtype != DTYPE_I32;
    if (shared && places[tensor->id] >= 0) {
        call->offset[storage] = places[tensor->id];
        return;
    }
    call->offset[storage] = *bytes;
    if (is_read(call, storage)) call->fills |= UINT32_C(1) << storage;
    if (shared) places[tensor->id] = *bytes;
    *bytes += align(shape_bytes(&tensor->shape));
}

/* An output that takes over an input's bytes is found there by those that read it. */
static void place_call(struct walk_call *call, int64_t *places, int64_t *bytes) {
    const struct tensor *out = call->operands.node->out[0];
    int first = call->operands.storage[OP_INPUTS_MAX];
    call->fills = 0;
    for (int i = 0; i < call->operands.storage_count; i++)
        place_storage(call, i, places, bytes);
    if (out && first >= 0) places[out->base ? out->base->id : out->id] = call->offset[first];
    call->scalars_offset = *bytes;
    *bytes += align(SCALAR_COUNT * sizeof(double));
}

int64_t node_walk_lay_out(const struct graph *graph, struct walk_call *calls, int count, int64_t *places) {
    int64_t bytes = 0;
    for (size_t i = 0; i < graph->tensors.count; i++)
        places[i] = -1;
    for (int i = 0; i < count; i++)
        place_call(&calls[i], places, &bytes);
    return bytes;
}

static void fill(const struct node_walk *walk, const struct walk_call *call) {
    const struct node *node = call->operands.node;
    double *scalars = (double *)(void *)(walk->base + call->scalars_offset);
    operator_values_scalars(node, scalars);
    for (int i = 0; i < call->operands.storage_count; i++)
        if (call->fills >> i & 1)
            operator_values_fill(node, call->operands.storages[i].tensor, walk->base + call->offset[i]);
}

static enum status open_walk(struct node_walk *walk, int64_t bytes, struct bench_memory *memory) {
    int64_t workspace_bytes = 0;
    for (int i = 0; i < walk->count; i++) {
        struct walk_call *call = &walk->calls[i];
        TRY(backend_kernel_create(walk->backend, call->operands.node, &call->kernel));
        if (call->kernel->workspace_bytes > workspace_bytes) workspace_bytes = call->kernel->workspace_bytes;
    }
    walk->workspace_offset = align(bytes);
    walk->flush_offset = walk->workspace_offset + align(workspace_bytes);
    TRY(bench_memory_grow(walk->backend, memory, walk->flush_offset + walk->flush_bytes));
    walk->base = memory->arena.base;
    for (int i = 0; i < walk->count; i++)
        fill(walk, &walk->calls[i]);
    return STATUS_OK;
}

enum status node_walk_open(const struct backend *backend, struct walk_call *calls, int count, int64_t bytes,
                           int64_t flush_bytes, struct bench_memory *memory, struct node_walk *out) {
    *out = (struct node_walk){.backend = backend, .calls = calls, .count = count, .flush_bytes = flush_bytes};
    return open_walk(out, bytes, memory);
}

void node_walk_close(struct node_walk *walk) {
    for (int i = 0; i < walk->count; i++) {
        struct kernel *kernel = walk->calls[i].kernel;
        if (kernel) kernel->release(kernel);
        walk->calls[i].kernel = NULL;
    }
}

static void flush(const struct node_walk *walk) {
    volatile const char *at = walk->base + walk->flush_offset;
    for (int64_t i = 0; i < walk->flush_bytes; i += LINE_BYTES)
        (void)at[i];
}

static void *operand_data(const struct node_walk *walk, const struct walk_call *call, int operand) {
    int storage = call->operands.storage[operand];
    if (storage < 0) return NULL;
    return walk->base + call->offset[storage] + tensor_storage_offset(operand_tensor(call->operands.node, operand));
}

static enum status run_call(const struct node_walk *walk, const struct walk_call *call) {
    bool works = call->kernel->workspace_bytes > 0;
    struct kernel_call arguments = {.workspace = works ? walk->base + walk->workspace_offset : NULL,
                                    .scalars = (const double *)(const void *)(walk->base + call->scalars_offset)};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        arguments.in[i] = operand_data(walk, call, i);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        arguments.out[i] = operand_data(walk, call, OP_INPUTS_MAX + i);
    return call->kernel->run(call->kernel, &arguments);
}

static void evict_operands(const struct node_walk *walk, const struct walk_call *call) {
    for (int i = 0; i < call->operands.storage_count; i++)
        if (call->evicts >> i & 1)
            evict(walk->base + call->offset[i], shape_bytes(&call->operands.storages[i].tensor->shape));
}

static bool begins_phase(const struct node_walk *walk, int i) {
    return i == 0 || walk->calls[i].operands.node->phase != walk->calls[i - 1].operands.node->phase;
}

/* Before a call that is timed goes the one before it, as in a step. */
static bool is_due(const struct node_walk *walk, int i) {
    return !walk->calls[i].settled || (i + 1 < walk->count && !walk->calls[i + 1].settled);
}

/* Of those that are due where their seconds are asked for, else of all. */
static enum status make_pass(const struct node_walk *walk, double *seconds) {
    for (int i = 0; i < walk->count; i++) {
        const struct walk_call *call = &walk->calls[i];
        if (begins_phase(walk, i)) flush(walk);
        if (seconds && !is_due(walk, i)) continue;
        evict_operands(walk, call);
        int64_t begin = clock_now_ns();
        TRY(run_call(walk, call));
        if (seconds) seconds[i] = (double)(clock_now_ns() - begin) * 1e-9;
    }
    return STATUS_OK;
}

enum status node_walk_run(struct node_walk *walk) { return make_pass(walk, NULL); }

/* Which call waited for a processor is not known: all did for the same share of their time. */
static void keep(struct walk_call *call, double seconds, const struct sample *pass) {
    const double min_s = 1e-9;
    if (seconds < min_s) seconds = min_s;
    call->samples[call->count++] = (struct sample){seconds, seconds * pass->waited_s / pass->seconds};
    call->settled = seconds >= LONG_CALL_S || measurement_settled(call->samples, call->count);
}

/* Adds a sample to each call that lacks one. */
static enum status time_pass(struct node_walk *walk, double *seconds, double *spent_s) {
    struct stopwatch stopwatch = stopwatch_begin();
    TRY(make_pass(walk, seconds));
    struct sample pass = stopwatch_end(&stopwatch);
    *spent_s += pass.seconds;
    for (int i = 0; i < walk->count; i++)
        if (!walk->calls[i].settled) keep(&walk->calls[i], seconds[i], &pass);
    return STATUS_OK;
}

static bool are_settled(const struct node_walk *walk) {
    for (int i = 0; i < walk->count; i++)
        if (!walk->calls[i].settled) return false;
    return true;
}

/* The first call of a kernel may take twice the time of others: it counts where others are no lower. */
static enum status measure(struct node_walk *walk, double budget_s, double *seconds) {
    double spent_s = 0;
    for (int i = 0; i < walk->count; i++)
        walk->calls[i].count = 0, walk->calls[i].settled = false;
    for (int n = 0; n < WALK_PASSES_MAX && (n < WALK_PASSES_MIN || spent_s < budget_s) && !are_settled(walk); n++)
        TRY(time_pass(walk, seconds, &spent_s));
    return STATUS_OK;
}

enum status node_walk_measure(struct node_walk *walk, double budget_s) {
    double *seconds = mem_array((size_t)walk->count, sizeof *seconds);
    if (!seconds) return STATUS_FAILED;
    enum status status = measure(walk, budget_s, seconds);
    mem_free(seconds);
    return status;
}
