#include "profile/operator_bench.h"

#include <math.h>
#include <unistd.h>

#include "profile/operator_values.h"

enum { CALLS_MOST = 9, ALIGNMENT = 4096 };
static const double LONG_CALL_S = 0.3; /* what a first call has more to do is little of it */
static const double CALLS_MOST_S = 0.06;
/* What comes from memory in some microseconds: not worth emptying the caches for, which takes milliseconds. */
static const int64_t COLD_LEAST_BYTES = (int64_t)64 << 10;
static const int64_t COPIES_MOST_BYTES = (int64_t)256 << 20, CACHE_DEFAULT_BYTES = (int64_t)32 << 20;

static int64_t align(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

void bench_memory_free(struct bench_memory *memory) { arena_close(&memory->arena); }

static enum status grow(struct bench_memory *memory, int64_t bytes) {
    if (memory->arena.bytes >= bytes) return STATUS_OK;
    arena_close(&memory->arena);
    memory->arena = (struct arena){0};
    return arena_open(TIER_DEVICE, bytes, NULL, &memory->arena);
}

/* Half again the last cache: what passes through it when so much is touched. */
static int64_t flush_bytes(void) {
    int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return (cache > 0 ? cache : CACHE_DEFAULT_BYTES) / 2 * 3;
}

/* As many copies as fill the caches, but no more than there are calls. */
static int count_copies(int64_t bytes) {
    int64_t most = CALLS_MOST + 1;
    if (bytes == 0) return 1;
    int64_t copies = flush_bytes() / bytes + 1;
    if (copies > COPIES_MOST_BYTES / bytes) copies = COPIES_MOST_BYTES / bytes;
    return (int)(copies < 1 ? 1 : copies > most ? most : copies);
}

/* Offsets of all storages; returns the bytes of all. */
static int64_t lay_out(struct operator_bench *bench) {
    int64_t warm = 0, cold = 0;
    for (int i = 0; i < bench->operands.storage_count; i++) {
        const struct operand_storage *storage = &bench->operands.storages[i];
        int64_t *at = storage->cold ? &cold : &warm;
        bench->offset[i] = *at;
        *at += align(shape_bytes(&storage->tensor->shape));
    }
    bench->workspace_offset = warm;
    bench->cold_offset = warm + align(bench->kernel->workspace_bytes);
    bench->cold_bytes = cold;
    bench->copies = count_copies(cold);
    return bench->cold_offset + bench->copies * cold;
}

static char *storage_data(const struct operator_bench *bench, int storage, int copy) {
    bool cold = bench->operands.storages[storage].cold;
    return bench->base + (cold ? bench->cold_offset + copy * bench->cold_bytes : 0) + bench->offset[storage];
}

/* Reads as much as the caches hold, so that nothing of what was filled is left there. */
static void flush(const char *from) {
    enum { LINE_BYTES = 64 };
    volatile const char *at = from;
    for (int64_t i = 0; i < flush_bytes(); i += LINE_BYTES)
        (void)at[i];
}

static void fill(const struct operator_bench *bench) {
    for (int i = 0; i < bench->operands.storage_count; i++) {
        const struct operand_storage *storage = &bench->operands.storages[i];
        for (int copy = 0; copy < (storage->cold ? bench->copies : 1); copy++)
            operator_values_fill(bench->operands.node, storage->tensor, storage_data(bench, i, copy));
    }
}

enum status operator_bench_open(const struct backend *backend, const struct operands *operands,
                                struct bench_memory *memory, struct operator_bench *out) {
    *out = (struct operator_bench){.operands = *operands};
    TRY(backend->kernel_create(operands->node, &out->kernel));
    int64_t bytes = lay_out(out);
    bool flushes = out->cold_bytes >= COLD_LEAST_BYTES && out->copies * out->cold_bytes < flush_bytes();
    enum status status = grow(memory, bytes + (flushes ? flush_bytes() : 0));
    if (status != STATUS_OK) {
        operator_bench_close(out);
        return status;
    }
    out->base = memory->arena.base;
    fill(out);
    if (flushes) flush(out->base + bytes);
    operator_values_scalars(operands->node, out->scalars);
    return STATUS_OK;
}

void operator_bench_close(struct operator_bench *bench) {
    if (bench->kernel) bench->kernel->release(bench->kernel);
    bench->kernel = NULL;
}

static void *operand_data(const struct operator_bench *bench, int operand) {
    int storage = bench->operands.storage[operand];
    if (storage < 0) return NULL;
    const struct tensor *tensor = operand_tensor(bench->operands.node, operand);
    return storage_data(bench, storage, bench->next) + tensor_storage_offset(tensor);
}

void operator_bench_run(struct operator_bench *bench) {
    struct kernel_call call = {.workspace = bench->base + bench->workspace_offset, .scalars = bench->scalars};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = operand_data(bench, i);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = operand_data(bench, OP_INPUTS_MAX + i);
    bench->kernel->run(bench->kernel, &call);
    bench->next = (bench->next + 1) % bench->copies;
}

static struct sample time_call(struct operator_bench *bench) {
    struct stopwatch stopwatch = stopwatch_begin();
    operator_bench_run(bench);
    return stopwatch_end(&stopwatch);
}

struct measurement operator_bench_measure(struct operator_bench *bench, double budget_s) {
    struct sample calls[CALLS_MOST], first = time_call(bench);
    double spent = first.seconds;
    int count = 0;
    if (first.seconds >= LONG_CALL_S) return measurement_of(&first, 1);
    do {
        calls[count] = time_call(bench);
        spent += calls[count++].seconds;
    } while (count < CALLS_MOST && spent < fmin(budget_s, CALLS_MOST_S));
    return measurement_of(calls, count);
}
