#include "profile/operator_bench.h"

#include <math.h>

#include "profile/evict.h"
#include "profile/operator_values.h"

enum { CALLS_MAX = 6, ROW_MAX = 10, ALIGNMENT = 4096 };
static const double LONG_CALL_S = 0.15; /* the extra work of a first call is little compared with it */
static const double CALLS_MAX_S = 0.06, ROW_S = 1e-3;
/* Memory delivers fewer bytes within microseconds; emptying the caches for them would take milliseconds. */
static const int64_t COLD_BYTES_MIN = (int64_t)64 << 10;
static const int64_t COPIES_BYTES_MAX = (int64_t)256 << 20, CACHE_DEFAULT_BYTES = (int64_t)32 << 20,
                     FLUSH_BYTES_MAX = (int64_t)64 << 20;

static int64_t align(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

void bench_memory_free(struct bench_memory *memory) { arena_close(&memory->arena); }

enum status bench_memory_grow(const struct backend *backend, struct bench_memory *memory, int64_t bytes) {
    const struct arena_settings settings = {.memory = backend->memory};
    if (memory->arena.bytes >= bytes) return STATUS_OK;
    arena_close(&memory->arena);
    memory->arena = (struct arena){0};
    return arena_open(TIER_DEVICE, bytes, &settings, &memory->arena);
}

/* Touching 1.5 times the bytes of the last cache replaces all that it holds. */
static int64_t flush_bytes(const struct backend *backend) {
    int64_t cache = backend->cache_bytes();
    return (cache > 0 ? cache : CACHE_DEFAULT_BYTES) / 2 * 3;
}

/* As many copies as fill the caches, but no more than there are calls or space for. On a device, where several calls
 * are one sample, calls use a copy more than once. */
static int count_copies(const struct backend *backend, int64_t bytes, int64_t left_bytes) {
    int64_t max = backend->streams ? INT16_MAX : CALLS_MAX + 1;
    if (bytes == 0 || (backend->streams && bytes < COLD_BYTES_MIN)) return 1;
    if (left_bytes > COPIES_BYTES_MAX) left_bytes = COPIES_BYTES_MAX;
    int64_t copies = flush_bytes(backend) / bytes + 1;
    if (copies > left_bytes / bytes) copies = left_bytes / bytes;
    return (int)(copies < 1 ? 1 : copies > max ? max : copies);
}

/* Sets the offsets of all storages; returns their bytes together. */
static int64_t lay_out(struct operator_bench *bench, int64_t max_bytes) {
    int64_t warm = 0, cold = 0;
    for (int i = 0; i < bench->operands.storage_count; i++) {
        const struct operand_storage *storage = &bench->operands.storages[i];
        int64_t *at = storage->cold ? &cold : &warm;
        bench->offset[i] = *at;
        *at += align(shape_bytes(&storage->tensor->shape));
    }
    bench->scalars_offset = warm;
    bench->workspace_offset = warm + align(SCALAR_COUNT * sizeof(double));
    bench->cold_offset = bench->workspace_offset + align(bench->kernel->workspace_bytes);
    bench->cold_bytes = cold;
    bench->copies = bench->evicts ? 1 : count_copies(bench->clock.backend, cold, max_bytes - bench->cold_offset);
    return bench->cold_offset + bench->copies * cold;
}

static char *storage_data(const struct operator_bench *bench, int storage, int copy) {
    bool cold = bench->operands.storages[storage].cold;
    return bench->base + (cold ? bench->cold_offset + copy * bench->cold_bytes : 0) + bench->offset[storage];
}

/* A device's caches are emptied whole or not at all; of a processor's the first ones matter most. */
static int64_t bytes_to_flush(const struct backend *backend, int64_t left_bytes) {
    int64_t bytes = flush_bytes(backend);
    if (backend->memory) return bytes <= left_bytes ? bytes : 0;
    if (bytes > FLUSH_BYTES_MAX) bytes = FLUSH_BYTES_MAX;
    return bytes <= left_bytes ? bytes : left_bytes > 0 ? left_bytes : 0;
}

/* Empties the caches of the operands' values by reading other bytes (written ones would have to be written back);
 * memory that the CPU cannot read is cleared instead. */
static void flush(const struct operator_bench *bench) {
    enum { LINE_BYTES = 64 };
    const struct backend *backend = bench->clock.backend;
    char *from = bench->base + bench->flush_offset;
    volatile const char *at = from;
    if (bench->flush_bytes == 0) return;
    if (backend->memory) {
        backend->zero(from, bench->flush_bytes, bench->clock.stream);
        return;
    }
    for (int64_t i = 0; i < bench->flush_bytes; i += LINE_BYTES)
        (void)at[i];
}

static int count_fills(const struct operator_bench *bench, int storage) {
    return bench->operands.storages[storage].cold ? bench->copies : 1;
}

static void fill_mapped(const struct operator_bench *bench, int storage) {
    const struct tensor *tensor = bench->operands.storages[storage].tensor;
    for (int copy = 0; copy < count_fills(bench, storage); copy++)
        operator_values_fill(bench->operands.node, tensor, storage_data(bench, storage, copy));
}

/* Makes the values once, in memory of the CPU, and copies them to the device. */
static enum status fill_device(const struct operator_bench *bench, int storage) {
    const struct tensor *tensor = bench->operands.storages[storage].tensor;
    int64_t bytes = shape_bytes(&tensor->shape);
    void *values = mem_array((size_t)bytes, 1);
    if (!values) return STATUS_FAILED;
    operator_values_fill(bench->operands.node, tensor, values);
    enum status status = STATUS_OK;
    for (int copy = 0; copy < count_fills(bench, storage) && status == STATUS_OK; copy++)
        status = bench->clock.backend->memory->write(storage_data(bench, storage, copy), values, bytes);
    mem_free(values);
    return status;
}

static enum status fill_scalars(const struct operator_bench *bench) {
    const struct backend_memory *memory = bench->clock.backend->memory;
    double scalars[SCALAR_COUNT];
    operator_values_scalars(bench->operands.node, scalars);
    if (memory) return memory->write(bench->base + bench->scalars_offset, scalars, sizeof scalars);
    memcpy(bench->base + bench->scalars_offset, scalars, sizeof scalars);
    return STATUS_OK;
}

static enum status fill(const struct operator_bench *bench) {
    TRY(fill_scalars(bench));
    for (int i = 0; i < bench->operands.storage_count; i++)
        if (bench->clock.backend->memory)
            TRY(fill_device(bench, i));
        else
            fill_mapped(bench, i);
    return STATUS_OK;
}

static enum status open_bench(const struct backend *backend, struct bench_memory *memory,
                              struct operator_bench *bench) {
    TRY(work_clock_open(backend, &bench->clock));
    TRY(backend_kernel_create(backend, bench->operands.node, &bench->kernel));
    int64_t max = memory->max_bytes > 0 ? memory->max_bytes : INT64_MAX, bytes = lay_out(bench, max);
    bool flushes = !bench->evicts && bench->cold_bytes >= COLD_BYTES_MIN &&
                   bench->copies * bench->cold_bytes < flush_bytes(backend);
    bench->flush_offset = bytes;
    bench->flush_bytes = flushes ? bytes_to_flush(backend, max - bytes) : 0;
    TRY(bench_memory_grow(backend, memory, bytes + bench->flush_bytes));
    bench->base = memory->arena.base;
    TRY(fill(bench));
    flush(bench);
    return work_clock_finish(&bench->clock);
}

enum status operator_bench_open(const struct backend *backend, const struct operands *operands, bool evicts,
                                struct bench_memory *memory, struct operator_bench *out) {
    *out = (struct operator_bench){.operands = *operands, .evicts = evicts};
    enum status status = open_bench(backend, memory, out);
    if (status != STATUS_OK) operator_bench_close(out);
    return status;
}

void operator_bench_close(struct operator_bench *bench) {
    if (bench->kernel) bench->kernel->release(bench->kernel);
    bench->kernel = NULL;
    work_clock_close(&bench->clock);
}

static void *operand_data(const struct operator_bench *bench, int operand) {
    int storage = bench->operands.storage[operand];
    if (storage < 0) return NULL;
    const struct tensor *tensor = operand_tensor(bench->operands.node, operand);
    return storage_data(bench, storage, bench->next) + tensor_storage_offset(tensor);
}

void operator_bench_evict(const struct operator_bench *bench) {
    for (int i = 0; i < bench->operands.storage_count && bench->evicts; i++)
        if (bench->operands.storages[i].cold)
            evict(storage_data(bench, i, 0), shape_bytes(&bench->operands.storages[i].tensor->shape));
}

enum status operator_bench_run(struct operator_bench *bench) {
    bool works = bench->kernel->workspace_bytes > 0;
    struct kernel_call call = {.workspace = works ? bench->base + bench->workspace_offset : NULL,
                               .scalars = (const double *)(bench->base + bench->scalars_offset),
                               .stream = bench->clock.stream};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = operand_data(bench, i);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = operand_data(bench, OP_INPUTS_MAX + i);
    bench->next = (bench->next + 1) % bench->copies;
    return bench->kernel->run(bench->kernel, &call);
}

static enum status enqueue(void *bench) { return operator_bench_run(bench); }

static enum status time_calls(struct operator_bench *bench, int calls, struct sample *out) {
    operator_bench_evict(bench);
    return work_clock_time(&bench->clock, enqueue, bench, calls, out);
}

/* The number of calls that make one sample. */
static int row_calls(const struct operator_bench *bench, double call_s) {
    if (!bench->clock.stream || call_s > ROW_S) return 1;
    return call_s * ROW_MAX <= ROW_S ? ROW_MAX : (int)(ROW_S / call_s);
}

enum status operator_bench_measure(struct operator_bench *bench, double budget_s, struct measurement *out) {
    struct sample calls[CALLS_MAX], first;
    int count = 0;
    if (bench->clock.stream) TRY(time_calls(bench, 1, &first)); /* it loads the kernel's code */
    TRY(time_calls(bench, 1, &first));
    if (first.seconds >= LONG_CALL_S) {
        *out = measurement_of(&first, 1);
        return STATUS_OK;
    }
    double spent = first.seconds;
    int row = row_calls(bench, first.seconds);
    if (!bench->clock.stream) calls[count++] = first;
    do {
        TRY(time_calls(bench, row, &calls[count]));
        spent += calls[count++].seconds * row;
        if (!bench->clock.stream && measurement_settled(calls, count)) break;
    } while (count < CALLS_MAX && spent < fmin(budget_s, CALLS_MAX_S));
    *out = measurement_of(calls, count);
    return STATUS_OK;
}
